//! What the server runs for an instance.

use redis::Script;
use std::sync::LazyLock;

pub(super) static INSTANCES: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("instances.lua")));
pub(super) static TURN: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("turn.lua")));
pub(super) static COPY: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("copy.lua")));
pub(super) static BUDGET: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("budget.lua")));

/// In the order in which a new instance needs them.
pub(super) fn all() -> [&'static Script; 4] {
    [&INSTANCES, &TURN, &COPY, &BUDGET]
}
