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

impl FleetFigures {
    /// With those of the server that has the copies of robots.txt.
    pub(super) fn with_copies(self, Self { is_up, calls, lost, .. }: Self) -> Self {
        Self { is_up: self.is_up && is_up, calls: self.calls + calls, lost: self.lost + lost, ..self }
    }
}
