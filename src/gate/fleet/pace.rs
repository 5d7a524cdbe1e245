//! One key's pace at the server: what an instance tells, and how it stands then. The arithmetic is `pace.lua`'s. Called
//! by `pacer`.

use crate::policy::pace::{Outcome, Want};
use redis::{FromRedisValue, ParsingError, Script, ScriptInvocation, Value};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// What an instance tells of a key.
#[derive(Debug, Default)]
pub(in crate::gate) struct Told {
    pub wants: Option<Want>,
    /// How long nothing may start, and the backoff, where the server may not know.
    pub hold: Duration,
    pub backoff: Duration,
    /// It has a request in flight in its turn.
    pub in_turn: bool,
    pub events: Vec<Event>,
}

/// What has happened to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) struct Event {
    /// It gives up the turn.
    pub gives_up: bool,
    pub first_fetch: bool,
    /// When it left; `None`: it never did.
    pub left: Option<Instant>,
    /// How it ended, if it has.
    pub outcome: Option<Outcome>,
}

/// How an instance stands with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) struct Standing {
    pub place: Place,
    /// Nothing starts within this time, whoever asks.
    pub hold: Duration,
    pub backoff: Duration,
    /// Instances that want the key.
    pub rivals: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) enum Place {
    /// It wants nothing.
    None,
    /// No turn is needed: nothing is in force.
    Free,
    /// Others go first; its turn is expected in this time.
    Line(Duration),
    /// It may start in this time, and nobody else before it has.
    Turn(Duration),
}

/// What the script answers: state, wait, hold, backoff, rivals.
pub(super) type Numbers = (i64, i64, i64, i64, i64);

impl Standing {
    /// `None`: another version's answer.
    pub fn new((state, wait, hold, backoff, rivals): Numbers) -> Option<Self> {
        let micros = |number: i64| Duration::from_micros(u64::try_from(number).unwrap_or(0));
        let place = match state {
            0 => Place::None,
            1 => Place::Free,
            2 => Place::Line(micros(wait)),
            3 => Place::Turn(micros(wait)),
            _ => return None,
        };
        let rivals = u32::try_from(rivals).unwrap_or(1).max(1);
        Some(Self { place, hold: micros(hold), backoff: micros(backoff), rivals })
    }
}

impl FromRedisValue for Standing {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let numbers = Numbers::from_redis_value(value)?;
        Self::new(numbers).ok_or_else(|| ParsingError::from("no answer of pace.lua's"))
    }
}

/// The call for a key of this name.
pub(super) fn invocation(key: &str, me: &str, told: &Told) -> ScriptInvocation<'static> {
    static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("pace.lua")));
    let (now, want) = (Instant::now(), told.wants.as_ref());
    let kind = |first_fetch| if first_fetch { "fetch" } else { "request" };
    let mut call = SCRIPT.key(format!("politely:{{{key}}}:pace"));
    call.arg("").arg(me).arg(micros(KEPT));
    call.arg(want.map_or("", |want| kind(want.first_fetch)));
    call.arg(want.map_or(0, |want| micros(want.gap)));
    call.arg(want.map_or(micros(FAR), |want| micros(want.max_delay)));
    call.arg(micros(told.hold)).arg(micros(told.backoff)).arg(u8::from(told.in_turn));
    for event in &told.events {
        call.arg(u8::from(event.gives_up)).arg(kind(event.first_fetch));
        call.arg(event.left.map_or(String::new(), |left| ago(now, left).to_string()));
        let (outcome, advice) = match event.outcome {
            Some(Outcome::Success) => ("success", None),
            Some(Outcome::Failure) => ("failure", None),
            Some(Outcome::Backoff { retry_after }) => ("backoff", retry_after),
            Some(Outcome::Unused) | None => ("", None),
        };
        call.arg(outcome).arg(advice.map_or(String::new(), |advice| micros(advice).to_string()));
    }
    call
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.min(FAR).as_micros()).expect("a year fits")
}

/// Negative for what is to come: a request that has just left has yet to arrive.
fn ago(now: Instant, then: Instant) -> i64 {
    let micros = |duration| i64::try_from(micros(duration)).expect("a year fits");
    micros(now.saturating_duration_since(then)) - micros(then.saturating_duration_since(now))
}

/// For how long turns and places in the line outlive their instance. It renews them in good time.
pub(in crate::gate) const KEPT: Duration = Duration::from_secs(5);
/// What the script's numbers hold.
const FAR: Duration = Duration::from_secs(366 * 24 * 3600);
