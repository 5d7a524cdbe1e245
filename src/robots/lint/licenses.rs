//! Licences that lead nowhere (RSL 1.0). Pure.

use super::finding::Findings;
use super::outline::Outline;
use crate::robots::is_license_url;
use crate::robots::parse::key::RecordKey;

pub(super) fn find(outline: &Outline<'_>, findings: &mut Findings<'_>) {
    for entry in outline.records.iter().filter(|entry| entry.key == RecordKey::License) {
        if str::from_utf8(outline.value(entry)).is_ok_and(is_license_url) {
            continue;
        }
        let at = (entry, if entry.value.is_empty() { &entry.name } else { &entry.value });
        let hint = "write the whole URL, such as `License: https://example.com/license.xml`";
        findings.warn("bad-license", at, "the licence is not an absolute URL", hint, None);
    }
}
