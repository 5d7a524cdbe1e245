//! What outlives the process: copies of robots.txt with all that is known of them, and the pace that is owed
//! (SEMANTICS §3 and §5, restart). Called by `rulebook` and `pacer`.
//!
//! Nothing waits for the disk but the first use of an authority: writes go through [`behind`], in batches. What has not
//! been written yet is read from there, so that nobody sees an entry older than one already used.

mod behind;
mod disk;
pub(super) mod parcel;
mod record;
mod tables;

pub(super) use disk::Owed;
pub(super) use record::{Digest, digest};

use crate::config;
use crate::policy::pace::Debt;
use crate::policy::{Authority, Entry, PaceKey};
use crate::robots::RobotsTxt;
use behind::Behind;
use disk::{Disk, Failure};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// The store; in memory only, it forgets at once.
pub(super) struct Store {
    behind: Option<Behind>,
    /// What the last process left, until somebody asks.
    debts: Mutex<HashMap<Box<str>, Owed>>,
    has_debts: AtomicBool,
}

impl Store {
    /// Nothing is kept.
    pub fn memory() -> Self {
        Store { behind: None, debts: Mutex::default(), has_debts: AtomicBool::new(false) }
    }

    /// The store as configured. A store that cannot be had is no reason not to serve.
    pub fn open(settings: &config::Store) -> Self {
        if settings.disk == 0 {
            return Self::memory();
        }
        let directory = settings.directory.clone().unwrap_or_else(config::state_directory);
        let opened = Disk::open(&directory, settings.disk).and_then(|disk| Ok((disk.debts(SystemTime::now())?, disk)));
        match opened {
            Ok((debts, disk)) => {
                tracing::debug!("{} authorities in {}", disk.authorities(), disk.path().display());
                let has_debts = AtomicBool::new(!debts.is_empty());
                Store { behind: Some(Behind::start(disk)), debts: Mutex::new(debts), has_debts }
            }
            Err(failure) => {
                let hint = match failure {
                    Failure::InUse => "give each instance its own `store.directory`",
                    Failure::Io(_) | Failure::Unreadable(_) => "set `store.directory` to a place that can be written",
                };
                tracing::warn!(
                    "the store in {} cannot be used: {failure}; copies and paces are kept in memory only; {hint}",
                    directory.display()
                );
                Self::memory()
            }
        }
    }

    /// Whether there is anything to ask.
    pub fn is_on_disk(&self) -> bool {
        self.behind.is_some()
    }

    /// What is kept of the authority. Blocks on the disk. `parse` reads a file, or finds it by its digest.
    pub fn load(
        &self,
        authority: &Authority,
        parse: impl FnOnce(Digest, &dyn Fn() -> Option<Vec<u8>>) -> Option<RobotsTxt>,
    ) -> Option<Arc<Entry>> {
        self.behind.as_ref()?.load(&authority.to_string(), parse)
    }

    /// Keeps an entry, soon.
    pub fn save(&self, authority: &Authority, entry: &Arc<Entry>) {
        if let Some(behind) = &self.behind {
            behind.save(authority.to_string().into(), entry.clone());
        }
    }

    /// Keeps what a key owes, soon, if it is enough to be missed. `debt` is asked for only if anything is kept.
    pub fn owe(&self, key: &PaceKey, now: Instant, debt: impl FnOnce() -> Option<Debt>) {
        let Some(behind) = &self.behind else { return };
        let Some(debt) = debt() else { return };
        let rest = debt.until.duration_since(now);
        if rest >= LEAST_DEBT {
            behind.owe(key.to_string().into(), Owed { until: SystemTime::now() + rest, backoff: debt.backoff });
        }
    }

    /// What the key owes since before the start; told once.
    pub fn debt(&self, key: &PaceKey, now: Instant) -> Option<Debt> {
        if !self.has_debts.load(Ordering::Relaxed) {
            return None;
        }
        let mut debts = self.debts.lock();
        let owed = debts.remove(&*key.to_string())?;
        self.has_debts.store(!debts.is_empty(), Ordering::Relaxed);
        let rest = owed.until.duration_since(SystemTime::now()).ok()?;
        Some(Debt { until: now + rest, backoff: owed.backoff })
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

const LEAST_DEBT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
