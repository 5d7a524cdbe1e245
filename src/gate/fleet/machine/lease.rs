//! A key's lease among the processes of one machine.

use super::clock::{instant, nanos, span};
use super::key_slot::KeySlot;
use super::slots::{BUCKET, Id, LOCKS};
use super::{LeaseOp, LeaseRequest, LeaseStatus, LockedParts, Machine, TurnPlace};
use crate::policy::pace::LastStarts;
use std::collections::hash_map::Entry;
use std::fs;
use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

impl Machine {
    /// `None`: another changes what its bucket has, which takes microseconds.
    pub(super) fn ask(&self, key: &str, request: &LeaseRequest, at: Instant) -> io::Result<Option<LeaseStatus>> {
        let (Self { slots, .. }, id) = (self, self.slots.id(key));
        let LeaseRequest { op, gap, .. } = *request;
        let (mut parts, now) = (self.parts.lock(), nanos(at));
        let mut slot = slots.find(id)?.map_or_else(KeySlot::default, |(_, slot)| slot);
        let waiting = slots.count_locked(id.lease() + 1, id.lease() + LOCKS)?;
        let place = match (op, parts.get(&id)) {
            (LeaseOp::Take | LeaseOp::Keep, Some(byte)) if *byte == id.lease() => TurnPlace::Leased(LEASE),
            (LeaseOp::Give | LeaseOp::Keep, _) => TurnPlace::None,
            (LeaseOp::Take, _) if gap.is_zero() && !slot.holds_back(now) => TurnPlace::Free,
            (LeaseOp::Take, _) => self.take(&mut parts, id, gap, &slot, waiting, now)?,
        };
        // What the last holder of the lease was sending when it was killed may have been sent since.
        let now = now.max(nanos(Instant::now()));
        if matches!(place, TurnPlace::Queued(_)) && now > slot.due(gap).saturating_add(span(LATE)) {
            self.warn_of_stopped(slot.by, key);
        }
        let is_mine = parts.get(&id) == Some(&id.lease());
        let mine = is_mine.then_some(self.me);
        let hold = request.starts.hold.map_or(0, |hold| nanos(hold.min(at + request.most)));
        let hold = if hold > now { hold } else { 0 };
        let after = slot.after(request, mine, hold, now);
        let has_news = slot.has_learned(&after)
            // With thousands of hosts to wait for, what is kept on is not noted each time.
            || is_mine && (op != LeaseOp::Keep || slot.by != self.me || slot.until.saturating_add(span(NOTED / 2)) < after.until);
        if has_news {
            if !slots.lock(id.bucket(), BUCKET)? {
                return Ok(None);
            }
            let (place, known) = slots.find_room(id, now)?;
            slot = known.after(request, mine, hold, now);
            // Nobody notes starts in a new one.
            let is_whole = is_mine || known.until == 0;
            if is_whole { slots.write((place, slot)) } else { slots.write_refusal((place, slot)) }?;
            slots.unlock(id.bucket(), BUCKET)?;
        }
        if op == LeaseOp::Give || place == TurnPlace::Free {
            self.let_go(&mut parts, id)?;
        }
        let rivals = waiting + 1 + u32::from(matches!(place, TurnPlace::Queued(_)));
        if place != TurnPlace::Free {
            self.rivals.store(rivals, Ordering::Relaxed);
        }
        let start = |start: u64| instant(if start > now + span(AHEAD) { now } else { start });
        let starts = LastStarts {
            last_start: start(slot.last_start),
            last_fetch: start(slot.last_fetch),
            hold: instant(slot.hold).map(|hold| hold.min(at + request.most)).filter(|hold| *hold > at),
        };
        Ok(Some(LeaseStatus { place, starts, backoff: slot.backoff(), observed: slot.observed(), rivals }))
    }

    /// The lease, or a place among the processes that wait.
    fn take(
        &self,
        parts: &mut LockedParts,
        id: Id,
        gap: Duration,
        known: &KeySlot,
        waiting: u32,
        now: u64,
    ) -> io::Result<TurnPlace> {
        let (due, gap) = (known.due(gap), gap.max(known.backoff()));
        let look_every = (gap / LOOKS).clamp(LOOK_LEAST, LOOK_MOST);
        // A process that releases it while others wait is behind them in the line.
        let comes_back = due.max(known.given).saturating_add(2 * span(look_every));
        let stands_back = known.by == self.me && known.given != 0 && waiting > 0 && now < comes_back;
        if !stands_back && self.slots.lock(id.lease(), 1)? {
            if let Some(byte) = parts.insert(id, id.lease()) {
                self.slots.unlock(byte, 1)?;
            }
            return Ok(TurnPlace::Leased(LEASE));
        }
        let mut wishes = id.lease() + 1..id.lease() + LOCKS;
        if let Entry::Vacant(part) = parts.entry(id)
            && let Some(byte) = wishes.find(|byte| self.slots.lock(*byte, 1).unwrap_or(false))
        {
            part.insert(byte);
        }
        let left = Duration::from_nanos((if stands_back { comes_back } else { due }).saturating_sub(now));
        Ok(TurnPlace::Queued(left.clamp(look_every, LOOK_AGAIN)))
    }

    pub(super) fn let_go(&self, parts: &mut LockedParts, id: Id) -> io::Result<()> {
        parts.remove(&id).map_or(Ok(()), |byte| self.slots.unlock(byte, 1))
    }

    fn warn_of_stopped(&self, by: u64, key: &str) {
        let pid = (by >> 32) as u32;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let is_stopped = stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['T', 't']));
        if is_stopped && self.warned_of.swap(pid, Ordering::Relaxed) != pid {
            tracing::warn!(
                hint = "continue it (`fg`, or `kill -CONT`), or end it",
                "another politely (process {pid}) is suspended while it holds the lease for {key}: requests to that host wait until it continues or ends"
            );
        }
    }
}

impl KeySlot {
    /// With what is asked and reported. `mine`: the process, if it has the lease.
    fn after(mut self, request: &LeaseRequest, mine: Option<u64>, hold: u64, now: u64) -> Self {
        let most = span(request.most);
        let backoff = span(request.backoff).min(most);
        let (latency, refusals) = (span(request.observed.latency), u64::from(request.observed.refusals));
        (self.backoff, self.latency, self.refusals) = match mine.is_some() && request.is_exact {
            true => (backoff, latency, refusals),
            false => (self.backoff.max(backoff), self.latency.max(latency), self.refusals.max(refusals)),
        };
        // What is further ahead than anything can be is nonsense, or of before the machine was started.
        self.hold = self.hold.min(now + most).max(hold);
        for start in [&mut self.last_start, &mut self.last_fetch] {
            *start = (*start).min(now + span(AHEAD));
        }
        let mut matters = request.matters;
        if let Some(me) = mine {
            self.by = me;
            self.given = if request.op == LeaseOp::Give { now } else { 0 };
            matters = matters.max(request.gap.max(self.backoff()) + NOTED);
            if request.op == LeaseOp::Take {
                if self.leaving {
                    // The last holder of the lease was killed, and it is unknown when the request left.
                    (self.last_start, self.last_fetch) = (now, now);
                }
                // Later ones are noted as they leave.
                self.learn(request.starts);
            }
            self.leaving &= request.op == LeaseOp::Keep;
        }
        let most = request.most + HOUR;
        self.until = self.until.min(now + span(most)).max(now + span(matters.min(most)));
        self
    }

    /// Whether `after` says more of the origin.
    fn has_learned(&self, after: &Self) -> bool {
        let of_origin = |slot: &Self| (slot.backoff, slot.latency, slot.refusals);
        of_origin(self) != of_origin(after) || after.hold > self.hold
    }
}

/// How often a process that waits looks within a gap, if the holder takes longer than that.
const LOOKS: u32 = 16;
const LOOK_LEAST: Duration = Duration::from_millis(10);
const LOOK_MOST: Duration = Duration::from_millis(100);
/// What is owed may come to less.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Nobody takes as long for a request as a rule.
const LATE: Duration = Duration::from_secs(2);
/// The pacer renews it more often.
pub(super) const LEASE: Duration = Duration::from_secs(3);
/// For so long what is known of a key stays there at least.
pub(super) const NOTED: Duration = Duration::from_secs(30);
/// A start is noted before it has arrived.
const AHEAD: Duration = Duration::from_millis(10);
pub(super) const HOUR: Duration = Duration::from_secs(3600);
