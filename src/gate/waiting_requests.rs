//! All waiting requests: their number is bounded by `pace.max_waiting`, and the places are shared fairly. If there is no room, the
//! client with the most waiting requests loses its last one. The status lists them, and how long earlier ones were held.

use super::held_request::{HeldFigures, HeldFor, HeldRequest};
use super::pacer::PaceFigures;
use crate::histogram::{Distribution, Histogram};
use crate::policy::pace::{ClientId, SlotRequest, Terms};
use crate::policy::{Authority, Refusal, Request};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// All waiting requests.
pub(super) struct WaitingRequests {
    state: Mutex<WaitingState>,
    /// Notified when a listed request no longer waits. Wakes one waiter.
    pub released: tokio::sync::Notify,
    /// Times of earlier waits, for slots and for robots.txt.
    times: [Histogram; 2],
}

#[derive(Default)]
struct WaitingState {
    /// The waiting requests, in order of arrival.
    now: BTreeMap<u64, Waiter>,
    by_client: HashMap<ClientId, BTreeSet<u64>>,
    came: u64,
    /// Number of listed requests that wait for slots, and since when there has been at least one without interruption.
    for_turn: usize,
    since: Option<Instant>,
    /// Figures of earlier waits, without the requests that are held now.
    before: HeldFigures,
}

struct Waiter {
    client: ClientId,
    /// Dropping it tells the request that it has lost its place.
    _place: oneshot::Sender<()>,
    /// The entry in the list. `None`: a fetch on behalf of a request that is listed.
    listed: Option<HeldEntry>,
}

#[derive(Clone)]
struct HeldEntry {
    authority: Authority,
    url: Box<str>,
    user: Option<Box<str>>,
    from: Option<IpAddr>,
    since: Instant,
    /// The queue and the request in it. `None`: the request waits for robots.txt.
    turn: Option<(Arc<dyn PacedQueue>, SlotRequest)>,
}

/// A queue for slots.
pub(super) trait PacedQueue: Send + Sync {
    fn figures(&self) -> PaceFigures;
}

impl WaitingState {
    /// The figures, with the requests that are held now.
    fn figures(&self) -> HeldFigures {
        let held = self.held().filter_map(HeldEntry::turn_held).count();
        HeldFigures {
            requests: self.before.requests + held as u64,
            time: self.before.time + self.time(),
            ..self.before
        }
    }

    /// The requests that are listed, in order of arrival.
    fn held(&self) -> impl Iterator<Item = &HeldEntry> {
        self.now.values().filter_map(|waiter| waiter.listed.as_ref())
    }

    /// How long at least one request has been waiting for a slot without interruption; zero if too short to count.
    fn time(&self) -> Duration {
        self.since.map(|since| since.elapsed()).filter(|time| *time >= MIN_HELD).unwrap_or_default()
    }
}

impl HeldEntry {
    fn new(request: &Request<'_>, turn: Option<(Arc<dyn PacedQueue>, SlotRequest)>) -> Self {
        Self {
            authority: request.authority.clone(),
            url: request.authority.url(&String::from_utf8_lossy(request.target)).into(),
            user: request.user.map(Box::from),
            from: request.from,
            since: Instant::now(),
            turn,
        }
    }

    /// Time for which a request has waited for its slot, if long enough to count.
    fn turn_held(&self) -> Option<Duration> {
        self.turn.as_ref().map(|_| self.since.elapsed()).filter(|held| *held >= MIN_HELD)
    }

    /// The request as shown in the status. `before`: number of requests for the same host that came earlier.
    fn listed(self, before: u32) -> HeldRequest {
        let HeldEntry { authority, url, user, from, since, turn } = self;
        let since = since.elapsed();
        let Some((queue, request)) = turn else {
            let (reason, left, waiting) = (HeldFor::Robots, None, 1);
            return HeldRequest { authority, url, user, from, reason, since, left, waiting };
        };
        let figures = queue.figures();
        let latency = figures.latency;
        let gap = request.gap(latency);
        let is_adaptive = gap > request.delay;
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

impl Default for WaitingRequests {
    fn default() -> Self {
        let times = [TIMES, TIMES].map(Histogram::new);
        WaitingRequests { state: Mutex::default(), released: tokio::sync::Notify::new(), times }
    }
}

impl WaitingRequests {
    /// Times that requests were held, for slots and for robots.txt.
    pub fn times(&self) -> [Distribution; 2] {
        [self.times[0].read(), self.times[1].read()]
    }

    /// Adds a request that waits for its slot on these terms.
    pub fn for_turn(self: &Arc<Self>, request: &Request<'_>, queue: Arc<dyn PacedQueue>, terms: &Terms) -> WaitPlace {
        let turn = Some((queue, SlotRequest::from(terms)));
        self.enter(request.client, terms.max_waiting, Some(HeldEntry::new(request, turn)))
    }

    /// Adds a request that waits for robots.txt. `most`: the maximum number of waiting requests.
    pub fn for_robots(self: &Arc<Self>, request: &Request<'_>, most: usize) -> WaitPlace {
        self.enter(request.client, most, Some(HeldEntry::new(request, None)))
    }

    /// Adds a fetch on behalf of a listed request.
    pub fn unlisted(self: &Arc<Self>, client: ClientId, most: usize) -> WaitPlace {
        self.enter(client, most, None)
    }

    /// Adds a place. If there is no room, the client with the most places loses its last place, which may be the new one.
    fn enter(self: &Arc<Self>, client: ClientId, most: usize, listed: Option<HeldEntry>) -> WaitPlace {
        let (_place, gone) = oneshot::channel();
        let mut state = self.state.lock();
        state.came += 1;
        let number = state.came;
        if let Some(one) = listed.as_ref().filter(|one| one.turn.is_some()) {
            state.for_turn += 1;
            state.since.get_or_insert(one.since);
        }
        let is_full = state.now.len() >= most;
        state.now.insert(number, Waiter { client, _place, listed });
        state.by_client.entry(client).or_default().insert(number);
        if is_full {
            let greediest = state.by_client.iter().max_by_key(|(each, numbers)| (numbers.len(), **each == client));
            let last = greediest.and_then(|(_, numbers)| numbers.last().copied());
            last.iter().for_each(|last| self.remove(&mut state, *last, true));
        }
        drop(state);
        WaitPlace { all: self.clone(), number, gone, has_ended: false }
    }

    /// Removes a place. `has_ended`: the request goes on or is refused; false: its client left.
    fn remove(&self, state: &mut WaitingState, number: u64, has_ended: bool) {
        let Some(Waiter { client, listed, .. }) = state.now.remove(&number) else { return };
        if let Some(numbers) = state.by_client.get_mut(&client) {
            numbers.remove(&number);
            if numbers.is_empty() {
                state.by_client.remove(&client);
            }
        }
        let Some(one) = listed else { return };
        self.released.notify_one();
        if one.turn.is_none() {
            return self.times[1].observe(one.since.elapsed());
        }
        let before = &mut state.before;
        if let Some(held) = one.turn_held() {
            self.times[0].observe(held);
            before.requests += 1;
            if !has_ended {
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

    pub fn count(&self) -> usize {
        self.state.lock().now.len()
    }

    pub fn figures(&self) -> HeldFigures {
        self.state.lock().figures()
    }

    /// The request that has waited longest, if at least this long.
    pub fn longest(&self, at_least: Duration) -> Option<HeldRequest> {
        let one = self.state.lock().held().next().cloned()?;
        Some(one.listed(0)).filter(|held| held.since >= at_least)
    }

    /// The first `most` listed requests, in order of arrival.
    pub fn all(&self, most: usize) -> Vec<HeldRequest> {
        let held: Vec<HeldEntry> = self.state.lock().held().take(most).cloned().collect();
        let mut ahead = HashMap::<*const (), u32>::new();
        let listed = held.into_iter().map(|one| {
            let before = one.turn.as_ref().map_or(0, |(queue, _)| {
                let count = ahead.entry(Arc::as_ptr(queue).cast()).or_default();
                std::mem::replace(count, *count + 1)
            });
            one.listed(before)
        });
        listed.collect()
    }
}

/// A place among the waiting requests, given back when dropped. A drop without [`end`](Self::end) means that the client left.
pub(super) struct WaitPlace {
    all: Arc<WaitingRequests>,
    number: u64,
    gone: oneshot::Receiver<()>,
    has_ended: bool,
}

impl WaitPlace {
    /// Waits until the place is lost to another request.
    pub async fn crowded_out(&mut self) -> Refusal {
        // The sender never sends; it is dropped with the place.
        let _ = (&mut self.gone).await;
        Refusal::QueueFull { retry_after: COME_BACK }
    }

    /// Gives the place back, because the request goes on or is refused.
    pub fn end(mut self) {
        self.has_ended = true;
    }
}

impl Drop for WaitPlace {
    fn drop(&mut self) {
        self.all.remove(&mut self.all.state.lock(), self.number, self.has_ended);
    }
}

/// The client id under which all retries wait, so that together they get one client's share of slots and places.
pub(super) const RETRIES: ClientId = ClientId(u64::MAX);
/// Retry-After of a request without a place, as it is unknown when there will be room.
const COME_BACK: Duration = Duration::from_secs(1);
/// Bounds of the histograms, in milliseconds, up to the ten minutes that `run` waits.
const TIMES: &[u64] = &[10, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000];
/// Minimum wait that is counted. In a shorter wait, the request only asks the fleet for its slot.
const MIN_HELD: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::fleet::Fleet;
    use crate::gate::pacer::Pacer;
    use crate::policy::PaceKey;
    use futures_util::FutureExt;

    fn apart(seconds: u64) -> Terms {
        Terms { crawl_delay: Duration::from_secs(seconds), ..Terms::default() }
    }

    #[test]
    fn end_of_a_hold_is_notified() {
        let (held, authority) =
            (Arc::new(WaitingRequests::default()), Authority::from_url("http://a.example").unwrap());
        let hold = held.for_robots(&Request::new(&authority, b"/"), 10);
        assert_eq!(held.released.notified().now_or_never(), None);
        hold.end();
        assert_eq!(held.released.notified().now_or_never(), Some(()), "a caller that comes after the end is notified");
        assert_eq!(held.released.notified().now_or_never(), None);
    }

    #[test]
    fn longest_hold_is_that_of_the_first_request() {
        let held = Arc::new(WaitingRequests::default());
        let key = PaceKey::from_text("a.example").expect("a key");
        let queue = Pacer::new(Fleet::alone()).queue(&key);
        let [a, b] = ["https://a.example", "https://b.example"].map(|url| Authority::from_url(url).expect("a URL"));
        assert_eq!(held.longest(Duration::ZERO), None);
        let [of_a, of_b] = [&a, &b].map(|authority| Request::new(authority, b"/x"));
        let first = held.for_robots(&of_a, 10);
        let second = held.for_turn(&of_b, queue.clone(), &apart(5));
        let listed = held.longest(Duration::ZERO).expect("a request is held");
        assert_eq!((listed.authority, listed.reason, listed.left), (a.clone(), HeldFor::Robots, None));
        assert_eq!(held.longest(Duration::from_secs(60)), None);
        drop(first);
        let listed = held.longest(Duration::ZERO).expect("a request is held");
        assert_eq!((&listed.authority, listed.reason.to_string()), (&b, "crawl-delay 5 s".into()));
        let behind = held.for_turn(&of_b, queue.clone(), &apart(5));
        let left: Vec<_> = held.all(10).iter().map(|one| (one.url.to_string(), one.left)).collect();
        let url = || b.url("/x");
        assert_eq!(left, [(url(), None), (url(), Some(Duration::from_secs(5)))], "one gap for each request ahead");
        assert_eq!(held.all(1).len(), 1);
        drop(behind);
        drop(held.for_turn(&of_a, queue.clone(), &apart(0)));
        assert_eq!(held.figures(), HeldFigures::default(), "the wait was too short to count");
        let by = Duration::from_secs(3);
        held.state.lock().now.values_mut().filter_map(|one| one.listed.as_mut()).for_each(|one| one.since -= by);
        assert_eq!(held.figures().requests, 1, "the request is still held");
        drop(second);
        assert_eq!((held.longest(Duration::ZERO), held.figures().requests), (None, 1));
    }

    #[test]
    fn overlapping_waits_count_once_and_departed_clients_are_counted() {
        let held = Arc::new(WaitingRequests::default());
        let key = PaceKey::from_text("a.example").expect("a key");
        let (queue, authority) =
            (Pacer::new(Fleet::alone()).queue(&key), Authority::from_url("https://a.example").expect("a URL"));
        let request = Request::new(&authority, b"/x");
        let earlier = |seconds| {
            let mut state = held.state.lock();
            let by = Duration::from_secs(seconds);
            state.now.values_mut().filter_map(|one| one.listed.as_mut()).for_each(|one| one.since -= by);
            state.since = state.since.map(|since| since - by);
        };
        let [first, second] = [(), ()].map(|()| held.for_turn(&request, queue.clone(), &apart(5)));
        earlier(10);
        first.end();
        earlier(10);
        assert_eq!((held.figures().requests, held.figures().time.as_secs()), (2, 20));
        drop(second);
        let told = held.figures();
        assert_eq!((told.requests, told.time.as_secs()), (2, 20), "waits at the same time count once");
        assert_eq!((told.given_up, told.longest_given_up.as_secs()), (1, 20));
        let third = held.for_turn(&request, queue.clone(), &apart(5));
        earlier(10);
        third.end();
        assert_eq!((held.figures().time.as_secs(), held.figures().given_up), (30, 1));
        held.for_turn(&request, queue.clone(), &apart(5)).end();
        assert_eq!(held.figures().requests, 3, "the wait was too short to count");
    }

    const GREEDY: ClientId = ClientId(1);
    const MODEST: ClientId = ClientId(2);

    fn is_out(place: &mut WaitPlace) -> bool {
        !matches!(place.gone.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    }

    #[test]
    fn client_with_the_most_waiting_requests_loses_its_last() {
        let waiters = Arc::new(WaitingRequests::default());
        let mut greedy: Vec<_> = (0..3).map(|_| waiters.unlisted(GREEDY, 3)).collect();
        let mut modest = waiters.unlisted(MODEST, 3);
        assert_eq!(
            greedy.iter_mut().map(is_out).collect::<Vec<_>>(),
            [false, false, true],
            "the last one loses its place"
        );
        assert!(!is_out(&mut modest));
        assert_eq!(waiters.count(), 3);
        assert!(is_out(&mut waiters.unlisted(GREEDY, 3)), "the client's next request gets no place");
        // A third place would give this client more than the other one has, so the newcomer is refused.
        let mut second = waiters.unlisted(MODEST, 4);
        assert!(!is_out(&mut second));
        assert!(is_out(&mut waiters.unlisted(MODEST, 4)));
        drop((greedy, modest, second));
        assert_eq!((waiters.count(), waiters.state.lock().by_client.len()), (0, 0));
    }
}
