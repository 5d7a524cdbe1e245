//! The visible state of the link and of the fleet behind it.

use super::ServerLink;
use super::live::Live;
use crate::config::{Mode, OnFleetLoss};
use crate::gate::fleet::clock::ServerClock;
use crate::gate::fleet::figures::FleetFigures;
use crate::gate::fleet::reach::{Reach, slept};
use crate::policy::Refusal;
use crate::policy::pace::{Phase, Shares};
use std::num::NonZeroU32;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

impl ServerLink {
    /// Whether the server can be asked, when starts may be reserved, and what applies while the server is lost.
    pub fn reach(&self) -> Reach {
        let (live, settings) = (self.live.borrow(), self.settings.load());
        let link = if live.connection.is_some() { live.server } else { 0 };
        let (membership, configured) = (&live.membership, settings.fleet.instances.map_or(0, NonZeroU32::get));
        let at_one_time = configured.max(self.place.instances());
        let is_enforced = settings.fleet.paces().is_some() && settings.mode == Mode::Enforce;
        let is_uncounted = is_enforced && settings.on_fleet_loss == OnFleetLoss::Local;
        let alone = match settings.fleet.paces() {
            Some(_) if is_uncounted => membership.phase(at_one_time),
            Some(_) if is_enforced => None,
            Some(_) => membership.phase(at_one_time.max(1)),
            None => membership.phase(1).map(|phase| Phase { instances: 1, ..phase }),
        };
        let shares = membership.shares(configured);
        let clock = Some(membership.clock);
        let is_there = |at: Instant| if link == 0 { at } else { at.max(Instant::now() + LOOK_EVERY) };
        let settled_at = live.settled_at.map(is_there);
        Reach { link, clock, settled_at, shares, slept: slept(), alone, is_uncounted }
    }

    /// Maximum size of a copy in bytes: its file, the fields of its answer, and the error of the last fetch.
    pub fn longest_copy(&self) -> usize {
        let settings = self.settings.load();
        settings.robots.parse_options().max_text() + settings.limits.max_header_size as usize + COPY_REST
    }

    pub fn clock(&self) -> ServerClock {
        self.live.borrow().membership.clock
    }

    /// Waits until requests have to be refused, and returns that refusal.
    pub async fn refuses(&self) -> Refusal {
        let mut changes = self.live.subscribe();
        loop {
            if let Some(refusal) = self.reach().refusal() {
                return refusal;
            }
            // The sender exists as long as `self`.
            let _ = changes.changed().await;
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.live.borrow().connection.is_none()
    }

    pub(super) fn shares(&self) -> Shares {
        let configured = self.settings.load().fleet.instances.map_or(0, NonZeroU32::get);
        self.live.borrow().membership.shares(configured)
    }

    pub fn figures(&self) -> FleetFigures {
        let (calls, lost) = (self.calls.load(Ordering::Relaxed), self.lost.load(Ordering::Relaxed));
        let (instances, missing) = (self.shares().connected, self.missing());
        FleetFigures { is_up: !self.is_lost(), instances, missing, calls, lost }
    }

    /// Missing instances, as last reported by the server.
    pub(super) fn missing(&self) -> u32 {
        let Shares { connected, instances } = self.shares();
        if self.live.borrow().membership.is_known() { instances.saturating_sub(connected) } else { 0 }
    }

    /// Waits until the first attempt to connect has ended.
    pub async fn tried(&self) {
        self.is_such(|live| live.is_tried).await;
    }

    /// Waits until there is a connection to the server.
    pub async fn is_there(&self) {
        self.is_such(|live| live.connection.is_some()).await;
    }

    pub(super) async fn is_such(&self, is: impl FnMut(&Live) -> bool) {
        // The sender exists as long as `self`.
        let _ = self.live.subscribe().wait_for(is).await;
    }
}

/// Time between two checks whether an instance still reports its debts.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Bytes of a copy besides its file and the fields of its answer.
const COPY_REST: usize = 64 << 10;
