//! Figures on the fleet.

/// Figures on the fleet, for the status and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FleetFigures {
    pub is_up: bool,
    /// Instances connected at the last report, including this one.
    pub instances: u32,
    /// Other instances missing at the last report: each gap is longer, as their share of the starts stays unused.
    pub missing: u32,
    /// Round trips to the server.
    pub calls: u64,
    /// How often the connection to the server was lost.
    pub lost: u64,
}

impl FleetFigures {
    /// Adds the figures of the server that keeps the copies of robots.txt.
    pub(super) fn with_copies(self, Self { is_up, calls, lost, .. }: Self) -> Self {
        Self { is_up: self.is_up && is_up, calls: self.calls + calls, lost: self.lost + lost, ..self }
    }
}
