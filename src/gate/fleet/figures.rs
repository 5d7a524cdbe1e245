//! What is shown of a fleet.

/// Figures on the fleet, for the status and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FleetFigures {
    pub is_up: bool,
    /// Instances that were connected when last seen, this one included.
    pub instances: u32,
    /// Others that were missing then: each gap is longer by their part.
    pub missing: u32,
    /// Round trips to its server.
    pub calls: u64,
    /// Times it was lost.
    pub lost: u64,
}
