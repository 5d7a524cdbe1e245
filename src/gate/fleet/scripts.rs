//! The scripts that the server runs.

use super::keeps::Keeps;
use redis::{Script, ScriptInvocation};
use std::sync::LazyLock;

static INSTANCES: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("instances.lua")));
pub(super) static PACE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("pace.lua")));
pub(super) static COPY: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("copy.lua")));
pub(super) static BUDGET: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("budget.lua")));

/// What an instance says about itself when it registers.
#[derive(Clone, Copy)]
pub(super) enum InstanceNews {
    /// It has no debts to report.
    Starts,
    /// It still reports its debts.
    Tells,
    /// It has reported its debts.
    HasTold,
    Ends,
}

/// Registers the instance. The reply is a [`BeatReply`](super::membership::BeatReply).
pub(super) fn register(keeps: Keeps, name: &str, news: InstanceNews) -> ScriptInvocation<'static> {
    let mut script = INSTANCES.key(keeps.instances());
    script.arg(name).arg(MISSING_AFTER).arg(FORGOTTEN_AFTER).arg(match news {
        InstanceNews::Starts => "starts",
        InstanceNews::Tells => "tells",
        InstanceNews::HasTold => "",
        InstanceNews::Ends => "ends",
    });
    script
}

/// All scripts, in the order in which a new instance needs them.
pub(super) fn all() -> [&'static Script; 4] {
    [&INSTANCES, &PACE, &COPY, &BUDGET]
}

/// Milliseconds of silence after which an instance counts as missing: the time between two registrations, plus the time for which an
/// instance waits for the server's reply.
const MISSING_AFTER: u64 = 3000;
/// Milliseconds of silence after which an instance is forgotten. Until then, it may be running without the server, so the others do not use
/// its share.
const FORGOTTEN_AFTER: u64 = 3_600_000;
