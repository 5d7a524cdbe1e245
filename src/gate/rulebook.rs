//! Each authority's rules: fetched when first asked for, by one however many ask, renewed behind those who ask later.
//! Called by `Gate`.

use super::fetch::{Fetched, Fetcher};
use super::pacer::Pacer;
use crate::config::{Fallback, Settings};
use crate::policy::freshness::{CacheFields, Freshness, Limits};
use crate::policy::pace::{Client, Outcome};
use crate::policy::{Access, Answer, Authority, Entry, Validators, retry_after};
use crate::robots::access::{AccessKind, from_status};
use crate::robots::{ParseOptions, RobotsTxt};
use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderName, header};
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::watch;

/// The slots of the authorities asked for most lately.
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
        let new = || Arc::new(Slot { entry: ArcSwap::from_pointee(Entry::default()), fetch: Mutex::new(None) });
        match self.slots.get_or_insert_with::<_, std::convert::Infallible>(authority, || Ok(new())) {
            Ok(slot) => slot,
            Err(never) => match never {},
        }
    }

    /// Starts a fetch, or joins the one under way; the receiver's channel closes when it is over. It goes on even if
    /// those who wait for it leave.
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
            let old = slot.entry.load_full();
            let fetched = paced(&fetcher, &pacer, &settings, &authority, &old).await;
            let entry = next(&old, &fetched, &settings, SystemTime::now());
            tell(&authority, &old, &entry);
            slot.entry.store(Arc::new(entry));
            drop(over);
        });
        receiver
    }
}

/// A fetch is a request to the host like any other, and takes its turn.
async fn paced(
    fetcher: &Fetcher,
    pacer: &Pacer,
    settings: &Settings,
    authority: &Authority,
    old: &Entry,
) -> Fetched {
    let terms = super::terms(settings, None, old.answer.is_none());
    let permit = pacer.pace(super::key(settings, authority)).turn(FETCHES, terms).await;
    let validators = old.answer.as_ref().map(|answer| &answer.validators);
    let fetched = fetcher.fetch(authority, validators, settings).await;
    if let Ok(mut permit) = permit {
        permit.outcome = match &fetched {
            Fetched::Answer { status: 429 | 503, headers, .. } => {
                Outcome::Backoff { retry_after: asked_to_wait(headers, SystemTime::now()) }
            }
            Fetched::Answer { .. } | Fetched::DeadEnd { .. } => Outcome::Success,
            Fetched::Unreachable(_) => Outcome::Failure,
        };
    }
    fetched
}

/// What is known after a fetch (RFC 9309 §2.3.1).
fn next(old: &Entry, fetched: &Fetched, settings: &Settings, now: SystemTime) -> Entry {
    let robots = &settings.robots;
    let fallback = |access| match access {
        Fallback::Allow => Access::AllowAll,
        Fallback::Disallow => Access::DisallowAll,
    };
    let (status, headers, body) = match fetched {
        Fetched::Answer { status, headers, body } => (*status, headers, body),
        Fetched::DeadEnd { status, why } => {
            tracing::debug!(?why, "the redirects of robots.txt lead nowhere");
            let headers = HeaderMap::new();
            let freshness = freshness(&headers, settings, now);
            let (access, validators) = (fallback(robots.on_unavailable), Validators::default());
            return Entry::answered(Answer { access, status: *status, freshness, validators });
        }
        Fetched::Unreachable(why) => return old.failed(now, why, None, fastrand::f64()),
    };
    let (freshness, validators) = (freshness(headers, settings, now), validators(headers));
    if status == 304
        && let Some(entry) = old.confirmed(freshness, validators.clone())
    {
        return entry;
    }
    let access = match from_status(status) {
        AccessKind::Rules => Access::Rules(RobotsTxt::parse_with(body, &parse_options(settings))),
        AccessKind::AllowAll if matches!(status, 401 | 403) => fallback(robots.on_auth_error),
        AccessKind::AllowAll => fallback(robots.on_unavailable),
        AccessKind::Redirect | AccessKind::DisallowAll => {
            let wait = asked_to_wait(headers, now);
            return old.failed(now, &format!("status {status}"), wait, fastrand::f64());
        }
    };
    Entry::answered(Answer { access, status, freshness, validators })
}

/// How the files are read, as the operator has it.
pub fn parse_options(settings: &Settings) -> ParseOptions {
    let robots = &settings.robots;
    ParseOptions {
        max_size: usize::try_from(robots.max_size).unwrap_or(usize::MAX),
        user_agent_match: robots.user_agent_match,
        precedence: robots.precedence,
        ..ParseOptions::default()
    }
}

fn freshness(headers: &HeaderMap, settings: &Settings, now: SystemTime) -> Freshness {
    let field = |name: HeaderName| headers.get(name).map(|value| value.as_bytes());
    let control: Vec<_> = headers.get_all(header::CACHE_CONTROL).iter().map(|value| value.as_bytes()).collect();
    let fields = CacheFields {
        cache_control: &control,
        expires: field(header::EXPIRES),
        date: field(header::DATE),
        age: field(header::AGE),
    };
    let limits = Limits { min_ttl: settings.robots.min_ttl, max_ttl: settings.robots.max_ttl };
    Freshness::new(now, fields.lifetime(now, &limits), fastrand::f64())
}

fn validators(headers: &HeaderMap) -> Validators {
    let field = |name: HeaderName| headers.get(name)?.to_str().ok().map(Box::from);
    Validators { etag: field(header::ETAG), last_modified: field(header::LAST_MODIFIED) }
}

fn asked_to_wait(headers: &HeaderMap, now: SystemTime) -> Option<std::time::Duration> {
    retry_after(headers.get(header::RETRY_AFTER)?.as_bytes(), now)
}

fn tell(authority: &Authority, old: &Entry, new: &Entry) {
    match (&old.trouble, &new.trouble) {
        (_, Some(trouble)) => tracing::warn!(%authority, failures = trouble.failures, "robots.txt: {}", trouble.why),
        (Some(_), None) => tracing::info!(%authority, "robots.txt can be read again"),
        (None, None) => tracing::debug!(%authority, status = new.answer.as_ref().map(|a| a.status), "robots.txt fetched"),
    }
}

const AUTHORITIES: usize = 100_000;
/// Fetches stand in the line as one client of their own.
const FETCHES: Client = Client(0);
