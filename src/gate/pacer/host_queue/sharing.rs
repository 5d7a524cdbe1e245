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
        match fleet.map(Fleet::machine) {
            None => Self::Alone,
            Some(Some(machine)) => Self::Machine(MachineShare::new(machine.id(&key.to_string()))),
            Some(None) => Self::Server(Box::default()),
        }
    }

    /// Records the state of the other processes or instances.
    #[inline]
    pub fn follow<W>(&mut self, schedule: &mut Schedule<W>, fleet: Option<&Fleet>, now: Instant) {
        let Some(fleet) = fleet else { return };
        match (self, fleet.machine()) {
            (Self::Machine(share), Some(machine)) => share.follow(schedule, machine, now),
            (Self::Server(share), _) => share.follow(schedule, fleet.reach(), now),
            (Self::Alone | Self::Machine(_), _) => {}
        }
    }

    /// Reserves a start for the next waiting request, if that takes no call.
    pub fn prepare<W>(&mut self, schedule: &mut Schedule<W>, fleet: Option<&Fleet>, key: &PaceKey, now: Instant) {
        if let (Self::Machine(share), Some(machine)) = (self, fleet.and_then(Fleet::machine)) {
            share.prepare(schedule, machine, || key.to_string(), now);
        }
    }

    /// Nothing more can start for now. Returns when to act next, if known.
    pub fn settle<W>(&mut self, schedule: &mut Schedule<W>, fleet: Option<&Fleet>) -> Option<Instant> {
        match (self, fleet.and_then(Fleet::machine)) {
            (Self::Machine(share), Some(machine)) => share.settle(schedule, machine),
            (Self::Alone | Self::Machine(_) | Self::Server(_), _) => None,
        }
    }

    /// Handles a request's start.
    pub fn started<W>(&mut self, schedule: &mut Schedule<W>, slot: &Slot) {
        match self {
            Self::Alone => {}
            Self::Machine(share) => share.started(schedule, slot),
            Self::Server(share) => share.started(schedule, slot),
        }
    }

    /// The request leaves; `is_gone`: it has left. True: that frees the slot.
    pub fn left<W>(
        &mut self,
        schedule: &mut Schedule<W>,
        fleet: Option<&Fleet>,
        slot: &Slot,
        at: Instant,
        is_gone: bool,
    ) -> bool {
        match (self, fleet.and_then(Fleet::machine)) {
            (Self::Machine(share), Some(machine)) => share.left(schedule, machine, slot, at, is_gone),
            (Self::Server(share), _) => share.left(schedule, slot, at, is_gone),
            (Self::Alone | Self::Machine(_), _) => false,
        }
    }

    /// Handles a request's end. Returns true if that frees the slot.
    pub fn ended<W>(&mut self, schedule: &mut Schedule<W>, fleet: Option<&Fleet>, slot: &Slot, has_left: bool) -> bool {
        match (self, fleet.and_then(Fleet::machine)) {
            (Self::Machine(share), Some(machine)) => share.ended(schedule, machine, slot),
            (Self::Server(share), _) => share.ended(slot, has_left, Instant::now()),
            (Self::Alone | Self::Machine(_), _) => false,
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
    pub fn catch_up<W>(&mut self, schedule: &mut Schedule<W>, fleet: Option<&Fleet>, changes_more: bool) {
        let is_calm = schedule.backoff().is_zero() && schedule.observed().refusals == 0;
        if let (Self::Machine(share), Some(machine)) = (self, fleet.and_then(Fleet::machine))
            && (changes_more || !is_calm)
        {
            share.catch_up(schedule, machine, Instant::now());
        }
    }

    /// Publishes a changed backoff or latency.
    pub fn learned<W>(&mut self, schedule: &Schedule<W>, fleet: Option<&Fleet>) {
        if let (Self::Machine(share), Some(machine)) = (self, fleet.and_then(Fleet::machine)) {
            share.learned(schedule, machine);
        }
    }

    /// The share of a fleet with a server.
    pub fn server(&mut self) -> Option<&mut FleetShare> {
        match self {
            Self::Server(share) => Some(share),
            Self::Alone | Self::Machine(_) => None,
        }
    }
}
