//! How an instance says that it is there (`instances.lua`).

use redis::{Script, ScriptInvocation};
use std::sync::LazyLock;
use std::time::Duration;

/// Answers how many are there, and whether this one was noted before.
pub(super) fn invocation(me: &str) -> ScriptInvocation<'static> {
    let mut script = SCRIPT.key("politely:instances");
    script.arg(me).arg(GONE_AFTER.as_millis() as u64);
    script
}

pub(super) static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("instances.lua")));
const GONE_AFTER: Duration = Duration::from_secs(10);
