//! What is known of a file at two times, or by two instances: which of the two is used.

use crate::policy::Entry;
use crate::policy::freshness::CopyState;
use std::time::{Duration, SystemTime};

/// Nothing has ever been learned.
pub(super) fn is_unknown(entry: &Entry) -> bool {
    entry.answer.is_none() && entry.trouble.is_none()
}

/// Whether it should be fetched.
pub(super) fn is_due(entry: &Entry, now: SystemTime) -> bool {
    let is_fresh = matches!(entry.usable(now), Some((_, CopyState::Fresh)));
    !is_fresh && entry.may_fetch(now)
}

pub(super) fn is_newer(one: &Entry, other: &Entry) -> bool {
    is_unknown(other) || is_older(other, one)
}

/// By more time than clocks and ways make of one and the same. What a clock that was ahead has dated counts as older than anything:
/// nobody knows how old it is.
pub(super) fn is_older(one: &Entry, other: &Entry) -> bool {
    let latest = SystemTime::now() + SAME;
    let validated = |entry: &Entry| {
        let at = entry.answer.as_ref().map(|answer| answer.freshness.validated_at());
        at.filter(|at| *at <= latest)
    };
    validated(other).is_some_and(|other| validated(one).is_none_or(|one| other > one + SAME))
}

/// Two copies this far apart may be one.
const SAME: Duration = Duration::from_secs(1);
