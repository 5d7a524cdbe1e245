//! The last starts, from which the next start keeps its distance. Pure.

use std::time::Instant;

use super::gap::GapInputs;
use super::terms::SlotRequest;

/// The instants that a start has to keep its distance from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LastStarts {
    pub last_start: Option<Instant>,
    /// The newest first fetch of a robots.txt: other first fetches keep their distance from it, requests need not.
    pub last_fetch: Option<Instant>,
    /// Nothing starts before: the origin asked for it, or an earlier process owed it.
    pub hold: Option<Instant>,
}

impl LastStarts {
    /// The later of each field.
    pub fn max(self, other: Self) -> Self {
        Self {
            last_start: self.last_start.max(other.last_start),
            last_fetch: self.last_fetch.max(other.last_fetch),
            hold: self.hold.max(other.hold),
        }
    }

    /// The earliest start; `None`: any time.
    pub(super) fn due(&self, request: SlotRequest, inputs: GapInputs) -> Option<Instant> {
        let gap = inputs.between_starts(request);
        if gap.is_zero() {
            return self.hold;
        }
        let last = if request.first_fetch { self.last_start.max(self.last_fetch) } else { self.last_start };
        last.map(|last| last + gap).max(self.hold)
    }

    pub(super) fn of(&mut self, first_fetch: bool) -> &mut Option<Instant> {
        if first_fetch { &mut self.last_fetch } else { &mut self.last_start }
    }
}
