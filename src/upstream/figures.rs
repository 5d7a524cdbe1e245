//! Figures on connections and look-ups, for the status and metrics.

use crate::histogram::Distribution;

/// What there is of connections to origins, and of look-ups of their names.
#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamFigures {
    /// Connections that are kept for the next request.
    pub idle: usize,
    /// Connections that were opened, and those that could not be.
    pub opened: u64,
    pub failed: u64,
    /// TLS handshakes that were good, and those that were not.
    pub handshakes: u64,
    pub failed_handshakes: u64,
    /// How long the system's resolver took to find addresses, and to find none.
    pub found: Distribution,
    pub not_found: Distribution,
}
