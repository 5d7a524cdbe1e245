//! Decides whether and when a request may be sent. Owns the state that requests share, and passes the time to `policy`, which reads no
//! clock.

mod account;
mod admit;
mod admit_host;
mod budget;
pub mod cache;
mod compute;
mod decode;
mod decoders;
mod fleet;
mod held_request;
mod pacer;
mod report_mode;
mod robots;
mod robots_copy;
mod shared_rows;
mod store;
mod terms;
mod wait;
mod waiting_requests;
mod watch;

pub use crate::policy::pace::PaceOutcome;
pub use account::{Account, AccountDetail};
pub use admit_host::LastHost;
pub use budget::{BudgetFigures, Charge};
pub use compute::Workers;
pub use decode::DecodeError;
pub use decoders::DECODERS_BUSY;
pub use fleet::FleetFigures;
pub use held_request::{HeldFigures, HeldFor, HeldRequest};
pub use pacer::{PaceFigures, Permit};
pub use report_mode::Reported;
pub use robots::{CacheFigures, most_fetches};
pub use robots_copy::RobotsCopy;
pub use watch::{GateFigures, Times};

use crate::config::{Hosts, Mode, Settings};
use crate::policy::explain::{Explanation, explain};
use crate::policy::freshness::CopyState;
use crate::policy::{
    Allowance, Authority, Entry, HostRules, Known, PaceKey, Refusal, Request, Ruling, SiteFile, decide,
};
use crate::upstream::Upstream;
use arc_swap::ArcSwap;
use budget::{Bill, Ledger};
use fleet::{Fleet, Message, Messages};
use pacer::{Pacer, Stand};
use robots::{FetchReason, Order, RobotsCache};
use robots_copy::as_served;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use store::Store;
use terms::{rules, terms};
use tokio::sync::watch::Sender;
use tokio::task::JoinSet;

/// Decides by robots.txt and pacing whether and when a request may be sent.
pub struct Gate {
    settings: Arc<ArcSwap<Settings>>,
    robots: Arc<RobotsCache>,
    pacer: Arc<Pacer>,
    ledger: Arc<Ledger>,
    pub workers: Workers,
    store: Arc<Store>,
    fleet: Arc<Fleet>,
    /// `Some` while the proxy drains: the time until which requests may be held.
    drain: Sender<Option<Instant>>,
    /// Maximum time for which requests may be held, as of the last reload: zero in report mode. No limit before the first reload.
    max_hold: Sender<Duration>,
    /// Tasks of the fleet, aborted when the gate is dropped.
    _listens: JoinSet<()>,
}

/// The next step of an allowed request.
pub enum Admitted {
    /// The request is sent now, and holds the permit until it ends.
    Go {
        permit: Box<Permit>,
        /// The decision that report mode did not enforce.
        reported: Option<Reported>,
    },
    /// The stored robots.txt is the answer.
    Robots(RobotsCopy),
    /// Allowed, but not sent: the client already has the page (`min_revisit`).
    NotModified,
    /// Allowed, but without a pacing slot: the caller looks in the cache first.
    Allowed {
        /// The decision that report mode did not enforce.
        reported: Option<Reported>,
    },
}

impl Gate {
    /// Creates a gate that keeps everything in memory and has no fleet.
    pub fn new(settings: Arc<ArcSwap<Settings>>, upstream: Arc<Upstream>) -> Self {
        Self::with(settings, upstream, Arc::default(), Fleet::alone(), None)
    }

    /// Opens the store of earlier processes and the fleet, as configured.
    pub fn open(settings: Arc<ArcSwap<Settings>>, upstream: Arc<Upstream>) -> Self {
        let now = settings.load_full();
        let place = (now.store.disk > 0).then(|| now.store.place());
        let store = Arc::new(Store::open(&now.store));
        let (fleet, messages) = Fleet::open(&settings, (store.clone(), place.as_deref()));
        Self::with(settings, upstream, store, Arc::new(fleet), Some(messages))
    }

    fn with(
        settings: Arc<ArcSwap<Settings>>,
        upstream: Arc<Upstream>,
        store: Arc<Store>,
        fleet: Arc<Fleet>,
        messages: Option<Messages>,
    ) -> Self {
        let pacer = Arc::new(Pacer::new(fleet.clone()));
        let workers = Workers::new(settings.load().limits.workers);
        let shared = (store.clone(), fleet.clone(), workers.clone());
        let robots = RobotsCache::new(upstream, pacer.clone(), shared, settings.clone());
        let (ledger, mut listens) = (Ledger::new(fleet.clone()), JoinSet::new());
        if let Some(messages) = messages.filter(|_| fleet.has_server()) {
            let fleet = fleet.clone();
            listens.spawn(listen(messages, fleet.clone(), (robots.clone(), pacer.clone(), ledger.clone())));
            listens.spawn(async move { fleet.keep().await });
        }
        let (drain, max_hold) = (Sender::default(), Sender::new(Duration::MAX));
        Gate { settings, robots, pacer, ledger, workers, store, fleet, drain, max_hold, _listens: listens }
    }

    /// Waits until the first attempt to join the fleet has succeeded or failed. Returns at once without a fleet.
    pub async fn join(&self) {
        self.fleet.tried().await;
    }

    /// Tells the other instances that this instance leaves the fleet.
    pub async fn leave_fleet(&self) {
        self.fleet.leave().await;
    }

    /// Writes pending entries to the store and closes it. Blocks.
    pub fn close(&self) {
        self.store.close();
    }

    /// Explains why a URL may or may not be fetched. Fetches robots.txt and the other files that decide, if unknown. `refused`: why the
    /// request is refused before robots.txt is consulted, if so; then nothing is fetched.
    ///
    /// # Errors
    /// A file that decides could not be requested, for a reason on our side.
    pub async fn explain(
        &self,
        request: &Request<'_>,
        rules: &HostRules,
        refused: Option<&Refusal>,
    ) -> Result<Explanation, Refusal> {
        let now = SystemTime::now;
        let host = self.robots.host(SiteFile::Robots, request.authority);
        let reach = match refused {
            Some(why) => Err(why.clone()),
            None => self.robots.may_reach(request.authority).await,
        };
        if let Err(why) = reach {
            return Ok(explain(&*host.load_full(), rules, request, now()).refused(&why));
        }
        let mut asked = self.fetch_unknown(SiteFile::Robots, request.authority).await;
        let robots = host.load_full();
        // Each file is fetched at most once.
        let mut left = SiteFile::COUNT;
        loop {
            let [tdmrep, license] = self.other_files(&robots, rules, request.authority);
            let known = Known { robots: &robots, tdmrep: tdmrep.as_deref(), license: license.as_deref() };
            let decision = decide(known, rules, request, now());
            let wanted = match decision.ruling {
                Ruling::Fetch(file @ (SiteFile::TdmRep | SiteFile::License(_))) => Some(file),
                _ => decision.refresh.into_iter().find(|file| matches!(file, SiteFile::License(_))),
            };
            match (wanted, decision.ruling) {
                (Some(file), _) if left > 0 => {
                    left -= 1;
                    asked = asked.and(self.fetch_unknown(file, request.authority).await);
                }
                (_, Ruling::Fetch(_)) if let Err(why) = asked => return Err(why),
                _ => return Ok(explain(known, rules, request, now())),
            }
        }
    }

    /// The entries in memory of the other files that decide: tdmrep.json, and the licence file that this robots.txt names.
    fn other_files(&self, robots: &Entry, rules: &HostRules, authority: &Authority) -> [Option<Arc<Entry>>; 2] {
        let known = |file| self.robots.host(file, authority).load_full();
        let license = robots.named_license().filter(|_| !rules.licensed_purposes().is_empty());
        [rules.mining_purpose().map(|_| known(SiteFile::TdmRep)), license.map(|url| known(SiteFile::license(url)))]
    }

    /// Admits a tunnelled connection. Its requests are invisible, so only the pace and the budgets apply, to the connection as a whole.
    /// `hosts`: the client's own settings, in place of `Settings::hosts`. `account`: receives the records of this request.
    pub async fn admit_connection(
        &self,
        request: &Request<'_>,
        hosts: Option<&Hosts>,
        account: &mut Account,
    ) -> Result<(Box<Permit>, Option<Reported>), Refusal> {
        let since = Instant::now();
        loop {
            let settings = self.settings.load_full();
            let rules = rules(request, hosts, &settings);
            let terms = self.terms(request, rules, &settings, rules.crawl_delay, since.elapsed());
            let pace = self.pacer.queue(&PaceKey::new(settings.pace.key, request.authority, request.address));
            let is_reported = settings.mode == Mode::Report;
            account.bill = Bill::of(&self.ledger, rules.manners.budget, pace.key(), request, is_reported);
            let reported = match account.bill.as_ref().and_then(|bill| bill.refusal()) {
                Some(spent) if !is_reported => return Err(spent),
                spent => spent.map(Reported::from),
            };
            let (stood, reported) = pace.stand_or_report(request.client, &terms, is_reported, reported)?;
            let permit = match stood {
                Stand::Go(permit) => permit,
                Stand::Wait(waiting) => match account.waits(self.turn(request, waiting)).await? {
                    Some(permit) => permit,
                    // After a reload, requests may be held for less time, or not at all: decides again.
                    None => continue,
                },
            };
            account.pay().await?;
            return Ok((permit, reported));
        }
    }

    /// The stored robots.txt, fetched again first unless it is fresh. `None`: there is no copy to serve, so the origin answers.
    async fn robots_copy(
        &self,
        request: &Request<'_>,
        hosts: Option<&Hosts>,
        account: &mut Account,
    ) -> Result<Option<RobotsCopy>, Refusal> {
        let host = self.robots.host(SiteFile::Robots, request.authority);
        let (entry, now) = (host.load_full(), SystemTime::now());
        account.record_decision(Some(Allowance::RobotsTxt), &entry, [None, None]);
        let usable = entry.usable(now);
        let is_fresh = usable.is_some_and(|(answer, _)| answer.freshness.is_fresh(now));
        if !matches!(usable, Some((_, CopyState::Fresh))) && entry.may_fetch(now) {
            let crawl_delay = rules(request, hosts, &self.settings.load()).crawl_delay(&entry, request);
            let reason = if usable.is_some() { FetchReason::Renewal } else { FetchReason::FirstUse };
            let fetching = self.refresh_for(&host, request, reason, crawl_delay);
            if is_fresh {
                return Ok(as_served(&host, request, now));
            }
            let fetched = self.wait_for_robots(request, hosts, fetching, Duration::ZERO);
            if let Err(why) = account.waits(fetched).await
                && usable.is_none()
            {
                return if self.settings.load().mode == Mode::Report { Ok(None) } else { Err(why) };
            }
        }
        account.record_decision(Some(Allowance::RobotsTxt), &host.load_full(), [None, None]);
        Ok(as_served(&host, request, SystemTime::now()))
    }

    /// Fetches an authority's file if there is no usable copy.
    async fn fetch_unknown(&self, file: SiteFile, authority: &Authority) -> Result<(), Refusal> {
        let host = self.robots.host(file, authority);
        let (entry, now) = (host.load_full(), SystemTime::now());
        if entry.usable(now).is_some() || !entry.may_fetch(now) {
            return Ok(());
        }
        self.robots.refresh(&host, Order::background(FetchReason::FirstUse)).end().await
    }
}

/// Reports to the fleet's server the data that the server may have lost, and then the spending from the time when it was unreachable.
async fn tell(fleet: Arc<Fleet>, pacer: Arc<Pacer>, ledger: Arc<Ledger>) {
    let server = fleet.reach().link;
    let ((), is_complete) = tokio::join!(pacer.link_changed(), async { server > 0 && ledger.tell().await });
    fleet.told(server);
    if is_complete {
        ledger.report_all().await;
    }
}

/// Passes messages from the fleet on to the cache, the pacer and the ledger.
async fn listen(mut messages: Messages, fleet: Arc<Fleet>, to: (Arc<RobotsCache>, Arc<Pacer>, Arc<Ledger>)) {
    let (robots, pacer, ledger) = to;
    let mut telling = JoinSet::new();
    while let Some(message) = messages.next().await {
        match message {
            Message::Link => {
                // A separate task, so that other messages do not wait for the report to the fleet.
                telling.shutdown().await;
                telling.spawn(tell(fleet.clone(), pacer.clone(), ledger.clone()));
                robots.published("");
            }
            Message::Pace { key, news } => pacer.hear(&key, news),
            Message::Robots { authority } => robots.published(&authority),
            Message::Free { authority } => fleet.arrived(&authority),
        }
    }
}
