//! One key's turns at the server: what an instance asks and reports, and how it stands then (`turn.lua`).

use super::scripts;
use crate::policy::pace::{LastStarts, Observed};
use redis::ScriptInvocation;
use std::time::{Duration, Instant};

/// What an instance asks for, and what it knows that the server may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) struct LeaseRequest {
    pub op: LeaseOp,
    /// Which taking of the lease it belongs to: so that a late answer is recognised.
    pub number: u64,
    /// The gap that the instance keeps; zero: none.
    pub gap: Duration,
    /// Its own starts, if they are news.
    pub starts: LastStarts,
    pub backoff: Duration,
    pub observed: Observed,
    /// These two are what has become of the fleet's under the lease; else what has risen since the fleet was heard, and only raises it.
    pub is_exact: bool,
    /// For how long all this matters.
    pub matters: Duration,
    /// Nobody owes more.
    pub most: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) enum LeaseOp {
    /// It wants the lease, or to stand in line for it.
    Take,
    /// It has it, and goes on to.
    Keep,
    /// It gives it up, and its place in the line.
    Give,
}

/// Status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) struct LeaseStatus {
    pub place: TurnPlace,
    /// Starts of others, by our clock, and the hold.
    pub starts: LastStarts,
    pub backoff: Duration,
    pub observed: Observed,
    /// Instances that want the key.
    pub rivals: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) enum TurnPlace {
    None,
    /// No lease is needed: nothing is in force.
    Free,
    /// Another has it, for so long if it does not go on.
    Queued(Duration),
    /// This instance has it, for so long.
    Leased(Duration),
}

impl LeaseRequest {
    pub(super) fn invocation(&self, key: &str, me: &str) -> ScriptInvocation<'static> {
        let now = Instant::now();
        // Rather too short: a start counts as later then.
        let ago = |at: Option<Instant>| {
            at.map_or(String::new(), |at| match at.checked_duration_since(now) {
                Some(ahead) => format!("-{}", millis_up(ahead)),
                None => millis(now - at).to_string(),
            })
        };
        let op = match self.op {
            LeaseOp::Take => "take",
            LeaseOp::Keep => "keep",
            LeaseOp::Give => "give",
        };
        let LastStarts { last_start, last_fetch, hold } = self.starts;
        let mut call = scripts::TURN.key(format!("politely:{{{key}}}:lease"));
        call.arg(op).arg(me).arg(self.number).arg(millis(LEASE)).arg(millis_up(self.gap));
        call.arg(ago(last_start)).arg(ago(last_fetch));
        call.arg(hold.map_or(0, |hold| millis_up(hold.saturating_duration_since(now))));
        call.arg(millis_up(self.backoff)).arg(if self.is_exact { "1" } else { "" });
        call.arg(millis_up(self.matters)).arg(millis_up(self.most));
        call.arg(millis_up(self.observed.latency)).arg(self.observed.refusals);
        call
    }
}

/// What the script answers: place, last start, last fetch, hold, backoff, rivals, when to ask again, latency, refusals.
pub(super) type Numbers = (u8, i64, i64, u64, u64, u32, i64, u64, u32);

impl LeaseStatus {
    /// `at`: when the answer came. What it says is a little older: starts count as later than they were.
    pub(super) fn new(answer: Numbers, at: Instant) -> Self {
        let (place, last_start, last_fetch, hold, backoff, rivals, left, latency, refusals) = answer;
        let left = Duration::from_millis(u64::try_from(left).unwrap_or(0)).min(LEASE);
        let place = match place {
            1 => TurnPlace::Free,
            2 => TurnPlace::Queued(left),
            3 => TurnPlace::Leased(left),
            _ => TurnPlace::None,
        };
        let ago = |ms: i64| u64::try_from(ms).ok().and_then(|ms| at.checked_sub(Duration::from_millis(ms)));
        let hold = (hold > 0).then(|| at + Duration::from_millis(hold.min(millis(FAR))));
        let starts = LastStarts { last_start: ago(last_start), last_fetch: ago(last_fetch), hold };
        let observed = Observed { latency: Duration::from_millis(latency.min(millis(FAR))), refusals };
        Self { place, starts, backoff: Duration::from_millis(backoff), observed, rivals: rivals.max(1) }
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.min(FAR).as_millis()).expect("a year fits")
}

fn millis_up(duration: Duration) -> u64 {
    millis(duration.min(FAR) + Duration::from_nanos(999_999))
}

/// For how long a lease outlives its instance, which renews it in good time.
const LEASE: Duration = Duration::from_secs(3);
/// What the script's numbers hold.
const FAR: Duration = Duration::from_secs(366 * 24 * 3600);
