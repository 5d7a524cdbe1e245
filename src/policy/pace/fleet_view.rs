//! Schedules of keys that a fleet shares: the source of their starts, and the starts and observations of the other instances.

use super::gap::{Forecast, halved};
use super::terms::{MAX_BACKOFF, SlotRequest};
use super::{LastStarts, Observed, Phase, Schedule, Slot, TurnSource};
use std::time::{Duration, Instant};

impl<W> Schedule<W> {
    /// Sets the source of starts.
    pub fn follow(&mut self, source: TurnSource) {
        if self.source != source {
            self.source = source;
            self.wait_queue.iter_mut().for_each(|wait_queue| wait_queue.part = None);
            self.pushed_back();
        }
    }

    /// Whether the key's state in the fleet is still unknown.
    pub fn is_unknown(&self) -> bool {
        matches!(self.source, TurnSource::Fleet { known: false, .. })
    }

    /// From now on, allows starts only in this instance's time slices, as this instance is partitioned. `last_start`: the latest start that
    /// another instance may have made before.
    pub fn part(&mut self, phase: Phase, last_start: Option<Instant>) {
        if phase.instances > 1 && !matches!(self.source, TurnSource::Partitioned(_)) {
            self.adopt(LastStarts { last_start, ..LastStarts::default() });
        }
        self.follow(TurnSource::Partitioned(phase));
    }

    /// Whether a request waits while this instance does not have the fleet's turn.
    pub fn is_behind_another(&self) -> bool {
        self.wait_queue.is_some() && matches!(self.source, TurnSource::Fleet { has_turn: false, .. })
    }

    /// Estimates how many instances or processes want the key, including this one. Each of them has reserved one start, a gap apart, so the
    /// estimate is the number of gaps from the last start to the newest reserved one. A last start more than one gap ago counts as one gap
    /// ago, as the key was not in demand in between, or this instance could not ask.
    pub fn rivals(&self, newest: Instant, gap: Duration, now: Instant) -> u32 {
        let last = self.last.last_start.unwrap_or(now).min(now);
        let since = now.checked_sub(gap).map_or(last, |before| last.max(before));
        let gaps = if gap.is_zero() { 1.0 } else { newest.duration_since(since).div_duration_f64(gap) };
        (gaps.round() as u32).clamp(1, MOST_RIVALS)
    }

    /// When the next waiting request is due, according to the starts so far.
    pub fn head_due(&self) -> Option<Instant> {
        self.due(self.wait_queue.as_ref()?.head()?)
    }

    /// The gap of the next waiting request, and whether it is a first fetch of a robots.txt; `None` unless it lacks only the fleet's turn.
    pub fn head_start(&self, now: Instant) -> Option<(Duration, bool)> {
        let head = self.wait_queue.as_ref()?.head()?;
        let ready = if self.has_room(head) {
            Some(head).filter(|head| !self.may_turn(*head))
        } else {
            self.next_lent(false, None).filter(|lent| lent.at <= now).map(|lent| lent.demand)
        };
        let inputs = self.inputs();
        ready.map(|ready| (inputs.between_starts(ready), ready.first_fetch))
    }

    /// The instants from which starts keep their distance.
    pub fn last_starts(&self) -> LastStarts {
        self.last
    }

    /// Adopts the starts of other instances.
    pub fn adopt(&mut self, others: LastStarts) {
        let last = self.last.max(others);
        if self.last != last {
            // Our request that has not left yet loses its slot to the other instance's start.
            self.pending.take_if(|_| self.last.last_start != last.last_start);
            self.starts += 1;
            self.last = last;
            self.pushed_back();
        }
    }

    /// Replaces the observations by those of the fleet.
    pub fn adopt_observed(&mut self, observed: Observed) {
        let observed = Observed { backoff: observed.backoff.min(MAX_BACKOFF), ..observed };
        if self.observed != observed {
            // If the backoff was raised, the outcomes of starts until now must not change it.
            if observed.backoff > self.observed.backoff {
                self.raised_at = self.starts;
            }
            self.observed = observed;
            self.pushed_back();
        }
    }

    /// Whether a request that has its slot but has not left may leave now: the source of starts is still the same, and no other request has
    /// started since. `has_turn`: the request still has the fleet's turn.
    pub fn holds(&self, slot: &Slot, has_turn: bool) -> bool {
        let is_there = match (self.source, slot.is_shared) {
            (TurnSource::Own, _) => return true,
            (TurnSource::Fleet { .. }, true) => has_turn,
            (TurnSource::Fleet { .. }, false) => slot.gap.is_zero(),
            (TurnSource::Partitioned(_), is_shared) => !is_shared,
        };
        is_there && (slot.gap.is_zero() || self.pending == Some(slot.number))
    }

    /// The phase of a partitioned instance, and the gap, which is the length of its time slices. `None`: starts are allowed at any time.
    fn phase(&self, request: SlotRequest) -> Option<(Phase, Duration)> {
        let TurnSource::Partitioned(phase) = self.source else { return None };
        let gap = self.inputs().between_starts(request);
        (phase.instances > 1 && !gap.is_zero()).then_some((phase, gap))
    }

    /// Whether the instance's time slices allow a new request to start now. A request waits until a slice begins. If it cannot wait that
    /// long, it may start at any time within a slice.
    #[inline]
    pub(super) fn is_in_part(&self, now: Instant, request: SlotRequest, max_wait: Duration) -> bool {
        self.phase(request).is_none_or(|(phase, gap)| {
            let next = phase.next(now, gap);
            next == now || next - now > max_wait && phase.has(now, gap)
        })
    }

    /// Reserves a start in one of this instance's time slices for the next request, and returns the start. The start stays reserved for a
    /// while after it was due, as a timer may be late.
    pub(super) fn reserve_part(&mut self, now: Instant, head: SlotRequest) -> Option<Instant> {
        let (phase, gap) = self.phase(head)?;
        let due = self.due(head);
        let wait_queue = self.wait_queue.as_mut()?;
        let holds =
            |(of, at): &(Duration, Instant)| *of == gap && due.is_none_or(|due| due <= *at) && now <= *at + gap / LATE;
        let part = wait_queue.part.filter(holds).unwrap_or_else(|| {
            wait_queue.pushed_back = true;
            (gap, phase.next(due.map_or(now, |due| due.max(now)), gap))
        });
        wait_queue.part = Some(part);
        Some(part.1)
    }

    /// Begins a forecast: returns its inputs and the first possible start.
    pub(super) fn forecast_from(&self, now: Instant, request: SlotRequest) -> (Forecast, Instant) {
        let mut inputs = self.forecast_inputs();
        if self.in_flight > 0 && self.starts > self.raised_at.max(self.learned) {
            inputs.backoff = halved(inputs.backoff);
        }
        let from = |last, first| (Forecast { last, inputs }, first);
        let wait_queue = self.wait_queue.as_deref();
        let head = wait_queue.and_then(|wait_queue| wait_queue.head()).unwrap_or(request);
        match (self.phase(head), self.source) {
            (Some((phase, gap)), _) => {
                let reserved = wait_queue.and_then(|wait_queue| wait_queue.part).map(|(_, at)| at);
                let first = reserved.unwrap_or_else(|| phase.next(self.due(head).map_or(now, |due| due.max(now)), gap));
                // `first` already keeps its distance from the last starts.
                from(LastStarts { last_start: None, last_fetch: None, ..self.last }, first.max(now))
            }
            (None, TurnSource::Fleet { reserved: Some(first), .. }) => {
                // The reserved start is a gap after the earlier reserved starts, provided that these are on time.
                let first = first.max(now).max(self.due(head).unwrap_or(now));
                from(LastStarts { hold: self.last.hold, ..LastStarts::default() }, first)
            }
            (None, _) => from(self.last, now),
        }
    }

    /// Whether this instance has the fleet's turn, or the request does not need the turn.
    #[inline]
    pub(super) fn may_turn(&self, demand: SlotRequest) -> bool {
        matches!(self.source, TurnSource::Fleet { has_turn: true, .. })
            || !self.source.is_shared(demand, self.backoff())
    }
}

const MOST_RIVALS: u32 = 64;
/// Divisor of a gap: a start that is late by more than a quarter of a gap comes too close to the next instance's start.
const LATE: u32 = 4;
