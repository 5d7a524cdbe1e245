//! Who shares one key's starts: nobody, the processes of this machine, or a fleet with a server.

use super::super::fleet_share::FleetShare;
use super::super::machine_share::MachineShare;
use crate::gate::fleet::Fleet;
use crate::policy::PaceKey;
use crate::policy::pace::{Schedule, Slot};
use std::time::Instant;

/// This process's share of one key's starts.
#[allow(clippy::large_enum_variant, reason = "the default takes no second allocation for each host")]
pub(super) enum Sharing {
    Alone,
    Machine(MachineShare),
    Server(Box<FleetShare>),
}

impl Sharing {
    pub fn new(fleet: Option<&Fleet>, key: &PaceKey) -> Self {
        match fleet {
            Some(fleet) if fleet.has_server() => Self::Server(Box::default()),
            _ => fleet.and_then(Fleet::machine).map_or(Self::Alone, |it| Self::Machine(MachineShare::new(it, key))),
        }
    }

    /// Records the state of the other processes or instances.
    #[inline]
    pub fn follow<W>(&mut self, schedule: &mut Schedule<W>, fleet: Option<&Fleet>, key: &PaceKey, now: Instant) {
        let is_apart = match self {
            Self::Alone => true,
            Self::Machine(share) => share.is_lost(),
            Self::Server(_) => false,
        };
        if is_apart && let Some(machine) = fleet.and_then(Fleet::machine).filter(|machine| !machine.is_lost()) {
            if let Self::Machine(lost) = self {
                lost.follow(schedule, now);
            }
            *self = Self::Machine(MachineShare::new(machine, key));
        }
        match (self, fleet) {
            (Self::Machine(share), _) => share.follow(schedule, now),
            (Self::Server(share), Some(fleet)) => share.follow(schedule, fleet.reach(), now),
            (Self::Alone | Self::Server(_), _) => {}
        }
    }

    /// Handles a request's start.
    pub fn started<W>(&mut self, schedule: &Schedule<W>, slot: &Slot) {
        match self {
            Self::Alone => {}
            Self::Machine(share) => share.started(slot),
            Self::Server(share) => share.started(schedule, slot),
        }
    }

    /// The request leaves; `is_gone`: it has left. True: that frees the slot.
    pub fn left<W>(&mut self, schedule: &Schedule<W>, slot: &Slot, at: Instant, is_gone: bool) -> bool {
        match self {
            Self::Alone => false,
            Self::Machine(share) => share.left(slot, at, is_gone),
            Self::Server(share) => share.left(schedule, slot, at, is_gone),
        }
    }

    /// Handles a request's end. Returns true if that frees the slot.
    pub fn ended(&mut self, slot: &Slot, has_left: bool) -> bool {
        match self {
            Self::Alone => false,
            Self::Machine(share) => share.ended(slot),
            Self::Server(share) => share.ended(slot, has_left, Instant::now()),
        }
    }

    /// Whether a request that has its slot may leave now.
    pub fn holds<W>(&self, schedule: &Schedule<W>, slot: &Slot, now: Instant) -> bool {
        match self {
            Self::Alone => true,
            Self::Machine(share) => schedule.holds(slot, share.has_turn(slot)),
            Self::Server(share) => schedule.holds(slot, share.has_turn(slot, now)),
        }
    }

    /// Adopts the others' backoff and latency before an answer is counted. `changes_more`: the answer is a refusal or has a latency, so it
    /// changes more than an existing backoff.
    pub fn catch_up<W>(&mut self, schedule: &mut Schedule<W>, changes_more: bool) {
        let matters = changes_more || !schedule.observed().is_calm();
        if let Some(share) = self.machine().filter(|share| matters && !share.is_lost()) {
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
