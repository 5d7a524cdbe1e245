//! What goes in and out of a [`Schedule`](super::Schedule).

use std::time::{Duration, Instant};

use crate::policy::client_id::ClientId;
use crate::policy::{Adaptive, Breaker, Refusal};

/// What holds for one request. The default is the configuration's default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// What the operator asks for at this host, of all crawlers together; zero is none.
    pub crawl_delay: Duration,
    /// What the crawler's group in robots.txt asks for: the group has a schedule of its own beside the host's.
    pub group_delay: Duration,
    /// What the operator asks for everywhere.
    pub min_delay: Duration,
    /// What the host's own latency asks for beside.
    pub adaptive: Option<Adaptive>,
    /// When the host is left alone.
    pub breaker: Option<Breaker>,
    /// The most that is kept of these delays and of a backoff.
    pub max_crawl_delay: Duration,
    /// Requests in flight while neither crawl-delay nor backoff is in force; with one it is 1.
    pub max_concurrent: u32,
    /// How long the request may wait.
    pub max_wait: Duration,
    /// How many may wait for the key.
    pub queue: usize,
    /// How many may wait over all keys: for the caller to see to.
    pub max_waiting: usize,
    /// The fetch of a robots.txt not known before: it leaves the turn to the request it is made for.
    pub first_fetch: bool,
    /// A later fetch of robots.txt: it waits however long (`max_wait` and `queue` do not bind it, and it takes no place
    /// from others), and comes before the requests that wait.
    pub is_renewal: bool,
    /// For a subresource that goes without the delay: what holds for it where it may not.
    pub of_page: Option<Box<Terms>>,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            crawl_delay: Duration::ZERO,
            group_delay: Duration::ZERO,
            min_delay: Duration::ZERO,
            adaptive: None,
            breaker: None,
            max_crawl_delay: Duration::from_secs(300),
            max_concurrent: 8,
            max_wait: Duration::from_secs(60),
            queue: 1000,
            max_waiting: 10_000,
            first_fetch: false,
            is_renewal: false,
            of_page: None,
        }
    }
}

/// The answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// It starts now.
    Go(Slot),
    /// It waits; [`NextTurn`] says the rest.
    Wait {
        ticket: Ticket,
        /// Not before this; `None`: until one in flight finishes.
        until: Option<Instant>,
    },
    /// It is too late, or too much.
    Refuse(Refused),
}

/// What there is to do for waiting requests.
#[derive(Debug, PartialEq, Eq)]
pub enum NextTurn<W> {
    /// This one starts now.
    Start(W, Slot),
    /// This one's turn will not come in time any more.
    Refuse(W, Refused),
    /// Nothing before this instant, unless a request finishes or gives up.
    WaitUntil(Instant),
    /// Nobody waits.
    Idle,
}

/// Why a request does not wait (any longer).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Its turn would come after `max_wait`, namely in `retry_after`.
    TooLong { retry_after: Duration },
    /// The line is full.
    Full { retry_after: Duration },
    /// The host is left alone, for longer than the request may wait.
    Paused { retry_after: Duration, refusals: u32 },
}

impl Refused {
    /// `max_wait`: how long the request might wait.
    pub fn into_refusal(self, max_wait: Duration) -> Refusal {
        match self {
            Self::TooLong { retry_after } => Refusal::CrawlDelay { retry_after, max_wait: Some(max_wait) },
            Self::Full { retry_after } => Refusal::QueueFull { retry_after },
            Self::Paused { retry_after, refusals } => Refusal::HostPaused { retry_after, refusals },
        }
    }
}

/// A place in the line, to give it back by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    pub(super) client: ClientId,
    pub(super) number: u64,
}

/// The right to one request in flight. Goes back with [`Schedule::finished`](super::Schedule::finished), or the schedule counts it
/// for ever.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a slot that is not given back is in flight for ever"]
pub struct Slot {
    pub(super) number: u64,
    /// `None`: of the proxy itself.
    pub(super) client: Option<ClientId>,
    pub(super) first_fetch: bool,
    /// The mark it replaced.
    pub(super) before: Option<Instant>,
    pub(super) shared: bool,
    pub(super) exclusive: bool,
    pub(super) in_flight: bool,
    pub(super) gap: Duration,
    /// That of its group, which is kept elsewhere.
    pub group_gap: Duration,
}

impl Slot {
    /// Counted from 1 for each schedule.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether its turn was the fleet's to give.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Whether it keeps that turn until it has finished.
    pub fn is_exclusive(&self) -> bool {
        self.exclusive
    }

    /// Whether others wait for it.
    pub fn is_in_flight(&self) -> bool {
        self.in_flight
    }

    /// To the next start, as far as is known.
    pub fn gap(&self) -> Duration {
        self.gap
    }

    /// Whether it is the first fetch of a robots.txt.
    pub fn is_first_fetch(&self) -> bool {
        self.first_fetch
    }
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PaceOutcome {
    /// The origin answered, and not with one of these.
    Success,
    /// 429 or 503.
    Backoff {
        /// Retry-After as time from now; `None` if there is none or it cannot be read.
        retry_after: Option<Duration>,
    },
    /// Turned away without a word on time: 403, or a page that asks who is there. As a success where no breaker is kept.
    TurnedAway,
    /// No answer: says nothing about the pace.
    Failure,
    /// The request was never sent, its client having gone.
    Unused,
}

impl PaceOutcome {
    /// Whether the origin has asked for time, or turned the request away.
    pub fn is_refused(self) -> bool {
        matches!(self, Self::Backoff { .. } | Self::TurnedAway)
    }
}

/// What a key owes: no start before `until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Debt {
    pub until: Instant,
    pub backoff: Duration,
    /// Answers in a row that turned requests away.
    pub refusals: u32,
}

/// What of [`Terms`] is needed until the start.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlotRequest {
    /// Whatever the host's latency.
    pub delay: Duration,
    pub adaptive: Option<Adaptive>,
    pub max_concurrent: u32,
    pub first_fetch: bool,
}

impl From<&Terms> for SlotRequest {
    fn from(terms: &Terms) -> Self {
        Self {
            delay: terms.gap(),
            adaptive: terms.adaptive,
            // At least one, or nobody would ever start.
            max_concurrent: match terms.crawl_delay.is_zero() && terms.adaptive.is_none() {
                true => terms.max_concurrent.max(1),
                false => 1,
            },
            first_fetch: terms.first_fetch,
        }
    }
}

/// What one request may take longer to arrive than the next: the gap is promised to the origin, which sees arrivals.
pub const ARRIVAL: Duration = Duration::from_millis(2);
/// Longer than any process runs; keeps `Instant` arithmetic from overflowing whatever is configured.
pub(super) const FAR: Duration = Duration::from_secs(366 * 24 * 3600);
