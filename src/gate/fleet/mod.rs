//! The fleet: all instances that share one Redis or Valkey server, and through it paces, backoffs and copies of robots.txt. docs/fleet.md
//! is its manual. Without a server, the processes of one machine with the same store are a fleet (`machine`).
//!
//! - Under a gap, an instance reserves each start at the server (`pace.lua`), and interprets it by its estimate of the server's clock
//!   (`clock`). Without a gap nothing is reserved: a refusal by the origin is published to all.
//! - A robots.txt is fetched by the instance with that right (`copy.lua`), and published.
//! - The server counts the spending from budgets (`budget.lua`).
//! - A server that does not answer in time is not asked until it does (`link`); until then `on_fleet_loss` applies.

mod budget;
mod clock;
mod copies;
mod figures;
mod keeps;
mod link;
mod machine;
mod membership;
mod message;
mod pace;
#[cfg(test)]
pub(super) mod pace_twin;
mod place;
mod reach;
mod scripts;
mod sentinels;
mod server;

pub(super) use budget::Spend;
pub(super) use clock::ServerClock;
pub(super) use copies::{Claim, FETCH_LASTS, LATE, Parcel};
pub use figures::FleetFigures;
pub(super) use machine::{Machine, MachineLink, MachineStart, MachineTurn, MachineView};
pub(super) use message::{Message, Messages, WaitNews};
pub(super) use pace::{PaceAnswer, PaceCall, StartWindow, WantedStart};
pub(super) use reach::{Reach, ServerLost};

use super::store::Store;
use crate::config::Settings;
use crate::policy::{Refusal, Spent};
use arc_swap::ArcSwap;
use futures_util::future::join_all;
use keeps::Keeps;
use link::ServerLink;
use place::KeptPlace;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use tokio::sync::broadcast;

/// This instance's part in the fleet.
pub(super) struct Fleet {
    way: FleetWay,
    /// Announces copies by authority; "": any copy may have come.
    arrivals: broadcast::Sender<Arc<str>>,
}

/// How the others are reached.
enum FleetWay {
    /// Paces must not be lost, but copies may be, so they can be on different servers: the second has them, if there is one.
    Server(ServerLink, Option<ServerLink>),
    /// The processes of this machine, and where they keep their copies.
    Machine(Arc<MachineLink>, Arc<Store>),
}

impl Fleet {
    /// Call [`keep`](Self::keep) next. `None`: no fleet is configured. `store`: its directory, if there is one.
    pub fn open(settings: &Arc<ArcSwap<Settings>>, store: Option<&Path>) -> Option<(Self, Messages)> {
        let now = settings.load();
        now.fleet.paces()?;
        let (sender, messages) = message::messages();
        let link = |keeps, place| ServerLink::new(keeps, settings.clone(), place, sender.clone());
        let paces = link(Keeps::Paces, KeptPlace::open(store));
        let copies = now.fleet.copies_apart().map(|_| link(Keeps::Copies, KeptPlace::open(None)));
        Some((Self::new(FleetWay::Server(paces, copies)), messages))
    }

    /// The fleet of the processes of this machine.
    pub fn on_machine(machine: Arc<MachineLink>, store: Arc<Store>) -> Self {
        Self::new(FleetWay::Machine(machine, store))
    }

    /// The processes of this machine, if they are the fleet, and could ever share something.
    pub fn machine(&self) -> Option<Arc<Machine>> {
        match &self.way {
            FleetWay::Server(..) => None,
            FleetWay::Machine(link, _) => link.machine(),
        }
    }

    fn new(way: FleetWay) -> Self {
        Self { way, arrivals: broadcast::Sender::new(ARRIVALS) }
    }

    /// Connects to the servers, until the instance [leaves](Self::leave).
    pub async fn keep(&self) {
        join_all(self.links().map(ServerLink::keep)).await;
    }

    /// Tells the server that this instance ends, so that the others take over its share.
    pub async fn leave(&self) {
        join_all(self.links().map(ServerLink::leave)).await;
    }

    /// Returns when the first attempt to connect has ended.
    pub async fn tried(&self) {
        join_all(self.links().map(ServerLink::tried)).await;
    }

    fn links(&self) -> impl Iterator<Item = &ServerLink> {
        let (paces, copies) = match &self.way {
            FleetWay::Server(paces, copies) => (Some(paces), copies.as_ref()),
            FleetWay::Machine(..) => (None, None),
        };
        paces.into_iter().chain(copies)
    }

    /// The link to the server with the copies of robots.txt.
    fn copies(&self) -> Option<&ServerLink> {
        self.links().last()
    }

    #[inline]
    pub fn reach(&self) -> Reach {
        match &self.way {
            FleetWay::Server(paces, _) => paces.reach(),
            FleetWay::Machine(link, _) => link.reach(),
        }
    }

    /// Why requests are refused now, if they are.
    #[inline]
    pub fn refusal(&self) -> Option<Refusal> {
        self.reach().refusal()
    }

    /// Returns when requests have to be refused.
    pub async fn refuses(&self) -> Refusal {
        match &self.way {
            FleetWay::Server(paces, _) => paces.refuses().await,
            FleetWay::Machine(..) => std::future::pending().await,
        }
    }

    /// Reports and reserves starts of a key.
    pub async fn pace(&self, key: &str, call: &PaceCall) -> Result<PaceAnswer, ServerLost> {
        match &self.way {
            FleetWay::Server(link, _) => {
                let (clock, asked) = (link.clock(), Instant::now());
                let reply = link.call(&call.invocation(key, &link.me, &clock)).await?;
                Ok(call.answer(reply, &link.clock(), asked, Instant::now()))
            }
            FleetWay::Machine(..) => Err(ServerLost),
        }
    }

    /// Spends from a budget that all share. False: there was no room.
    pub async fn spend(&self, of: &str, spend: &Spend) -> Result<(bool, Spent), ServerLost> {
        match &self.way {
            FleetWay::Server(paces, _) => {
                let answer = paces.call(&spend.invocation(of)).await?;
                Ok(budget::answered(answer, spend.per, SystemTime::now()))
            }
            FleetWay::Machine(link, _) => link.machine().ok_or(ServerLost)?.spend(of, spend).await,
        }
    }

    /// A copy of this authority's robots.txt has come; "": any copy may have.
    pub fn arrived(&self, authority: &str) {
        // There may be no receiver.
        let _ = self.arrivals.send(authority.into());
    }

    /// `None`: the fleet has no server.
    pub fn figures(&self) -> Option<FleetFigures> {
        self.links().map(ServerLink::figures).reduce(FleetFigures::with_copies)
    }
}

/// Copies that may arrive while a waiting request is not polled; after more, it has to ask.
const ARRIVALS: usize = 256;
