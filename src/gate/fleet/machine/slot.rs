//! What the processes of a machine know of one key, in words of their file (docs/fleet.md).
//!
//! Each line of a key (requests with the same delay) has two words: its last start, and the last one that has been reserved.
//! A start has the key's turn beside, which one process has at a time until its request has ended, and by which nothing starts
//! early however late the one before it left. Of those who wait for the turn longer than they reserved for, the one with the
//! earliest reservation is next: it says so each time it looks, and who does not say so any more is forgotten.
//! Times are microseconds (`clock`); nothing that is read is trusted beyond sense.

use super::key_view::{KeyView, SlotStart, SlotTurn};
use super::key_words::{
    BACKOFF, FETCH, HOLD, KEPT, LATENCY, LEAVING, LOW, NEXT, NEXT_SAID, OWED, STARTS, TAILS, TURN, packed, place_of,
};
use crate::policy::pace::{Observed, reserve};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// A key's words.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeySlot<'a> {
    /// Whose it is; another key's, as soon as the words are needed for that.
    tag: &'a AtomicU64,
    of: u64,
    words: &'a [AtomicU64],
}

impl<'a> KeySlot<'a> {
    pub fn new(tag: &'a AtomicU64, of: u64, words: &'a [AtomicU64]) -> Self {
        Self { tag, of, words }
    }

    pub fn view(&self, line: u16, now: u64, most: u64) -> KeyView {
        self.sanitize(now, most);
        let [hold, owed, fetch] = [HOLD, OWED, FETCH].map(|word| self.get(word));
        let backoff = self.get(BACKOFF);
        let refusals = u32::try_from(backoff & LOW).unwrap_or(u32::MAX);
        KeyView {
            last_start: self.last_start(line),
            last_fetch: fetch.min(now + AHEAD),
            hold: hold.min(now + most),
            owed: owed.min(now + most),
            backoff: Duration::from_micros((backoff >> 16).min(most)),
            observed: Observed { latency: Duration::from_micros(self.get(LATENCY).min(HOUR)), refusals },
        }
    }

    /// The next free start of the line, which is the caller's then. That of a first fetch of robots.txt is nobody's: requests keep
    /// no distance from it, and of several the first that takes the turn goes first.
    pub fn reserve(&self, SlotStart { line, gap, is_fetch }: SlotStart, now: u64) -> u64 {
        let hold = self.get(HOLD).min(now + HOUR);
        if is_fetch {
            return reserve(self.last_start(line).max(self.get(FETCH)).min(now + AHEAD), gap, hold, now);
        }
        loop {
            let words = TAILS.map(|word| (word, self.get(word)));
            let tail = place_of(line, &words);
            // What lies further ahead than others can have reserved is nonsense.
            let reserved =
                if tail.is_there { tail.at.min(now.saturating_add(gap.saturating_mul(MOST_RESERVED))) } else { 0 };
            let start = reserve(reserved.max(self.last_start(line).min(now + AHEAD)), gap, hold, now);
            let word = &self.words[tail.word];
            if word.compare_exchange(tail.value, packed(start, line), SeqCst, SeqCst).is_ok() {
                return start;
            }
        }
    }

    /// Nobody wants the start any more; if it is still the last, it is the next one's.
    pub fn give_back(&self, SlotStart { line, gap, is_fetch }: SlotStart, start: u64, me: u32) {
        self.step_back(me);
        if is_fetch {
            return;
        }
        let before = packed(start.saturating_sub(gap), line);
        for word in TAILS {
            let _ = self.words[word].compare_exchange(packed(start, line), before, SeqCst, SeqCst);
        }
    }

    /// Takes the key's turn for `me`, if the start is due, and if nobody waits for it whose start was `reserved` earlier.
    pub fn take(&self, start: SlotStart, reserved: u64, me: u32, now: u64, most: u64) -> SlotTurn {
        self.keep(now.saturating_add(start.gap).saturating_add(KEPT_FOR));
        let is_due = || {
            self.sanitize(now, most);
            let due = self.due(start);
            (due > now).then_some(SlotTurn::NotBefore(due))
        };
        if let Some(early) = is_due() {
            return early;
        }
        let is_next = self.stand(reserved, me, now);
        // Who is not next just looks.
        let free = if is_next { 0 } else { u64::MAX };
        match self.words[TURN].compare_exchange(free, u64::from(me), SeqCst, SeqCst) {
            Ok(_) => {}
            Err(0) => return SlotTurn::Behind,
            Err(word) => return SlotTurn::Of { process: word as u32, word },
        }
        self.step_back(me);
        // Another may have had it in between, and it may have become another key's.
        let lost = if self.is_gone() { Some(SlotTurn::Gone) } else { is_due() };
        if let Some(lost) = lost {
            self.release(me);
            return lost;
        }
        SlotTurn::Taken
    }

    /// Who of those who wait is next. True: `me`.
    fn stand(&self, reserved: u64, me: u32, now: u64) -> bool {
        let (next, said) = (self.get(NEXT), self.get(NEXT_SAID));
        let (is_mine, mine) = (next as u16 == me as u16, packed(reserved, me as u16));
        let is_waiting = next != 0 && now.abs_diff(said) <= STANDS_FOR;
        if is_waiting && !is_mine && next < mine {
            return false;
        }
        self.words[NEXT_SAID].store(now, SeqCst);
        self.words[NEXT].compare_exchange(next, mine, SeqCst, SeqCst).is_ok()
    }

    /// It does not wait any more.
    fn step_back(&self, me: u32) {
        let mine = |next: u64| (next as u16 == me as u16).then_some(0);
        let _ = self.words[NEXT].fetch_update(SeqCst, SeqCst, mine);
    }

    /// The process has ended that had the turn: what it was about to send may have left at any time until now.
    pub fn bury(&self, word: u64, now: u64) {
        let line = (word >> 32) as u16;
        if word & LEAVING != 0 {
            self.start(line, now);
            self.words[FETCH].fetch_max(now, SeqCst);
        }
        let _ = self.words[TURN].compare_exchange(word, 0, SeqCst, SeqCst);
    }

    /// The request of the turn that is `me`'s leaves at that time, or `is_gone`.
    pub fn left(&self, start: SlotStart, me: u32, at: u64, is_gone: bool) {
        let leaving = if is_gone { 0 } else { LEAVING };
        let mine = |word: u64| (word as u32 == me).then_some(u64::from(me) | u64::from(start.line) << 32 | leaving);
        // Before it is sent; and it is known to have left once that is noted.
        if !is_gone {
            let _ = self.words[TURN].fetch_update(SeqCst, SeqCst, mine);
        }
        if start.is_fetch {
            self.words[FETCH].fetch_max(at, SeqCst);
        } else {
            self.start(start.line, at);
        }
        self.words[OWED].fetch_max(at.saturating_add(start.gap), SeqCst);
        if is_gone {
            let _ = self.words[TURN].fetch_update(SeqCst, SeqCst, mine);
        }
    }

    /// The turn is free, if it is `me`'s.
    pub fn release(&self, me: u32) {
        let _ = self.words[TURN].fetch_update(SeqCst, SeqCst, |word| (word as u32 == me).then_some(0));
    }

    /// What a host's answers have come to.
    pub fn learn(&self, backoff: Duration, Observed { latency, refusals }: Observed, hold: u64) {
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).min(HOUR);
        self.words[BACKOFF].store(micros(backoff) << 16 | u64::from(refusals).min(LOW), SeqCst);
        self.words[LATENCY].store(micros(latency), SeqCst);
        self.words[HOLD].fetch_max(hold, SeqCst);
        if !backoff.is_zero() || refusals > 0 {
            self.keep(hold.saturating_add(HOUR));
        }
    }

    /// No start before; and what led to that.
    pub fn owe(&self, until: u64, backoff: Duration, refusals: u32) {
        let latency = Duration::from_micros(self.get(LATENCY));
        self.words[OWED].fetch_max(until, SeqCst);
        self.learn(backoff, Observed { latency, refusals }, 0);
        self.keep(until);
    }

    /// When nothing of it matters any more: the words may be another key's then.
    pub fn over(&self, now: u64) -> u64 {
        let words = [KEPT, HOLD, OWED].into_iter().chain(TAILS).map(|word| {
            let at = if TAILS.contains(&word) { self.get(word) >> 16 } else { self.get(word) };
            // Further ahead than anything can be is nonsense.
            if at > now.saturating_add(FAR) { 0 } else { at }
        });
        words.max().unwrap_or(0)
    }

    /// The process that has the key's turn, or had it when it ended.
    pub fn process(&self) -> Option<u32> {
        Some(self.get(TURN) as u32).filter(|process| *process != 0)
    }

    /// For the key that is new here. Until all that the one before has left is gone, the words are nobody's.
    pub fn begin(&self, now: u64) {
        self.tag.store(0, SeqCst);
        self.words.iter().for_each(|word| word.store(0, SeqCst));
        self.keep(now.saturating_add(KEPT_FOR));
        self.tag.store(self.of, SeqCst);
    }

    /// Whether it is nobody's.
    pub fn is_free(&self) -> bool {
        self.tag.load(SeqCst) == 0
    }

    /// As if no time had passed between the two; and nobody has its turn.
    pub fn moved(&self, from: u64, to: u64) {
        let moved = |at: u64| at.saturating_add(to).saturating_sub(from).max(1);
        for word in [KEPT, HOLD, OWED, FETCH] {
            let _ = self.words[word].fetch_update(SeqCst, SeqCst, |at| (at != 0).then(|| moved(at)));
        }
        for word in STARTS {
            let again = |word: u64| (word != 0).then(|| packed(moved(word >> 16), word as u16));
            let _ = self.words[word].fetch_update(SeqCst, SeqCst, again);
        }
        for word in TAILS.into_iter().chain([TURN, NEXT]) {
            self.words[word].store(0, SeqCst);
        }
    }

    /// The latest time at which something was done.
    pub fn latest(&self) -> u64 {
        let starts = STARTS.map(|word| self.get(word) >> 16);
        starts.into_iter().max().unwrap_or(0).max(self.get(FETCH))
    }

    pub fn is_gone(&self) -> bool {
        self.tag.load(SeqCst) != self.of
    }

    fn due(&self, start: SlotStart) -> u64 {
        let last = self.last_start(start.line);
        let last = if start.is_fetch { last.max(self.get(FETCH)) } else { last };
        // 0 is never.
        last.saturating_add(if last == 0 { 0 } else { start.gap }).max(self.get(HOLD))
    }

    /// Of the line; one that has not been there counts from the last start of any.
    fn last_start(&self, line: u16) -> u64 {
        let words = STARTS.map(|word| (word, self.get(word)));
        let place = place_of(line, &words);
        if place.is_there { place.at } else { words.iter().map(|(_, value)| value >> 16).max().unwrap_or(0) }
    }

    /// Only who has the turn, or takes it from a process that has ended.
    fn start(&self, line: u16, at: u64) {
        loop {
            let words = STARTS.map(|word| (word, self.get(word)));
            let place = place_of(line, &words);
            let at = if place.is_there { at.max(place.at) } else { at };
            let word = &self.words[place.word];
            if word.compare_exchange(place.value, packed(at, line), SeqCst, SeqCst).is_ok() {
                return;
            }
        }
    }

    /// Replaces nonsense: a start that lies ahead counts as of now, and a hold as the longest that there is.
    fn sanitize(&self, now: u64, most: u64) {
        for word in STARTS {
            let value = self.get(word);
            if value >> 16 > now.saturating_add(AHEAD) {
                let _ = self.words[word].compare_exchange(value, packed(now, value as u16), SeqCst, SeqCst);
            }
        }
        for (word, latest) in [(FETCH, now), (HOLD, now.saturating_add(most))] {
            let value = self.get(word);
            if value > latest.saturating_add(AHEAD) {
                let _ = self.words[word].compare_exchange(value, latest, SeqCst, SeqCst);
            }
        }
    }

    /// A word that a key which is no host's uses as it likes.
    pub fn free_word(&self, number: usize) -> &'a AtomicU64 {
        &self.words[number]
    }

    pub fn keep(&self, until: u64) {
        self.words[KEPT].fetch_max(until, SeqCst);
    }

    fn get(&self, word: usize) -> u64 {
        self.words[word].load(SeqCst)
    }
}

/// Longer than who waits takes to look again.
const STANDS_FOR: u64 = 250_000;
/// Processes that can be ahead, each with one start.
const MOST_RESERVED: u64 = 64;
/// A start is noted before it has arrived.
const AHEAD: u64 = 10_000;
const HOUR: u64 = 3_600_000_000;
/// For so long what is known of a key stays there at least.
const KEPT_FOR: u64 = 30_000_000;
/// Two years.
const FAR: u64 = 730 * 24 * HOUR;
