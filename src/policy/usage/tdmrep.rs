//! Whether a page is reserved from text and data mining by its site's tdmrep.json. What is not known reserves nothing. Pure.

use crate::policy::entry::Entry;
use crate::policy::{EntryEvidence, HostRules, Refusal, Request, SiteFile};
use crate::robots::budget::StepsSpent;
use crate::robots::path_forms::JudgedPath;

/// Why the tdmrep.json refuses a page.
pub(in crate::policy) fn reserved_by_tdmrep(
    entry: &Entry,
    rules: &HostRules,
    request: &Request<'_>,
    path: &mut JudgedPath<'_>,
) -> Option<Refusal> {
    let (file, purpose) = entry.tdm_rep().zip(rules.mining_purpose())?;
    let url = request.authority.url(SiteFile::TdmRep.path()).into();
    let (found, matched_path) = match path.first_refused(|path, budget| file.reservation_at(path, budget)) {
        Ok(found) => found?,
        Err(StepsSpent) => return Some(Refusal::RulesTooComplex { rules: url }),
    };
    Some(Refusal::EntryReserved(Box::new(EntryEvidence {
        url,
        purpose: purpose.as_str().into(),
        entry: found.entry,
        location: found.location.into(),
        term: None,
        policy: found.policy.map(Box::from),
        matched_path,
    })))
}
