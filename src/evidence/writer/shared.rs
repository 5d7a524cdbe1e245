//! What the thread that writes and those that ask about it share.

use super::super::chain::{Hash, NOTHING};
use parking_lot::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// What others see of it, and change.
pub(in crate::evidence) struct Shared {
    /// Seconds.
    pub keep: AtomicU64,
    pub written: AtomicU64,
    pub lost: AtomicU64,
    /// The segment that is written to, and its last line.
    pub head: Mutex<(u64, Hash)>,
}

impl Shared {
    pub fn new(keep: Duration) -> Self {
        let head = Mutex::new((0, NOTHING));
        Shared { keep: AtomicU64::new(keep.as_secs()), written: AtomicU64::default(), lost: AtomicU64::default(), head }
    }
}
