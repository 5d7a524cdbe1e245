//! The queue of one schedule: first come, first served within a client; round robin between clients.

use std::collections::VecDeque;
use std::mem::take;
use std::time::{Duration, Instant};

use super::gap::Forecast;
use super::terms::{FAR, Refused, SlotRequest, Ticket};
use crate::policy::client_id::ClientId;

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct WaitQueue<W> {
    /// Renewals of robots.txt, which come before all others.
    renewals: VecDeque<QueuedWaiter<W>>,
    /// The clients with waiting requests, in the order of service.
    ring: VecDeque<ClientQueue<W>>,
    /// Number of clients in a row that were queued before the waiting guests.
    let_by: u32,
    /// Whether some requests may now start after their deadlines.
    pub pushed_back: bool,
    /// For a partitioned instance: the gap, and the next start, which is in one of the instance's time slices.
    pub part: Option<(Duration, Instant)>,
    /// Requests to be refused, as they cannot start in time or have lost their places to other clients.
    pub turned_away: Vec<(W, Refused)>,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct ClientQueue<W> {
    client: ClientId,
    waiters: VecDeque<QueuedWaiter<W>>,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct QueuedWaiter<W> {
    number: u64,
    demand: SlotRequest,
    deadline: Instant,
    /// When the request is lent a place, if its client has no request in flight.
    lent: Instant,
    payload: W,
}

impl<W> Default for WaitQueue<W> {
    fn default() -> Self {
        Self {
            renewals: VecDeque::new(),
            ring: VecDeque::new(),
            let_by: 0,
            pushed_back: false,
            part: None,
            turned_away: Vec::new(),
        }
    }
}

impl<W> WaitQueue<W> {
    /// Number of waiting requests.
    pub fn len(&self) -> usize {
        self.waiting() + self.renewals.len()
    }

    /// Number of waiting requests, without renewals.
    pub fn waiting(&self) -> usize {
        self.ring.iter().map(|queue| queue.waiters.len()).sum()
    }

    /// Whether no request waits or is left to be refused.
    pub fn is_done(&self) -> bool {
        self.ring.is_empty() && self.renewals.is_empty() && self.turned_away.is_empty()
    }

    pub fn head(&self) -> Option<SlotRequest> {
        let waiter = self.renewals.front().or_else(|| self.ring.front()?.waiters.front())?;
        Some(waiter.demand)
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        let all = self.ring.iter().flat_map(|queue| &queue.waiters).chain(&self.renewals);
        all.map(|waiter| waiter.deadline).min()
    }

    /// Adds a request. `patience`: how long it may wait. `None`: the request is a renewal, which waits without limit and before all others.
    pub fn join(
        &mut self,
        Ticket { client, number }: Ticket,
        demand: SlotRequest,
        now: Instant,
        patience: Option<Duration>,
        payload: W,
    ) {
        let deadline = now + patience.unwrap_or(FAR);
        let lent = now + LENT_AFTER.min((deadline - now) / 2);
        let waiter = QueuedWaiter { number, demand, deadline, lent, payload };
        match self.ring.iter_mut().find(|queue| queue.client == client) {
            _ if patience.is_none() => self.renewals.push_back(waiter),
            Some(queue) => queue.waiters.push_back(waiter),
            None => self.push(ClientQueue { client, waiters: [waiter].into() }),
        }
        // The new request may start before earlier ones.
        self.pushed_back |= self.ring.len() > 1 || patience.is_none();
    }

    /// Removes the first request of client `of`, or of the queue. Returns its client, unless it is a renewal, and its payload.
    pub fn pop(&mut self, of: Option<ClientId>) -> Option<(Option<ClientId>, W)> {
        self.part = None;
        if let Some(renewal) = self.renewals.pop_front_if(|_| of.is_none()) {
            return Some((None, renewal.payload));
        }
        let at = of.map_or(Some(0), |client| self.ring.iter().position(|queue| queue.client == client))?;
        let mut queue = self.ring.remove(at)?;
        let waiter = queue.waiters.pop_front()?;
        let client = queue.client;
        if !queue.waiters.is_empty() {
            self.push(queue);
        }
        Some((Some(client), waiter.payload))
    }

    /// The first request of each client and the first renewal: the client (`None` for a renewal), the demand, and when to lend a place.
    pub fn fronts(&self) -> impl Iterator<Item = (Option<ClientId>, SlotRequest, Instant)> {
        let renewal = self.renewals.front().map(|waiter| (None, waiter.demand, waiter.lent));
        let of = |queue: &ClientQueue<W>| {
            queue.waiters.front().map(|waiter| (Some(queue.client), waiter.demand, waiter.lent))
        };
        renewal.into_iter().chain(self.ring.iter().filter_map(of))
    }

    /// Queues a client last, or up to `LET_BY` times in a row before the waiting guests.
    fn push(&mut self, queue: ClientQueue<W>) {
        let goes_first = self.ring.back().is_some_and(|last| last.client == ClientId::GUESTS) && self.let_by < LET_BY;
        self.let_by = if goes_first { self.let_by + 1 } else { 0 };
        self.ring.insert(self.ring.len() - usize::from(goes_first), queue);
    }

    pub fn leave(&mut self, ticket: Ticket) -> Option<W> {
        if let Ok(place) = self.renewals.binary_search_by_key(&ticket.number, |waiter| waiter.number) {
            return self.renewals.remove(place).map(|waiter| waiter.payload);
        }
        let at = self.ring.iter().position(|queue| queue.client == ticket.client)?;
        let waiters = &mut self.ring[at].waiters;
        let place = waiters.binary_search_by_key(&ticket.number, |waiter| waiter.number).ok()?;
        let waiter = waiters.remove(place)?;
        if waiters.is_empty() {
            self.ring.remove(at);
        }
        Some(waiter.payload)
    }

    /// Refuses the last request of the client with the most waiting requests, if that client has at least two more than `client`. Returns
    /// whether a request was refused.
    pub fn make_room(&mut self, client: ClientId, retry_after: Duration) -> bool {
        let own = self.ring.iter().find(|queue| queue.client == client).map_or(0, |queue| queue.waiters.len());
        let Some(greediest) = self.ring.iter_mut().max_by_key(|queue| queue.waiters.len()) else {
            return false;
        };
        if greediest.waiters.len() < own + 2 {
            return false;
        }
        let last = greediest.waiters.pop_back().expect("the client has two or more requests");
        self.turned_away.push((last.payload, Refused::Full { retry_after }));
        true
    }

    /// Simulates the starts of the requests that go before a new request of `client`, and advances `forecast` past them. Returns the
    /// instant of the last of these starts.
    pub fn clear_before(&self, now: Instant, client: Option<ClientId>, forecast: &mut Forecast) -> Instant {
        let mut at = self.clear_renewals(now, forecast);
        let is_own = |queue: &&ClientQueue<W>| client.is_none_or(|client| client == queue.client);
        let own = self.ring.iter().filter(is_own).map(|queue| queue.waiters.len()).max().unwrap_or(0);
        let mut left: Vec<_> = self.ring.iter().collect();
        for round in 0..=own {
            for queue in &left {
                if round == own && Some(queue.client) == client {
                    return at;
                }
                if let Some(waiter) = queue.waiters.get(round) {
                    at = forecast.start(waiter.demand, at);
                }
            }
            left.retain(|queue| queue.waiters.len() > round + 1 || Some(queue.client) == client);
        }
        at
    }

    /// Like [`clear_before`](Self::clear_before), for a renewal.
    pub fn clear_renewals(&self, now: Instant, forecast: &mut Forecast) -> Instant {
        self.renewals.iter().fold(now, |at, waiter| forecast.start(waiter.demand, at))
    }

    /// Refuses all requests that can no longer start in time. To be called only when the head cannot start. Returns whether a request was
    /// refused. `first`: earliest possible start.
    pub fn sweep(&mut self, now: Instant, first: Instant, mut forecast: Forecast) -> bool {
        if !self.pushed_back && self.next_deadline().is_none_or(|deadline| deadline > now) {
            return false;
        }
        self.pushed_back = false;
        let mut at = self.clear_renewals(first, &mut forecast);
        let mut too_late = Vec::new();
        let mut left: Vec<_> = self.ring.iter_mut().map(|queue| (take(&mut queue.waiters), queue)).collect();
        while !left.is_empty() {
            left.retain_mut(|(waiters, queue)| {
                while let Some(waiter) = waiters.pop_front() {
                    let mut after = forecast;
                    let start = after.start(waiter.demand, at);
                    if start > waiter.deadline || waiter.deadline <= now {
                        too_late.push(waiter);
                        continue;
                    }
                    (forecast, at) = (after, start);
                    queue.waiters.push_back(waiter);
                    return true;
                }
                false
            });
        }
        self.ring.retain(|queue| !queue.waiters.is_empty());
        let any = !too_late.is_empty();
        // Each refused request gets a different time after the remaining starts, so that they do not all come back at once.
        for waiter in too_late {
            at = forecast.start(waiter.demand, at);
            let retry_after = retry_after(at.duration_since(now), forecast.inputs.between_starts(waiter.demand));
            self.turned_away.push((waiter.payload, Refused::TooLong { retry_after }));
        }
        any
    }
}

/// Maximum number of clients in a row that are queued before waiting guests. Guests thus delay the host's own requests little, but do not
/// wait for ever.
const LET_BY: u32 = 8;

/// How long a client without a request in flight waits before it is lent a place; at most half of its patience.
const LENT_AFTER: Duration = Duration::from_secs(10);

/// The Retry-After for a computed wait. If requests in flight take longer than the gap, the computed wait is zero and their end is unknown:
/// the Retry-After is then the gap, but at least a second.
pub(super) fn retry_after(wait: Duration, gap: Duration) -> Duration {
    if wait.is_zero() { gap.max(Duration::from_secs(1)) } else { wait }
}
