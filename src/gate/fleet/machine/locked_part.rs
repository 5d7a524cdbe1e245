//! What this process has locked of a key.

use super::slots::Id;
use std::collections::HashMap;

/// Of the keys of which it has locked something.
pub(super) type LockedParts = HashMap<Id, LockedPart>;

/// What this process has locked of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LockedPart {
    Lease,
    /// One of the bytes of the processes that wait.
    Waiting(u64),
}
