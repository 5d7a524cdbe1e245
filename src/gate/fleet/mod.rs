//! The fleet: all instances that share one Redis or Valkey server, and through it paces, backoffs and copies of
//! robots.txt. docs/fleet.md is its manual. Without a server, those on one machine that use one
//! store are one (`machine`).
//!
//! - Where a gap is in force, an instance reserves each start at the server (`pace.lua`), and understands it by its estimate of the
//!   server's clock (`clock`). Where none is, nothing is reserved: a refusal by the origin is published to all.
//! - A robots.txt is fetched by the instance that gets the right to (`copy.lua`), and published.
//! - What is spent of budgets is counted by the server (`budget.lua`).
//! - A server that does not answer in time is not asked again until it does (`link`); until then `on_fleet_loss` applies.

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
mod parcel;
mod place;
mod reach;
mod scripts;
mod sentinels;
mod server;

pub(super) use budget::Spend;
pub(super) use clock::ServerClock;
pub(super) use copies::Claim;
pub use figures::FleetFigures;
pub(super) use machine::{Machine, MachineStart, MachineTurn, MachineView};
pub(super) use message::{Message, WaitNews};
pub(super) use pace::{PaceAnswer, PaceCall, StartWindow, WantedStart};
pub(super) use parcel::Parcel;
pub(super) use reach::{Reach, ServerLost};

use crate::config::Settings;
use crate::policy::{Refusal, Spent};
use arc_swap::ArcSwap;
use futures_util::future::join_all;
use keeps::Keeps;
use link::ServerLink;
use place::KeptPlace;
use std::iter::once;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};
use tokio::sync::broadcast;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// This instance's part in the fleet.
pub(super) struct Fleet {
    way: FleetWay,
    /// Tells which copies have come; nothing: any may have.
    arrivals: broadcast::Sender<Arc<str>>,
    /// Counts reservations.
    reservations: AtomicU64,
}

/// How the others are reached.
enum FleetWay {
    Server(FleetServers),
    Machine(Arc<Machine>),
}

/// Paces must not be forgotten, and copies may be: they can be on different servers.
struct FleetServers {
    paces: ServerLink,
    /// `None`: that of the paces has them.
    copies: Option<ServerLink>,
}

impl Fleet {
    /// To be [kept](Self::keep). `None`: no fleet is configured. `store`: its directory, if it has one.
    pub fn open(settings: &Arc<ArcSwap<Settings>>, store: Option<&Path>) -> Option<(Self, UnboundedReceiver<Message>)> {
        let now = settings.load();
        now.fleet.paces()?;
        let (sender, messages) = unbounded_channel();
        let link = |keeps, place| ServerLink::new(keeps, settings.clone(), place, sender.clone());
        let paces = link(Keeps::Paces, KeptPlace::open(store));
        let copies = now.fleet.copies_apart().map(|_| link(Keeps::Copies, KeptPlace::open(None)));
        Some((Self::new(FleetWay::Server(FleetServers { paces, copies })), messages))
    }

    /// With the other processes of this machine.
    pub fn on_machine(machine: Arc<Machine>) -> Self {
        Self::new(FleetWay::Machine(machine))
    }

    /// The processes of this machine, if they are the fleet.
    pub fn machine(&self) -> Option<&Machine> {
        match &self.way {
            FleetWay::Server(_) => None,
            FleetWay::Machine(machine) => Some(machine),
        }
    }

    fn new(way: FleetWay) -> Self {
        Self { way, arrivals: broadcast::Sender::new(ARRIVALS), reservations: AtomicU64::new(0) }
    }

    /// Connects to its servers, until it [leaves](Self::leave).
    pub async fn keep(&self) {
        join_all(self.links().map(ServerLink::keep)).await;
    }

    /// Tells its server that this instance ends, and costs the others nothing from then on.
    pub async fn leave(&self) {
        join_all(self.links().map(ServerLink::leave)).await;
    }

    /// Returns when the first attempt to connect has ended.
    pub async fn tried(&self) {
        join_all(self.links().map(ServerLink::tried)).await;
    }

    fn links(&self) -> impl Iterator<Item = &ServerLink> {
        let servers = if let FleetWay::Server(servers) = &self.way { Some(servers) } else { None };
        servers.into_iter().flat_map(|servers| once(&servers.paces).chain(&servers.copies))
    }

    /// To the server that has the copies of robots.txt.
    fn copies(&self) -> Option<&ServerLink> {
        self.links().last()
    }

    #[inline]
    pub fn reach(&self) -> Reach {
        match &self.way {
            FleetWay::Server(servers) => servers.paces.reach(),
            FleetWay::Machine(machine) => machine.reach(),
        }
    }

    /// Why nothing goes now, if that is so.
    #[inline]
    pub fn refusal(&self) -> Option<Refusal> {
        self.reach().refusal()
    }

    /// Returns when nothing goes any more.
    pub async fn refuses(&self) -> Refusal {
        match &self.way {
            FleetWay::Server(servers) => servers.paces.refuses().await,
            FleetWay::Machine(_) => std::future::pending().await,
        }
    }

    /// Tells and reserves what there is of a key's starts.
    pub async fn pace(&self, key: &str, call: &PaceCall) -> Result<PaceAnswer, ServerLost> {
        match &self.way {
            FleetWay::Server(FleetServers { paces: link, .. }) => {
                let (clock, asked) = (link.clock(), Instant::now());
                let reply = link.call(&call.invocation(key, &link.me, &clock)).await?;
                Ok(call.answer(reply, &link.clock(), asked, Instant::now()))
            }
            FleetWay::Machine(_) => Err(ServerLost),
        }
    }

    /// Spends of a budget that all share. False: there was no room for it.
    pub async fn spend(&self, of: &str, spend: &Spend) -> Result<(bool, Spent), ServerLost> {
        match &self.way {
            FleetWay::Server(servers) => {
                let answer = servers.paces.call(&spend.invocation(of)).await?;
                Ok(budget::answered(answer, spend.per, SystemTime::now()))
            }
            FleetWay::Machine(machine) => machine.spend(of, spend).await,
        }
    }

    /// A copy of this authority's robots.txt has come; of none: any may have.
    pub fn arrived(&self, authority: &str) {
        // Nobody may wait for any.
        let _ = self.arrivals.send(authority.into());
    }

    /// Each larger than the one before.
    pub fn next_number(&self) -> u64 {
        self.reservations.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// `None`: it has no server.
    pub fn figures(&self) -> Option<FleetFigures> {
        self.links().map(ServerLink::figures).reduce(FleetFigures::with_copies)
    }
}

/// Copies that may arrive while a request that waits is not polled; beyond that it has to ask.
const ARRIVALS: usize = 256;
