//! The processes' shared state of one key, in words of their file (docs/fleet.md).
//!
//! **Never early**: a start needs the key's turn, a lock that one process holds until its request has ended, and a gap since the last
//! start, which is noted when its request leaves.
//!
//! `order` says which process is next.
//!
//! Times are microseconds (`clock`); implausible values are not trusted.

use super::clock::{instant, micros, micros_up, span};
use crate::policy::pace::{LastStarts, Observed};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// A key's words.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeySlot<'a> {
    /// The key's hash. Another key replaces it when it needs the words.
    tag: &'a AtomicU64,
    /// The hash of the key for which the slot was found.
    of: u64,
    /// The key's data. Keys that are not hosts, such as budgets, use some words for other data.
    pub(super) words: &'a [AtomicU64],
}

/// A start of one of the machine's processes, and the gap that it has to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) struct MachineStart {
    pub gap: Duration,
    /// Whether this is the first fetch of a robots.txt. First fetches are not reserved, as requests keep no distance from them.
    pub is_fetch: bool,
    /// The reserved time, in the key's own time (`order`). `None`: not reserved.
    pub own: Option<u64>,
}

/// Result of asking for a key's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) enum MachineTurn {
    Taken,
    NotBefore(Instant),
    /// Another process has the turn.
    Busy,
}

/// A key's state, by the starts of all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::gate) struct MachineView {
    pub starts: LastStarts,
    /// The newest start that a process has reserved.
    pub newest: Option<Instant>,
    /// The end of the longest gap owed.
    pub owed: Option<Instant>,
    pub observed: Observed,
}

impl<'a> KeySlot<'a> {
    pub fn new(tag: &'a AtomicU64, of: u64, words: &'a [AtomicU64]) -> Self {
        Self { tag, of, words }
    }

    /// The key's state. `most`: upper limit of a debt.
    pub fn view(&self, at: Instant, most: Duration) -> MachineView {
        let (now, most) = (micros(at), span(most));
        self.sanitize(now, most);
        let last = |word| instant(self.get(word).min(now + AHEAD));
        let until = |word| instant(self.get(word).min(now + most)).filter(|until| *until > at);
        let backoff = self.get(BACKOFF);
        let refusals = u32::try_from(backoff & LOW).unwrap_or(u32::MAX);
        let backoff = Duration::from_micros((backoff >> 16).min(most));
        let latency = Duration::from_micros(self.get(LATENCY).min(HOUR));
        MachineView {
            starts: LastStarts { last_start: last(START), last_fetch: last(FETCH), hold: until(HOLD) },
            newest: Some(self.get(TAIL))
                .filter(|tail| *tail != 0)
                .and_then(|tail| instant(tail.wrapping_add(self.get(OFF)))),
            owed: until(OWED),
            observed: Observed { backoff, latency, refusals },
        }
    }

    /// Takes the key's turn for `me`, if the start is due. `lives`: whether a process lives. `None`: the words belong to another key now.
    pub fn take(
        &self,
        start @ MachineStart { own, .. }: MachineStart,
        me: u32,
        (now, most): (u64, u64),
        lives: impl Fn(u32) -> bool,
    ) -> Option<MachineTurn> {
        self.keep(now.saturating_add(span(start.gap)).saturating_add(KEPT_FOR));
        let early = || {
            self.sanitize(now, most);
            let due = self.due(start);
            // The reservations behind keep their distance.
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
        // Another process may have had the turn in between, or the words may belong to another key.
        let (is_gone, early) = (self.is_gone(), early());
        if is_gone || early.is_some() {
            self.release(me);
        }
        (!is_gone).then_some(early.unwrap_or(MachineTurn::Taken))
    }

    /// Takes the turn for `me`, whatever the pace, unless a living process has it. `lives`: whether a process lives.
    pub fn take_right(&self, me: u32, now: u64, lives: impl Fn(u32) -> bool) -> bool {
        self.keep(now.saturating_add(KEPT_FOR));
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

    /// Releases the turn of `me`, and lets another key take the words.
    pub fn give_right(&self, me: u32) {
        if self.process() == Some(me) {
            self.words[KEPT].store(0, SeqCst);
            self.release(me);
        }
    }

    /// Takes the turn from a process that has ended, whose request may have left at any time until now.
    fn bury(&self, word: u64, now: u64) {
        if word & LEAVING != 0 {
            self.words[START].fetch_max(now, SeqCst);
            self.words[FETCH].fetch_max(now, SeqCst);
        }
        let _ = self.words[TURN].compare_exchange(word, 0, SeqCst, SeqCst);
    }

    /// Notes that the request with the turn of `me` leaves at `at` or, if `is_gone`, has left.
    pub fn left(&self, start: MachineStart, me: u32, at: u64, is_gone: bool) {
        let leaving = if is_gone { 0 } else { LEAVING };
        let mine = |word: u64| (word as u32 == me).then_some(u64::from(me) | leaving);
        // `LEAVING` is set before the request is sent, and cleared once its start is noted.
        if !is_gone {
            let _ = self.words[TURN].fetch_update(SeqCst, SeqCst, mine);
        }
        // Own time is set back before the start is noted; otherwise, other processes would conclude that they were overtaken.
        start.own.inspect(|own| self.delay(*own, at));
        self.words[if start.is_fetch { FETCH } else { START }].fetch_max(at, SeqCst);
        self.words[OWED].fetch_max(at.saturating_add(span(start.gap)), SeqCst);
        if is_gone {
            let _ = self.words[TURN].fetch_update(SeqCst, SeqCst, mine);
        }
    }

    /// Releases the turn, if `me` has it.
    pub fn release(&self, me: u32) {
        let _ = self.words[TURN].fetch_update(SeqCst, SeqCst, |word| (word as u32 == me).then_some(0));
    }

    /// Records a host's backoff, latency and refusals, and its hold.
    pub fn learn(&self, observed: Observed, hold: u64) {
        let Observed { backoff, latency, refusals } = observed;
        self.words[BACKOFF].store(span(backoff).min(HOUR) << 16 | u64::from(refusals).min(LOW), SeqCst);
        self.words[LATENCY].store(span(latency).min(HOUR), SeqCst);
        self.words[HOLD].fetch_max(hold, SeqCst);
        if !observed.is_calm() {
            self.keep(hold.max(micros(Instant::now())).saturating_add(HOUR));
        }
    }

    /// Records the last starts of a process that may forget them, and until when they cause debts.
    pub fn owe(&self, starts: LastStarts, until: u64) {
        for (word, at) in [(START, starts.last_start), (FETCH, starts.last_fetch), (HOLD, starts.hold)] {
            self.words[word].fetch_max(at.map_or(0, micros_up), SeqCst);
        }
        self.words[OWED].fetch_max(until, SeqCst);
        self.keep(until);
    }

    /// The time at which all data expires, so that another key may take the words.
    pub fn over(&self, now: u64) -> u64 {
        // A time further ahead than possible is invalid.
        let sane = |at: &u64| *at <= now.saturating_add(FAR);
        let reserved = self.get(TAIL).wrapping_add(self.get(OFF));
        [self.get(KEPT), self.get(HOLD), self.get(OWED), reserved].into_iter().filter(sane).max().unwrap_or(0)
    }

    /// The process that has the key's turn, or had it when it ended.
    pub fn process(&self) -> Option<u32> {
        Some(self.get(TURN) as u32).filter(|process| *process != 0)
    }

    /// Clears the words for a new key. Meanwhile they belong to no key.
    pub fn begin(&self, now: u64) {
        self.tag.store(0, SeqCst);
        self.words.iter().for_each(|word| word.store(0, SeqCst));
        self.keep(now.saturating_add(KEPT_FOR));
        self.tag.store(self.of, SeqCst);
    }

    /// Whether the words belong to no key.
    pub fn is_free(&self) -> bool {
        self.tag.load(SeqCst) == 0
    }

    /// Moves all times from one clock to another, and releases the turn.
    pub fn moved(&self, from: u64, to: u64) {
        let moved = |at: u64| at.saturating_add(to).saturating_sub(from).max(1);
        for word in [KEPT, HOLD, OWED, FETCH, START] {
            let _ = self.words[word].fetch_update(SeqCst, SeqCst, |at| (at != 0).then(|| moved(at)));
        }
        [TAIL, TURN, OFF].into_iter().for_each(|word| self.words[word].store(0, SeqCst));
    }

    /// The latest start.
    pub fn latest(&self) -> u64 {
        self.get(START).max(self.get(FETCH))
    }

    pub fn is_gone(&self) -> bool {
        self.tag.load(SeqCst) != self.of
    }

    /// Earliest time for this start: a gap after the last start from which it keeps its distance, and not before the hold ends.
    pub(super) fn due(&self, start: MachineStart) -> u64 {
        let fetch = if start.is_fetch { self.get(FETCH) } else { 0 };
        let last = self.get(START).max(fetch);
        let next = if last == 0 { 0 } else { last.saturating_add(span(start.gap)) };
        next.max(self.get(HOLD))
    }

    /// Replaces invalid values: a start in the future becomes now, and too long a hold becomes the longest possible. Before that, reads the
    /// clock again: this process may have lost the processor since the last reading, and others may have started requests meanwhile.
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

    pub fn keep(&self, until: u64) {
        self.words[KEPT].fetch_max(until, SeqCst);
    }

    pub(super) fn get(&self, word: usize) -> u64 {
        self.words[word].load(SeqCst)
    }
}

/// Number of words of a slot. Word 8 is unused.
pub(super) const WORDS: usize = 11;
const TURN: usize = 0;
const KEPT: usize = 1;
const HOLD: usize = 2;
/// The end of the longest gap owed.
const OWED: usize = 3;
const BACKOFF: usize = 4;
const LATENCY: usize = 5;
const FETCH: usize = 6;
/// How far own time is behind the clock.
pub(super) const OFF: usize = 7;
pub(super) const START: usize = 9;
/// The last reservation, in own time.
pub(super) const TAIL: usize = 10;
/// Mask of the number of refusals.
const LOW: u64 = 0xffff;
/// Bit of `TURN` beside the process's number: the process's request may have left.
const LEAVING: u64 = 1 << 32;
/// Maximum time in µs by which a noted start may be ahead of the clock, as the noted time is that of the request's arrival.
const AHEAD: u64 = 10_000;
/// An hour in µs.
const HOUR: u64 = 3_600_000_000;
/// Minimum time in µs for which a key's data is kept.
const KEPT_FOR: u64 = 30_000_000;
/// Two years, in µs.
const FAR: u64 = 730 * 24 * HOUR;
