//! Finds delays that crawlers read differently than meant, or ignore. Pure.

use std::time::Duration;

use super::findings::Findings;
use super::outline::{Outline, has_other_unit};
use crate::robots::parse::delay::StatedPace;
use crate::robots::parse::key::RecordKey;

pub(super) fn find(outline: &Outline<'_>, findings: &mut Findings<'_>) {
    for entry in &outline.records {
        let (value, at) = (outline.value(entry), (entry, &entry.value));
        let gap = StatedPace::parse(entry.key, value).and_then(|pace| pace.gap());
        let Some(gap) = gap else { continue };
        if gap > LONGEST {
            let message = format!("{} s from one request to the next", gap.as_secs());
            let hint = "few crawlers wait longer than 300 s: they come faster, or not at all";
            findings.warn("long-delay", at, message, hint, None);
        }
        let whole = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if matches!(value[whole..], [b',', b'0'..=b'9', ..]) {
            let message = format!("read as {} s: the number ends at the comma", gap.as_secs());
            findings.warn("decimal-comma", at, message, "write a decimal point", None);
        } else if entry.key == RecordKey::CrawlDelay && has_other_unit(value) {
            let message = format!("read as {} s: the unit is not understood", gap.as_secs_f64());
            findings.warn("delay-unit", at, message, "write seconds, as a number alone", None);
        }
    }
}

/// The longest delay that the proxy obeys by default.
const LONGEST: Duration = Duration::from_secs(300);
