//! Figures over all authorities' files.

use super::RobotsCache;
use crate::policy::SiteFile;

/// Figures over all authorities, for the status and metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheFigures {
    /// Authorities in memory.
    pub authorities: usize,
    /// Distinct files in memory.
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
    /// The memory that `store.memory` limits, in bytes.
    pub fn bytes(&self) -> usize {
        self.authority_bytes + self.file_bytes + self.pace_bytes + self.unwritten_bytes
    }
}

impl RobotsCache {
    pub fn figures(&self) -> CacheFigures {
        CacheFigures {
            authorities: self.hosts.count(SiteFile::Robots),
            files: self.files.count(SiteFile::Robots),
            tdmrep_files: self.files.count(SiteFile::TdmRep),
            authority_bytes: self.hosts.bytes(),
            file_bytes: self.files.bytes(),
            pace_bytes: self.pacer.bytes(),
            unwritten_bytes: self.store.own_bytes(),
            ..*self.figures.lock()
        }
    }
}
