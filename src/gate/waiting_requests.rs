//! Requests held now, and how long earlier ones were held: for the status and metrics.

use super::pacer::HostQueue;
use crate::histogram::{Distribution, Histogram};
use crate::policy::pace::Terms;
use crate::policy::{Adaptive, Authority, Request};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A request that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldRequest {
    pub authority: Authority,
    pub url: Box<str>,
    pub user: Option<Box<str>>,
    pub from: Option<IpAddr>,
    pub reason: HeldFor,
    /// Time held so far.
    pub since: Duration,
    /// Estimated time until its slot. `None`: unknown.
    pub left: Option<Duration>,
    /// Requests waiting for the same host, including this one.
    pub waiting: usize,
}

/// What a request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeldFor {
    /// robots.txt is being fetched.
    Robots,
    /// The gap between starts at the host.
    Gap(Duration),
    /// The gap, because the host answers slowly.
    Adaptive { gap: Duration, latency: Duration },
    /// The gap, because the host answered 429 or 503.
    Backoff(Duration),
    /// The host refused `refusals` requests in a row and is paused.
    Paused { refusals: u32 },
    /// The most requests allowed in flight.
    InFlight(u32),
}

impl HeldFor {
    /// A word for scripts.
    pub fn slug(self) -> &'static str {
        match self {
            Self::Robots => "robots-txt",
            Self::Gap(_) => "gap",
            Self::Adaptive { .. } => "adaptive",
            Self::Backoff(_) => "backoff",
            Self::Paused { .. } => "paused",
            Self::InFlight(_) => "in-flight",
        }
    }
}

impl HeldFor {
    /// The gap, if the request waits for one.
    pub fn gap(self) -> Option<Duration> {
        match self {
            Self::Gap(gap) | Self::Adaptive { gap, .. } | Self::Backoff(gap) => Some(gap),
            Self::Robots | Self::Paused { .. } | Self::InFlight(_) => None,
        }
    }
}

impl fmt::Display for HeldFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Robots => f.write_str("its robots.txt is being fetched"),
            Self::Gap(gap) => write!(f, "crawl-delay {} s", gap.as_secs_f32()),
            Self::Adaptive { gap, latency } => {
                let (gap, latency) = (gap.as_secs_f32(), latency.as_secs_f32());
                write!(f, "adaptive delay {gap:.1} s, as the host takes {latency:.2} s to answer")
            }
            Self::Backoff(gap) => write!(f, "backing off {:.1} s after 429 or 503", gap.as_secs_f32()),
            Self::Paused { refusals } => write!(f, "host paused after {refusals} refusals in a row"),
            Self::InFlight(most) => write!(f, "{most} requests in flight"),
        }
    }
}

/// Waits for slots since the start, of 10 ms or longer: a shorter wait only asked for the slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldFigures {
    pub requests: u64,
    /// Time in which at least one request was held.
    pub time: Duration,
    /// Requests whose client left while they were held, and the longest that one had waited then.
    pub given_up: u64,
    pub longest_given_up: Duration,
}

/// All held requests.
pub(super) struct HeldRequests {
    state: Mutex<HeldState>,
    /// A request is no longer held: for one that waits for it.
    pub released: tokio::sync::Notify,
    /// Times of earlier waits, for slots and for robots.txt.
    times: [Histogram; 2],
}

#[derive(Default)]
struct HeldState {
    /// In order of arrival.
    now: BTreeMap<u64, HeldEntry>,
    came: u64,
    /// How many of them wait for slots, and since when any has.
    for_turn: usize,
    since: Option<Instant>,
    /// Without those that are held now.
    before: HeldFigures,
}

#[derive(Clone)]
struct HeldEntry {
    authority: Authority,
    url: Box<str>,
    user: Option<Box<str>>,
    from: Option<IpAddr>,
    since: Instant,
    /// `None`: it waits for robots.txt.
    turn: Option<(Arc<HostQueue>, Gap)>,
}

/// The gap between two starts.
#[derive(Clone, Copy)]
struct Gap {
    fixed: Duration,
    adaptive: Option<Adaptive>,
}

impl HeldState {
    /// The figures, with the requests that are held now.
    fn figures(&self) -> HeldFigures {
        let held = self.now.values().filter_map(HeldEntry::turn_held).count();
        HeldFigures {
            requests: self.before.requests + held as u64,
            time: self.before.time + self.time(),
            ..self.before
        }
    }

    /// How long somebody has been held without a break.
    fn time(&self) -> Duration {
        self.since.map(|since| since.elapsed()).filter(|time| *time >= MIN_HELD).unwrap_or_default()
    }
}

impl HeldEntry {
    /// Time that a request waited for its slot, if long enough to count.
    fn turn_held(&self) -> Option<Duration> {
        self.turn.as_ref().map(|_| self.since.elapsed()).filter(|held| *held >= MIN_HELD)
    }

    /// `before`: requests for the same host that came earlier.
    fn listed(self, before: u32) -> HeldRequest {
        let HeldEntry { authority, url, user, from, since, turn } = self;
        let since = since.elapsed();
        let Some((queue, gap)) = turn else {
            let (reason, left, waiting) = (HeldFor::Robots, None, 1);
            return HeldRequest { authority, url, user, from, reason, since, left, waiting };
        };
        let figures = queue.figures();
        let latency = figures.latency;
        let adaptive = gap.adaptive.map_or(Duration::ZERO, |adaptive| adaptive.gap(latency));
        let (is_adaptive, gap) = (adaptive > gap.fixed, adaptive.max(gap.fixed));
        let reason = match (figures.backoff, figures.owed) {
            _ if !figures.paused.is_zero() => HeldFor::Paused { refusals: figures.refusals },
            (backoff, _) if !backoff.is_zero() => HeldFor::Backoff(gap.max(backoff)),
            _ if is_adaptive && !latency.is_zero() => HeldFor::Adaptive { gap, latency },
            (_, owed) if owed.is_zero() && gap.is_zero() => HeldFor::InFlight(figures.in_flight),
            _ => HeldFor::Gap(gap),
        };
        let left = figures.owed.saturating_add(gap.max(figures.backoff).saturating_mul(before));
        let left = Some(left).filter(|left| !left.is_zero());
        HeldRequest { authority, url, user, from, reason, since, left, waiting: figures.waiting }
    }
}

impl Default for HeldRequests {
    fn default() -> Self {
        let times = [TIMES, TIMES].map(Histogram::new);
        HeldRequests { state: Mutex::default(), released: tokio::sync::Notify::new(), times }
    }
}

impl HeldRequests {
    /// Times that requests were held, for slots and for robots.txt.
    pub fn times(&self) -> [Distribution; 2] {
        [self.times[0].read(), self.times[1].read()]
    }

    /// A request waits for its slot on these terms.
    pub fn for_turn(&self, request: &Request<'_>, queue: &Arc<HostQueue>, terms: &Terms) -> Hold<'_> {
        let gap = Gap { fixed: terms.gap(), adaptive: terms.adaptive };
        self.enter(request, Some((queue.clone(), gap)))
    }

    /// A request waits for robots.txt.
    pub fn for_robots(&self, request: &Request<'_>) -> Hold<'_> {
        self.enter(request, None)
    }

    fn enter(&self, request: &Request<'_>, turn: Option<(Arc<HostQueue>, Gap)>) -> Hold<'_> {
        let one = HeldEntry {
            authority: request.authority.clone(),
            url: request.authority.url(&String::from_utf8_lossy(request.target)).into(),
            user: request.user.map(Box::from),
            from: request.from,
            since: Instant::now(),
            turn,
        };
        let mut state = self.state.lock();
        state.came += 1;
        let number = state.came;
        if one.turn.is_some() {
            state.for_turn += 1;
            state.since.get_or_insert(one.since);
        }
        state.now.insert(number, one);
        Hold { held: self, number, has_ended: false }
    }

    pub fn figures(&self) -> HeldFigures {
        self.state.lock().figures()
    }

    /// The request that has waited longest, if at least this long.
    pub fn longest(&self, at_least: Duration) -> Option<HeldRequest> {
        let one = self.state.lock().now.first_key_value().map(|(_, one)| one.clone())?;
        Some(one.listed(0)).filter(|held| held.since >= at_least)
    }

    /// In order of arrival.
    pub fn all(&self, most: usize) -> Vec<HeldRequest> {
        let held: Vec<HeldEntry> = self.state.lock().now.values().take(most).cloned().collect();
        let mut ahead = HashMap::<*const HostQueue, u32>::new();
        let listed = held.into_iter().map(|one| {
            let before = one.turn.as_ref().map_or(0, |(queue, _)| {
                let count = ahead.entry(Arc::as_ptr(queue)).or_default();
                std::mem::replace(count, *count + 1)
            });
            one.listed(before)
        });
        listed.collect()
    }
}

/// One wait, until dropped. Its request was given up if that happens before [`end`](Self::end).
pub(super) struct Hold<'a> {
    held: &'a HeldRequests,
    number: u64,
    has_ended: bool,
}

impl Hold<'_> {
    /// The request goes on, or is refused.
    pub fn end(mut self) {
        self.has_ended = true;
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let state = &mut *self.held.state.lock();
        let Some(one) = state.now.remove(&self.number) else { return };
        self.held.released.notify_one();
        if one.turn.is_none() {
            return self.held.times[1].observe(one.since.elapsed());
        }
        let before = &mut state.before;
        if let Some(held) = one.turn_held() {
            self.held.times[0].observe(held);
            before.requests += 1;
            if !self.has_ended {
                before.given_up += 1;
                before.longest_given_up = before.longest_given_up.max(held);
            }
        }
        state.for_turn -= 1;
        if state.for_turn == 0 {
            state.before.time += state.time();
            state.since = None;
        }
    }
}

/// In milliseconds, up to the ten minutes that `run` waits.
const TIMES: &[u64] = &[10, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000];
/// Shorter waits only ask another process for the slot.
const MIN_HELD: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::pacer::Pacer;
    use crate::policy::PaceKey;
    use futures_util::FutureExt;

    fn apart(seconds: u64) -> Terms {
        Terms { crawl_delay: Duration::from_secs(seconds), ..Terms::default() }
    }

    #[test]
    fn the_end_of_a_hold_is_heard_of() {
        let (held, authority) = (HeldRequests::default(), Authority::from_url("http://a.example").unwrap());
        let hold = held.for_robots(&Request::new(&authority, b"/"));
        assert_eq!(held.released.notified().now_or_never(), None);
        hold.end();
        assert_eq!(held.released.notified().now_or_never(), Some(()), "whoever asks later hears of it, too");
        assert_eq!(held.released.notified().now_or_never(), None);
    }

    #[test]
    fn the_first_to_come_is_held_longest() {
        let held = HeldRequests::default();
        let key = PaceKey::from_text("a.example").expect("a key");
        let queue = Pacer::new(None, None).queue(&key);
        let [a, b] = ["https://a.example", "https://b.example"].map(|url| Authority::from_url(url).expect("a URL"));
        assert_eq!(held.longest(Duration::ZERO), None);
        let [of_a, of_b] = [&a, &b].map(|authority| Request::new(authority, b"/x"));
        let first = held.for_robots(&of_a);
        let second = held.for_turn(&of_b, &queue, &apart(5));
        let listed = held.longest(Duration::ZERO).expect("it is held");
        assert_eq!((listed.authority, listed.reason, listed.left), (a.clone(), HeldFor::Robots, None));
        assert_eq!(held.longest(Duration::from_secs(60)), None);
        drop(first);
        let listed = held.longest(Duration::ZERO).expect("it is held");
        assert_eq!((&listed.authority, listed.reason.to_string()), (&b, "crawl-delay 5 s".into()));
        let behind = held.for_turn(&of_b, &queue, &apart(5));
        let left: Vec<_> = held.all(10).iter().map(|one| (one.url.to_string(), one.left)).collect();
        let url = || b.url("/x");
        assert_eq!(left, [(url(), None), (url(), Some(Duration::from_secs(5)))], "one turn each");
        assert_eq!(held.all(1).len(), 1);
        drop(behind);
        drop(held.for_turn(&of_a, &queue, &apart(0)));
        assert_eq!(held.figures(), HeldFigures::default(), "it only asked for its slot");
        held.state.lock().now.values_mut().for_each(|one| one.since -= Duration::from_secs(3));
        assert_eq!(held.figures().requests, 1, "it is still held");
        drop(second);
        assert_eq!((held.longest(Duration::ZERO), held.figures().requests), (None, 1));
    }

    #[test]
    fn waits_side_by_side_count_once_and_those_of_clients_that_left_are_told() {
        let held = HeldRequests::default();
        let key = PaceKey::from_text("a.example").expect("a key");
        let (queue, authority) =
            (Pacer::new(None, None).queue(&key), Authority::from_url("https://a.example").expect("a URL"));
        let request = Request::new(&authority, b"/x");
        let earlier = |seconds| {
            let mut state = held.state.lock();
            let by = Duration::from_secs(seconds);
            state.now.values_mut().for_each(|one| one.since -= by);
            state.since = state.since.map(|since| since - by);
        };
        let [first, second] = [(), ()].map(|()| held.for_turn(&request, &queue, &apart(5)));
        earlier(10);
        first.end();
        earlier(10);
        assert_eq!((held.figures().requests, held.figures().time.as_secs()), (2, 20));
        drop(second);
        let told = held.figures();
        assert_eq!((told.requests, told.time.as_secs()), (2, 20), "not 30 s");
        assert_eq!((told.given_up, told.longest_given_up.as_secs()), (1, 20));
        let third = held.for_turn(&request, &queue, &apart(5));
        earlier(10);
        third.end();
        assert_eq!((held.figures().time.as_secs(), held.figures().given_up), (30, 1));
        held.for_turn(&request, &queue, &apart(5)).end();
        assert_eq!(held.figures().requests, 3, "it only asked for its slot");
    }
}
