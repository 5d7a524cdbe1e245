//! Inputs and outputs of a [`Schedule`](super::Schedule).

use std::time::{Duration, Instant};

use crate::policy::client_id::ClientId;
use crate::policy::{Adaptive, Breaker, Refusal};

/// The pace settings for one request. The default has the configuration's defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// The operator's delay for this host, shared by all crawlers; zero: none.
    pub crawl_delay: Duration,
    /// The delay of the crawler's group in robots.txt: the group has its own schedule besides the host's.
    pub group_delay: Duration,
    /// The operator's delay for all hosts.
    pub min_delay: Duration,
    /// The gap that depends on the host's latency.
    pub adaptive: Option<Adaptive>,
    /// When to pause the host.
    pub breaker: Option<Breaker>,
    /// Upper limit of `crawl_delay`, `group_delay`, `min_delay` and of a backoff.
    pub max_crawl_delay: Duration,
    /// Maximum number of requests in flight while no crawl-delay, adaptive gap or backoff is in force. Under any of these, it is 1.
    pub max_concurrent: u32,
    /// Maximum time that the request may wait.
    pub max_wait: Duration,
    /// Maximum number of requests that may wait for the key.
    pub queue: usize,
    /// Maximum number of requests that may wait for all keys together; enforced by the caller.
    pub max_waiting: usize,
    /// Whether this is the fetch of an unknown robots.txt: the request that needs the file may start at once after the fetch.
    pub first_fetch: bool,
    /// Whether this is a fetch that must not be refused: a renewal of a site's file, or the retry of a first fetch. Such a fetch waits
    /// without limit (`max_wait` and `queue` do not apply, and it takes no place from others), and goes before other requests.
    pub is_renewal: bool,
    /// For a subresource that is exempt from the delay: the terms to use if the delay applies after all.
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

/// The answer to a request for a slot.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// The request starts now.
    Go(Slot),
    /// The request waits until [`NextTurn`] starts or refuses it.
    Wait {
        ticket: Ticket,
        /// The forecast start. `None`: the start depends on when a request in flight finishes, or on the fleet's answer.
        until: Option<Instant>,
    },
    /// The wait would be too long, or the queue is full.
    Refuse(Refused),
}

/// The next action for waiting requests.
#[derive(Debug, PartialEq, Eq)]
pub enum NextTurn<W> {
    /// This request starts now.
    Start(W, Slot),
    /// This request is refused: it can no longer start in time, or loses its place to another client.
    Refuse(W, Refused),
    /// There is nothing to do before this instant, unless a request finishes or gives up.
    WaitUntil(Instant),
    /// No request waits.
    Idle,
}

/// Why a request may not wait, or may not wait any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The request would start after `max_wait`, namely in `retry_after`.
    TooLong { retry_after: Duration },
    /// The queue is full.
    Full { retry_after: Duration },
    /// The host is paused for longer than the request may wait.
    Paused { retry_after: Duration, refusals: u32 },
}

impl Refused {
    /// The refusal for the client. Its `retry_after` omits the margin for arrival, unless the result would then not exceed `max_wait`.
    pub fn into_refusal(self, max_wait: Duration) -> Refusal {
        match self {
            Self::TooLong { retry_after: wait } => {
                let asked = wait.saturating_sub(ARRIVAL);
                let retry_after = if asked > max_wait { asked } else { wait };
                Refusal::CrawlDelay { retry_after, max_wait: Some(max_wait) }
            }
            Self::Full { retry_after } => Refusal::QueueFull { retry_after },
            Self::Paused { retry_after: pause, refusals } => {
                Refusal::HostPaused { retry_after: pause.saturating_sub(ARRIVAL), refusals }
            }
        }
    }
}

/// A place in the queue, to be returned with [`Schedule::cancel`](super::Schedule::cancel).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    pub(super) client: ClientId,
    pub(super) number: u64,
}

/// The right to one request in flight. It must be returned with [`Schedule::finished`](super::Schedule::finished); otherwise the schedule
/// counts it for ever.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a slot that is not returned counts as in flight for ever"]
pub struct Slot {
    /// The number of the start, counted from 1 in each schedule.
    pub number: u64,
    /// The client. `None`: the proxy itself.
    pub(super) client: Option<ClientId>,
    /// Whether this is the first fetch of a robots.txt.
    pub is_first_fetch: bool,
    /// The last start before this one.
    pub(super) before: Option<Instant>,
    /// Whether the fleet granted the start.
    pub is_shared: bool,
    /// Whether the request keeps the fleet's turn until it has finished.
    pub is_exclusive: bool,
    /// Whether the request counts as in flight, so that others wait for it.
    pub is_in_flight: bool,
    /// Time to the next start, as known at this start.
    pub gap: Duration,
    /// The gap of the request's group, which has its own schedule.
    pub group_gap: Duration,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PaceOutcome {
    /// The origin answered, without any of the refusals below.
    Success,
    /// The origin answered 429 or 503.
    Backoff {
        /// Retry-After as time from now; `None`: missing or unreadable.
        retry_after: Option<Duration>,
    },
    /// The origin refused without naming a time: 403, or a bot check. Without a breaker, this counts as a success.
    TurnedAway,
    /// There was no answer, or an answer that must not change the pace, such as that of a redirected fetch.
    Failure,
    /// The request was never sent, for example because its client has gone or no connection could be opened.
    Unused,
}

impl PaceOutcome {
    /// Whether the origin has asked for time or refused the request.
    pub fn is_refused(self) -> bool {
        matches!(self, Self::Backoff { .. } | Self::TurnedAway)
    }
}

/// The part of [`Terms`] that is needed until the start.
#[derive(Debug, Clone, Copy)]
pub struct SlotRequest {
    /// The delay that does not depend on the host's latency.
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
            // At least 1, as otherwise no request could ever start.
            max_concurrent: match terms.crawl_delay.is_zero() && terms.adaptive.is_none() {
                true => terms.max_concurrent.max(1),
                false => 1,
            },
            first_fetch: terms.first_fetch,
        }
    }
}

/// Margin for uneven travel times: a request may take this much longer to reach the origin than the next request. The gap must hold between
/// arrivals, as the origin sees nothing else.
pub const ARRIVAL: Duration = Duration::from_millis(2);
/// A duration longer than any process runs; prevents overflow in `Instant` arithmetic.
pub(super) const FAR: Duration = Duration::from_secs(366 * 24 * 3600);
/// Upper limit for an obeyed Retry-After and for a backoff.
pub const MAX_BACKOFF: Duration = Duration::from_secs(3600);
