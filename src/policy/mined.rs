//! Whether a page is reserved from text and data mining by its site's tdmrep.json. What is not known reserves nothing. Pure.

use super::entry::Entry;
use super::served_paths::{Served, first_refused};
use super::{HostRules, MiningEvidence, Request};

/// What a tdmrep.json reserves the page from, by the file as it is known.
pub(super) fn mined(entry: &Entry, rules: &HostRules, request: &Request<'_>) -> Option<MiningEvidence> {
    let (file, purpose) = entry.tdm_rep().zip(rules.mining_purpose())?;
    let found = first_refused(request.target, rules.options.paths, |form| {
        file.reservation(form.target).filter(|found| form.is_meant_by(found.location))
    });
    let Served::Refused(found, matched_path) = found else { return None };
    Some(MiningEvidence {
        authority: request.authority.clone(),
        purpose: purpose.as_str().into(),
        entry: found.entry,
        location: found.location.into(),
        policy: found.policy.map(Box::from),
        matched_path,
    })
}
