//! Figures on all files, for the status and metrics.

/// Figures over all authorities.
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
    /// Files fetched in which nobody understands: preferences in robots.txt, licences in robots.txt, tdmrep.json.
    pub malformed: [u64; 3],
}

impl CacheFigures {
    /// All that `store.memory` bounds.
    pub fn bytes(&self) -> usize {
        self.authority_bytes + self.file_bytes + self.pace_bytes + self.unwritten_bytes
    }
}
