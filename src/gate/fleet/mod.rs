//! The fleet: all instances that share one Redis or Valkey server, and through it paces, backoffs and copies of
//! robots.txt (SEMANTICS §3 and §5). Called by `pacer` and `rulebook`; docs/fleet.md is its manual.
//!
//! - Where a gap is in force, each start is a turn that the server gives (`pace.lua`), asked for by the instance for
//!   whoever is first in its own line. Where none is, nobody asks: a refusal by the origin is published to all.
//! - A robots.txt is fetched by whoever gets the right to (`copy.lua`), and published.
//! - A server that does not answer in time is asked no more until it does (`link`); until then `on_fleet_loss` holds.

mod copies;
mod link;
mod message;
mod pace;

pub(super) use copies::{Claim, Parcel};
pub use link::FleetFigures;
pub(super) use link::Lost;
pub(super) use message::Message;
pub(super) use pace::{Event, KEPT, Place, Standing, Told};

use crate::config::{Mode, OnFleetLoss, Settings};
use crate::policy::Refusal;
use arc_swap::ArcSwap;
use copies::Arrivals;
use link::Link;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::AbortHandle;

/// This instance's part in the fleet.
pub(super) struct Fleet {
    link: Arc<Link>,
    settings: Arc<ArcSwap<Settings>>,
    arrivals: Arrivals,
    keeper: AbortHandle,
}

/// Whether the fleet can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Over this connection, counted from 1.
    Joined(u64),
    Parted {
        instances: u32,
    },
}

impl Fleet {
    /// Begins to connect. `None`: no fleet is configured. To be called within a runtime.
    pub fn open(settings: &Arc<ArcSwap<Settings>>) -> Option<(Self, UnboundedReceiver<Message>)> {
        let link = Arc::new(Link::new(settings.load().fleet.as_ref()?, settings.load().egress.ca_file.as_deref()));
        let (sender, messages) = unbounded_channel();
        let keeper = tokio::spawn(link.clone().keep(sender)).abort_handle();
        Some((Self { link, settings: settings.clone(), arrivals: Arrivals::default(), keeper }, messages))
    }

    /// Returns when the first attempt to connect has ended.
    pub async fn tried(&self) {
        // The sender lives as long as we do.
        let _ = self.link.is_up().wait_for(Option::is_some).await;
    }

    pub fn reach(&self) -> Reach {
        match self.link.current() {
            0 => Reach::Parted { instances: self.link.instances() },
            number => Reach::Joined(number),
        }
    }

    /// Why nothing goes now, if that is so.
    pub fn refusal(&self) -> Option<Refusal> {
        let refuses = || {
            let settings = self.settings.load();
            let on_loss = settings.fleet.as_ref().map(|fleet| fleet.on_loss);
            settings.mode == Mode::Enforce && on_loss == Some(OnFleetLoss::Refuse)
        };
        (self.link.current() == 0 && refuses()).then_some(Refusal::FleetLost { retry_after: COME_BACK })
    }

    /// Returns when nothing goes any more.
    pub async fn refuses(&self) -> Refusal {
        let mut is_up = self.link.is_up();
        loop {
            if let Some(refusal) = self.refusal() {
                return refusal;
            }
            if is_up.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Tells what is new about a key, and learns how that stands.
    pub async fn tell(&self, key: &str, told: &Told) -> Result<Standing, Lost> {
        self.link.call(&pace::invocation(key, &self.link.me, told)).await
    }

    /// The connection, counted from 1; 0: there is none.
    pub fn connection(&self) -> u64 {
        self.link.current()
    }

    pub fn figures(&self) -> FleetFigures {
        self.link.figures()
    }

    /// Says goodbye to the others.
    pub async fn leave(&self) {
        self.link.leave().await;
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// The server is tried about as often.
const COME_BACK: Duration = Duration::from_secs(2);
