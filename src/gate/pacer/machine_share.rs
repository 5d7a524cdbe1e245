//! A host queue's share of its key's pace among the processes of this machine: the start reserved for the next waiting request, and the
//! key's turn, taken when the start is due and kept until the request ends.

use crate::gate::fleet::{Machine, MachineLink, MachineStart, MachineTurn, MachineView};
use crate::policy::PaceKey;
use crate::policy::pace::{LastStarts, Observed, Schedule, Shares, Slot, TurnSource};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// This process's state of one key.
pub(super) struct MachineShare {
    machine: Arc<Machine>,
    /// Identifies the key.
    id: u64,
    /// The start reserved for the next waiting request, or for the request with the turn until it is sent.
    reserved: Option<MachineStart>,
    /// When the reserved start is due, as last read from the file.
    due: Option<Instant>,
    turn: ShareTurn,
    /// The newest start that any process has reserved.
    newest: Option<Instant>,
    /// When to act next for a waiting request.
    next: Option<Instant>,
    /// Since when a start is due but another process has the turn.
    busy_since: Option<Instant>,
    /// The values last read from the file or written to it: the origin's backoff, latency and refusals, and the end of its hold.
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
    /// `name`: the name under which the processes of this machine share the key's state.
    pub fn new(machine: Arc<Machine>, name: &str) -> Self {
        let (id, turn, seen) = (machine.id(name), ShareTurn::None, Default::default());
        Self { machine, id, reserved: None, due: None, turn, newest: None, next: None, busy_since: None, seen }
    }

    /// Brings `schedule` up to date with the starts and reservations of the other processes. If this process now uses another shared file,
    /// the share moves there: `name` returns the name under which the processes of this machine share the key's state.
    #[inline]
    pub fn follow<W>(
        &mut self,
        schedule: &mut Schedule<W>,
        link: &MachineLink,
        name: impl FnOnce() -> String,
        now: Instant,
    ) {
        if let Some(machine) = link.instead_of(&self.machine) {
            // Reads for the last time what other processes have written to the old file.
            self.look(schedule, now);
            *self = Self::new(machine, &name());
        }
        self.look(schedule, now);
        match self.machine.part() {
            Some(phase) => schedule.part(phase, Some(now)),
            None => self.tell(schedule, now),
        }
    }

    /// Reserves a start for the next waiting request, and takes the turn if that start is due.
    pub fn prepare<W>(&mut self, schedule: &mut Schedule<W>, key: &PaceKey, now: Instant) {
        self.next = None;
        if self.turn != ShareTurn::None {
            return;
        }
        // A reserved start that no request can use would delay the other processes.
        let Some((gap, is_fetch)) = schedule.head_start(now) else { return self.give_back() };
        let start = MachineStart { gap, is_fetch, own: None };
        match &mut self.reserved {
            _ if is_fetch => {}
            Some(reserved) => reserved.gap = gap,
            None => self.reserved = self.machine.reserve(self.id, start, now),
        }
        self.look(schedule, now);
        self.tell(schedule, now);
        let start = self.reserved.filter(|_| !is_fetch).unwrap_or(start);
        let due = self.due.filter(|_| !is_fetch);
        self.next = schedule.head_due().max(due).filter(|due| *due > now);
        if self.next.is_some() {
            return;
        }
        match self.machine.take(self.id, start, now) {
            MachineTurn::Taken => {
                (self.turn, self.busy_since) = (ShareTurn::Next, None);
                self.tell(schedule, now);
            }
            MachineTurn::NotBefore(at) => self.next = Some(at),
            MachineTurn::Busy => {
                let since = *self.busy_since.get_or_insert(now);
                if now.duration_since(since) > LATE {
                    let host = key.of_all();
                    let what_waits = format!("while it holds the pacing slot of {host}: requests to that host");
                    self.machine.warn_of_stopped(self.id, &what_waits);
                }
                self.next = Some(now + (gap / LOOKS).clamp(LOOK_LEAST, LOOK_MOST));
            }
        }
    }

    /// Gives back an unused turn and, if no request waits, the reserved start. To be called when nothing more can start for now. Returns
    /// when to act next for a waiting request, if known.
    pub fn settle<W>(&mut self, schedule: &mut Schedule<W>, now: Instant) -> Option<Instant> {
        if schedule.waiting() == 0 && !matches!(self.turn, ShareTurn::Of(_)) {
            self.give_back();
        }
        if self.turn == ShareTurn::Next {
            self.machine.release(self.id);
            self.turn = ShareTurn::None;
            self.tell(schedule, now);
        }
        self.next
    }

    /// Handles a request's start.
    pub fn started(&mut self, slot: &Slot) {
        if slot.is_shared {
            self.turn = ShareTurn::Of(slot.number);
        }
    }

    /// Handles a request that is about to be sent or, if `is_gone`, was sent. Returns true if that frees the turn.
    pub fn left(&mut self, slot: &Slot, at: Instant, is_gone: bool) -> bool {
        if !self.has_turn(slot) {
            return false;
        }
        let (gap, is_fetch) = (slot.gap, slot.is_first_fetch);
        let own = self.reserved.filter(|_| !is_fetch).and_then(|reserved| reserved.own);
        self.machine.left(self.id, MachineStart { gap, is_fetch, own }, at, is_gone);
        if is_gone && !is_fetch {
            (self.reserved, self.due) = (None, None);
        }
        is_gone && !slot.is_exclusive && self.ended(slot)
    }

    /// Handles a request's end. Returns true if that frees the turn.
    pub fn ended(&mut self, slot: &Slot) -> bool {
        let has_turn = self.has_turn(slot);
        if has_turn {
            if !slot.is_first_fetch {
                self.give_back();
            }
            self.machine.release(self.id);
            self.turn = ShareTurn::None;
        }
        has_turn
    }

    /// Whether the turn is still held by this request.
    pub fn has_turn(&self, slot: &Slot) -> bool {
        self.turn == ShareTurn::Of(slot.number)
    }

    /// Whether a process has reserved a start that is not due yet.
    pub fn is_awaited(&self, now: Instant) -> bool {
        self.newest.is_some_and(|newest| newest > now)
    }

    /// Publishes a changed backoff, latency or hold (the time before which nothing may start, because the host has asked for a pause).
    pub fn learned<W>(&mut self, schedule: &Schedule<W>) {
        let learned @ (observed, hold) = (schedule.observed(), schedule.last_starts().hold);
        if self.seen != learned {
            self.machine.learn(self.id, observed, hold);
            self.seen = learned;
        }
    }

    /// Adopts the other processes' starts, and the backoff, latency and hold that the host's answers to them have caused.
    pub fn look<W>(&mut self, schedule: &mut Schedule<W>, now: Instant) {
        let Some(MachineView { starts, newest, owed, observed }) = self.machine.view(self.id, now) else {
            // The entry may have been evicted.
            (self.reserved, self.due, self.newest, self.seen) = Default::default();
            return;
        };
        self.newest = newest;
        if self.turn == ShareTurn::None {
            self.due = self.reserved.as_mut().and_then(|reserved| self.machine.reserved(self.id, reserved, now));
            self.reserved.take_if(|_| self.due.is_none());
        }
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
        owed.into_iter().for_each(|owed| schedule.adopt_owed(owed - TICK));
        self.seen = (schedule.observed(), schedule.last_starts().hold);
    }

    /// Adopts the last start of the host's groups: a new delay of a group counts from it.
    pub fn look_at_groups<W>(&self, schedule: &mut Schedule<W>, now: Instant) {
        let [last_start, _] = self.machine.debt(self.id, now);
        schedule.adopt(LastStarts { last_start, ..LastStarts::default() });
    }

    fn tell<W>(&self, schedule: &mut Schedule<W>, now: Instant) {
        let (has_turn, shares) = (self.turn == ShareTurn::Next, Shares::default());
        // A start in use belongs to the previous request.
        let reserved = self.due.filter(|_| !matches!(self.turn, ShareTurn::Of(_)));
        let gap = schedule.longest_gap();
        let next = self.newest.map(|newest| if reserved.is_some() { newest } else { newest + gap });
        let rivals = next.map_or(1, |next| schedule.rivals(next, gap, now));
        schedule.follow(TurnSource::Fleet { known: true, has_turn, rivals, reserved, shares });
    }

    fn give_back(&mut self) {
        self.due = None;
        if let Some(reserved) = self.reserved.take() {
            self.machine.give_back(self.id, reserved);
        }
    }
}

/// How often per gap to check a turn that another process has.
const LOOKS: u32 = 16;
const LOOK_LEAST: Duration = Duration::from_millis(10);
const LOOK_MOST: Duration = Duration::from_millis(100);
/// Time after which a suspended process that holds a turn is logged. Requests rarely hold a turn longer.
const LATE: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_micros(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::pace::{ClientId, NextTurn, PaceOutcome, Refused, Terms, Turn};
    use std::path::Path;

    fn terms(crawl_delay: Duration, max_wait: Duration) -> Terms {
        Terms { crawl_delay, max_wait, ..Terms::default() }
    }

    /// A process with one client, which asks again when it is answered or refused.
    struct OneClient {
        link: Arc<MachineLink>,
        schedule: Schedule,
        share: MachineShare,
        asks_at: Instant,
        waits_since: Option<Instant>,
        in_flight: Option<(Instant, Slot)>,
        /// The waits of its requests, and the Retry-After times of its refusals.
        waits: Vec<Duration>,
        refused: Vec<Duration>,
    }

    impl OneClient {
        fn new(directory: &Path, key: &PaceKey, asks_at: Instant) -> Self {
            let link = MachineLink::open(Some(directory), Duration::from_secs(3600));
            let (schedule, share) = (Schedule::default(), MachineShare::new(link.machine(), &key.to_string()));
            let (waits_since, in_flight, waits, refused) = (None, None, Vec::new(), Vec::new());
            Self { link, schedule, share, asks_at, waits_since, in_flight, waits, refused }
        }

        fn act(&mut self, now: Instant, key: &PaceKey, terms: &Terms, takes: Duration) {
            self.share.follow(&mut self.schedule, &self.link, || key.to_string(), now);
            if let Some((_, slot)) = self.in_flight.take_if(|(ends, _)| *ends <= now) {
                self.share.ended(&slot);
                self.schedule.finished(|| now, slot, PaceOutcome::Success);
                self.asks_at = now;
            }
            if self.in_flight.is_none() && self.waits_since.is_none() && self.asks_at <= now {
                match self.schedule.request(now, ClientId(1), terms, || ()) {
                    Turn::Go(_) => panic!("a start is reserved first"),
                    Turn::Wait { .. } => self.waits_since = Some(now),
                    Turn::Refuse(refused) => self.is_refused(refused, now),
                }
            }
            self.share.prepare(&mut self.schedule, key, now);
            match self.schedule.poll(now) {
                NextTurn::Start((), slot) => {
                    self.share.started(&slot);
                    self.schedule.left(&slot, now, true);
                    self.share.left(&slot, now, true);
                    self.waits.extend(self.waits_since.take().map(|since| now - since));
                    self.in_flight = Some((now + takes, slot));
                }
                NextTurn::Refuse((), refused) => self.is_refused(refused, now),
                NextTurn::WaitUntil(_) | NextTurn::Idle => {}
            }
            self.share.settle(&mut self.schedule, now);
        }

        fn is_refused(&mut self, refused: Refused, now: Instant) {
            let Refused::TooLong { retry_after } = refused else { panic!("{refused:?}") };
            self.refused.push(retry_after);
            (self.asks_at, self.waits_since) = (now + Duration::from_millis(500), None);
        }
    }

    /// This holds however late a client comes, and however long the others have waited before.
    #[test]
    fn requests_whose_wait_fits_max_wait_are_not_refused() {
        let (key, ms) = (PaceKey::from_text("a.example").unwrap(), Duration::from_millis);
        for (clients, gap, max_wait, takes) in
            [(3, 3000, 10_000, 20), (3, 3000, 9500, 1500), (2, 3000, 6500, 20), (4, 1000, 4300, 600)]
        {
            let directory = tempfile::tempdir().unwrap();
            let (began, terms) = (Instant::now() + ms(3_600_000), terms(ms(gap), ms(max_wait)));
            let mut all: Vec<_> = (0..clients)
                .map(|number| OneClient::new(directory.path(), &key, began + ms(number * number * 1700)))
                .collect();
            for at in (0..120_000).step_by(5) {
                all.iter_mut().for_each(|client| client.act(began + ms(at), &key, &terms, ms(takes)));
            }
            let refused: Vec<_> = all.iter().flat_map(|client| &client.refused).collect();
            assert!(refused.is_empty(), "{clients} clients, {gap} ms: {refused:?}");
            let longest = all.iter().flat_map(|client| &client.waits).max().unwrap();
            assert!(*longest >= ms((clients - 1) * gap), "the clients wait for each other: {longest:?}");
            let served: usize = all.iter().map(|client| client.waits.len()).sum();
            assert!(served as u64 >= 110_000 / gap, "no gap is left unused: {served}");
        }
    }

    /// The time since the last start must not be taken for the gaps of many rivals.
    #[test]
    fn pause_does_not_raise_the_estimated_number_of_rivals() {
        let directory = tempfile::tempdir().unwrap();
        let link = MachineLink::open(Some(directory.path()), Duration::from_secs(3600));
        let key = PaceKey::from_text("a.example").unwrap();
        let (mut schedule, mut share) = (Schedule::default(), MachineShare::new(link.machine(), "a.example"));
        let terms = terms(Duration::from_secs(1), Duration::from_secs(10));
        let began = Instant::now();
        for now in [began, began + Duration::from_secs(20)] {
            share.follow(&mut schedule, &link, || key.to_string(), now);
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
