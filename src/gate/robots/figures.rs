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
    /// Bytes of memory for authorities, and for files.
    pub authority_bytes: usize,
    pub file_bytes: usize,
    /// Bytes of memory for paces, and for entries that wait to be written to the store, without their files.
    pub pace_bytes: usize,
    pub unwritten_bytes: usize,
    /// Answered and failed fetches of robots.txt.
    pub fetched: u64,
    pub failed: u64,
    /// Answered and failed fetches of tdmrep.json.
    pub tdmrep_fetched: u64,
    pub tdmrep_failed: u64,
    /// Answered and failed fetches of licence files.
    pub license_fetched: u64,
    pub license_failed: u64,
    /// Fetched files that cannot be understood: preferences in robots.txt, licences in robots.txt, tdmrep.json, licence files.
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
            unwritten_bytes: store.own_bytes(),
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
