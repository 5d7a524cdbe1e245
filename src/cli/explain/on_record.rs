//! The first part of `explain --at TIME`: the records of the URL up to that time.

use crate::cli::evidence::times_of;
use crate::cli::report::{outcomes, size};
use crate::evidence::{FileFetch, Found, Past, digits};
use crate::rfc3339;
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::SystemTime;

/// Formats the records of the URL itself.
pub(super) fn on_record(url: &str, past: &Past, at: SystemTime) -> String {
    let (asked, at) = (&past.asked, rfc3339::millis(at));
    if past.last.is_empty() && past.fetches.is_empty() {
        return format!("no record of a request for this URL up to {at}: {url}\n");
    }
    let mut out = format!("on record up to {at}: {url}\n");
    if let [.., last] = &past.fetches[..] {
        let agent = last.agent.as_ref().map_or(String::new(), |agent| format!(" as \"{agent}\""));
        let _ = writeln!(out, "  fetched or confirmed by the proxy itself{agent}, most recently:");
        past.fetches.iter().for_each(|fetch| out += &own_fetch(fetch, last.agent.as_ref()));
    }
    let _ = match past.last.len() {
        0 => writeln!(out, "  no client has asked for it"),
        _ => writeln!(out, "  asked for {}: {}", times_of(asked.requests), outcomes(asked)),
    };
    if asked.requests > past.last.len() as u64 {
        let _ = writeln!(out, "  the last {}:", past.last.len());
    }
    for found in &past.last {
        let Found { segment, line, decision, .. } = found;
        let or = |list: &[String], none: &str| if list.is_empty() { none.to_owned() } else { list.join(", ") };
        let reasons = decision.all_reasons().map(String::as_str).collect::<Vec<_>>().join(", ");
        let rule = decision.named_rule().map_or(String::new(), |rule| format!("; {rule}"));
        let site = match decision.site_status() {
            Some(status) => format!("the site's status {status}"),
            None if decision.origin_ms.is_some() => "the site's status is not on record".to_owned(),
            None if matches!(decision.outcome.as_str(), "failed" | "cut" | "client-gone") => {
                "no answer of the site".to_owned()
            }
            None => "the site was not asked".to_owned(),
        };
        let bytes = decision.site_bytes().map_or(String::new(), |bytes| format!(", {}", size(bytes)));
        let verdict = decision.verdict.as_deref().filter(|verdict| *verdict != decision.outcome);
        let verdict = verdict.map_or(String::new(), |verdict| format!(", {verdict}"));
        let _ = writeln!(
            out,
            "  {} by {} for {}: {}{verdict} ({reasons}{rule}), {site}{bytes} (segment {segment}, line {line})",
            rfc3339::millis(found.at()),
            or(&decision.product_tokens, "any crawler"),
            or(&decision.purpose, "no declared use"),
            decision.outcome,
        );
    }
    out
}

/// Formats a fetch by the proxy itself. `usual`: the User-Agent that the text has already named, and that is not repeated.
fn own_fetch(fetch: &FileFetch, usual: Option<&String>) -> String {
    let FileFetch { at, found, agent, segment, line } = fetch;
    let found = match found {
        Ok(copy) => {
            let status = copy.status.map_or("no status".to_owned(), |status| format!("status {status}"));
            copy.sha256.as_ref().map_or(status.clone(), |sha256| format!("{status}, SHA-256 {}", digits(sha256)))
        }
        Err(why) => format!("failing since then: {why}"),
    };
    let agent =
        agent.as_ref().filter(|agent| Some(*agent) != usual).map_or(String::new(), |it| format!(" as \"{it}\""));
    let at = rfc3339::millis(*at);
    format!("  {at}{agent}: {found} (recorded in segment {segment}, line {line})\n")
}

pub(super) fn own_fetch_as_json(fetch: &FileFetch) -> Value {
    let (copy, failure) = (fetch.found.as_ref().ok(), fetch.found.as_ref().err());
    json!({
        "time": rfc3339::millis(fetch.at), "agent": fetch.agent, "failure": failure, "status": copy.and_then(|copy| copy.status),
        "sha256": copy.and_then(|copy| copy.sha256.as_ref()).map(digits), "segment": fetch.segment, "line": fetch.line,
    })
}
