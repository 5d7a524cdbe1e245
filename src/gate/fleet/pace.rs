//! A call for one key's starts at the server (`pace.lua`): the instance's report and reservation, and the answer.

use super::clock::ServerClock;
use super::scripts;
use crate::policy::pace::{LastStarts, Observed};
use redis::ScriptInvocation;
use std::time::{Duration, Instant};

/// A call of `pace.lua` for one key: the start to reserve, if any, and changes that the server does not know yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) struct PaceCall {
    /// The start to reserve.
    pub wants: Option<WantedStart>,
    /// The gap of that start; if none is wanted, the longest gap in force.
    pub gap: Duration,
    /// A reservation to give back.
    pub unused: Option<StartWindow>,
    /// A missed window, and how late its request was sent, or will be sent at the earliest.
    pub late: Option<(StartWindow, Duration)>,
    /// The last starts known to this instance.
    pub starts: LastStarts,
    /// How long a request will still be in flight. Zero: it has ended. `None`: no news.
    pub in_flight: Option<Duration>,
    /// The observations last received from the server, and the current ones.
    pub observed: [Observed; 2],
    /// Upper limit of a debt, that is, of the time for which nothing may start.
    pub most: Duration,
    /// Round trip of this instance.
    pub way: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::gate) struct WantedStart {
    /// Number of the reservation: a repeated call with the same number gets the same start.
    pub number: u64,
    /// Whether this is the first fetch of a robots.txt.
    pub is_fetch: bool,
    /// How long the server's answer takes to arrive; an earlier start would be missed.
    pub lead: Duration,
    /// Maximum time from the start until its request is sent.
    pub margin: Duration,
}

/// When a request may be sent, in microseconds by the server's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::gate) struct StartWindow {
    pub start: u64,
    pub end: u64,
    /// The end of the previous window.
    pub before: u64,
}

/// The server's answer. Instants are by the local clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) struct PaceAnswer {
    /// The server's clock, updated by this answer.
    pub clock: ServerClock,
    /// The reserved start. `None`: not needed, or not requested.
    pub reserved: Option<StartWindow>,
    /// Total postponement of the key's starts so far, because requests were sent late, in microseconds.
    pub put_off: u64,
    /// Time until which, at least, a request of some instance is in flight.
    pub busy: Option<Instant>,
    /// Time before which nothing may start, because the host has asked for a pause.
    pub hold: Option<Instant>,
    pub observed: Observed,
    /// The longest round trip of an instance.
    pub way: Duration,
    /// How long the answer took to arrive.
    pub arrival: Duration,
}

/// The script's arguments after the instance.
pub(in crate::gate) type PaceNumbers = [i64; 21];
/// The reply of `pace.lua`, read by [`PaceCall::answer`].
pub(in crate::gate) type PaceReply = (u64, u64, u64, u64, u64, u64, u64, u64, u32, u64);

impl PaceCall {
    pub(super) fn invocation(&self, key: &str, me: &str, clock: &ServerClock) -> ScriptInvocation<'static> {
        let mut call = scripts::PACE.key(format!("politely:{{{key}}}:pace"));
        call.arg(me);
        for number in self.numbers(clock, Instant::now()) {
            call.arg(number);
        }
        call
    }

    pub fn numbers(&self, clock: &ServerClock, now: Instant) -> PaceNumbers {
        let number = |micros: u64| i64::try_from(micros).unwrap_or(i64::MAX);
        let span = |duration: Duration| number(micros(duration));
        let at = |at: Option<Instant>| at.map_or(0, |at| number(clock.micros(at)));
        let wants = self.wants.unwrap_or_default();
        let unused = self.unused.unwrap_or_default();
        let (late, by) = self.late.unwrap_or_default();
        let [heard, observed] = self.observed;
        [
            number(wants.number),
            span(self.gap),
            span(wants.lead),
            span(wants.margin),
            i64::from(wants.is_fetch),
            number(unused.end),
            number(unused.before),
            number(late.end),
            number(late.end.saturating_add(micros(by))),
            at(self.starts.last_start),
            at(self.starts.last_fetch),
            span(self.starts.hold.map_or(Duration::ZERO, |hold| hold.saturating_duration_since(now))),
            self.in_flight.map_or(-1, span),
            span(heard.backoff),
            span(observed.backoff),
            span(heard.latency),
            span(observed.latency),
            i64::from(heard.refusals),
            i64::from(observed.refusals),
            span(self.most),
            span(self.way),
        ]
    }

    /// Reads the reply to the call. `clock`: the estimate of the server's clock before the reply. `asked`: the time of the call. `now`: the
    /// time of the reply.
    pub fn answer(&self, reply: PaceReply, clock: &ServerClock, asked: Instant, now: Instant) -> PaceAnswer {
        let (time, start, before, put_off, busy, hold, backoff, latency, refusals, way) = reply;
        // In a cluster, each node has its own clock: this answer may correct the estimate for its node.
        let clock = clock.heard(time, asked, now);
        let later = |at: u64| (at > time).then(|| clock.instant(at.min(time.saturating_add(FAR))));
        let margin = self.wants.map_or(Duration::ZERO, |wants| wants.margin);
        PaceAnswer {
            clock,
            reserved: (start > 0).then(|| StartWindow { start, end: start.saturating_add(micros(margin)), before }),
            put_off,
            busy: later(busy),
            // A hold longer than `most` can only come from a wrong clock.
            hold: later(hold).map(|hold| hold.min(now + self.most)),
            observed: Observed {
                backoff: Duration::from_micros(backoff),
                latency: Duration::from_micros(latency.min(FAR)),
                refusals,
            },
            way: Duration::from_micros(way.min(FAR)),
            arrival: now.saturating_duration_since(clock.instant(time)),
        }
    }
}

impl StartWindow {
    /// Postpones the window by `by` microseconds.
    pub fn put_off(&mut self, by: u64) {
        (self.start, self.end) = (self.start.saturating_add(by), self.end.saturating_add(by));
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(FAR).min(FAR)
}

/// Upper limit of times, in microseconds: a year. The script's numbers are exact up to 285 years.
const FAR: u64 = 366 * 24 * 3_600_000_000;
