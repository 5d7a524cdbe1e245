//! An instance's share of one key's starts in its fleet: the start reserved for the next waiting request, the outcome of the previous
//! start, and what to report. Pure, except for the counter of reservations.

mod answer;
mod reservation;

use crate::gate::fleet::{PaceCall, Reach, ServerClock, WaitNews, WantedStart};
use crate::policy::pace::{ARRIVAL, LastStarts, Observed, Schedule, Slot, TurnSource};
use reservation::{ReservedStart, UsedStart};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// An instance's state of one key.
#[derive(Debug, Default)]
pub(super) struct FleetShare {
    /// Number of the server ([`Reach::link`]). 0: no server.
    link: u64,
    clock: Option<ServerClock>,
    /// Whether the fleet has reported the key's state, and no message since says that it may have changed.
    known: bool,
    /// Number of instances with requests for the key, estimated from the last reservation.
    rivals: u32,
    /// The start reserved for the next waiting request.
    reserved: Option<ReservedStart>,
    used: Option<UsedStart>,
    /// Reservation to give back.
    unused: Option<ReservedStart>,
    /// Number of the latest reservation request, until the answer.
    number: Option<u64>,
    /// The call in flight: the number of its server, and the observations sent.
    calling: Option<(u64, Observed)>,
    /// Earliest time of the next call after a failed one.
    ask_at: Option<Instant>,
    /// Earliest time of the next reservation. It is postponed while an instance still reports its debts, which may delay the next start.
    settled_at: Option<Instant>,
    /// Starts that the fleet knows of.
    told: LastStarts,
    /// The host's backoff, latency and refusals, as last received from the server.
    seen: Observed,
    /// Another instance's request is in flight at least until this time.
    busy: Option<Instant>,
    /// Whether the key's state has changed during a call, so that the answer may be older than the change.
    nudged: bool,
    /// Total postponement of the key's starts in microseconds, if received since the last call was sent: the call's answer may be older.
    /// The server postpones the later starts if a request is sent late.
    put_off: u64,
    /// Whether the last call to the server failed.
    fails: bool,
    /// Round trips to the server: this instance's, and the longest of any other.
    way: Duration,
    way_on: Duration,
    /// Expected time from the server's reading of its clock to the arrival of its answer.
    arrival: Duration,
    /// Time by which the last start missed its window, because the answer or this process was late, or the request waited for a connection
    /// or for the host's pacing slot. The next window is longer by this time.
    missed: Duration,
    /// Total time that the machine was suspended, as of the last call of `follow`.
    slept: Duration,
}

impl FleetShare {
    /// Records whether the fleet can be asked, and whether the reserved start is due.
    pub fn follow<W>(&mut self, schedule: &mut Schedule<W>, reach: Reach, now: Instant) {
        let Reach { link, settled_at, shares, alone, slept, clock, .. } = reach;
        let was_set = self.clock.zip(clock).is_some_and(|(before, clock)| before.is_far_from(clock));
        if slept > self.slept + AWAKE || was_set {
            // The machine was suspended or the server's clock was set, so earlier reservations are void.
            self.calling.iter_mut().for_each(|(link, _)| *link = u64::MAX);
            (self.slept, self.known, self.reserved, self.used) = (slept, false, None, None);
        }
        if self.link != link {
            // The new server may not know the key's state.
            let Self { rivals, calling, slept, way, .. } = *self;
            *self = Self { link, rivals, calling, slept, way, ..Self::default() };
        }
        self.settled_at = settled_at;
        self.clock = clock;
        if self.way.is_zero() {
            self.way = self.clock.map_or(Duration::ZERO, |clock| clock.round_trip());
            self.arrival = self.way / 2;
        }
        self.busy.take_if(|busy| *busy <= now);
        let ways = self.ways();
        if let Some(reserved) = self.reserved.take_if(|it| it.latest(ways) < now.max(it.due(self.busy))) {
            self.missed = self.missed.max(reserved.missed_by(now, ways).min(MOST_MISSED));
            self.unused = Some(reserved);
        }
        if let Some(phase) = alone.filter(|_| link == 0 || self.fails && self.reserved.is_none()) {
            // Other instances may not have noticed the partition yet.
            let last_start = if link == 0 { settled_at } else { schedule.is_behind_another().then_some(now) };
            return schedule.part(phase, last_start);
        }
        let reserved = self.reserved.as_ref().map(|reserved| reserved.due(self.busy));
        let has_turn = self.known && reserved.is_some_and(|due| due <= now);
        let (known, rivals) = (self.known, self.rivals.min(shares.connected));
        schedule.follow(TurnSource::Fleet { known, has_turn, rivals, reserved, shares });
    }

    /// Returns the call to make now, if any.
    pub fn call<W>(&mut self, schedule: &Schedule<W>, now: Instant) -> Option<PaceCall> {
        let may_ask = self.ask_at.is_none_or(|at| at <= now);
        if self.link == 0 || self.calling.is_some() || self.fails && !may_ask {
            return None;
        }
        if schedule.waiting() == 0 && self.reserved.is_some() {
            self.unused = self.reserved.take();
        }
        let may_reserve = self.reserved.is_none() && self.settled_at.is_none_or(|at| at <= now);
        let head = schedule.head_start(now).filter(|_| may_ask && may_reserve);
        let (observed, own) = (schedule.observed(), schedule.last_starts());
        let holds = own.hold > self.told.hold;
        let is_raised = observed.backoff > self.seen.backoff
            || observed.refusals > self.seen.refusals
            || holds && schedule.owed(now).is_some();
        let is_lowered = self.is_calmer(schedule) && may_ask;
        let is_asked = !self.known && self.reserved.is_some() && may_ask;
        let is_told = self.unused.is_some() || self.tells_at().is_some_and(|at| at <= now);
        if head.is_none() && !is_raised && !is_lowered && !is_asked && !is_told && !self.owes(schedule, now) {
            return None;
        }
        let wants = head.map(|(gap, is_fetch)| {
            let margin = ARRIVAL.min(gap / 200) + TIMER + self.way / 16 + self.missed;
            let number = *self.number.get_or_insert_with(|| RESERVATIONS.fetch_add(1, Relaxed));
            WantedStart { number, is_fetch, lead: self.arrival * 9 / 8 + TICK, margin }
        });
        self.calling = Some((self.link, observed));
        (self.nudged, self.put_off) = (false, 0);
        Some(PaceCall {
            wants,
            gap: head.map_or_else(|| schedule.longest_gap(), |(gap, _)| gap),
            unused: self.unused.map(|unused| unused.window),
            late: self.used.and_then(|used| used.late(now)),
            starts: LastStarts { hold: own.hold.filter(|_| holds), ..own },
            in_flight: self.used.and_then(|used| used.in_flight(now, self.ways())),
            observed: [self.seen, observed],
            most: schedule.longest_debt(),
            way: self.way,
        })
    }

    /// Handles news for holders of a reservation. `None`: the key's state may have changed, so the next call asks for it.
    pub fn hears(&mut self, news: Option<WaitNews>, now: Instant) {
        let Some(WaitNews { put_off, busy, way }) = news else {
            (self.known, self.nudged) = (false, true);
            return;
        };
        let Some(clock) = &self.clock else { return };
        self.busy = Some(clock.instant(busy)).filter(|busy| *busy > now);
        self.way_on = Duration::from_micros(way);
        self.put_off = put_off;
        self.reserved.iter_mut().chain(&mut self.unused).for_each(|reserved| reserved.put_off(put_off));
    }

    /// Handles a request's start.
    pub fn started<W>(&mut self, schedule: &Schedule<W>, slot: &Slot) {
        if slot.is_shared
            && let Some(of) = self.reserved.take()
        {
            self.used = Some(UsedStart::new(of, slot));
            self.told = self.told.max(LastStarts { hold: None, ..schedule.last_starts() });
        }
    }

    /// Handles a request that is about to be sent or, if `is_gone`, was sent. Returns true if that frees the slot.
    pub fn left<W>(&mut self, schedule: &Schedule<W>, slot: &Slot, at: Instant, is_gone: bool) -> bool {
        let ways = self.ways();
        let Some(used) = self.used.as_mut().filter(|used| used.is(slot)) else { return false };
        used.leaves(at);
        if is_gone {
            self.missed = used.of.missed_by(at, ways).min(MOST_MISSED);
            self.told = self.told.max(LastStarts { hold: None, ..schedule.last_starts() });
        }
        is_gone && !slot.is_exclusive && self.ended(slot, true, at)
    }

    /// Handles a request's end. Returns true if that frees the slot.
    pub fn ended(&mut self, slot: &Slot, has_left: bool, now: Instant) -> bool {
        let Some(used) = self.used.take_if(|used| used.is(slot)) else { return false };
        if has_left {
            self.used = used.ends();
        } else {
            self.missed = used.of.missed_by(now, self.ways()).min(MOST_MISSED);
            self.unused = Some(used.of);
        }
        true
    }

    /// Whether a request that has its slot may be sent now.
    pub fn has_turn(&self, slot: &Slot, now: Instant) -> bool {
        self.used.is_some_and(|used| used.is(slot) && now <= used.of.latest(self.ways()))
    }

    /// The time at which the driver has to act next.
    pub fn next<W>(&self, schedule: &Schedule<W>, now: Instant) -> Option<Instant> {
        if self.link == 0 || self.calling.is_some() {
            return None;
        }
        let is_awaited = self.is_at_stake(schedule) || schedule.waiting() > 0;
        let reserved = self.reserved.iter().flat_map(|it| [it.due(self.busy), it.latest(self.ways()) + TICK]);
        let ask_at = [self.ask_at, self.settled_at].into_iter().flatten().filter(|_| is_awaited);
        reserved.chain(ask_at).chain(self.tells_at()).filter(|at| *at > now).min()
    }

    /// Whether a driver is still needed, since something has to be reported.
    pub fn is_at_stake<W>(&self, schedule: &Schedule<W>) -> bool {
        let is_held = self.reserved.is_some() || self.unused.is_some() || self.used.is_some();
        self.link != 0 && (is_held || self.is_calmer(schedule))
    }

    /// Whether this instance must report starts that a new server may not know.
    pub fn owes<W>(&self, schedule: &Schedule<W>, now: Instant) -> bool {
        self.link != 0 && schedule.owed(now).is_some() && schedule.last_starts().max(self.told) != self.told
    }

    /// Whether this instance's backoff or refusals are below the server's, and it has no other request whose call would report that.
    fn is_calmer<W>(&self, schedule: &Schedule<W>) -> bool {
        let observed = schedule.observed();
        let is_less = observed.backoff < self.seen.backoff || observed.refusals < self.seen.refusals;
        is_less && schedule.waiting() == 0 && schedule.in_flight() == 0
    }

    /// Latest time to report the outcome of the used start.
    fn tells_at(&self) -> Option<Instant> {
        self.used.as_ref()?.tells_at(self.ways())
    }

    /// Longest time until another instance receives a report.
    fn ways(&self) -> Duration {
        self.way + self.way_on + HEARD
    }
}

/// Counter for the reservations of all keys. A counter in each key's state would begin again when that state is dropped and created again.
static RESERVATIONS: AtomicU64 = AtomicU64::new(1);
/// Allowance for a late timer and for sending over an open connection. Clock estimates may differ by another sixteenth of the round
/// trip.
const TIMER: Duration = Duration::from_millis(2);
const TICK: Duration = Duration::from_millis(1);
/// Margin for the delivery of a message.
const HEARD: Duration = Duration::from_millis(25);
/// Tolerance for detecting a suspension, as two clocks are not read at the same moment.
const AWAKE: Duration = Duration::from_millis(100);
/// Longest extension of a window. A request whose connection takes longer misses the next start, too.
const MOST_MISSED: Duration = Duration::from_secs(5);

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
