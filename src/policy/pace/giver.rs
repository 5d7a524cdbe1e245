//! Who gives a lane's turns: itself, or the fleet of instances that share the key (SEMANTICS §5, fleet). Kept up by
//! `gate::pacer`.

use std::time::{Duration, Instant};

use super::terms::{Demand, Start};

/// Who gives the turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Giver {
    /// The lane.
    #[default]
    Lane,
    /// The fleet, wherever a gap or a backoff is in force. The lane's own marks hold beside.
    Fleet(Share),
    /// The lane, as the fleet cannot be asked: it keeps each gap once for each instance.
    Parted { instances: u32 },
}

/// How a lane stands in its fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// The fleet has said how the key stands, and that holds still. Until then every start is the fleet's to give.
    pub known: bool,
    /// The next start is given to this lane.
    pub turn: bool,
    /// Foreseen for its next turn.
    pub not_before: Option<Instant>,
    /// Instances that want the key now, this one included: each has a turn in its turn.
    pub rivals: u32,
}

/// A turn to be asked for: what the head of the line needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    pub gap: Duration,
    /// It keeps the turn until it has finished: nobody else may be in flight.
    pub exclusive: bool,
    pub first_fetch: bool,
    /// The most that is kept of a backoff.
    pub max_delay: Duration,
}

impl Giver {
    /// Whether a start is the fleet's to give.
    pub(super) fn is_asked(&self, demand: Demand, backoff: Duration) -> bool {
        match self {
            Self::Lane | Self::Parted { .. } => false,
            Self::Fleet(share) => !share.known || !demand.delay.is_zero() || !backoff.is_zero(),
        }
    }

    /// Whether it has been given.
    pub(super) fn has_turn(&self) -> bool {
        matches!(self, Self::Fleet(Share { turn: true, .. }))
    }

    pub(super) fn use_turn(&mut self) {
        if let Self::Fleet(share) = self {
            share.turn = false;
        }
    }

    /// What starts have to keep.
    pub(super) fn tempo(&self, backoff: Duration) -> Tempo {
        let times = match self {
            Self::Lane | Self::Fleet(_) => 1,
            Self::Parted { instances } => *instances,
        };
        Tempo { backoff, times, not_before: None }
    }

    /// What they are expected to find.
    pub(super) fn forecast(&self, backoff: Duration) -> Tempo {
        match self {
            Self::Lane | Self::Parted { .. } => self.tempo(backoff),
            Self::Fleet(share) => Tempo { backoff, times: share.rivals, not_before: share.not_before },
        }
    }
}

/// What the gaps of a lane come to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tempo {
    backoff: Duration,
    times: u32,
    not_before: Option<Instant>,
}

impl Tempo {
    pub fn gap(&self, demand: Demand) -> Duration {
        demand.delay.max(self.backoff).saturating_mul(self.times.max(1))
    }

    pub fn not_before(&self) -> Option<Instant> {
        self.not_before
    }
}

/// The longest that asking the fleet takes.
pub(super) const ASKING: Duration = Duration::from_millis(500);

impl Want {
    pub(super) fn new(demand: Demand, limit: u32, max_delay: Duration) -> Self {
        let first_fetch = demand.start == Start::FirstFetch;
        Self { gap: demand.delay, exclusive: limit == 1, first_fetch, max_delay }
    }
}
