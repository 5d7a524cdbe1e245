//! The fleet: all instances that share one Redis or Valkey server, and through it paces, backoffs and copies of
//! robots.txt (SEMANTICS §3 and §5). docs/fleet.md is its manual. Without a server, those on one machine that use one
//! store are one (`machine`).
//!
//! - Where a gap is in force, an instance starts nothing without the key's lease, which one instance has at a time
//!   (`turn.lua`); while it has it, its own schedule keeps the pace. Where none is, nobody asks: a refusal by the origin
//!   is published to all.
//! - A robots.txt is fetched by whoever gets the right to (`copy.lua`), and published.
//! - A server that does not answer in time is asked no more until it does (`link`); until then `on_fleet_loss` holds.

mod copies;
mod link;
mod machine;
mod message;
mod server;
mod turn;

pub(super) use copies::{Claim, Parcel};
pub use link::FleetFigures;
pub(super) use link::Lost;
pub(super) use message::Message;
pub(super) use turn::{LeaseOp, LeaseRequest, LeaseStatus, Place};

use crate::config::{Mode, OnFleetLoss, Settings};
use crate::policy::pace::LastStarts;
use crate::policy::{PaceKey, Refusal};
use arc_swap::ArcSwap;
use link::Link;
use machine::Machine;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::broadcast;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::AbortHandle;

/// This instance's part in the fleet.
pub(super) struct Fleet {
    way: Way,
    /// Tells which copies have come.
    arrivals: broadcast::Sender<Arc<str>>,
    /// Counts leases asked for.
    leases: AtomicU64,
}

/// How the others are reached.
enum Way {
    Server(Server),
    Machine(Machine),
}

struct Server {
    link: Arc<Link>,
    settings: Arc<ArcSwap<Settings>>,
    keeper: AbortHandle,
}

/// Whether the fleet can be asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Reach {
    /// At this server, counted from 1, one that may have forgotten as another; 0: at none.
    pub link: u64,
    /// Over this connection to it: what was sent over those before may be lost.
    pub connection: u64,
    /// Leases are asked for from then on.
    pub settled_at: Option<Instant>,
    /// Where the fleet does not answer one goes on alone, one of so many instances. `None`: nothing starts.
    pub alone: Option<u32>,
}

impl Fleet {
    /// Begins to connect. `None`: no fleet is configured. To be called within a runtime.
    pub fn open(settings: &Arc<ArcSwap<Settings>>) -> Option<(Self, UnboundedReceiver<Message>)> {
        settings.load().fleet.as_ref()?;
        let link = Arc::new(Link::new(settings.clone()));
        let (sender, messages) = unbounded_channel();
        let keeper = tokio::spawn(link.clone().keep(sender)).abort_handle();
        let way = Way::Server(Server { link, settings: settings.clone(), keeper });
        Some((Self::new(way), messages))
    }

    /// With the other processes of this machine that meet in this directory. `None`: nobody can, which has been told.
    pub fn on_machine(directory: &Path) -> Option<Self> {
        Machine::open(directory).map(|machine| Self::new(Way::Machine(machine)))
    }

    fn new(way: Way) -> Self {
        Self { way, arrivals: broadcast::Sender::new(ARRIVALS), leases: AtomicU64::new(0) }
    }

    /// Returns when the first attempt to connect has ended.
    pub async fn tried(&self) {
        match &self.way {
            Way::Server(server) => server.link.tried().await,
            Way::Machine(_) => {}
        }
    }

    #[inline]
    pub fn reach(&self) -> Reach {
        match &self.way {
            Way::Server(server) => server.reach(),
            Way::Machine(machine) => machine.reach(),
        }
    }

    /// Why nothing goes now, if that is so.
    #[inline]
    pub fn refusal(&self) -> Option<Refusal> {
        match &self.way {
            Way::Server(server) => server.refusal(),
            Way::Machine(_) => None,
        }
    }

    /// Returns when nothing goes any more.
    pub async fn refuses(&self) -> Refusal {
        let Way::Server(server) = &self.way else { return std::future::pending().await };
        let mut changes = server.link.changes();
        loop {
            if let Some(refusal) = server.refusal() {
                return refusal;
            }
            // The sender lives as long as we do.
            let _ = changes.changed().await;
        }
    }

    /// Asks for a key's lease, or renews or returns it, and tells what is new about the key.
    pub async fn lease(&self, key: &str, request: &LeaseRequest) -> Result<LeaseStatus, Lost> {
        match &self.way {
            Way::Server(Server { link, .. }) => {
                let answer = link.call(&request.invocation(key, &link.me)).await?;
                Ok(LeaseStatus::new(answer, Instant::now()))
            }
            Way::Machine(machine) => machine.lease(key, request).await,
        }
    }

    /// A request that has the key's lease leaves now. A server is told later, and counts on it until then.
    pub fn starts(&self, key: &PaceKey, starts: LastStarts) {
        if let Way::Machine(machine) = &self.way {
            machine.note(&key.to_string(), starts);
        }
    }

    /// Whether the origin has asked none of the processes of this machine for time. `None`: a server is to be asked, and tells.
    pub fn is_free(&self, key: &PaceKey, now: Instant) -> Option<bool> {
        match &self.way {
            Way::Server(_) => None,
            Way::Machine(machine) => Some(!machine.is_held_back(&key.to_string(), now)),
        }
    }

    /// Each larger than the one before.
    pub fn next_number(&self) -> u64 {
        self.leases.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// `None`: it has no server.
    pub fn figures(&self) -> Option<FleetFigures> {
        match &self.way {
            Way::Server(server) => Some(server.link.figures()),
            Way::Machine(_) => None,
        }
    }
}

impl Server {
    fn reach(&self) -> Reach {
        let instances = if self.settings.load().fleet.is_some() { self.link.instances() } else { 1 };
        Reach { alone: (!self.refuses_on_loss()).then_some(instances), ..self.link.reach() }
    }

    fn refusal(&self) -> Option<Refusal> {
        (self.link.is_lost() && self.refuses_on_loss()).then_some(Refusal::FleetLost { retry_after: COME_BACK })
    }

    fn refuses_on_loss(&self) -> bool {
        let settings = self.settings.load();
        let on_loss = settings.fleet.as_ref().map(|fleet| fleet.on_loss);
        settings.mode == Mode::Enforce && on_loss == Some(OnFleetLoss::Refuse)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// Copies that may come while one who waits looks away, and else has to ask.
const ARRIVALS: usize = 256;
/// The server is tried about as often.
const COME_BACK: Duration = Duration::from_secs(2);
