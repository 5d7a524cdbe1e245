//! Compares two entries for the same file, for example of two instances, to find the newer one.

use crate::gate::store::{CopyTimes, FileDigest, snapshot};
use crate::policy::Entry;
use crate::policy::freshness::CopyState;
use std::time::SystemTime;

/// Whether the file has never been fetched: there is neither an answer nor a failure.
pub(super) fn is_unknown(entry: &Entry) -> bool {
    entry.answer.is_none() && entry.trouble.is_none()
}

/// Whether the file should be fetched.
pub(super) fn is_due(entry: &Entry, now: SystemTime) -> bool {
    let is_fresh = matches!(entry.usable(now), Some((_, CopyState::Fresh)));
    !is_fresh && entry.may_fetch(now)
}

/// An entry's content without its times: the digest of its file, its status, whether the file is another site's; and whether the last fetch
/// failed.
pub(super) type EntryContent = (Option<(Option<FileDigest>, u16, bool)>, bool);

pub(super) fn content(entry: &Entry) -> EntryContent {
    let answer = entry.answer.as_ref();
    let said = answer.map(|answer| (snapshot::digest_of(&answer.access), answer.status, answer.is_foreign));
    (said, entry.trouble.is_some())
}

pub(super) fn is_newer(one: &Entry, other: &Entry) -> bool {
    is_unknown(other) || is_older(other, one)
}

/// Whether `other` was validated later than `one`, as by [`CopyTimes::are_before`].
pub(super) fn is_older(one: &Entry, other: &Entry) -> bool {
    CopyTimes::of(one).are_before(&CopyTimes::of(other), SystemTime::now())
}
