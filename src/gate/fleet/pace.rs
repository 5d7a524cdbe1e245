//! One key's starts at the server (`pace.lua`): what an instance tells and reserves, and what it hears.

use super::clock::ServerClock;
use super::scripts;
use crate::policy::pace::{LastStarts, Observed};
use redis::ScriptInvocation;
use std::time::{Duration, Instant};

/// What an instance wants, and what it knows that the server may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) struct PaceCall {
    /// The start that is to be reserved.
    pub wants: Option<WantedStart>,
    /// The longest gap that is in force, or that of the start.
    pub gap: Duration,
    /// A reservation that nobody uses.
    pub unused: Option<StartWindow>,
    /// By how much later than in its window a request has left, or leaves at the earliest.
    pub late: Option<(StartWindow, Duration)>,
    /// As this instance knows them.
    pub starts: LastStarts,
    /// For how long a request is in flight still; zero: it has ended.
    pub in_flight: Option<Duration>,
    /// As it was heard, and now.
    pub backoff: [Duration; 2],
    pub observed: [Observed; 2],
    /// Nobody owes more.
    pub most: Duration,
    /// The round trip from this instance.
    pub way: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::gate) struct WantedStart {
    /// Which reservation it is: another call of the same number gets the same start.
    pub number: u64,
    /// Whether it is the first fetch of a robots.txt.
    pub is_fetch: bool,
    /// How long the answer takes to arrive: the start would be over before.
    pub lead: Duration,
    /// How much later than at the start it may leave.
    pub margin: Duration,
}

/// When a request may leave, in microseconds by the server's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::gate) struct StartWindow {
    pub start: u64,
    pub end: u64,
    /// The end of the one before.
    pub before: u64,
}

/// What the server answers. Instants by our clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) struct PaceAnswer {
    /// By which the rest is understood.
    pub clock: ServerClock,
    /// The start that is reserved. `None`: none is needed, or none was wanted.
    pub reserved: Option<StartWindow>,
    /// How much all starts have been put off so far, in microseconds.
    pub put_off: u64,
    /// A request of an instance is in flight at least until then.
    pub busy: Option<Instant>,
    pub hold: Option<Instant>,
    pub backoff: Duration,
    pub observed: Observed,
    /// The longest round trip of an instance.
    pub way: Duration,
    /// How long the answer took to arrive.
    pub arrival: Duration,
}

/// What the script takes after the name of the instance.
pub(in crate::gate) type PaceNumbers = [i64; 21];
/// What it answers.
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
        let [backoff_heard, backoff] = self.backoff;
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
            span(backoff_heard),
            span(backoff),
            span(heard.latency),
            span(observed.latency),
            i64::from(heard.refusals),
            i64::from(observed.refusals),
            span(self.most),
            span(self.way),
        ]
    }

    /// `clock`: as it was known before the answer, which came at `now` to what was asked at `asked`.
    pub fn answer(&self, reply: PaceReply, clock: &ServerClock, asked: Instant, now: Instant) -> PaceAnswer {
        let (time, start, before, put_off, busy, hold, backoff, latency, refusals, way) = reply;
        // Of a cluster, each node has a clock.
        let clock = clock.heard(time, asked, now);
        let later = |at: u64| (at > time).then(|| clock.instant(at.min(time.saturating_add(FAR))));
        let margin = self.wants.map_or(Duration::ZERO, |wants| wants.margin);
        PaceAnswer {
            clock,
            reserved: (start > 0).then(|| StartWindow { start, end: start.saturating_add(micros(margin)), before }),
            put_off,
            busy: later(busy),
            hold: later(hold),
            backoff: Duration::from_micros(backoff),
            observed: Observed { latency: Duration::from_micros(latency.min(FAR)), refusals },
            way: Duration::from_micros(way.min(FAR)),
            arrival: now.saturating_duration_since(clock.instant(time)),
        }
    }
}

impl StartWindow {
    /// All that is reserved has been put off by so many microseconds.
    pub fn put_off(&mut self, by: u64) {
        (self.start, self.end) = (self.start.saturating_add(by), self.end.saturating_add(by));
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(FAR).min(FAR)
}

/// A year. The script counts in numbers that hold some hundred years.
const FAR: u64 = 366 * 24 * 3_600_000_000;
