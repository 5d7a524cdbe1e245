//! What `politely run` would judge by: the copy of robots.txt that an earlier run has kept, until it is too old.

use super::super::{about, share_store};
use crate::config::Settings;
use crate::policy::explain::{Explanation, explain};
use crate::policy::{HostRules, Request};
use crate::{rfc3339, server};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};

/// The verdict by that copy. `None`: a run fetches the file anew.
pub(super) async fn of_runs(mut settings: Settings, request: &Request<'_>, rules: &HostRules) -> Option<Explanation> {
    share_store(&mut settings);
    // Nothing is made by asking, and no fleet is joined.
    let is_there = settings.store.directory.as_ref().is_some_and(|directory| directory.is_dir());
    (is_there && settings.fleet.paces().is_none()).then_some(())?;
    let gate = server::gate_with_store(settings).ok()?;
    let (copy, now) = (gate.entry(request.authority).await?, SystemTime::now());
    let is_used = copy.usable(now).is_some_and(|(answer, _)| answer.freshness.is_fresh(now));
    is_used.then(|| explain(&*copy, rules, request, now))
}

/// `now`: by the file as it is now. `running`: what the API of the proxy that runs with this configuration knows.
pub(super) fn text(now: &Explanation, of_runs: Option<&Explanation>, running: Option<&Value>) -> String {
    let mut out = "  robots.txt: fetched now\n".to_owned();
    if let Some(copy) = of_runs {
        let [age, left] = ages(copy).map(|time| time.map_or_else(|| "unknown".to_owned(), about));
        let verdict = match (copy.allowed == now.allowed, copy.allowed) {
            (true, _) => "which says the same of this URL",
            (false, true) => "by which this URL is allowed",
            (false, false) => "by which this URL is disallowed",
        };
        out += &format!(
            "  note: `politely run` uses a copy of {age} ago for {left} more, {verdict}; `--fresh` has it fetch the file anew\n"
        );
    }
    let is_fresh =
        |known: &&Value| known["expires_at"].as_str().is_some_and(|at| at > &*rfc3339::seconds(SystemTime::now()));
    if let Some(age) = running.filter(is_fresh).and_then(|known| known["age"].as_u64()) {
        let age = about(Duration::from_secs(age));
        out += &format!(
            "  note: the running proxy uses a copy of {age} ago; `politely refresh URL` fetches the file anew\n"
        );
    }
    out
}

pub(super) fn as_json(of_runs: &Explanation) -> Value {
    let [fetched, expires] = [of_runs.robots.fetched_at, of_runs.robots.expires_at].map(|at| at.map(rfc3339::seconds));
    json!({ "fetched_at": fetched, "expires_at": expires, "allowed": of_runs.allowed, "reason": of_runs.reason })
}

/// How old the copy is, and how long it will still be used.
fn ages(copy: &Explanation) -> [Option<Duration>; 2] {
    let now = SystemTime::now();
    let age = copy.robots.fetched_at.map(|at| now.duration_since(at).unwrap_or_default());
    [age, copy.robots.expires_at.and_then(|at| at.duration_since(now).ok())]
}
