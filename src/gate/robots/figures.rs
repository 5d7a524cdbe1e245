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
    /// Answered and failed fetches, by kind of file.
    pub fetched: [u64; SiteFile::COUNT],
    pub failed: [u64; SiteFile::COUNT],
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
        let counts = |of: &[AtomicU64; SiteFile::COUNT]| of.each_ref().map(|count| count.load(Ordering::Relaxed));
        CacheFigures {
            authorities: hosts.count(SiteFile::Robots),
            files: files.count(SiteFile::Robots),
            tdmrep_files: files.count(SiteFile::TdmRep),
            authority_bytes: hosts.bytes(),
            file_bytes: files.bytes(),
            pace_bytes: pacer.bytes(),
            unwritten_bytes: store.own_bytes(),
            fetched: counts(fetched),
            failed: counts(failed),
            malformed: malformed.each_ref().map(|count| count.load(Ordering::Relaxed)),
        }
    }
}
