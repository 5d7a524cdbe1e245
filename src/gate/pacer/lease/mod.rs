//! An instance's part in one key's turns in its fleet: whether it has the lease, when to ask for it, renew it, release
//! it, and what there is to report. Pure. While it has the lease, the schedule keeps the pace on its own.

mod state;

use crate::gate::fleet::{LeaseOp, LeaseRequest, LeaseStatus, Reach, TurnPlace};
use crate::policy::pace::{LastStarts, Observed, Schedule, Slot, TurnSource};
use state::{HeldLease, LeaseState};
use std::time::{Duration, Instant};

/// One key's lease.
#[derive(Debug, Default)]
pub(super) struct FleetLease {
    /// The server it was got of; 0: there is none.
    link: u64,
    state: LeaseState,
    /// The fleet has said how the key stands, and no refusal has been published since.
    known: bool,
    rivals: u32,
    /// Requests in flight that must be alone, and others that have yet to leave: no other instance may start.
    busy: u32,
    /// What the fleet knows of.
    reported: LastStarts,
    reported_backoff: Duration,
    reported_observed: Observed,
    /// Nothing is asked before, but for what cannot wait; a lease is renewed then.
    ask_at: Option<Instant>,
    /// The call on its way: of which server it is asked, and the backoff and the rest when it left.
    calling: Option<(u64, Duration, Observed)>,
    /// The key's state changed while a call was under way: it is unknown which came first.
    nudged: bool,
    /// This key's server does not answer.
    fails: bool,
    /// How long the machine had been suspended, at the last look.
    slept: Duration,
}

impl FleetLease {
    /// Notes whether the fleet can be asked, and notifies the queue.
    pub fn follow<W>(&mut self, schedule: &mut Schedule<W>, reach: Reach, now: Instant) {
        let Reach { link, settled_at, shares, alone, slept, .. } = reach;
        if slept > self.slept + AWAKE {
            // Others may have the lease; what was asked before says nothing of it any more.
            (self.slept, self.known, self.ask_at) = (slept, false, None);
            self.calling.iter_mut().for_each(|(asked_of, ..)| *asked_of = u64::MAX);
            self.state.lapse(now);
        }
        if self.link != link {
            // Another server may know nothing of what this one knew. An instance that may still have the lease asks before all
            // others.
            let is_first = self.busy > 0 || self.is_held(now);
            self.state.lapse(now);
            let Self { state, rivals, busy, calling, slept, .. } = *self;
            let ask_at = settled_at.filter(|_| !is_first);
            *self = Self { link, state, rivals, busy, calling, ask_at, slept, ..Self::default() };
        }
        let leased = self.is_held(now) && !self.yields(schedule, now);
        let parted = alone.filter(|_| link == 0 || self.fails && !leased);
        if parted.is_some_and(|phase| phase.instances > 1) && !schedule.is_partitioned() {
            // Nobody will report the last start of another any more; nor have the others noticed yet that this instance is parted.
            let last_start = if link == 0 { settled_at } else { schedule.is_behind_another().then_some(now) };
            schedule.adopt(LastStarts { last_start, ..LastStarts::default() }, schedule.backoff());
        }
        schedule.follow(match parted {
            Some(phase) => TurnSource::Partitioned(phase),
            None => TurnSource::Fleet { known: self.known, leased, rivals: self.rivals, reserved: None, shares },
        });
    }

    /// What there is to ask and to report now. `most`: nobody owes more.
    pub fn call<W>(
        &mut self,
        schedule: &Schedule<W>,
        now: Instant,
        number: impl FnOnce() -> u64,
    ) -> Option<LeaseRequest> {
        if self.link == 0 || self.calling.is_some() {
            return None;
        }
        let wants = schedule.wants_lease();
        let may_ask = self.ask_at.is_none_or(|at| at <= now);
        let backoff = schedule.backoff();
        let debt = schedule.debt(now);
        let raised =
            backoff > self.reported_backoff || schedule.last_starts().hold > self.reported.hold && debt.is_some();
        let op = match self.state {
            LeaseState::Held(_) if self.fails && !may_ask => return None,
            LeaseState::Held(_) if self.busy == 0 && (schedule.waiting() == 0 || self.yields(schedule, now)) => {
                LeaseOp::Give
            }
            LeaseState::Held(held) if may_ask && held.ends <= now => LeaseOp::Take,
            LeaseState::Held(_) if may_ask || raised => LeaseOp::Keep,
            LeaseState::Held(_) => return None,
            // With some in flight it was lost, or the server has forgotten.
            LeaseState::None | LeaseState::Queued if may_ask && (wants.is_some() || self.busy > 0) => LeaseOp::Take,
            LeaseState::Queued if wants.is_none() && self.busy == 0 => LeaseOp::Give,
            LeaseState::None | LeaseState::Queued if raised || self.owes(schedule, now) => LeaseOp::Give,
            LeaseState::None | LeaseState::Queued => return None,
        };
        let number = self.state.held().map_or_else(number, |held| held.number);
        let is_exact = self.is_held(now);
        if op == LeaseOp::Give {
            // Once it is on its way, another may have it.
            self.state.lapse(now);
        }
        let observed = schedule.observed();
        (self.calling, self.nudged, self.ask_at) = (Some((self.link, backoff, observed)), false, None);
        let owed = debt.map_or(Duration::ZERO, |debt| debt.until - now);
        let remembered = if owed.is_zero() || backoff.is_zero() { Duration::ZERO } else { HOUR };
        Some(LeaseRequest {
            op,
            number,
            gap: wants.filter(|_| !is_exact).unwrap_or_else(|| schedule.longest_gap()),
            starts: schedule.last_starts().newer_than(self.reported),
            backoff: if is_exact || backoff > self.reported_backoff { backoff } else { Duration::ZERO },
            observed: if is_exact { observed } else { observed.risen_since(self.reported_observed) },
            is_exact,
            matters: owed + remembered,
            most: schedule.longest_debt(),
        })
    }

    /// What the fleet has answered to what was asked at `asked`; `None`: nothing.
    pub fn answered<W>(
        &mut self,
        schedule: &mut Schedule<W>,
        request: &LeaseRequest,
        status: Option<LeaseStatus>,
        asked: Instant,
        now: Instant,
    ) {
        let Some((link, backoff, observed)) = self.calling.take() else { return };
        if link != self.link {
            // Asked of another server, perhaps: it says nothing of this one.
            return;
        }
        let Some(status) = status else {
            (self.fails, self.ask_at) = (true, Some(now + RETRY));
            return;
        };
        (self.fails, self.known, self.rivals) = (false, !self.nudged, status.rivals);
        if request.op == LeaseOp::Keep && status.place == TurnPlace::None {
            // It ended, or somebody has deleted the key: what is known here is news again.
            (self.reported, self.reported_backoff, self.reported_observed) = Default::default();
            (self.state, self.ask_at) = (LeaseState::None, None);
            schedule.adopt(status.starts, schedule.backoff().max(status.backoff));
            return;
        }
        self.reported = self.reported.max(request.starts).max(status.starts);
        let raised = schedule.backoff() != backoff;
        let adopted = if raised { schedule.backoff().max(status.backoff) } else { status.backoff };
        schedule.adopt(status.starts, adopted);
        if schedule.observed() == observed {
            schedule.adopt_observed(status.observed);
        }
        self.reported_observed = status.observed;
        self.reported_backoff = if raised { backoff.max(status.backoff) } else { status.backoff };
        let ask_at;
        (self.state, ask_at) = match (request.op, status.place) {
            (LeaseOp::Take | LeaseOp::Keep, TurnPlace::Leased(left)) => {
                let first_start = self.state.held().and_then(|held| held.first_start);
                let (number, ends) = (request.number, asked + left.saturating_sub(IN_FLIGHT));
                (LeaseState::Held(HeldLease { number, ends, first_start }), Some(ends.min(asked + RENEW)))
            }
            // What wakes it may be lost.
            (_, TurnPlace::Queued(left)) => (LeaseState::Queued, Some(now + (left + AFTER).min(RENEW))),
            (LeaseOp::Take, TurnPlace::None) => (LeaseState::None, Some(now + RETRY)),
            (_, TurnPlace::Free | TurnPlace::None | TurnPlace::Leased(_)) => (LeaseState::None, None),
        };
        self.ask_at = ask_at.filter(|_| !self.nudged);
    }

    /// How the key stands has changed, or may have: that is to be asked.
    pub fn changed(&mut self) {
        // Of which else nothing has been heard yet, from this server.
        if self.known || self.calling.is_some_and(|(link, ..)| link == self.link) {
            (self.known, self.nudged, self.ask_at) = (false, true, None);
        }
    }

    /// A request starts.
    pub fn started(&mut self, slot: &Slot, now: Instant) {
        if slot.is_shared() {
            self.busy += 1;
            if let LeaseState::Held(held) = &mut self.state {
                held.first_start.get_or_insert(now);
            }
        }
    }

    /// Its head has left. True: that frees the lease.
    pub fn left(&mut self, slot: &Slot) -> bool {
        let frees = slot.is_shared() && !slot.is_exclusive();
        self.busy -= u32::from(frees);
        frees
    }

    /// It has ended. True: that frees the lease.
    pub fn ended(&mut self, slot: &Slot, has_left: bool) -> bool {
        let frees = slot.is_shared() && (slot.is_exclusive() || !has_left);
        self.busy -= u32::from(frees);
        frees
    }

    /// When there is something to do again.
    pub fn next<W>(&self, schedule: &Schedule<W>) -> Option<Instant> {
        if self.link == 0 || self.calling.is_some() {
            return None;
        }
        self.ask_at.filter(|_| self.state.held().is_some() || self.busy > 0 || schedule.wants_lease().is_some())
    }

    /// Whether something would be lost with nobody looking after it.
    pub fn is_at_stake(&self) -> bool {
        self.link != 0 && (self.busy > 0 || !matches!(self.state, LeaseState::None))
    }

    /// Whether the fleet has to hear of something that another server may not know.
    pub fn owes<W>(&self, schedule: &Schedule<W>, now: Instant) -> bool {
        self.link != 0
            && schedule.debt(now).is_some()
            && schedule.last_starts().newer_than(self.reported) != LastStarts::default()
    }

    /// The lease is this instance's, for now.
    pub fn is_held(&self, now: Instant) -> bool {
        self.state.is_held(now)
    }

    /// Others wait, and this instance has had its share: a start, and more for a while. Passing the lease on costs a
    /// round trip in which nothing starts, so it is not passed on after each.
    fn yields<W>(&self, schedule: &Schedule<W>, now: Instant) -> bool {
        let Some(HeldLease { first_start: Some(first), .. }) = self.state.held().filter(|_| self.rivals > 1) else {
            return false;
        };
        let end = *first + SHARE.min(ROUND / (self.rivals - 1));
        now >= end || schedule.head_due().is_none_or(|due| due > end)
    }
}

/// Nothing starts in the last of a lease that has not been renewed: what has started has it to end in.
const IN_FLIGHT: Duration = Duration::from_secs(1);
/// Often enough that a late answer does no harm, and that a waiting instance notices its turn in time even if nothing
/// has woken it.
const RENEW: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(100);
/// Asking a little too early would find it still held.
const AFTER: Duration = Duration::from_millis(5);
/// For how long an instance goes on while others wait, and how long these wait for all the others.
const SHARE: Duration = Duration::from_secs(4);
const ROUND: Duration = Duration::from_secs(8);
/// Two clocks are not read at the same moment.
const AWAKE: Duration = Duration::from_millis(100);
/// A backoff is remembered so long after what is owed.
const HOUR: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests;
