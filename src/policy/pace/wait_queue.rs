//! The waiting line of one schedule: first come first served within a client, turn by turn between clients.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::LastStarts;
use super::gap::GapInputs;
use super::terms::{Refused, SlotRequest, Ticket};
use crate::policy::client_id::ClientId;

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct WaitQueue<W> {
    /// Renewals of robots.txt, which come before all others.
    renewals: VecDeque<QueuedWaiter<W>>,
    /// Each client that waits, the next one to be served first; none is empty.
    ring: VecDeque<ClientQueue<W>>,
    /// In the ring, renewals not among them.
    waiting: usize,
    /// So many have gone before the guests that wait.
    let_by: u32,
    /// No waiter's deadline is earlier.
    next_deadline: Option<Instant>,
    /// Something may have moved turns behind deadlines.
    pushed_back: bool,
    /// Where starts have their part of the time: the next one, and the gap by which that is divided.
    pub part: Option<(Duration, Instant)>,
    /// Requests whose turn would come too late, not refused yet.
    turned_away: Vec<(W, Refused)>,
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
    /// When it is lent a place, if its client has none.
    lent: Instant,
    payload: W,
}

impl<W> Default for WaitQueue<W> {
    fn default() -> Self {
        Self {
            renewals: VecDeque::new(),
            ring: VecDeque::new(),
            waiting: 0,
            let_by: 0,
            next_deadline: None,
            pushed_back: false,
            part: None,
            turned_away: Vec::new(),
        }
    }
}

impl<W> WaitQueue<W> {
    /// All waiting requests.
    pub fn len(&self) -> usize {
        self.waiting + self.renewals.len()
    }

    /// Whether it has as many as it may have. Renewals take no place.
    pub fn is_full(&self, queue: usize) -> bool {
        self.waiting >= queue
    }

    /// Nobody waits, and nobody is left to be refused.
    pub fn is_done(&self) -> bool {
        self.ring.is_empty() && self.renewals.is_empty() && self.turned_away.is_empty()
    }

    pub fn head(&self) -> Option<SlotRequest> {
        let waiter = self.renewals.front().or_else(|| self.ring.front()?.waiters.front())?;
        Some(waiter.demand)
    }

    /// Only meaningful while somebody waits.
    pub fn next_deadline(&self) -> Instant {
        self.next_deadline.expect("each waiter has brought its deadline")
    }

    pub fn turned_away(&mut self) -> Option<(W, Refused)> {
        self.turned_away.pop()
    }

    pub fn pushed_back(&mut self) {
        self.pushed_back = true;
    }

    /// `patience`: how long it may wait.
    pub fn join(
        &mut self,
        Ticket { client, number }: Ticket,
        demand: SlotRequest,
        now: Instant,
        patience: Duration,
        payload: W,
    ) {
        let (deadline, lent) = (now + patience, now + LENT_AFTER.min(patience / 2));
        self.waiting += 1;
        self.next_deadline = Some(self.next_deadline.map_or(deadline, |next| next.min(deadline)));
        let waiter = QueuedWaiter { number, demand, deadline, lent, payload };
        match self.ring.iter_mut().find(|queue| queue.client == client) {
            Some(queue) => queue.waiters.push_back(waiter),
            None => self.push(ClientQueue { client, waiters: [waiter].into() }),
        }
        // Its turn may come before that of earlier requests.
        self.pushed_back |= self.ring.len() > 1;
    }

    /// A renewal waits however long, before everybody else.
    pub fn join_as_renewal(
        &mut self,
        Ticket { number, .. }: Ticket,
        demand: SlotRequest,
        now: Instant,
        patience: Duration,
        payload: W,
    ) {
        let (deadline, lent) = (now + patience, now + LENT_AFTER);
        self.next_deadline = Some(self.next_deadline.map_or(deadline, |next| next.min(deadline)));
        self.renewals.push_back(QueuedWaiter { number, demand, deadline, lent, payload });
        self.pushed_back = true;
    }

    /// The first `of` this client, or of all; and whose it is, unless it is a renewal.
    pub fn pop(&mut self, of: Option<ClientId>) -> Option<(Option<ClientId>, W)> {
        self.part = None;
        if let Some(renewal) = self.renewals.pop_front_if(|_| of.is_none()) {
            return Some((None, renewal.payload));
        }
        let at = of.map_or(Some(0), |client| self.ring.iter().position(|queue| queue.client == client))?;
        let mut queue = self.ring.remove(at)?;
        let waiter = queue.waiters.pop_front()?;
        self.waiting -= 1;
        let client = queue.client;
        if !queue.waiters.is_empty() {
            self.push(queue);
        }
        Some((Some(client), waiter.payload))
    }

    /// The first of each client, whose it is unless it is a renewal, and when it is lent a place.
    pub fn fronts(&self) -> impl Iterator<Item = (Option<ClientId>, SlotRequest, Instant)> {
        let renewal = self.renewals.front().map(|waiter| (None, waiter.demand, waiter.lent));
        let of = |queue: &ClientQueue<W>| {
            queue.waiters.front().map(|waiter| (Some(queue.client), waiter.demand, waiter.lent))
        };
        renewal.into_iter().chain(self.ring.iter().filter_map(of))
    }

    /// Behind all others, but before guests, until so many have gone before them.
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
        self.waiting -= 1;
        Some(waiter.payload)
    }

    /// Turns away the last waiter of the client with the most, if that leaves it with no fewer than `client` will have.
    pub fn make_room(&mut self, client: ClientId, retry_after: Duration) -> bool {
        let own = self.ring.iter().find(|queue| queue.client == client).map_or(0, |queue| queue.waiters.len());
        let Some(greediest) = self.ring.iter_mut().max_by_key(|queue| queue.waiters.len()) else {
            return false;
        };
        if greediest.waiters.len() < own + 2 {
            return false;
        }
        let last = greediest.waiters.pop_back().expect("two or more");
        self.waiting -= 1;
        self.turned_away.push((last.payload, Refused::Full { retry_after }));
        true
    }

    /// Simulates the line up to the turn that a new request of `client` would get, or to its end; `marks` are those
    /// it would find. Returns the instant of the last start before it.
    pub fn clear_before(
        &self,
        now: Instant,
        client: Option<ClientId>,
        marks: &mut LastStarts,
        inputs: GapInputs,
    ) -> Instant {
        let mut at = self.clear_renewals(now, marks, inputs);
        let own = match client {
            Some(client) => self.waiting_for(client),
            None => self.ring.iter().map(|queue| queue.waiters.len()).max().unwrap_or(0),
        };
        for round in 0..=own {
            for queue in &self.ring {
                if round == own && Some(queue.client) == client {
                    return at;
                }
                if let Some(waiter) = queue.waiters.get(round) {
                    at = started(marks, waiter.demand, at, inputs);
                }
            }
        }
        at
    }

    /// The same for a renewal.
    pub fn clear_renewals(&self, now: Instant, marks: &mut LastStarts, inputs: GapInputs) -> Instant {
        self.renewals.iter().fold(now, |at, waiter| started(marks, waiter.demand, at, inputs))
    }

    fn waiting_for(&self, client: ClientId) -> usize {
        self.ring.iter().find(|queue| queue.client == client).map_or(0, |queue| queue.waiters.len())
    }

    /// Turns away everyone whose turn comes too late, if that may have changed. To be called only when the head cannot
    /// start. True if a request is turned away. `first`: none of them starts sooner.
    pub fn sweep(&mut self, now: Instant, first: Instant, mut marks: LastStarts, inputs: GapInputs) -> bool {
        if !self.pushed_back && self.next_deadline.is_none_or(|deadline| deadline > now) {
            return false;
        }
        self.pushed_back = false;
        self.next_deadline = None;
        for renewal in &self.renewals {
            self.next_deadline = Some(self.next_deadline.map_or(renewal.deadline, |next| next.min(renewal.deadline)));
        }
        let mut at = self.clear_renewals(first, &mut marks, inputs);
        let mut too_late = Vec::new();
        let mut places = vec![0; self.ring.len()];
        let mut left = true;
        while left {
            left = false;
            for (queue, place) in self.ring.iter_mut().zip(&mut places) {
                while let Some(waiter) = queue.waiters.get(*place) {
                    let mut after = marks;
                    let start = started(&mut after, waiter.demand, at, inputs);
                    if start > waiter.deadline || waiter.deadline <= now {
                        too_late.extend(queue.waiters.remove(*place));
                        continue;
                    }
                    self.next_deadline =
                        Some(self.next_deadline.map_or(waiter.deadline, |next| next.min(waiter.deadline)));
                    (marks, at) = (after, start);
                    *place += 1;
                    left = true;
                    break;
                }
            }
        }
        self.ring.retain(|queue| !queue.waiters.is_empty());
        self.waiting -= too_late.len();
        let any = !too_late.is_empty();
        // They are given different times, after all that stay, so that they do not come back all at once.
        for waiter in too_late {
            at = started(&mut marks, waiter.demand, at, inputs);
            let retry_after = retry_after(at.duration_since(now), inputs.between_starts(waiter.demand));
            self.turned_away.push((waiter.payload, Refused::TooLong { retry_after }));
        }
        any
    }
}

/// Turns of others before one of guests: an eighth is little for the host's own, and no site whose file is there waits for ever.
const LET_BY: u32 = 8;

/// When a start not before `at` is due; `marks` become those after it.
fn started(marks: &mut LastStarts, demand: SlotRequest, at: Instant, inputs: GapInputs) -> Instant {
    let start = marks.due(demand, inputs).map_or(at, |due| due.max(at));
    *marks.of(demand.first_fetch) = Some(start);
    start
}

/// How long a client without a request in flight waits for those of others, or half as long as it may wait if that is less.
const LENT_AFTER: Duration = Duration::from_secs(10);

/// The Retry-After for a computed wait. Zero is computed while the requests in flight take longer than the gap: nobody knows when they end,
/// so it is the gap, and at least a second.
pub(super) fn retry_after(wait: Duration, gap: Duration) -> Duration {
    if wait.is_zero() { gap.max(Duration::from_secs(1)) } else { wait }
}
