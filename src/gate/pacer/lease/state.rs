//! Whether this instance has a key's lease. Pure.

use std::time::Instant;

#[derive(Debug, Default, Clone, Copy)]
pub(super) enum LeaseState {
    #[default]
    None,
    /// Another instance has it.
    Queued,
    Held(HeldLease),
}

/// The server may count it as ours. So it stays until the server has said otherwise: an instance that was cut off gives it
/// back, and has no second share.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldLease {
    /// Of the request it came with.
    pub number: u64,
    /// Nothing starts under it later: others may have it then, or the server may have forgotten, and it is taken again.
    pub ends: Instant,
    pub first_start: Option<Instant>,
}

impl LeaseState {
    pub fn held(&self) -> Option<&HeldLease> {
        match self {
            Self::Held(held) => Some(held),
            Self::None | Self::Queued => None,
        }
    }

    /// For now.
    pub fn is_held(&self, now: Instant) -> bool {
        self.held().is_some_and(|held| held.ends > now)
    }

    /// Nothing starts under it any more, and the place in line is given up or gone.
    pub fn lapse(&mut self, now: Instant) {
        *self = match *self {
            Self::Held(held) => Self::Held(HeldLease { ends: held.ends.min(now), ..held }),
            Self::None | Self::Queued => Self::None,
        };
    }
}
