//! Whether a page is reserved from text and data mining by its site's tdmrep.json. What is not known reserves nothing. Pure.

use std::time::SystemTime;

use super::entry::Entry;
use super::freshness::CopyState;
use super::served_paths::{Served, first_refused};
use super::site_file::SiteFile;
use super::{HostRules, MiningEvidence, Refusal, Request};

/// What a tdmrep.json comes to for a request.
pub(super) enum Mined {
    /// Nothing can be said before it is fetched.
    Fetch,
    Free,
    Reserved(Refusal),
}

/// By the file as it is known, and whether it should be fetched again.
pub(super) fn mined(entry: &Entry, rules: &HostRules, request: &Request<'_>, now: SystemTime) -> (Mined, bool) {
    // Or nobody could read it.
    if request.target == SiteFile::TdmRep.path().as_bytes() {
        return (Mined::Free, false);
    }
    let Some((_, state)) = entry.usable(now) else {
        return (if entry.may_fetch(now) { Mined::Fetch } else { Mined::Free }, false);
    };
    let refresh = state == CopyState::Refresh && entry.may_fetch(now);
    let reserved = entry.tdm_rep().zip(rules.mining_purpose()).and_then(|(file, purpose)| {
        let found = first_refused(request.target, rules.options.paths, |form| file.reservation(form));
        let Served::Refused(found, matched_path) = found else { return None };
        Some(Mined::Reserved(Refusal::MiningReserved(Box::new(MiningEvidence {
            authority: request.authority.clone(),
            purpose: purpose.as_str().into(),
            entry: found.entry,
            location: found.location.into(),
            policy: found.policy.map(Box::from),
            matched_path,
        }))))
    });
    (reserved.unwrap_or(Mined::Free), refresh)
}
