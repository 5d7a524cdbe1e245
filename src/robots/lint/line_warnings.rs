//! Turns the outline's warnings into findings, with details from the line. Pure.

use super::finding::{Finding, Findings};
use super::outline::Outline;
use crate::robots::WarningCode;

pub(super) fn find(outline: &Outline<'_>, findings: &mut Findings<'_>) {
    for warning in &outline.warnings {
        let place = warning.place;
        let first = outline.records.partition_point(|entry| entry.line.number < place.line);
        let entry = outline.records.get(first).filter(|entry| entry.line.number == place.line);
        let code = warning.code();
        let (mut message, mut hint) = (code.message().into(), code.hint().into());
        match (code, entry) {
            (WarningCode::MisspeltKey, Some(entry)) => {
                message = format!("misspelt key `{}`", outline.shown(&entry.name)).into();
                hint = format!("write `{}`; few crawlers read it as meant", entry.key.as_str()).into();
            }
            (WarningCode::BadDelay, Some(entry)) => {
                if let Some(why) = why_no_delay(outline.value(entry)) {
                    message = why.into();
                }
            }
            _ => {}
        }
        let (severity, code) = (code.severity(), code.as_str());
        findings.push(Finding { place, severity, code, message, hint, related: None });
    }
}

/// Why a delay is not a number of seconds.
fn why_no_delay(value: &[u8]) -> Option<&'static str> {
    let value = value.to_ascii_lowercase();
    let magnitude = value.strip_prefix(b"-").or(value.strip_prefix(b"+")).unwrap_or(&value);
    match magnitude.first() {
        None if value.is_empty() => Some("the delay has no value"),
        Some(b'0'..=b'9' | b'.') if value.starts_with(b"-") => Some("a negative delay"),
        Some(_) if magnitude.starts_with(b"nan") || magnitude.starts_with(b"inf") => Some("not a finite number"),
        Some(_) | None => None,
    }
}
