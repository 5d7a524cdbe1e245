//! What `explain --at TIME` says first: the records of the URL up to that time.

use crate::cli::evidence::times_of;
use crate::cli::report::{outcomes, size};
use crate::evidence::{Found, Past};
use crate::rfc3339;
use std::fmt::Write;
use std::time::SystemTime;

/// What is on record of the URL itself.
pub(super) fn on_record(url: &str, past: &Past, at: SystemTime) -> String {
    let (asked, at) = (&past.asked, rfc3339::millis(at));
    if past.last.is_empty() {
        return format!("no record of a request for this URL up to {at}: {url}\n");
    }
    let times = times_of(asked.requests);
    let mut out = format!("on record up to {at}: {url}\n  asked for {times}: {}\n", outcomes(asked));
    if asked.requests > past.last.len() as u64 {
        let _ = writeln!(out, "  the last {}:", past.last.len());
    }
    for Found { segment, line, time, decision } in &past.last {
        let or = |list: &[String], none: &str| if list.is_empty() { none.to_owned() } else { list.join(", ") };
        let reasons = decision.all_reasons().map(String::as_str).collect::<Vec<_>>().join(", ");
        let rule = decision.rule.as_ref().map_or(String::new(), |rule| format!("; {rule}"));
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
            rfc3339::millis(*time),
            or(&decision.product_tokens, "any crawler"),
            or(&decision.purpose, "no declared use"),
            decision.outcome,
        );
    }
    out
}
