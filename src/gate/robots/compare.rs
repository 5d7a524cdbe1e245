//! Compares two versions of what is known of a file, by time or from two instances: which one to use.

use crate::policy::Entry;
use crate::policy::freshness::CopyState;
use std::time::{Duration, SystemTime};

/// Whether nothing has ever been learned.
pub(super) fn is_unknown(entry: &Entry) -> bool {
    entry.answer.is_none() && entry.trouble.is_none()
}

/// Whether the file should be fetched.
pub(super) fn is_due(entry: &Entry, now: SystemTime) -> bool {
    let is_fresh = matches!(entry.usable(now), Some((_, CopyState::Fresh)));
    !is_fresh && entry.may_fetch(now)
}

pub(super) fn is_newer(one: &Entry, other: &Entry) -> bool {
    is_unknown(other) || is_older(other, one)
}

/// Whether `other` was validated later than `one`, by more than clock differences and delays can explain. An entry dated in the future,
/// by a clock that was ahead, counts as older than any other, as its age is unknown.
pub(super) fn is_older(one: &Entry, other: &Entry) -> bool {
    let latest = SystemTime::now() + SAME;
    let validated = |entry: &Entry| {
        let at = entry.answer.as_ref().map(|answer| answer.freshness.validated_at());
        at.filter(|at| *at <= latest)
    };
    validated(other).is_some_and(|other| validated(one).is_none_or(|one| other > one + SAME))
}

/// Copies validated within this time may be the same.
const SAME: Duration = Duration::from_secs(1);
