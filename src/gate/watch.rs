//! What the gate knows, for those who watch and steer it. Called by `admin`.

use super::rulebook::BookFigures;
use super::terms::key;
use super::{FleetFigures, Gate};
use crate::config::Settings;
use crate::policy::{Access, Authority, Entry};
use std::sync::Arc;
use std::time::Duration;

/// Figures over all hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    pub book: BookFigures,
    /// Requests that wait for their turn.
    pub waiting: usize,
    /// `None`: it is in no fleet.
    pub fleet: Option<FleetFigures>,
}

/// One host's pace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PaceFigures {
    pub waiting: usize,
    pub in_flight: u32,
    /// The part of the gap that is due to the origin's 429 and 503 answers.
    pub backoff: Duration,
    /// Nothing starts within this time.
    pub owed: Duration,
}

impl Gate {
    pub fn figures(&self) -> Figures {
        let fleet = self.fleet.as_ref().map(|fleet| fleet.figures());
        Figures { book: self.book.figures(), waiting: self.pacer.waiting(), fleet }
    }

    /// The authorities asked for last, with what is known of each.
    pub fn latest(&self, most: usize) -> Vec<(Authority, Arc<Entry>)> {
        let slots = self.book.latest(most).into_iter();
        slots.map(|slot| (slot.authority.clone(), slot.load_full())).collect()
    }

    /// What is known of the authority, in memory or in the store. `None`: nothing.
    pub async fn entry(&self, authority: &Authority) -> Option<Arc<Entry>> {
        self.book.look_up(authority).await
    }

    /// To be called when the settings have been changed.
    pub fn reloaded(&self, before: &Settings) {
        if before.robots.parse_options() != self.settings.load().robots.parse_options() {
            self.book.reread();
        }
    }

    /// Fetches robots.txt anew, now, and tells what is known then.
    pub async fn refresh(&self, authority: &Authority) -> Arc<Entry> {
        let slot = self.book.slot(authority);
        let crawl_delay = self.crawl_delay(authority, &slot.load());
        // The channel closes when the fetch is over, however it ended.
        let _ = self.book.fetch_anew(&slot, crawl_delay).changed().await;
        slot.load_full()
    }

    /// The gap that the host asks of the crawlers that are configured, or of all.
    fn crawl_delay(&self, authority: &Authority, entry: &Entry) -> Option<Duration> {
        let (settings, host) = (self.settings.load(), authority.host());
        match &entry.answer.as_ref()?.access {
            Access::Rules(robots) => robots.rules_for(settings.product_tokens(host)).crawl_delay(),
            Access::AllowAll | Access::DisallowAll => None,
        }
    }

    /// `None`: nobody has asked for it lately; or paces are kept by address, and it has a name.
    pub fn pace(&self, authority: &Authority) -> Option<PaceFigures> {
        self.pacer.figures(&key(&self.settings.load(), authority, None))
    }
}
