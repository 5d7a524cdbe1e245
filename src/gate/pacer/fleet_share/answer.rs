//! Processes the fleet's answers in an instance. Pure.

use super::reservation::ReservedStart;
use super::{FleetShare, TICK};
use crate::gate::fleet::{PaceAnswer, PaceCall, WantedStart};
use crate::policy::pace::{LastStarts, Observed, Schedule};
use std::time::{Duration, Instant};

impl FleetShare {
    /// Processes the answer to the call made at `asked`. `None`: the call failed.
    pub fn answered<W>(
        &mut self,
        schedule: &mut Schedule<W>,
        call: &PaceCall,
        answer: Option<PaceAnswer>,
        asked: Instant,
        now: Instant,
    ) {
        let Some((link, told)) = self.calling.take() else { return };
        if link != self.link {
            // The call may have gone to another server, whose answer does not apply to this server.
            return;
        }
        let Some(answer) = answer else {
            (self.fails, self.ask_at) = (true, self.ask_at.max(Some(now + RETRY)));
            return;
        };
        (self.fails, self.known) = (false, !self.nudged);
        (self.way, self.way_on) = (smoothed(self.way, now - asked), answer.way);
        self.arrival = smoothed(self.arrival, answer.arrival).max(answer.arrival);
        self.busy = answer.busy;
        self.unused.take_if(|unused| Some(unused.window) == call.unused);
        self.used = self.used.take().and_then(|used| used.told(call, asked));
        let hold = answer.hold.filter(|at| schedule.last_starts().hold.is_none_or(|own| *at > own + TICK));
        schedule.adopt(LastStarts { hold, ..LastStarts::default() });
        // Merged, as the host may have answered requests during the call.
        let merged = schedule.observed().told(told, answer.observed);
        schedule.adopt_observed(Observed { backoff: merged.backoff.max(answer.observed.backoff), ..merged });
        self.seen = answer.observed;
        self.told = self.told.max(call.starts).max(LastStarts { hold: schedule.last_starts().hold, ..self.told });
        let Some(WantedStart { is_fetch, .. }) = call.wants else { return };
        self.number = None;
        let Some(window) = answer.reserved else { return };
        let mut reserved = ReservedStart::new(window, &answer, call.gap, self.missed);
        reserved.put_off(self.put_off);
        self.rivals = schedule.rivals(reserved.start, reserved.gap, now);
        self.reserved = Some(reserved);
        // If this instance does not know the start that precedes the reserved one, another instance made it.
        let (own, before) = (schedule.last_starts(), Some(answer.clock.instant(window.before)));
        let (mark, starts) = match is_fetch {
            true => (own.last_fetch, LastStarts { last_fetch: before, ..LastStarts::default() }),
            false => (own.last_start, LastStarts { last_start: before, ..LastStarts::default() }),
        };
        // A start whose request was not sent yet may still be given back.
        let has_left = self.used.is_none_or(|used| used.has_left());
        if before <= Some(now) && mark.is_none_or(|own| before > Some(own + TICK)) && has_left {
            schedule.adopt(starts);
            self.told = self.told.max(starts);
        }
    }
}

/// Moving average, so that one slow answer counts for little.
fn smoothed(before: Duration, round_trip: Duration) -> Duration {
    if before.is_zero() { round_trip } else { (before * 3 + round_trip) / 4 }
}

const RETRY: Duration = Duration::from_millis(100);
