//! What outlives the process: copies of robots.txt with all that is known of them, and delays in progress
//! (docs/robots-txt-life.md, docs/pace.md).
//!
//! Nothing waits for the disk but the first use of an authority: writes go through [`write_behind`], in batches. What has
//! not been written yet is read from there, so that no request sees an entry older than one already used.

mod batch;
mod disk;
mod lost;
pub(super) mod snapshot;
mod tables;
mod write_behind;
mod writer;

pub(super) use snapshot::{FileDigest, digest};

use crate::config;
use crate::policy::pace::Debt;
use crate::policy::site_file::SiteFileName;
use crate::policy::{Access, Entry, PaceKey};
use batch::Owed;
use disk::Location;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use write_behind::WriteBehind;
use writer::Bounds;

/// The store; in memory only, it forgets at once.
pub(super) struct Store {
    behind: Option<WriteBehind>,
}

impl Store {
    /// Nothing is kept.
    pub fn memory() -> Self {
        Store { behind: None }
    }

    /// The longest that anything is owed. `max_delay`: the longest gap that a host may be given.
    pub fn longest_debt(max_delay: Duration) -> Duration {
        max_delay.max(LONGEST_BACKOFF)
    }

    /// The store as configured. `max_delay`: the longest gap that a host may be given. `is_shared`: the process that uses it is
    /// asked for what it has.
    pub fn open(settings: &config::StoreSettings, max_delay: Duration, is_shared: bool) -> Self {
        if settings.disk == 0 {
            return Self::memory();
        }
        let directory = directory(settings);
        let bounds = Bounds { queued: queued(settings).into(), debt: Self::longest_debt(max_delay), is_shared };
        let location = Location { directory, size: Arc::new(settings.disk.into()) };
        let behind = WriteBehind::start(location, bounds);
        let behind = behind.inspect_err(|error| tracing::warn!(%error, "the store has no thread to write")).ok();
        Store { behind }
    }

    /// Takes up other bounds.
    pub fn resize(&self, settings: &config::StoreSettings) {
        if let Some(behind) = &self.behind {
            behind.resize(queued(settings), settings.disk);
        }
    }

    /// Whether there is anything to ask.
    pub fn is_on_disk(&self) -> bool {
        self.behind.is_some()
    }

    /// Whether it can be used, and the bytes of its file. `None`: nothing is kept.
    pub fn on_disk(&self) -> Option<(bool, u64)> {
        self.behind.as_ref().map(|behind| (!behind.is_lost(), behind.size()))
    }

    /// Bytes in memory that wait to be written.
    pub fn queued_bytes(&self) -> usize {
        self.behind.as_ref().map_or(0, WriteBehind::queued_bytes)
    }

    /// What is kept of an authority's file. Blocks on the disk. `parse` reads a file, or finds it by its digest.
    pub fn load(
        &self,
        name: SiteFileName<'_>,
        parse: impl FnOnce(FileDigest, &dyn Fn() -> Option<Vec<u8>>) -> Option<Access>,
    ) -> Option<Arc<Entry>> {
        self.behind.as_ref()?.load(&name.to_string(), parse)
    }

    /// Keeps an entry, soon.
    pub fn save(&self, name: SiteFileName<'_>, entry: &Arc<Entry>) {
        if let Some(behind) = &self.behind {
            behind.save(name.to_string().into(), entry.clone());
        }
    }

    /// Keeps what a key owes, soon, if it is enough to be missed. `debt` is asked for only if anything is kept.
    pub fn owe(&self, key: &PaceKey, now: Instant, debt: impl FnOnce() -> Option<Debt>) {
        let Some(behind) = &self.behind else { return };
        let Some(debt) = debt() else { return };
        let rest = debt.until.duration_since(now);
        if rest >= LEAST_DEBT {
            let noted = SystemTime::now();
            behind.owe(
                key.to_string().into(),
                Owed { noted, until: noted + rest, backoff: debt.backoff, refusals: debt.refusals },
            );
        }
    }

    /// The latest at which an earlier process may have started anything that it had no time to note.
    pub fn last_unnoted(&self) -> Option<Instant> {
        self.behind.as_ref()?.killed()
    }

    /// What the key owes since before the start; returned once.
    pub fn debt(&self, key: &PaceKey, now: Instant) -> Option<Debt> {
        self.behind.as_ref()?.debt(|| key.to_string()).filter(|debt| debt.until > now)
    }

    /// Returns when all is written that was to be. Blocks.
    pub fn flush(&self) {
        if let Some(behind) = &self.behind {
            behind.flush();
        }
    }

    /// Writes what is left and closes the file. Blocks.
    pub fn close(&self) {
        if let Some(behind) = &self.behind {
            behind.close();
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.close();
    }
}

/// Bytes that may wait for the disk.
fn queued(settings: &config::StoreSettings) -> usize {
    usize::try_from(settings.memory / QUEUED_PART).unwrap_or(usize::MAX).max(LEAST_QUEUED)
}

/// Where it is, or would be.
pub(super) fn directory(settings: &config::StoreSettings) -> PathBuf {
    settings.directory.clone().unwrap_or_else(config::state_directory)
}

const LEAST_DEBT: Duration = Duration::from_secs(1);
/// As far as an origin's Retry-After is obeyed.
const LONGEST_BACKOFF: Duration = Duration::from_secs(3600);
/// Of the memory that is given: what may wait for the disk.
const QUEUED_PART: u64 = 4;
/// However little that is: what is not taken on may come back from the disk as it was before.
const LEAST_QUEUED: usize = 8 << 20;

#[cfg(test)]
mod tests;
