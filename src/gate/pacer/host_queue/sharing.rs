//! The sharing of one key's starts: with the other processes of this machine, or with a fleet that has a server.

use super::super::fleet_share::FleetShare;
use super::super::machine_share::MachineShare;
use crate::gate::fleet::Fleet;
use crate::policy::pace::{Schedule, Slot};
use std::time::Instant;

/// This process's share of one key's starts.
#[allow(clippy::large_enum_variant, reason = "the default takes no second allocation for each host")]
pub(super) enum Sharing {
    Machine(MachineShare),
    Server(Box<FleetShare>),
}

impl Sharing {
    /// Brings `schedule` up to date with the starts and reservations of the other processes or instances. `name`: returns the name under
    /// which the processes of this machine share the key's state.
    #[inline]
    pub fn follow<W>(
        &mut self,
        schedule: &mut Schedule<W>,
        fleet: &Fleet,
        name: impl FnOnce() -> String,
        now: Instant,
    ) {
        match self {
            Self::Machine(share) => share.follow(schedule, &fleet.machine, name, now),
            Self::Server(share) => share.follow(schedule, fleet.reach(), now),
        }
    }

    /// Handles a request's start.
    pub fn started<W>(&mut self, schedule: &Schedule<W>, slot: &Slot) {
        match self {
            Self::Machine(share) => share.started(slot),
            Self::Server(share) => share.started(schedule, slot),
        }
    }

    /// Handles a request that is about to be sent or, if `is_gone`, was sent. Returns true if that frees the slot.
    pub fn left<W>(&mut self, schedule: &Schedule<W>, slot: &Slot, at: Instant, is_gone: bool) -> bool {
        match self {
            Self::Machine(share) => share.left(slot, at, is_gone),
            Self::Server(share) => share.left(schedule, slot, at, is_gone),
        }
    }

    /// Handles a request's end. Returns true if that frees the slot.
    pub fn ended(&mut self, slot: &Slot, has_left: bool) -> bool {
        match self {
            Self::Machine(share) => share.ended(slot),
            Self::Server(share) => share.ended(slot, has_left, Instant::now()),
        }
    }

    /// Whether a request that has its slot may be sent now.
    pub fn holds<W>(&self, schedule: &Schedule<W>, slot: &Slot, now: Instant) -> bool {
        let has_turn = match self {
            Self::Machine(share) => share.has_turn(slot),
            Self::Server(share) => share.has_turn(slot, now),
        };
        schedule.holds(slot, has_turn)
    }

    /// Adopts the other processes' backoff and latency before an answer is counted. `changes_more`: the answer is a refusal or has a
    /// latency; otherwise it can only end an existing backoff.
    pub fn catch_up<W>(&mut self, schedule: &mut Schedule<W>, changes_more: bool) {
        if let Some(share) = self.machine().filter(|_| changes_more || !schedule.observed().is_calm()) {
            share.look(schedule, Instant::now());
        }
    }

    /// The share among the processes of this machine.
    pub fn machine(&mut self) -> Option<&mut MachineShare> {
        if let Self::Machine(share) = self { Some(share) } else { None }
    }

    /// The share of a fleet with a server.
    pub fn server(&mut self) -> Option<&mut FleetShare> {
        if let Self::Server(share) = self { Some(share) } else { None }
    }
}
