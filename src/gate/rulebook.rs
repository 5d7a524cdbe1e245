//! Each authority's rules: fetched when first asked for, by one however many ask, refreshed behind those who ask later.
//! Called by `Gate::admit`.

use super::entry::{Access, Entry};
use super::fetch::{Fetched, Fetcher, Validators};
use super::pacer::Pacer;
use crate::config::Settings;
use crate::policy::pace::{Client, Outcome, Terms};
use crate::policy::{Authority, KeyBy, PaceKey};
use crate::robots::access::{AccessKind, from_status};
use crate::robots::{ParseOptions, RobotsTxt};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::watch;

pub(super) struct RuleBook {
    slots: Cache<Authority, Arc<Slot>>,
    fetcher: Arc<Fetcher>,
    pacer: Arc<Pacer>,
    settings: Arc<ArcSwap<Settings>>,
}

/// One authority's place: the entry in force, and the fetch under way.
pub(super) struct Slot {
    pub entry: ArcSwap<Entry>,
    fetch: Mutex<Option<watch::Receiver<()>>>,
}

impl RuleBook {
    pub fn new(fetcher: Fetcher, pacer: Arc<Pacer>, settings: Arc<ArcSwap<Settings>>) -> Self {
        RuleBook { slots: Cache::new(AUTHORITIES), fetcher: Arc::new(fetcher), pacer, settings }
    }

    pub fn slot(&self, authority: &Authority) -> Arc<Slot> {
        if let Some(slot) = self.slots.get(authority) {
            return slot;
        }
        let new = || Slot { entry: ArcSwap::from_pointee(Entry::absent()), fetch: Mutex::new(None) };
        match self.slots.get_or_insert_with::<_, std::convert::Infallible>(authority, || Ok(Arc::new(new()))) {
            Ok(slot) => slot,
            Err(never) => match never {},
        }
    }

    /// Starts a fetch, or joins the one under way; the receiver's channel closes when it is over. It goes on if those
    /// who wait for it leave.
    pub fn fetch(&self, authority: &Authority, slot: &Arc<Slot>) -> watch::Receiver<()> {
        let mut fetch = slot.fetch.lock();
        // A closed channel is a fetch that is over, or whose task has failed.
        if let Some(under_way) = fetch.as_ref().filter(|under_way| under_way.has_changed().is_ok()) {
            return under_way.clone();
        }
        let (over, receiver) = watch::channel(());
        *fetch = Some(receiver.clone());
        let (fetcher, pacer, settings) = (self.fetcher.clone(), self.pacer.clone(), self.settings.load_full());
        let (authority, slot) = (authority.clone(), slot.clone());
        tokio::spawn(async move {
            let entry = renew(&fetcher, &pacer, &settings, &authority, &slot.entry.load_full()).await;
            slot.entry.store(Arc::new(entry));
            drop(over);
        });
        receiver
    }
}

async fn renew(fetcher: &Fetcher, pacer: &Pacer, settings: &Settings, authority: &Authority, old: &Entry) -> Entry {
    let pace = pacer.pace(PaceKey::new(KeyBy::Host, authority, None));
    let terms = Terms { first_fetch: true, max_wait: Duration::from_secs(3600), ..Terms::default() };
    let mut permit = pace.turn(Client(0), terms).await.ok();
    let validators = Validators { etag: old.etag.clone(), last_modified: old.last_modified.clone() };
    let fetched = fetcher.fetch(authority, &validators, settings).await;
    if let Some(permit) = &mut permit {
        permit.outcome = Outcome::Success;
    }
    let now = SystemTime::now();
    let allow = |status| Entry {
        access: Access::AllowAll,
        status,
        fetched_at: now,
        expires_at: now + Entry::lifetime(),
        etag: None,
        last_modified: None,
    };
    let unreachable = |why: String, status| Entry {
        access: Access::Unreachable {
            why: why.into(),
            retry_at: now + Duration::from_secs(60),
            good: match &old.access {
                Access::Rules(rules) => Some(rules.clone()),
                _ => None,
            },
            failures: 1,
        },
        status,
        fetched_at: now,
        expires_at: now + Duration::from_secs(60),
        etag: old.etag.clone(),
        last_modified: old.last_modified.clone(),
    };
    match fetched {
        Fetched::DeadEnd(_) => allow(404),
        Fetched::Unreachable(why) => unreachable(why, 0),
        Fetched::Answer { status: 304, .. } => {
            Entry { fetched_at: now, expires_at: now + Entry::lifetime(), ..old.clone() }
        }
        Fetched::Answer { status, headers, body, .. } => match from_status(status) {
            AccessKind::Rules => {
                let field = |name| {
                    headers.get(name).and_then(|v: &http::HeaderValue| v.to_str().ok()).map(Box::<str>::from)
                };
                Entry {
                    access: Access::Rules(RobotsTxt::parse_with(&body, &ParseOptions::default())),
                    status,
                    fetched_at: now,
                    expires_at: now + Entry::lifetime(),
                    etag: field(http::header::ETAG),
                    last_modified: field(http::header::LAST_MODIFIED),
                }
            }
            AccessKind::AllowAll => allow(status),
            AccessKind::Redirect | AccessKind::DisallowAll => unreachable(format!("status {status}"), status),
        },
    }
}

const AUTHORITIES: usize = 100_000;
