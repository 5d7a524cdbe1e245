//! The pace of one host (SEMANTICS §5): when a request may start, who is next, who waits in vain. A state machine
//! without clock, sleep or lock. Called by `gate::pacer`, which keeps one [`Lane`] behind one mutex for each
//! [`PaceKey`](super::PaceKey), with one timer for each lane in which somebody waits:
//!
//! ```
//! # use politely::policy::pace::{Client, Lane, Next, Outcome, Terms, Turn};
//! # let (mut lane, now, terms) = (Lane::<u32>::default(), std::time::Instant::now(), Terms::default());
//! match lane.request(now, Client(1), &terms, || 7 /* in earnest: the sending half of a oneshot */) {
//!     Turn::Go(slot) => lane.finished(|| now, slot, Outcome::Success),
//!     Turn::Wait { ticket, .. } => _ = lane.cancel(ticket), // should the client hang up
//!     Turn::Refuse(_why) => {}
//! }
//! // After every call that is not answered by `Go` or `Refuse`, and when the timer fires:
//! loop {
//!     match lane.poll(now) {
//!         Next::Start(_waiter, slot) => lane.finished(|| now, slot, Outcome::Unused), // its receiver may be gone
//!         Next::Refuse(_waiter, _why) => {}
//!         Next::WaitUntil(_set_the_timer) => break,
//!         Next::Idle => break,
//!     }
//! }
//! ```
//!
//! robots.txt and the pace: the first fetch for an authority is asked for with [`Terms::first_fetch`]. It waits for its
//! turn, counts as one in flight and keeps its distance from other first fetches on the same key, but the request it
//! is made for starts at once after it. Later fetches are requests like any other, except that they wait however long and
//! go first ([`Terms::is_renewal`]).

mod backoff;
mod giver;
mod line;
mod terms;

use std::time::{Duration, Instant};

use backoff::Backoff;
use giver::Tempo;
pub use giver::{Giver, Share, Want};
use line::Line;
pub use terms::{Client, Debt, Next, Outcome, Refused, Slot, Terms, Ticket, Turn};
use terms::{Demand, Start};

/// One key's slots and its waiting line. `W` is what the caller keeps for a waiter and gets back with its turn.
///
/// An uncontended request touches only numbers; the line is allocated with the first waiter and given back with the
/// last.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Lane<W = ()> {
    marks: Marks,
    backoff: Backoff,
    /// The newest start's own delay: what the key owes, and what backoff starts from.
    delay: Duration,
    max_delay: Duration,
    /// Counts starts, so that a [`Slot`] can be told from those before and after it.
    starts: u64,
    tickets: u64,
    in_flight: u32,
    giver: Giver,
    line: Option<Box<Line<W>>>,
}

impl<W> Default for Lane<W> {
    fn default() -> Self {
        Self {
            marks: Marks::default(),
            backoff: Backoff::default(),
            delay: Duration::ZERO,
            max_delay: backoff::MAX,
            starts: 0,
            tickets: 0,
            in_flight: 0,
            giver: Giver::default(),
            line: None,
        }
    }
}

impl<W> Lane<W> {
    /// Asks for a turn. `waiter` is called only if the answer is [`Turn::Wait`].
    ///
    /// Who would have to wait longer than `max_wait` learns so now, with the time at which its turn would have come;
    /// coming back then, it waits for one turn of each other client in the line at most.
    /// A full line takes one more from a client that has fewer in it than the greediest, at that client's cost.
    pub fn request(&mut self, now: Instant, client: Client, terms: &Terms, waiter: impl FnOnce() -> W) -> Turn {
        let demand = Demand::from(terms);
        self.max_delay = terms.max_crawl_delay;
        if self.line.is_none() && self.is_open(now, demand) {
            return Turn::Go(self.start(now, demand));
        }
        let at = self.forecast(now, client, terms);
        let wait = at.duration_since(now);
        let retry_after = line::told(wait);
        // Who only asks the fleet, with nobody before it, does not wait yet.
        let asks = !self.may_turn(demand);
        if !terms.is_renewal && (wait > terms.max_wait || terms.max_wait.is_zero() && !asks) {
            return Turn::Refuse(Refused::TooLong { retry_after });
        }
        let patience = terms.max_wait.min(terms::FAR).max(if asks { giver::ASKING } else { Duration::ZERO });
        let line = self.line.get_or_insert_default();
        let queue = terms.queue.max(usize::from(asks));
        if !terms.is_renewal && line.is_full(queue) && !line.make_room(client, retry_after) {
            self.drop_empty_line();
            return Turn::Refuse(Refused::Full { retry_after });
        }
        self.tickets += 1;
        let ticket = Ticket { client, number: self.tickets };
        if terms.is_renewal {
            line.join_as_renewal(ticket, demand, now + terms::FAR, waiter());
        } else {
            line.join(ticket, demand, now + patience, waiter());
        }
        Turn::Wait { ticket, until: (at > now).then_some(at) }
    }

    /// Whose turn it is, who waits in vain, or when to ask again. To be called until it says `WaitUntil` or `Idle`.
    pub fn poll(&mut self, now: Instant) -> Next<W> {
        let Some(line) = &mut self.line else { return Next::Idle };
        if let Some((waiter, why)) = line.turned_away() {
            self.drop_empty_line();
            return Next::Refuse(waiter, why);
        }
        let Some(head) = line.head() else {
            self.line = None;
            return Next::Idle;
        };
        if self.is_open(now, head) {
            let waiter = self.line.as_mut().and_then(|line| line.pop()).expect("it had a head above");
            self.drop_empty_line();
            return Next::Start(waiter, self.start(now, head));
        }
        let (due, tempo) = (self.due(head), self.giver.forecast(self.backoff()));
        let line = self.line.as_mut().expect("only `pop` above gives it up");
        if line.sweep(now, self.marks, tempo)
            && let Some((waiter, why)) = line.turned_away()
        {
            self.drop_empty_line();
            return Next::Refuse(waiter, why);
        }
        let deadline = line.next_deadline();
        // With all slots taken it is for `finished` to wake the line, and without a turn for whoever gives it.
        let due = due.filter(|_| self.in_flight < self.limit(head) && self.may_turn(head));
        Next::WaitUntil(due.map_or(deadline, |due| due.min(deadline)))
    }

    /// Gives a waiter's place back; those behind it move up. `None`: it has had its answer already.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<W> {
        let waiter = self.line.as_mut()?.leave(ticket);
        self.drop_empty_line();
        waiter
    }

    /// Takes the slot of a request that is over. `now` is asked for only if it matters.
    pub fn finished(&mut self, now: impl FnOnce() -> Instant, slot: Slot, outcome: Outcome) {
        self.in_flight -= 1;
        match outcome {
            Outcome::Success => self.backoff.succeeded(slot.number),
            Outcome::Backoff { retry_after } => {
                let hold = self.backoff.refused(slot.number, self.starts, retry_after, self.delay, self.max_delay);
                self.marks.hold = self.marks.hold.max(hold.map(|hold| now() + hold));
                self.pushed_back();
            }
            Outcome::Failure => {}
            // A start nobody made binds nobody, unless one has come after it.
            Outcome::Unused if slot.number == self.starts => *self.marks.of(slot.start) = slot.before,
            Outcome::Unused => {}
        }
    }

    /// Corrects the time of a start to when it left, or arrived.
    pub fn left(&mut self, slot: &Slot, at: Instant) {
        let mark = self.marks.of(slot.start);
        *mark = (*mark).max(Some(at));
        self.pushed_back();
    }

    /// Plays a request of report mode: tells how long it would have waited, and if that is no longer than it may, keeps
    /// the turn it would have had, so that the next is told as though this one had taken it.
    pub fn rehearse(&mut self, now: Instant, client: Client, terms: &Terms) -> Duration {
        let at = self.forecast(now, client, terms);
        let wait = at.duration_since(now);
        if wait <= terms.max_wait {
            self.delay = terms.gap();
            self.starts += 1;
            self.marks.last_start = self.marks.last_start.max(Some(at));
            self.pushed_back();
        }
        wait
    }

    /// When a request that came now would start, as far as gaps, backoff and the line tell. It may be later if those
    /// in flight take long or other clients come in between, and earlier if some ahead give up.
    pub fn forecast(&self, now: Instant, client: Client, terms: &Terms) -> Instant {
        let (mut marks, tempo) = (self.marks, self.giver.forecast(self.backoff()));
        // Who never waits has no turn to come: it starts when nobody waits.
        let client = (!terms.max_wait.is_zero()).then_some(client);
        let ahead = self.line.as_deref().map_or(now, |line| match terms.is_renewal {
            true => line.clear_renewals(now, &mut marks, tempo),
            false => line.clear_before(now, client, &mut marks, tempo),
        });
        marks.due(Demand::from(terms), tempo).map_or(ahead, |due| due.max(ahead))
    }

    /// What the key still owes, to be kept over a restart.
    pub fn debt(&self, now: Instant) -> Option<Debt> {
        let until = self.owed_until()?;
        (until > now).then(|| Debt { until, backoff: self.backoff() })
    }

    /// Takes up what an earlier process owed. A debt of over a day is a clock gone wrong and is cut to that.
    pub fn restore(&mut self, now: Instant, debt: Debt) {
        self.marks.hold = self.marks.hold.max(Some(debt.until.min(now + DEBT_MAX)));
        self.backoff.restore(debt.backoff);
        self.pushed_back();
    }

    /// Whether nothing is lost with the lane. A backoff is remembered for an hour after the last start.
    pub fn is_idle(&self, now: Instant) -> bool {
        let memory = if self.backoff().is_zero() { Duration::ZERO } else { backoff::MAX };
        let fetched = self.marks.last_fetch.map(|at| at + self.delay);
        let owed = self.owed_until().max(fetched);
        self.in_flight == 0 && self.line.is_none() && owed.is_none_or(|until| until + memory <= now)
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.line.as_ref().map_or(0, |line| line.len())
    }

    /// How many have started and not finished.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The part of the gap that is due to the origin's 429 and 503 answers; zero when there is none.
    pub fn backoff(&self) -> Duration {
        self.backoff.delay().min(self.max_delay)
    }

    /// Puts another in charge of the turns, or tells how that stands.
    pub fn given_by(&mut self, giver: Giver) {
        if self.giver != giver {
            self.giver = giver;
            self.pushed_back();
        }
    }

    /// The turn that the fleet has to be asked for.
    pub fn wants_turn(&self) -> Option<Want> {
        let head = self.line.as_ref()?.head()?;
        (!self.may_turn(head)).then(|| Want::new(head, self.limit(head), self.max_delay))
    }

    /// Takes up what the fleet keeps of the origin's refusals, in place of what this lane has gathered.
    pub fn adopt(&mut self, now: Instant, hold: Duration, backoff: Duration) {
        let held = (!hold.is_zero()).then(|| now + hold.min(DEBT_MAX));
        if self.backoff.delay() != backoff || held > self.marks.hold {
            self.backoff.adopt(backoff);
            self.marks.hold = self.marks.hold.max(held);
            self.pushed_back();
        }
    }

    #[inline]
    fn is_open(&self, now: Instant, demand: Demand) -> bool {
        self.may_turn(demand) && self.in_flight < self.limit(demand) && self.due(demand).is_none_or(|due| due <= now)
    }

    /// Unless it is the fleet's to give and not given.
    #[inline]
    fn may_turn(&self, demand: Demand) -> bool {
        self.giver.has_turn() || !self.giver.is_asked(demand, self.backoff())
    }

    #[inline]
    fn due(&self, demand: Demand) -> Option<Instant> {
        self.marks.due(demand, self.giver.tempo(self.backoff()))
    }

    /// A host that asks for time gets one request at a time.
    #[inline]
    fn limit(&self, demand: Demand) -> u32 {
        if self.backoff().is_zero() { demand.max_concurrent } else { 1 }
    }

    fn start(&mut self, now: Instant, demand: Demand) -> Slot {
        self.starts += 1;
        self.in_flight += 1;
        self.delay = demand.delay;
        let mark = self.marks.of(demand.start);
        let before = *mark;
        // Callers read the clock before they get hold of the lane: it may be a little behind.
        *mark = before.max(Some(now));
        let shared = self.giver.is_asked(demand, self.backoff());
        if shared {
            self.giver.use_turn();
        }
        let exclusive = self.limit(demand) == 1;
        Slot { number: self.starts, start: demand.start, before, shared, exclusive }
    }

    fn owed_until(&self) -> Option<Instant> {
        let gap = self.delay.max(self.backoff());
        self.marks.last_start.map(|start| start + gap).max(self.marks.hold)
    }

    /// Those who wait may wait in vain now.
    fn pushed_back(&mut self) {
        if let Some(line) = &mut self.line {
            line.pushed_back();
        }
    }

    fn drop_empty_line(&mut self) {
        self.line.take_if(|line| line.is_done());
    }
}

/// What a start has to keep its distance from.
#[derive(Debug, Clone, Copy, Default)]
struct Marks {
    last_start: Option<Instant>,
    /// The newest start of a first fetch: other first fetches keep their distance from it, requests need not.
    last_fetch: Option<Instant>,
    /// Nothing starts before: the origin has said so, or an earlier process owed it.
    hold: Option<Instant>,
}

impl Marks {
    /// The earliest start; `None` is any time.
    fn due(&self, demand: Demand, tempo: Tempo) -> Option<Instant> {
        let gap = tempo.gap(demand);
        let held = self.hold.max(tempo.not_before());
        if gap.is_zero() {
            return held;
        }
        let last = match demand.start {
            Start::Request => self.last_start,
            Start::FirstFetch => self.last_start.max(self.last_fetch),
        };
        last.map(|last| last + gap).max(held)
    }

    fn of(&mut self, start: Start) -> &mut Option<Instant> {
        match start {
            Start::Request => &mut self.last_start,
            Start::FirstFetch => &mut self.last_fetch,
        }
    }
}

const DEBT_MAX: Duration = Duration::from_secs(24 * 3600);

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
