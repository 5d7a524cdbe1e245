//! The pace of one host (docs/pace.md): when a request may start, which request is next, and which requests would wait too long. A state
//! machine without clock, sleep or lock. Each [`PaceKey`](super::PaceKey) has one [`Schedule`], behind a mutex, with a timer while a
//! request waits:
//!
//! ```
//! # use politely::policy::pace::{ClientId, NextTurn, PaceOutcome, Schedule, Terms, Turn};
//! # let (mut schedule, now, terms) = (Schedule::<u32>::default(), std::time::Instant::now(), Terms::default());
//! match schedule.request(now, ClientId(1), &terms, || 7 /* in practice: the sending half of a oneshot */) {
//!     Turn::Go(slot) => schedule.finished(|| now, slot, PaceOutcome::Success),
//!     Turn::Wait { ticket, .. } => _ = schedule.cancel(ticket), // should the client hang up
//!     Turn::Refuse(_why) => {}
//! }
//! // After every call that is not answered by `Go` or `Refuse`, and when the timer fires:
//! loop {
//!     match schedule.poll(now) {
//!         NextTurn::Start(_waiter, slot) => schedule.finished(|| now, slot, PaceOutcome::Unused), // its receiver may be gone
//!         NextTurn::Refuse(_waiter, _why) => {}
//!         NextTurn::WaitUntil(_set_the_timer) => break,
//!         NextTurn::Idle => break,
//!     }
//! }
//! ```
//!
//! The first fetch of a robots.txt uses [`Terms::first_fetch`]. The fetch waits for its slot, counts as in flight and keeps its distance
//! from other first fetches on the same key, but the request that needs it starts at once after it. Later fetches are requests like any
//! other, except that they wait without limit and go first ([`Terms::is_renewal`]).

mod backoff;
mod debt;
mod fleet_view;
mod gap;
mod observations;
mod outcome;
mod source;
mod start;
mod terms;
mod wait_queue;

use hashbrown::HashMap;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

pub use super::client_id::ClientId;
use gap::GapInputs;
pub use gap::LastStarts;
pub use observations::Observed;
pub use source::{Phase, Shares, TurnSource};
pub use terms::{ARRIVAL, MAX_BACKOFF, NextTurn, PaceOutcome, Refused, Slot, SlotRequest, Terms, Ticket, Turn};
use wait_queue::WaitQueue;

use super::Breaker;

/// The slots and the queue of one key. `W` is the caller's value for a waiting request, returned with its slot.
///
/// An uncontended request touches only numbers; the queue exists only while requests wait.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Schedule<W = ()> {
    last: LastStarts,
    observed: Observed,
    /// Number of the newest start at the last raise of the backoff. Requests that were in flight then do not change the backoff again:
    /// their refusals count as one, and their successes do not count.
    raised_at: u64,
    /// Number of the newest start whose request has a known outcome.
    learned: u64,
    breaker: Option<Breaker>,
    /// The number of refusals that pauses the host, set by the last request with a breaker, but in force for all requests.
    pauses_after: Option<NonZeroU32>,
    /// The longest gap still owed, and its end: the key's debt, and the base of a backoff.
    longest: Option<(SlotRequest, Instant)>,
    max_delay: Duration,
    /// Number of starts. Gives each [`Slot`] its own number.
    starts: u64,
    tickets: u64,
    in_flight: u32,
    /// Unfinished requests of each client, including those that no longer count as in flight.
    held: HashMap<ClientId, u32>,
    /// Number of the start whose request has not left yet, if a gap applies: until it leaves, the time of the next start is unknown. `None`
    /// once another instance has started a request.
    pending: Option<u64>,
    source: TurnSource,
    wait_queue: Option<Box<WaitQueue<W>>>,
}

impl<W> Default for Schedule<W> {
    fn default() -> Self {
        Self {
            last: LastStarts::default(),
            observed: Observed::default(),
            raised_at: 0,
            learned: 0,
            breaker: None,
            pauses_after: None,
            longest: None,
            max_delay: MAX_BACKOFF,
            starts: 0,
            tickets: 0,
            in_flight: 0,
            held: HashMap::new(),
            pending: None,
            source: TurnSource::default(),
            wait_queue: None,
        }
    }
}

impl<W> Schedule<W> {
    /// Asks for a slot. `waiter` is called only if the answer is [`Turn::Wait`].
    ///
    /// A request that would wait longer than `max_wait` is refused now, with the time at which it would have started; if it comes back
    /// then, it waits at most for one start of each other client in the queue. If the queue is full, the client with the most requests
    /// loses its last one to a client with fewer.
    pub fn request(&mut self, now: Instant, client: ClientId, terms: &Terms, waiter: impl FnOnce() -> W) -> Turn {
        let demand = SlotRequest::from(terms);
        self.max_delay = terms.max_crawl_delay;
        self.breaker = terms.breaker;
        self.pauses_after = terms.breaker.map(|breaker| breaker.after).or(self.pauses_after);
        if self.wait_queue.is_none() && self.is_open(now, demand) && self.is_in_part(now, demand, terms.max_wait) {
            return Turn::Go(self.start(now, demand, Some(client)));
        }
        let at = self.forecast(now, client, terms);
        let wait = at.duration_since(now);
        let retry_after = self.retry_after(wait, demand);
        // With an empty queue and `max_wait` 0, neither asking the fleet nor the arrival margin counts as waiting.
        let asks = !self.may_turn(demand);
        let is_nearly_due = self.wait_queue.is_none() && self.has_room(demand) && wait <= ARRIVAL;
        let is_long = wait > terms.max_wait || terms.max_wait.is_zero() && !asks;
        if is_long && !is_nearly_due && !terms.is_renewal {
            return Turn::Refuse(self.wait_refusal(now, retry_after));
        }
        let least = if asks { source::ASKING } else { ARRIVAL };
        // A request that may not wait still asks the fleet, as only the starts of other instances show whether it has to wait.
        let max_wait = if terms.queue == 0 { Duration::ZERO } else { terms.max_wait.min(terms::FAR) };
        let patience = (!terms.is_renewal).then(|| max_wait.max(least));
        let wait_queue = self.wait_queue.get_or_insert_default();
        let queue = terms.queue.max(usize::from(is_nearly_due || asks && wait <= ARRIVAL));
        let is_full = !terms.is_renewal && wait_queue.waiting() >= queue;
        // A request that may not wait does not displace another request.
        if is_full && (terms.queue == 0 || !wait_queue.make_room(client, retry_after)) {
            self.drop_empty_queue();
            return Turn::Refuse(Refused::Full { retry_after });
        }
        self.tickets += 1;
        let ticket = Ticket { client, number: self.tickets };
        wait_queue.join(ticket, demand, now, patience, waiter());
        Turn::Wait { ticket, until: (at > now).then_some(at) }
    }

    /// Returns the next request to start or to refuse, or when to call again. Call it until it returns `WaitUntil` or `Idle`.
    pub fn poll(&mut self, now: Instant) -> NextTurn<W> {
        let Some(wait_queue) = &mut self.wait_queue else { return NextTurn::Idle };
        if let Some((waiter, why)) = wait_queue.turned_away.pop() {
            self.drop_empty_queue();
            let why = match why {
                Refused::TooLong { retry_after } => self.wait_refusal(now, retry_after),
                Refused::Full { .. } | Refused::Paused { .. } => why,
            };
            return NextTurn::Refuse(waiter, why);
        }
        let Some(head) = wait_queue.head() else {
            self.wait_queue = None;
            return NextTurn::Idle;
        };
        let part = self.reserve_part(now, head);
        if part.is_none_or(|part| part <= now) && self.is_open(now, head) {
            return self.start_first(now, head, None);
        }
        let lent = self.next_lent(true, part);
        if let Some(lent) = lent.filter(|lent| lent.at <= now) {
            return self.start_first(now, lent.demand, lent.client);
        }
        let due = self.due(head).max(part);
        let (forecast, first) = self.forecast_from(now, head);
        let wait_queue = self.wait_queue.as_mut().expect("the queue has a first request");
        if wait_queue.sweep(now, first, forecast) {
            return self.poll(now);
        }
        let deadline = wait_queue.next_deadline();
        // If all slots are taken, `finished` wakes the queue; if the fleet's turn is missing, its arrival wakes the queue.
        let due = due.filter(|_| self.has_room(head) && self.may_turn(head));
        // A request that will be lent a place asks for the fleet's turn at the time of lending.
        let asks = self.next_lent(false, part).map(|lent| lent.at).filter(|at| *at > now);
        let lent = lent.map(|lent| lent.at);
        [due, lent, asks, deadline].into_iter().flatten().min().map_or(NextTurn::Idle, NextTurn::WaitUntil)
    }

    /// Removes a waiting request. `None`: the request was started or refused already.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<W> {
        let waiter = self.wait_queue.as_mut()?.leave(ticket);
        self.drop_empty_queue();
        waiter
    }

    /// Forecasts the start of a request that comes now, from gaps, backoff and queue. The start may be later if requests in flight take
    /// long or other clients' requests come meanwhile, and earlier if waiting requests give up.
    pub fn forecast(&self, now: Instant, client: ClientId, terms: &Terms) -> Instant {
        let request = SlotRequest::from(terms);
        let (mut forecast, first) = self.forecast_from(now, request);
        // A request that may not wait does not join the queue, so it could start only once the queue is empty.
        let client = (!terms.max_wait.is_zero()).then_some(client);
        let ahead = self.wait_queue.as_deref().map_or(first, |wait_queue| match terms.is_renewal {
            true => wait_queue.clear_renewals(first, &mut forecast),
            false => wait_queue.clear_before(first, client, &mut forecast),
        });
        forecast.start(request, ahead)
    }

    /// Why a request that comes now would be refused. Does not check whether the queue is full.
    pub fn refusal(&self, now: Instant, client: ClientId, terms: &Terms) -> Option<Refused> {
        let (wait, demand) = (self.forecast(now, client, terms).duration_since(now), SlotRequest::from(terms));
        let is_refused = wait > terms.max_wait.max(ARRIVAL) && !terms.is_renewal && self.may_turn(demand);
        is_refused.then(|| self.wait_refusal(now, self.retry_after(wait, demand)))
    }

    /// Number of waiting requests.
    pub fn waiting(&self) -> usize {
        self.wait_queue.as_ref().map_or(0, |wait_queue| wait_queue.len())
    }

    /// Number of started and unfinished requests.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The backoff after the origin's 429 and 503 answers, up to `max_delay`; zero: none.
    pub fn backoff(&self) -> Duration {
        self.observed.backoff.min(self.max_delay)
    }

    #[inline]
    fn is_open(&self, now: Instant, demand: SlotRequest) -> bool {
        self.may_turn(demand) && self.has_room(demand) && self.due(demand).is_none_or(|due| due <= now)
    }

    #[inline]
    fn has_room(&self, demand: SlotRequest) -> bool {
        self.in_flight < self.limit(demand) && self.pending.is_none()
    }

    #[inline]
    fn due(&self, demand: SlotRequest) -> Option<Instant> {
        self.last.due(demand, self.inputs())
    }

    #[inline]
    fn inputs(&self) -> GapInputs {
        GapInputs { backoff: self.backoff(), latency: self.observed.latency, times: self.source.times() }
    }

    /// The inputs expected when a waiting request starts.
    fn forecast_inputs(&self) -> GapInputs {
        GapInputs { times: self.source.forecast_times(), ..self.inputs() }
    }

    /// Maximum number of requests in flight: a host in backoff gets one at a time.
    #[inline]
    fn limit(&self, demand: SlotRequest) -> u32 {
        if self.backoff().is_zero() { demand.max_concurrent } else { 1 }
    }

    fn retry_after(&self, wait: Duration, demand: SlotRequest) -> Duration {
        wait_queue::retry_after(wait, self.forecast_inputs().between_starts(demand))
    }

    /// Why a request with this wait is refused.
    fn wait_refusal(&self, now: Instant, retry_after: Duration) -> Refused {
        match self.paused_until(now) {
            Some(_) => Refused::Paused { retry_after, refusals: self.observed.refusals },
            None => Refused::TooLong { retry_after },
        }
    }

    /// Notes that some waiting requests may now start after their deadlines.
    fn pushed_back(&mut self) {
        if let Some(wait_queue) = &mut self.wait_queue {
            wait_queue.pushed_back = true;
        }
    }

    fn drop_empty_queue(&mut self) {
        self.wait_queue.take_if(|wait_queue| wait_queue.is_done());
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
