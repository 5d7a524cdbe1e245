//! The pace of one host (docs/pace.md): when a request may start, which is next, which would wait too long. A state machine
//! without clock, sleep or lock. There is one [`Schedule`] for each [`PaceKey`](super::PaceKey), behind a mutex, and one timer
//! for each schedule in which somebody waits:
//!
//! ```
//! # use politely::policy::pace::{ClientId, NextTurn, PaceOutcome, Schedule, Terms, Turn};
//! # let (mut schedule, now, terms) = (Schedule::<u32>::default(), std::time::Instant::now(), Terms::default());
//! match schedule.request(now, ClientId(1), &terms, || 7 /* in earnest: the sending half of a oneshot */) {
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
//! robots.txt and the pace: the first fetch for an authority is asked for with [`Terms::first_fetch`]. It waits for its
//! turn, counts as one in flight and keeps its distance from other first fetches on the same key, but the request it
//! is made for starts at once after it. Later fetches are requests like any other, except that they wait however long and
//! go first ([`Terms::is_renewal`]).

mod backoff;
mod gap;
mod last_starts;
mod observed;
mod outcome;
mod owed;
mod pending_start;
mod phase;
mod reserve;
mod shared;
mod source;
mod start;
mod terms;
mod wait_queue;

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

pub use super::client_id::ClientId;
use backoff::Backoff;
pub use last_starts::LastStarts;
pub use observed::Observed;
use pending_start::PendingStart;
pub use phase::Phase;
pub use reserve::reserve;
pub use source::{Shares, TurnSource};
use terms::SlotRequest;
pub use terms::{ARRIVAL, Debt, NextTurn, PaceOutcome, Refused, Slot, Terms, Ticket, Turn};
use wait_queue::WaitQueue;

use super::Breaker;

/// One key's slots and its waiting line. `W` is what the caller keeps for a waiter and gets back with its turn.
///
/// An uncontended request touches only numbers; the line is allocated with the first waiter and freed with the last.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Schedule<W = ()> {
    last: LastStarts,
    backoff: Backoff,
    /// Smoothed; zero while it is not known, or not asked for.
    latency: Duration,
    breaker: Option<Breaker>,
    /// Of the last breaker that was kept: so many refusals leave the host alone, for requests that keep none as well.
    pauses_after: Option<NonZeroU32>,
    /// Of the longest gap that is still owed, and until when: what the key owes, and what backoff starts from.
    longest: Option<SlotRequest>,
    longest_until: Option<Instant>,
    max_delay: Duration,
    /// Counts starts, so that a [`Slot`] differs from those before and after it.
    starts: u64,
    tickets: u64,
    in_flight: u32,
    /// How many of each client have not finished; more than are in flight, where others need not wait for them.
    held: HashMap<ClientId, u32>,
    pending: PendingStart,
    source: TurnSource,
    wait_queue: Option<Box<WaitQueue<W>>>,
}

impl<W> Default for Schedule<W> {
    fn default() -> Self {
        Self {
            last: LastStarts::default(),
            backoff: Backoff::default(),
            latency: Duration::ZERO,
            breaker: None,
            pauses_after: None,
            longest: None,
            longest_until: None,
            max_delay: backoff::MAX,
            starts: 0,
            tickets: 0,
            in_flight: 0,
            held: HashMap::new(),
            pending: PendingStart::None,
            source: TurnSource::default(),
            wait_queue: None,
        }
    }
}

impl<W> Schedule<W> {
    /// Asks for a turn. `waiter` is called only if the answer is [`Turn::Wait`].
    ///
    /// A request that would have to wait longer than `max_wait` is refused now, with the time at which its turn would have come;
    /// coming back then, it waits for one turn of each other client in the line at most.
    /// A full line takes one more from a client that has fewer in it than the greediest, at that client's cost.
    pub fn request(&mut self, now: Instant, client: ClientId, terms: &Terms, waiter: impl FnOnce() -> W) -> Turn {
        let demand = SlotRequest::from(terms);
        self.max_delay = terms.max_crawl_delay;
        self.breaker = terms.breaker;
        self.pauses_after = terms.breaker.map(|breaker| breaker.after).or(self.pauses_after);
        self.clamp_hold(now);
        if self.wait_queue.is_none() && self.is_open(now, demand) && self.is_in_part(now, demand, terms.max_wait) {
            return Turn::Go(self.start(now, demand, Some(client)));
        }
        let at = self.forecast(now, client, terms);
        let wait = at.duration_since(now);
        let retry_after = self.retry_after(wait, demand);
        // Neither counts as waiting, with nobody ahead (`max_wait` 0): asking the fleet, and what it is early by that comes back as told.
        let asks = !self.may_turn(demand);
        let is_nearly_due = self.wait_queue.is_none() && self.has_room(demand) && wait <= ARRIVAL;
        let is_long = wait > terms.max_wait || terms.max_wait.is_zero() && !asks;
        if is_long && !is_nearly_due && !terms.is_renewal {
            return Turn::Refuse(self.wait_refusal(now, retry_after));
        }
        let least = if asks { source::ASKING } else { ARRIVAL };
        let patience = terms.max_wait.min(terms::FAR).max(least);
        let wait_queue = self.wait_queue.get_or_insert_default();
        let queue = terms.queue.max(usize::from(asks || is_nearly_due));
        let is_full = !terms.is_renewal && wait_queue.is_full(queue);
        // Who may not wait at all takes nobody's place.
        if is_full && (terms.queue == 0 || !wait_queue.make_room(client, retry_after)) {
            self.drop_empty_queue();
            return Turn::Refuse(Refused::Full { retry_after });
        }
        self.tickets += 1;
        let ticket = Ticket { client, number: self.tickets };
        match terms.is_renewal {
            true => wait_queue.join_as_renewal(ticket, demand, now, terms::FAR, waiter()),
            false => wait_queue.join(ticket, demand, now, patience, waiter()),
        }
        Turn::Wait { ticket, until: (at > now).then_some(at) }
    }

    /// Which request has its turn, which would wait too long, or when to ask again. To be called until it returns `WaitUntil` or `Idle`.
    pub fn poll(&mut self, now: Instant) -> NextTurn<W> {
        let Some(wait_queue) = &mut self.wait_queue else { return NextTurn::Idle };
        if let Some((waiter, why)) = wait_queue.turned_away() {
            self.drop_empty_queue();
            return NextTurn::Refuse(waiter, self.why(now, why));
        }
        let Some(head) = wait_queue.head() else {
            self.wait_queue = None;
            return NextTurn::Idle;
        };
        let part = self.reserve_part(now, head);
        if part.is_none_or(|part| part <= now) && self.is_open(now, head) {
            return self.start_first(now, head, None);
        }
        let lent = self.next_lent();
        if let Some(lent) = lent.filter(|lent| lent.at <= now) {
            return self.start_first(now, lent.demand, lent.client);
        }
        let (due, inputs) = (self.due(head).max(part), self.source.forecast(self.backoff(), self.latency));
        let (marks, first) = self.forecast_from(now, head);
        let wait_queue = self.wait_queue.as_mut().expect("only `pop` above gives it up");
        if wait_queue.sweep(now, first, marks, inputs)
            && let Some((waiter, why)) = wait_queue.turned_away()
        {
            self.drop_empty_queue();
            return NextTurn::Refuse(waiter, self.why(now, why));
        }
        let deadline = wait_queue.next_deadline();
        // With all slots taken, `finished` wakes the queue; without the fleet's turn, whatever gives the turn does.
        let due = due.filter(|_| self.has_room(head) && self.may_turn(head));
        let lent = lent.map(|lent| lent.at);
        NextTurn::WaitUntil([due, lent].into_iter().flatten().fold(deadline, Instant::min))
    }

    /// Gives a waiter's place back; those behind it move up. `None`: it has had its answer already.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<W> {
        let waiter = self.wait_queue.as_mut()?.leave(ticket);
        self.drop_empty_queue();
        waiter
    }

    /// Simulates a request of report mode: returns how long it would have waited, and if that is within its limit, reserves
    /// the turn it would have had, so that the next is counted as if this one had taken it.
    pub fn dry_run(&mut self, now: Instant, client: ClientId, terms: &Terms) -> Duration {
        let at = self.forecast(now, client, terms);
        let wait = at.duration_since(now);
        // Only real requests wait in the queue (renewals of robots.txt): a dry run must not delay them.
        if wait <= terms.max_wait && self.wait_queue.is_none() {
            self.owe_gap(at, SlotRequest::from(terms));
            self.starts += 1;
            self.last.last_start = self.last.last_start.max(Some(at));
            self.pushed_back();
        }
        wait
    }

    /// When a request that came now would start, as far as gaps, backoff and the line show. It may be later if those
    /// in flight take long or other clients come in between, and earlier if some ahead give up.
    pub fn forecast(&self, now: Instant, client: ClientId, terms: &Terms) -> Instant {
        let (request, inputs) = (SlotRequest::from(terms), self.source.forecast(self.backoff(), self.latency));
        let (mut marks, first) = self.forecast_from(now, request);
        // A request that may not wait gets no turn in the queue: it could start once the queue is empty.
        let client = (!terms.max_wait.is_zero()).then_some(client);
        let ahead = self.wait_queue.as_deref().map_or(first, |wait_queue| match terms.is_renewal {
            true => wait_queue.clear_renewals(first, &mut marks, inputs),
            false => wait_queue.clear_before(first, client, &mut marks, inputs),
        });
        marks.due(request, inputs).map_or(ahead, |due| due.max(ahead))
    }

    /// Why a request that came now would not be let wait, but for those that are refused with a full line.
    pub fn refusal(&self, now: Instant, client: ClientId, terms: &Terms) -> Option<Refused> {
        let (wait, demand) = (self.forecast(now, client, terms).duration_since(now), SlotRequest::from(terms));
        let is_refused = wait > terms.max_wait.max(ARRIVAL) && !terms.is_renewal && self.may_turn(demand);
        is_refused.then(|| self.wait_refusal(now, self.retry_after(wait, demand)))
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.wait_queue.as_ref().map_or(0, |wait_queue| wait_queue.len())
    }

    /// How many have started and not finished.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The part of the gap that is due to the origin's 429 and 503 answers; zero when there is none.
    pub fn backoff(&self) -> Duration {
        self.backoff.delay().min(self.max_delay)
    }

    #[inline]
    fn is_open(&self, now: Instant, demand: SlotRequest) -> bool {
        self.may_turn(demand) && self.has_room(demand) && self.due(demand).is_none_or(|due| due <= now)
    }

    #[inline]
    fn has_room(&self, demand: SlotRequest) -> bool {
        self.in_flight < self.limit(demand) && self.pending == PendingStart::None
    }

    #[inline]
    fn due(&self, demand: SlotRequest) -> Option<Instant> {
        self.last.due(demand, self.source.gap_inputs(self.backoff(), self.latency))
    }

    /// A host that asks for time gets one request at a time.
    #[inline]
    fn limit(&self, demand: SlotRequest) -> u32 {
        if self.backoff().is_zero() { demand.max_concurrent } else { 1 }
    }

    fn retry_after(&self, wait: Duration, demand: SlotRequest) -> Duration {
        wait_queue::retry_after(wait, self.source.forecast(self.backoff(), self.latency).between_starts(demand))
    }

    /// Why a request that would have to wait for so long is refused.
    fn wait_refusal(&self, now: Instant, retry_after: Duration) -> Refused {
        match self.paused_until(now) {
            Some(_) => Refused::Paused { retry_after, refusals: self.backoff.refusals() },
            None => Refused::TooLong { retry_after },
        }
    }

    fn why(&self, now: Instant, refused: Refused) -> Refused {
        match refused {
            Refused::TooLong { retry_after } => self.wait_refusal(now, retry_after),
            Refused::Full { .. } | Refused::Paused { .. } => refused,
        }
    }

    /// Waiting requests may have to wait too long now.
    fn pushed_back(&mut self) {
        if let Some(wait_queue) = &mut self.wait_queue {
            wait_queue.pushed_back();
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
