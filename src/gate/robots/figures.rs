//! Figures over all authorities' files.

use super::RobotsCache;
use crate::policy::SiteFile;
use std::sync::atomic::{AtomicU64, Ordering};

/// Figures over all authorities, for the status and metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheFigures {
    /// Authorities in memory.
    pub authorities: usize,
    /// Different files in memory.
    pub files: usize,
    pub tdmrep_files: usize,
    /// Bytes that they take.
    pub authority_bytes: usize,
    pub file_bytes: usize,
    /// Those of hosts' paces, and of what waits to be written.
    pub pace_bytes: usize,
    pub unwritten_bytes: usize,
    /// Fetches of robots.txt that were answered, and those that were not.
    pub fetched: u64,
    pub failed: u64,
    /// The same of tdmrep.json.
    pub tdmrep_fetched: u64,
    pub tdmrep_failed: u64,
    /// The same of licence files.
    pub license_fetched: u64,
    pub license_failed: u64,
    /// Files fetched in which nobody understands: preferences in robots.txt, licences in robots.txt, tdmrep.json, licence files.
    pub malformed: [u64; 4],
}

impl CacheFigures {
    /// All that `store.memory` bounds.
    pub fn bytes(&self) -> usize {
        self.authority_bytes + self.file_bytes + self.pace_bytes + self.unwritten_bytes
    }
}

impl RobotsCache {
    pub fn figures(&self) -> CacheFigures {
        let Self { hosts, files, pacer, store, fetched, failed, malformed, .. } = self;
        let count = |of: &[AtomicU64; SiteFile::COUNT], file| of[file as usize].load(Ordering::Relaxed);
        CacheFigures {
            authorities: hosts.count(SiteFile::Robots),
            files: files.count(SiteFile::Robots),
            tdmrep_files: files.count(SiteFile::TdmRep),
            authority_bytes: hosts.bytes(),
            file_bytes: files.bytes(),
            pace_bytes: pacer.bytes(),
            unwritten_bytes: store.queued_bytes(),
            fetched: count(fetched, SiteFile::Robots),
            failed: count(failed, SiteFile::Robots),
            tdmrep_fetched: count(fetched, SiteFile::TdmRep),
            tdmrep_failed: count(failed, SiteFile::TdmRep),
            license_fetched: count(fetched, SiteFile::License),
            license_failed: count(failed, SiteFile::License),
            malformed: malformed.each_ref().map(|count| count.load(Ordering::Relaxed)),
        }
    }
}
