//! The fleet: all instances that share one Redis or Valkey server, and through it paces, backoffs and copies of robots.txt. docs/fleet.md
//! is its manual. Without a server, the fleet is the processes of one machine with the same store (`machine`), or this process alone.
//!
//! - If a key has a gap, an instance reserves each start at the server (`pace.lua`), and converts the start's time by an estimate of the
//!   server's clock (`clock`). Without a gap nothing is reserved, but a refusal by the origin is published to all.
//! - A robots.txt is fetched by the instance that holds the right to it (`copy.lua`), and published.
//! - The server counts the spending from budgets (`budget.lua`).
//! - A *debt* is a time before which nothing may start: a gap after the last start, or a pause that the host has asked for. An instance
//!   reports its debts to each server that may not know them.
//! - A server that does not answer in time counts as lost until it answers again (`link`). Meanwhile `on_fleet_loss` applies.

mod budget;
mod clock;
mod copies;
mod figures;
mod files;
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
pub(super) use copies::{Acceptable, Claim, LATE, Parcel};
pub use figures::FleetFigures;
pub(super) use machine::{Machine, MachineLink, MachineStart, MachineTurn, MachineView};
pub(super) use message::{Message, Messages, WaitNews};
pub(super) use pace::{PaceAnswer, PaceCall, StartWindow, WantedStart};
pub(super) use reach::{Reach, ServerLost};

use super::store::Store;
use crate::config::Settings;
use crate::policy::pace::MAX_BACKOFF;
use crate::policy::{Refusal, Spent};
use arc_swap::ArcSwap;
use futures_util::future::join_all;
use keeps::Keeps;
use link::ServerLink;
use place::KeptPlace;
use std::iter::once;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Instant, SystemTime};
use tokio::sync::broadcast;

/// This instance's links to the fleet's servers, and to the other processes of this machine.
pub(super) struct Fleet {
    /// The links to the server, if one is configured, and to a second server for the copies, if there is one. Paces must not be lost, but
    /// copies may be, so they can be on different servers.
    servers: Option<(ServerLink, Option<ServerLink>)>,
    /// The link to the processes of this machine, which are the fleet if there is no server.
    pub machine: Arc<MachineLink>,
    /// The store in which the processes of this machine keep their copies.
    store: Arc<Store>,
    /// Announces the authorities whose copies have arrived, or whose files this instance may fetch now. "": this may be so for any.
    arrivals: broadcast::Sender<Arc<str>>,
    /// Number of rights to fetch a file that this instance has asked for.
    rights: AtomicU64,
}

impl Fleet {
    /// Opens the fleet as configured. Call [`keep`](Self::keep) next. `store`: with its directory, if there is one.
    pub fn open(
        settings: &Arc<ArcSwap<Settings>>,
        (store, directory): (Arc<Store>, Option<&Path>),
    ) -> (Self, Messages) {
        let (now, (sender, messages)) = (settings.load(), message::messages());
        let machine = MachineLink::open(directory, now.pace.max_crawl_delay.max(MAX_BACKOFF));
        let link = |keeps, place| ServerLink::new(keeps, settings.clone(), place, sender.clone());
        let servers = now.fleet.paces().map(|_| {
            let copies = now.fleet.copies_apart().map(|_| link(Keeps::Copies, KeptPlace::open(None)));
            (link(Keeps::Paces, KeptPlace::open(directory)), copies)
        });
        (Self { servers, ..Self::on_machine(machine, store) }, messages)
    }

    /// The fleet of the processes of this machine.
    pub fn on_machine(machine: Arc<MachineLink>, store: Arc<Store>) -> Self {
        Self { servers: None, machine, store, arrivals: broadcast::Sender::new(ARRIVALS), rights: AtomicU64::new(0) }
    }

    /// The fleet of this process alone, in memory.
    pub fn alone() -> Arc<Self> {
        Arc::new(Self::on_machine(MachineLink::open(None, MAX_BACKOFF), Arc::default()))
    }

    /// The link to the server with the paces.
    fn paces(&self) -> Option<&ServerLink> {
        self.servers.as_ref().map(|(paces, _)| paces)
    }

    /// Connects to the servers, until the instance [leaves](Self::leave).
    pub async fn keep(&self) {
        join_all(self.links().map(ServerLink::keep)).await;
    }

    /// Tells the server that this instance ends, so that the others take over its share.
    pub async fn leave(&self) {
        join_all(self.links().map(ServerLink::leave)).await;
    }

    /// Waits until the first attempt to connect has ended.
    pub async fn tried(&self) {
        join_all(self.links().map(ServerLink::tried)).await;
    }

    fn links(&self) -> impl Iterator<Item = &ServerLink> {
        self.servers.iter().flat_map(|(paces, copies)| once(paces).chain(copies))
    }

    /// The link to the server with the copies of robots.txt.
    fn copies(&self) -> Option<&ServerLink> {
        self.links().last()
    }

    #[inline]
    pub fn reach(&self) -> Reach {
        self.paces().map_or_else(|| self.machine.reach(), ServerLink::reach)
    }

    /// Notes that this instance has reported its debts to the server with this number.
    pub fn told(&self, server: u64) {
        self.paces().into_iter().for_each(|paces| paces.told(server));
    }

    /// The refusal for all requests now, if any.
    #[inline]
    pub fn refusal(&self) -> Option<Refusal> {
        self.reach().refusal()
    }

    /// Waits until requests have to be refused, and returns that refusal.
    pub async fn refuses(&self) -> Refusal {
        match self.paces() {
            Some(paces) => paces.refuses().await,
            None => std::future::pending().await,
        }
    }

    /// Reports and reserves starts of a key.
    pub async fn pace(&self, key: &str, call: &PaceCall) -> Result<PaceAnswer, ServerLost> {
        let link = self.paces().ok_or(ServerLost)?;
        let (clock, asked) = (link.clock(), Instant::now());
        let reply = link.call(&call.invocation(key, &link.me, &clock)).await?;
        Ok(call.answer(reply, &link.clock(), asked, Instant::now()))
    }

    /// Spends from a budget that all instances share. False: the budget has no room.
    pub async fn spend(&self, of: &str, spend: &Spend) -> Result<(bool, Spent), ServerLost> {
        let Some(paces) = self.paces() else { return self.machine.shared()?.spend(of, spend).await };
        let answer = paces.call(&spend.invocation(of)).await?;
        Ok(budget::answered(answer, spend.per, SystemTime::now()))
    }

    /// Announces that a copy of this authority's robots.txt has arrived, or that the right to fetch it is free. "": any.
    pub fn arrived(&self, authority: &str) {
        // There may be no receiver.
        let _ = self.arrivals.send(authority.into());
    }

    /// `None`: the fleet has no server.
    pub fn figures(&self) -> Option<FleetFigures> {
        self.links().map(ServerLink::figures).reduce(FleetFigures::with_copies)
    }
}

/// Maximum number of copies that may arrive while a waiting request is not polled. If more arrive, the request has to ask the server.
const ARRIVALS: usize = 256;
