//! What the server runs for an instance.

use redis::{Script, ScriptInvocation};
use std::sync::LazyLock;

static INSTANCES: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("instances.lua")));
pub(super) static TURN: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("turn.lua")));
pub(super) static COPY: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("copy.lua")));
pub(super) static BUDGET: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("budget.lua")));

/// Says that this instance is there. Answers how many are, and whether this one was noted before.
pub(super) fn register(me: &str) -> ScriptInvocation<'static> {
    let mut script = INSTANCES.key("politely:instances");
    script.arg(me).arg(GONE_AFTER);
    script
}

/// In the order in which a new instance needs them.
pub(super) fn all() -> [&'static Script; 4] {
    [&INSTANCES, &TURN, &COPY, &BUDGET]
}

/// Milliseconds.
const GONE_AFTER: u64 = 10_000;
