//! A host queue's share of its key's pace among the processes of this machine: the start reserved for the next waiting request, and the
//! key's turn, taken when the start is due and kept until the request ends.

use crate::gate::fleet::{Machine, MachineStart, MachineTurn, MachineView};
use crate::policy::PaceKey;
use crate::policy::pace::{LastStarts, Observed, Schedule, Shares, Slot, TurnSource};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// This process's state of one key.
pub(super) struct MachineShare {
    machine: Arc<Machine>,
    /// Identifies the key.
    id: u64,
    /// For the next waiting request, or for the one with the turn until it leaves.
    reserved: Option<(MachineStart, Instant)>,
    turn: ShareTurn,
    /// Processes that want the key, estimated from the last reservation.
    rivals: u32,
    /// When to check whether the origin has asked another process for time.
    look_at: Option<Instant>,
    /// When to act next for a waiting request, and since when another process has held the turn that is due.
    next: Option<Instant>,
    busy_since: Option<Instant>,
    /// The origin's backoff and latency as in the file.
    seen: (Observed, Option<Instant>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShareTurn {
    None,
    /// Held for the next waiting request.
    Next,
    /// Held by the request with this slot.
    Of(u64),
}

impl MachineShare {
    pub fn new(machine: Arc<Machine>, key: &PaceKey) -> Self {
        let (id, turn, seen) = (machine.id(&key.to_string()), ShareTurn::None, Default::default());
        Self { machine, id, reserved: None, turn, rivals: 1, look_at: None, next: None, busy_since: None, seen }
    }

    /// Adopts other processes' starts now and then, and notes whether the pace is still shared.
    pub fn follow<W>(&mut self, schedule: &mut Schedule<W>, now: Instant) {
        if !self.machine.is_lost() {
            if self.look_at.is_none_or(|at| at <= now) {
                self.look(schedule, now);
            }
            return self.tell(schedule);
        }
        let Some(phase) = self.machine.reach().alone else { return };
        let had_turn = self.reserved.take().is_some() || self.turn != ShareTurn::None;
        self.turn = ShareTurn::None;
        schedule.part(phase, had_turn.then_some(now));
    }

    /// Reserves a start for the next waiting request, and takes the turn if it is due.
    pub fn prepare<W>(&mut self, schedule: &mut Schedule<W>, key: &PaceKey, now: Instant) {
        self.next = None;
        if self.machine.is_lost() {
            // The last look may have lost the file, and nothing else would wake the waiting requests.
            return self.follow(schedule, now);
        }
        if self.turn != ShareTurn::None {
            return;
        }
        let Some((gap, is_fetch)) = schedule.head_start() else { return };
        self.look(schedule, now);
        let start = MachineStart { gap, is_fetch };
        if self.reserved.is_none()
            && let Some(at) = self.machine.reserve(self.id, start, now)
        {
            (self.reserved, self.rivals) = (Some((start, at)), schedule.rivals(at, gap, now));
            self.tell(schedule);
        }
        self.next = schedule.head_due().filter(|due| *due > now);
        if self.next.is_some() {
            return;
        }
        let reserved = self.reserved.map_or(now, |(_, at)| at);
        match self.machine.take(self.id, start, reserved, now) {
            MachineTurn::Taken => {
                (self.turn, self.busy_since) = (ShareTurn::Next, None);
                self.tell(schedule);
            }
            MachineTurn::NotBefore(at) => self.next = Some(at),
            MachineTurn::Busy => {
                let since = *self.busy_since.get_or_insert(now);
                if now.duration_since(since) > LATE {
                    self.machine.warn_of_stopped(self.id, key);
                }
                self.next = Some(now + (gap / LOOKS).clamp(LOOK_LEAST, LOOK_MOST));
            }
        }
    }

    /// Nothing more can start for now. Returns when to act next for a waiting request, if known.
    pub fn settle<W>(&mut self, schedule: &mut Schedule<W>) -> Option<Instant> {
        if self.turn == ShareTurn::Next {
            self.machine.release(self.id);
            self.turn = ShareTurn::None;
            if !self.machine.is_lost() {
                self.tell(schedule);
            }
        }
        if schedule.waiting() == 0 && self.turn == ShareTurn::None {
            self.give_back();
        }
        self.next
    }

    /// Handles a request's start.
    pub fn started(&mut self, slot: &Slot) {
        if slot.is_shared() {
            self.turn = ShareTurn::Of(slot.number());
        }
    }

    /// The request leaves; `is_gone`: it has left. True: that frees the turn.
    pub fn left(&mut self, slot: &Slot, at: Instant, is_gone: bool) -> bool {
        if !self.has_turn(slot) {
            return false;
        }
        let start = MachineStart { gap: slot.gap(), is_fetch: slot.is_first_fetch() };
        self.machine.left(self.id, start, at, is_gone);
        self.reserved = None;
        is_gone && !slot.is_exclusive() && self.ended(slot)
    }

    /// Handles a request's end. Returns true if that frees the turn.
    pub fn ended(&mut self, slot: &Slot) -> bool {
        let has_turn = self.has_turn(slot);
        if has_turn {
            self.give_back();
            self.machine.release(self.id);
            self.turn = ShareTurn::None;
        }
        has_turn
    }

    /// Whether the turn is still held by this request.
    pub fn has_turn(&self, slot: &Slot) -> bool {
        self.turn == ShareTurn::Of(slot.number())
    }

    /// Publishes a changed backoff or latency.
    pub fn learned<W>(&mut self, schedule: &Schedule<W>) {
        let learned @ (observed, hold) = (schedule.observed(), schedule.last_starts().hold);
        if self.seen != learned {
            self.machine.learn(self.id, observed, hold);
            self.seen = learned;
        }
    }

    /// Adopts the others' answers before another answer is counted.
    pub fn catch_up<W>(&mut self, schedule: &mut Schedule<W>, now: Instant) {
        if !self.machine.is_lost() {
            self.look(schedule, now);
        }
    }

    /// Adopts the others' starts and answers.
    fn look<W>(&mut self, schedule: &mut Schedule<W>, now: Instant) {
        self.look_at = Some(now + LOOK_EVERY);
        let Some(MachineView { starts, observed, .. }) = self.machine.view(self.id, now) else {
            // The entry may have been evicted.
            self.seen = Default::default();
            return;
        };
        let own = schedule.last_starts();
        // The file's clock is coarser than ours.
        let newer =
            |others: Option<Instant>, own: Option<Instant>| others.filter(|at| own.is_none_or(|own| *at > own + TICK));
        let (last_start, last_fetch) = match self.turn {
            // No other process has started anything.
            ShareTurn::Next | ShareTurn::Of(_) => (None, None),
            ShareTurn::None => (newer(starts.last_start, own.last_start), newer(starts.last_fetch, own.last_fetch)),
        };
        schedule.adopt(LastStarts { last_start, last_fetch, hold: newer(starts.hold, own.hold) });
        schedule.adopt_observed(observed);
        self.seen = (schedule.observed(), schedule.last_starts().hold);
    }

    fn tell<W>(&self, schedule: &mut Schedule<W>) {
        let (has_turn, reserved) = (self.turn == ShareTurn::Next, self.reserved.map(|(_, at)| at));
        let (rivals, shares) = (self.rivals, Shares::default());
        schedule.follow(TurnSource::Fleet { known: true, has_turn, rivals, reserved, shares });
    }

    fn give_back(&mut self) {
        if let Some((start, at)) = self.reserved.take() {
            self.machine.give_back(self.id, start, at);
        }
    }
}

/// Looks within a gap, if another process holds the turn longer than that.
const LOOKS: u32 = 16;
const LOOK_LEAST: Duration = Duration::from_millis(10);
const LOOK_MOST: Duration = Duration::from_millis(100);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Requests rarely take longer.
const LATE: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_micros(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::pace::{ClientId, NextTurn, PaceOutcome, Terms, Turn};

    /// A pause in requests for the host does not count as many rivals.
    #[test]
    fn after_a_pause_nobody_is_told_of_rivals_that_are_not_there() {
        let directory = tempfile::tempdir().unwrap();
        let machine = Arc::new(Machine::open(directory.path(), Duration::from_secs(3600)).unwrap());
        let key = PaceKey::from_text("a.example").unwrap();
        let (mut schedule, mut share) = (Schedule::default(), MachineShare::new(machine, &key));
        let terms =
            Terms { crawl_delay: Duration::from_secs(1), max_wait: Duration::from_secs(10), ..Terms::default() };
        let began = Instant::now();
        for now in [began, began + Duration::from_secs(20)] {
            share.follow(&mut schedule, now);
            assert!(matches!(schedule.request(now, ClientId(1), &terms, || ()), Turn::Wait { .. }));
            share.prepare(&mut schedule, &key, now);
            // The file's clock is coarser than ours.
            let now = now + TICK;
            share.prepare(&mut schedule, &key, now);
            let NextTurn::Start((), slot) = schedule.poll(now) else { panic!("nobody else wants it") };
            share.started(&slot);
            schedule.left(&slot, now, true);
            share.left(&slot, now, true);
            share.ended(&slot);
            schedule.finished(|| now, slot, PaceOutcome::Success);
            let next = schedule.forecast(now, ClientId(1), &terms);
            assert_eq!(next, now + terms.crawl_delay, "{:?}", now - began);
        }
    }
}
