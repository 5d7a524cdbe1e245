//! How an instance says that it is there (`instances.lua`).

use super::scripts;
use redis::ScriptInvocation;
use std::time::Duration;

/// Answers how many are there, and whether this one was noted before.
pub(super) fn invocation(me: &str) -> ScriptInvocation<'static> {
    let mut script = scripts::INSTANCES.key("politely:instances");
    script.arg(me).arg(GONE_AFTER.as_millis() as u64);
    script
}

const GONE_AFTER: Duration = Duration::from_secs(10);
