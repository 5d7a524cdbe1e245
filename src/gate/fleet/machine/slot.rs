//! The state of one key that the machine's processes share: a slot of a few words in their file (docs/fleet.md).
//!
//! **Never early**: a request may start only with the key's turn, and a gap after the last start. The turn is a lock that one process keeps
//! until its request has ended. A start is recorded when its request is sent.
//!
//! - A *hold* is a period in which nothing may start, because the host has asked for a pause.
//! - A *debt* is the rest of a gap or hold: it outlives the process whose request has caused it.
//! - *Own time* is the key's clock for reservations (`order`): it stands still while the key is late.
//!
//! All times are microseconds (`clock`). Invalid values in the file are replaced (`sanitize`).

use super::clock::{instant, micros, micros_up, span};
use super::key_id::is_budget;
use super::start::{MachineStart, MachineTurn, MachineView};
use crate::policy::pace::{LastStarts, Observed};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// The slot of one key: its id and its words.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeySlot<'a> {
    /// The key's id. Replaced when the slot passes to another key.
    tag: &'a AtomicU64,
    /// The id of the key for which the slot was found.
    of: u64,
    /// The key's data. The constants below, such as `TURN`, are their indices. A budget uses some words for other data (`budgets`).
    pub(super) words: &'a [AtomicU64],
}

impl<'a> KeySlot<'a> {
    /// The slot in a row of a bucket, found for the key `of`.
    pub fn at(bucket: &'a [AtomicU64], row: usize, of: u64) -> Self {
        Self { tag: &bucket[row], of, words: &bucket[BUCKET - (row + 1) * WORDS..][..WORDS] }
    }

    /// The key's state. `most`: upper limit of a debt.
    pub fn view(&self, at: Instant, most: Duration) -> MachineView {
        let (now, most) = (micros(at), span(most));
        self.sanitize(now, most);
        let last = |word| instant(self.get(word).min(now + AHEAD));
        let until = |word| instant(self.get(word).min(now + most)).filter(|until| *until > at);
        let observed = unpacked(self.get(OBSERVED));
        MachineView {
            starts: LastStarts { last_start: last(START), last_fetch: last(FETCH), hold: until(HOLD) },
            newest: Some(self.get(TAIL))
                .filter(|tail| *tail != 0)
                .and_then(|tail| instant(tail.wrapping_add(self.get(OFF)))),
            owed: until(OWED),
            observed: Observed { backoff: observed.backoff.min(Duration::from_micros(most)), ..observed },
        }
    }

    /// Takes the key's turn for `me` if the start is due. `lives`: tells whether a process is alive. `None`: the slot belongs to another
    /// key now.
    pub fn take(
        &self,
        start @ MachineStart { own, .. }: MachineStart,
        me: u32,
        (now, most): (u64, u64),
        lives: impl Fn(u32) -> bool,
    ) -> Option<MachineTurn> {
        let early = || {
            self.sanitize(now, most);
            let due = self.due(start);
            // Later reservations are postponed as well.
            own.inspect(|own| self.delay(*own, due));
            let due = due.max(own.map_or(0, |own| own.wrapping_add(self.get(OFF))));
            (due > now).then(|| MachineTurn::NotBefore(instant(due).unwrap_or_else(Instant::now)))
        };
        loop {
            if let Some(early) = early() {
                return Some(early);
            }
            match self.words[TURN].compare_exchange(0, u64::from(me), SeqCst, SeqCst) {
                Ok(_) => break,
                Err(word) if word as u32 != me && lives(word as u32) => {
                    own.inspect(|own| self.delay(*own, now));
                    return Some(MachineTurn::Busy);
                }
                Err(word) => self.bury(word, micros_up(Instant::now()).max(now + 1)),
            }
        }
        // Checks again: before this process got the turn, another one may have had it, or the slot may have passed to another key.
        let (is_gone, early) = (self.is_gone(), early());
        if is_gone || early.is_some() {
            self.release(me);
        }
        (!is_gone).then_some(early.unwrap_or(MachineTurn::Taken))
    }

    /// Takes the turn for `me`, whatever the pace, unless a process that is alive has it. `lives`: tells whether a process is alive.
    pub fn take_right(&self, me: u32, lives: impl Fn(u32) -> bool) -> bool {
        let before = self.get(TURN);
        let is_free = before == 0 || !lives(before as u32);
        if !is_free || self.words[TURN].compare_exchange(before, u64::from(me), SeqCst, SeqCst).is_err() {
            return false;
        }
        let is_gone = self.is_gone();
        if is_gone {
            self.release(me);
        }
        !is_gone
    }

    /// Takes the turn from a process that has ended, whose request may have been sent at any time until now.
    fn bury(&self, word: u64, now: u64) {
        if word & LEAVING != 0 {
            let gap = self.get(OWED).saturating_sub(self.latest());
            [START, FETCH].into_iter().for_each(|word| self.raise(word, now));
            self.raise(OWED, now.saturating_add(gap));
        }
        let _ = self.words[TURN].compare_exchange(word, 0, SeqCst, SeqCst);
    }

    /// Records that the request with the turn of `me` is about to be sent or, if `is_gone`, was sent. `at`: when it should reach the host.
    pub fn left(&self, start: MachineStart, me: u32, at: u64, is_gone: bool) {
        let leaving = if is_gone { 0 } else { LEAVING };
        let mine = |word: u64| (word as u32 == me).then_some(u64::from(me) | leaving);
        // `LEAVING` is set before the request is sent, and cleared once its start is recorded.
        if !is_gone {
            let _ = self.words[TURN].fetch_update(SeqCst, SeqCst, mine);
        }
        // Own time is set back before the start is recorded; otherwise, other processes would conclude that they were overtaken.
        start.own.inspect(|own| self.delay(*own, at));
        // The gap's end is recorded before the start, so that a process killed in between leaves no start without a gap.
        self.raise(OWED, at.saturating_add(span(start.gap)));
        self.raise(if start.is_fetch { FETCH } else { START }, at);
        if is_gone {
            let _ = self.words[TURN].fetch_update(SeqCst, SeqCst, mine);
        }
    }

    /// Releases the turn, if `me` has it.
    pub fn release(&self, me: u32) {
        let _ = self.words[TURN].fetch_update(SeqCst, SeqCst, |word| (word as u32 == me).then_some(0));
    }

    /// Records a host's backoff, latency and refusals, and the end of its hold.
    pub fn learn(&self, observed: Observed, hold: u64) {
        self.words[OBSERVED].store(packed(observed), SeqCst);
        // A hold that has ended delays nothing, but its end tells `over` how long to keep the other data.
        let now = if observed.is_calm() { 0 } else { micros(Instant::now()) };
        self.raise(HOLD, hold.max(now));
    }

    /// Records the last starts of a process that may forget them, and until when they cause debts.
    pub fn owe(&self, starts: LastStarts, until: u64) {
        for (word, at) in [(START, starts.last_start), (FETCH, starts.last_fetch), (HOLD, starts.hold)] {
            self.raise(word, at.map_or(0, micros_up));
        }
        self.raise(OWED, until);
    }

    /// The time at which all data has expired, so that the slot may pass to another key. `u64::MAX`: a process that is alive has the turn.
    /// `lives`: tells whether a process is alive.
    pub fn over(&self, now: u64, lives: impl Fn(u32) -> bool) -> u64 {
        match self.get(TURN) {
            _ if self.id() <= CLEARED => return 0,
            0 => {}
            word if lives(word as u32) => return u64::MAX,
            word => self.bury(word, micros_up(Instant::now()).max(now + 1)),
        }
        let kept = if self.get(OBSERVED) & !LATENCY == 0 { 0 } else { HOUR };
        // An adaptive gap may have grown since the last start.
        let grown = if self.get(OBSERVED) & LATENCY == 0 { 0 } else { HALF_MINUTE };
        // A process may be late to see that its start is due.
        let reserved = self.get(TAIL).wrapping_add(self.get(OFF)).saturating_add(SECOND);
        // A time further ahead than possible is invalid.
        let sane = |at: u64| if at > now.saturating_add(FAR) { 0 } else { at };
        sane(self.get(HOLD).saturating_add(kept)).max(sane(self.get(OWED).saturating_add(grown))).max(sane(reserved))
    }

    /// The process that has the key's turn, or had it when it ended.
    pub fn process(&self) -> Option<u32> {
        Some(self.get(TURN) as u32).filter(|process| *process != 0)
    }

    /// Clears the slot for a new key. Meanwhile it belongs to no key, but is not free.
    pub fn begin(&self) {
        self.tag.store(CLEARED, SeqCst);
        self.words.iter().for_each(|word| word.store(0, SeqCst));
        self.tag.store(self.of, SeqCst);
    }

    /// Whether the slot has never belonged to a key.
    pub fn is_free(&self) -> bool {
        self.id() == 0
    }

    /// Shifts all times by `to` - `from`, for a clock that has begun again. Drops the reservations, and releases the turn.
    pub fn moved(&self, from: u64, to: u64) {
        let moved = |at: u64| at.saturating_add(to).saturating_sub(from).max(1);
        // The other words of a budget are counts.
        let times = if is_budget(self.id()) { &[OWED][..] } else { &[HOLD, OWED, FETCH, START] };
        for word in times {
            let _ = self.words[*word].fetch_update(SeqCst, SeqCst, |at| (at != 0).then(|| moved(at)));
        }
        [TAIL, TURN, OFF].into_iter().for_each(|word| self.words[word].store(0, SeqCst));
    }

    /// The latest start.
    pub fn latest(&self) -> u64 {
        if is_budget(self.id()) { 0 } else { self.get(START).max(self.get(FETCH)) }
    }

    /// The id of the key that the slot belongs to. 0: the slot is free.
    pub fn id(&self) -> u64 {
        self.tag.load(SeqCst)
    }

    pub fn is_gone(&self) -> bool {
        self.id() != self.of
    }

    /// Earliest time for this start: a gap after the last start, and not before the hold ends. The first fetch of a robots.txt also
    /// counts as a start, but only for other first fetches.
    pub(super) fn due(&self, start: MachineStart) -> u64 {
        let fetch = if start.is_fetch { self.get(FETCH) } else { 0 };
        let last = self.get(START).max(fetch);
        let next = if last == 0 { 0 } else { last.saturating_add(span(start.gap)) };
        next.max(self.get(HOLD))
    }

    /// Replaces invalid values: a start in the future becomes now, and too long a hold becomes the longest possible. Before that, reads the
    /// clock again: this process may not have run since the last reading, and others may have started requests meanwhile.
    fn sanitize(&self, now: u64, most: u64) {
        for (word, latest) in [(START, now), (FETCH, now), (HOLD, now.saturating_add(most))] {
            let value = self.get(word);
            let is_ahead = |latest: u64| value > latest.saturating_add(AHEAD);
            let latest = if is_ahead(latest) { latest.max(micros(Instant::now())) } else { latest };
            if is_ahead(latest) {
                let _ = self.words[word].compare_exchange(value, latest, SeqCst, SeqCst);
            }
        }
    }

    /// Raises a word. An equal value is not written: it would make the kernel write the page to the disk once more.
    pub fn raise(&self, word: usize, value: u64) {
        if self.get(word) < value {
            self.words[word].fetch_max(value, SeqCst);
        }
    }

    pub(super) fn get(&self, word: usize) -> u64 {
        self.words[word].load(SeqCst)
    }
}

/// Packs a host's backoff in microseconds, the upper half of its latency as an `f32`, and its refusals into a word.
fn packed(Observed { backoff, latency, refusals }: Observed) -> u64 {
    let latency = latency.as_secs_f32().to_bits().div_ceil(1 << 16);
    span(backoff).min(HOUR) << 32 | u64::from(latency) << 16 | u64::from(refusals).min(REFUSALS)
}

fn unpacked(word: u64) -> Observed {
    let latency = f32::from_bits((word & LATENCY) as u32);
    let latency = Duration::try_from_secs_f32(latency).unwrap_or_default().min(Duration::from_micros(HOUR));
    Observed { backoff: Duration::from_micros(word >> 32), latency, refusals: (word & REFUSALS) as u32 }
}

/// Number of slots in a bucket.
pub(super) const ROWS: usize = 14;
/// Number of words in a bucket: the tags, padded to whole cache lines, and then a cache line of words for each slot.
pub(super) const BUCKET: usize = 128;
/// Number of words in a slot, without its tag. Their indices are the next eight constants.
pub(super) const WORDS: usize = 8;
/// Index of the turn: the number of the process that has it, and `LEAVING`. 0: the turn is free.
const TURN: usize = 0;
/// Index of the time at which the hold ends.
const HOLD: usize = 1;
/// Index of the time at which the longest gap owed ends, or a budget's period.
pub(super) const OWED: usize = 2;
/// Index of the backoff, latency and refusals (`packed`), or of a budget's requests.
pub(super) const OBSERVED: usize = 3;
/// Index of the time of the last first fetch of a robots.txt, or of a budget's bytes.
pub(super) const FETCH: usize = 4;
/// Index of the time by which own time is behind the clock.
pub(super) const OFF: usize = 5;
/// Index of the time of the last start.
pub(super) const START: usize = 6;
/// Index of the last reservation, in own time.
pub(super) const TAIL: usize = 7;
/// The tag of a slot whose words are being cleared. No key has the id 1 or 0.
const CLEARED: u64 = 1;
/// Masks of the number of refusals and of the latency.
const REFUSALS: u64 = 0xffff;
const LATENCY: u64 = 0xffff_0000;
/// Bit of `TURN` beside the process's number: the process's request may have been sent.
const LEAVING: u64 = 1 << 32;
/// Maximum time in µs by which a recorded start may be ahead of the clock: the time recorded is when the request should reach the host.
const AHEAD: u64 = 10_000;
const SECOND: u64 = 1_000_000;
const HALF_MINUTE: u64 = 30 * SECOND;
/// An hour in µs.
const HOUR: u64 = 3_600_000_000;
/// Two years in µs. A time further ahead is invalid.
const FAR: u64 = 730 * 24 * HOUR;
