//! The verdict that `politely run` would give: a run uses the copies of a site's files that an earlier run has stored, while they are
//! fresh.

use super::super::about;
use crate::config::Settings;
use crate::gate::Gate;
use crate::policy::explain::Explanation;
use crate::policy::{Entry, HostRules, Refusal, Request, SiteFile};
use crate::{rfc3339, server};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Judges by the stored copy of robots.txt, and by the site's other files: stored copies, or those that `gate` has fetched. `Ok(None)`: no
/// fresh copy that a run would use is stored, or a fleet has the copies. `Err`: why the verdict is unknown.
pub(super) async fn of_runs(
    settings: Settings,
    gate: &Gate,
    request: &Request<'_>,
    rules: &HostRules,
    refused: Option<&Refusal>,
) -> Result<Option<Explanation>, &'static str> {
    // `explain` neither creates a store nor joins a fleet.
    if !Gate::is_store_begun(&settings.store) || settings.fleet.paces().is_some() {
        return Ok(None);
    }
    let Ok(kept) = server::gate_with_store(settings) else { return Ok(None) };
    if !kept.is_store_open() {
        return Err(
            "a copy that `politely run` may use cannot be read: it belongs to another user, or the disk is full or read-only",
        );
    }
    let (of, now) = (request.authority, SystemTime::now());
    let is_used = |copy: &Arc<Entry>| copy.usable(now).is_some_and(|(answer, _)| answer.freshness.is_fresh(now));
    let Some(robots) = kept.entry(SiteFile::Robots, of).await.filter(is_used) else { return Ok(None) };
    let license = robots.license_url().map(SiteFile::license);
    gate.take_copy(SiteFile::Robots, of, robots);
    for file in [SiteFile::TdmRep].into_iter().chain(license) {
        let copy = kept.entry(file, of).await.filter(is_used);
        copy.into_iter().for_each(|copy| gate.take_copy(file, of, copy));
    }
    Ok(gate.explain(request, rules, refused).await.ok())
}

/// Formats notes about copies. `fetched`: the verdict by the current file. `running`: the answer of the running proxy's API.
pub(super) fn text(
    fetched: &Explanation,
    of_runs: Result<Option<&Explanation>, &str>,
    running: Option<&Value>,
) -> String {
    let (now, mut out) = (SystemTime::now(), String::new());
    if fetched.robots.fetched_at.is_some() {
        out += "  robots.txt: fetched now\n";
    }
    if let Ok(Some(copy)) = of_runs {
        let age = about(copy.robots.fetched_at.and_then(|at| now.duration_since(at).ok()).unwrap_or_default());
        let left = about(copy.robots.expires_at.and_then(|at| at.duration_since(now).ok()).unwrap_or_default());
        let verdict = match (copy.allowed == fetched.allowed, copy.allowed) {
            (true, _) => "which gives the same verdict on this URL",
            (false, true) => "which allows this URL",
            (false, false) => "which disallows this URL",
        };
        out += &format!(
            "  note: for {left} more, `politely run` uses a copy fetched {age} ago, {verdict}; with `--fresh`, it fetches the file again\n"
        );
    }
    let is_fresh = |known: &&Value| known["expires_at"].as_str() > Some(&rfc3339::seconds(now));
    if let Some(age) = running.filter(is_fresh).and_then(|known| known["age"].as_u64()) {
        let age = about(Duration::from_secs(age));
        out += &format!(
            "  note: the running proxy uses a copy fetched {age} ago; `politely refresh URL` fetches the file anew\n"
        );
    } else if let Err(why) = of_runs {
        out += &format!("  note: {why}\n");
    }
    out
}

pub(super) fn as_json(of_runs: &Explanation) -> Value {
    let [fetched, expires] = [of_runs.robots.fetched_at, of_runs.robots.expires_at].map(|at| at.map(rfc3339::seconds));
    json!({ "fetched_at": fetched, "expires_at": expires, "allowed": of_runs.allowed, "reason": of_runs.reason })
}
