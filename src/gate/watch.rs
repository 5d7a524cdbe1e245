//! Figures of the gate for the status and metrics, and fetches on the operator's demand (`refresh`).

use super::pacer::PaceFigures;
use super::robots::{CacheFigures, FetchReason, Order};
use super::{BudgetFigures, FleetFigures, Gate, HeldFigures, HeldRequest, store};
use crate::config::{Mode, Settings, StoreSettings};
use crate::histogram::Distribution;
use crate::policy::{
    Authority, Budget, Entry, HostRules, PaceKey, Refusal, Request, Ruling, SiteAnswer, SiteFile, explain,
    judge_linked, may_fetch,
};
use crate::robots::RobotsTxt;
use http::HeaderMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Figures of all hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GateFigures {
    pub robots: CacheFigures,
    /// Waiting requests, including retries and redirected fetches.
    pub waiting: usize,
    pub held: HeldFigures,
    /// `None`: no fleet with a server.
    pub fleet: Option<FleetFigures>,
}

/// Distributions of times.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Times {
    /// Times that requests were held.
    pub held_for_turn: Distribution,
    pub held_for_robots: Distribution,
    /// Ages of robots.txt copies when a fetch to replace them ended, by whether the site answered it.
    pub answered_age: Distribution,
    pub failed_age: Distribution,
}

impl Gate {
    pub fn figures(&self) -> GateFigures {
        let (robots, fleet) = (self.robots.figures(), self.fleet.figures());
        GateFigures { robots, waiting: self.pacer.waiting().count(), held: self.pacer.waiting().figures(), fleet }
    }

    /// Distributions of times.
    pub fn times(&self) -> Times {
        let ([held_for_turn, held_for_robots], [answered_age, failed_age]) =
            (self.pacer.waiting().times(), self.robots.ages());
        Times { held_for_turn, held_for_robots, answered_age, failed_age }
    }

    /// Budgets in force and the spending from them, as far as this instance knows.
    pub fn budgets(&self) -> Vec<BudgetFigures> {
        self.ledger.all(&self.settings.load())
    }

    /// A user's budget and the spending from it, as far as this instance knows.
    pub fn spent_by(&self, user: &str, budget: Budget) -> BudgetFigures {
        self.ledger.of_user(user, budget)
    }

    /// Whether the store on disk can be used, and its size in bytes. `None`: there is no store on disk.
    pub fn store(&self) -> Option<(bool, u64)> {
        self.store.on_disk()
    }

    /// Whether an earlier process has created a store in the configured directory.
    pub fn is_store_begun(settings: &StoreSettings) -> bool {
        store::is_begun(settings)
    }

    /// Whether this process has the store open.
    pub fn is_store_open(&self) -> bool {
        self.store.is_readable()
    }

    /// The request that has been held longest. `None`: no request has been held for `at_least`.
    pub fn longest_held(&self, at_least: Duration) -> Option<HeldRequest> {
        self.pacer.waiting().longest(at_least)
    }

    /// Waits until one of the held requests is no longer held. Wakes one caller only.
    pub async fn released(&self) {
        self.pacer.waiting().released.notified().await;
    }

    /// The held requests, in order of arrival.
    pub fn all_held(&self, most: usize) -> Vec<HeldRequest> {
        self.pacer.waiting().all(most)
    }

    /// The crawl delay at this authority for the configured crawler, according to this entry and the operator.
    pub fn crawl_delay(&self, authority: &Authority, entry: &Entry) -> Option<Duration> {
        let settings = self.settings.load();
        settings.hosts.get(authority.host()).rules.crawl_delay(entry, &Request::new(authority, b"/"))
    }

    /// Whether this entry states usage preferences for the configured crawler while the configuration declares no purpose that they could
    /// refuse.
    pub fn lacks_purpose(&self, authority: &Authority, entry: &Entry) -> bool {
        let settings = self.settings.load();
        let rules = &settings.hosts.get(authority.host()).rules;
        let tokens = rules.product_tokens(&Request::new(authority, b"/")).into_owned();
        let says = |file: &RobotsTxt| file.rules_for(&tokens).usage_preferences().next().is_some();
        rules.purposes().is_empty() && entry.robots_txt().is_some_and(says)
    }

    /// The most recently requested authorities, with their entries.
    pub fn latest(&self, most: usize) -> Vec<(Authority, Arc<Entry>)> {
        let hosts = self.robots.latest(most).into_iter();
        hosts.map(|host| (host.authority.clone(), host.load_full())).collect()
    }

    /// The entry of an authority's file, from memory or the store. `None`: the file is unknown.
    pub async fn entry(&self, file: SiteFile, authority: &Authority) -> Option<Arc<Entry>> {
        self.robots.look_up(file, authority).await
    }

    /// Adopts a copy from another gate, without storing it.
    pub fn take_copy(&self, file: SiteFile, authority: &Authority, copy: Arc<Entry>) {
        self.robots.take_copy(file, authority, copy);
    }

    /// Adopts a robots.txt from elsewhere as if it had just been fetched.
    pub fn insert(&self, authority: &Authority, status: u16, headers: &HeaderMap, body: &[u8]) {
        self.robots.insert(authority, status, headers, body);
    }

    /// The ruling on a request by the licence file that its answer's Link header names. `None`: another licence file applies, such as
    /// the one that robots.txt names. The file is fetched in the background if necessary, and refuses nothing until it has arrived.
    pub fn judge_linked(&self, request: &Request<'_>, rules: &HostRules, url: &str) -> Option<Ruling> {
        let robots = self.robots.link_license(request.authority, url)?;
        let license = self.robots.host(SiteFile::license(url), request.authority);
        let decision = judge_linked(&robots, &license.load(), rules, request, SystemTime::now());
        if !decision.refresh.is_empty() || matches!(decision.ruling, Ruling::Fetch(_)) {
            drop(self.robots.refresh(&license, Order::background(FetchReason::Renewal)));
        }
        Some(decision.ruling)
    }

    /// Applies changed settings.
    pub fn reloaded(&self, before: &Settings) {
        let settings = self.settings.load();
        self.max_hold.send_replace(if settings.mode == Mode::Report { Duration::ZERO } else { settings.pace.max_wait });
        if before.robots.parse_options() != settings.robots.parse_options() {
            self.robots.reread();
        }
        self.robots.resize();
        if before.store != settings.store {
            self.store.resize(&settings.store);
            self.robots.trim();
        }
    }

    /// Whether the fleet's server can be changed without a restart: only if one was configured at the start.
    pub fn may_join_fleet(&self) -> bool {
        self.fleet.has_server()
    }

    /// Begins to drain: held requests whose slot comes by `until` are still sent. Other requests are refused, at once if the time of their
    /// slot is known, else at `until`.
    pub fn drain(&self, until: Instant) {
        self.drain.send_replace(Some(until));
    }

    /// Fetches robots.txt again, and the other files if they are in use or stored. Waits for a pacing slot for each, however long
    /// that takes. Returns the new robots.txt entry.
    ///
    /// # Errors
    /// A file could not be requested, for a reason on our side.
    pub async fn refresh(&self, authority: &Authority) -> Result<Arc<Entry>, Refusal> {
        let host = self.robots.host(SiteFile::Robots, authority);
        let order = Order::background(FetchReason::Anew);
        self.robots.refresh(&host, order).end().await?;
        let robots = host.load_full();
        let rules = self.settings.load().hosts.get(authority.host()).rules.clone();
        let request = Request::new(authority, b"/");
        let license = robots.license_url().map(|url| (SiteFile::license(url), !rules.licensed_purposes().is_empty()));
        for (file, is_used) in [(SiteFile::TdmRep, rules.mining_purpose().is_some())].into_iter().chain(license) {
            let is_wanted = is_used || self.entry(file, authority).await.is_some();
            if is_wanted && may_fetch(file, &robots, &rules, &request, SystemTime::now()) {
                self.robots.refresh(&self.robots.host(file, authority), order).end().await?;
            }
        }
        Ok(robots)
    }

    /// The access that this answer gives under the current settings, as a word.
    pub fn access(&self, authority: &Authority, answer: &SiteAnswer) -> &'static str {
        explain::access(answer, &self.settings.load().hosts.get(authority.host()).rules.options)
    }

    /// Figures of the authority's pace. `None`: no recent requests, or paces are kept by address and the authority has a name.
    pub fn pace(&self, authority: &Authority) -> Option<PaceFigures> {
        self.pacer.figures(&PaceKey::new(self.settings.load().pace.key, authority, None))
    }
}
