//! How an authority's rules, and what else it says in a file, are learned: from the fleet, from the store, from the origin.

use super::fetch::{FetchError, FileRequest, Reply, no_resolver, target};
use super::redirect::{DeadEnd, Trail};
use super::response::{Fetched, asked_to_wait, interpret_response};
use super::{CacheInner, Fetch, FetchReason, HostEntry, Order, RobotsCache, is_unknown};
use crate::config::Settings;
use crate::gate::decode::rethrown;
use crate::gate::fleet::{Claim, Fleet, Parcel, ServerLost};
use crate::gate::store::snapshot;
use crate::gate::terms;
use crate::policy::freshness::CopyState;
use crate::policy::pace::{PaceOutcome, Terms};
use crate::policy::{self, AskedAgain, Authority, Entry, KeyBy, Refusal, Ruling, SiteFile};
use crate::robots::ProductToken;
use crate::upstream::{Versions, Want};
use futures_util::FutureExt;
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};
use tokio::time::timeout;
use url::Url;

impl CacheInner {
    /// From the fleet, where there is one that can be asked; else on our own. An error: nobody was asked.
    pub(super) async fn refresh(
        self: &Arc<Self>,
        host: &HostEntry,
        order: &Order,
        fetch: &Fetch,
    ) -> Result<(), Refusal> {
        let (was_unknown, name) = (is_unknown(&host.load()), host.name());
        let mut will_do = self.take_kept(host).await && order.reason.takes_any_copy();
        if will_do && is_enough(&host.load()) && !self.fleet.as_ref().is_some_and(|fleet| fleet.has_server()) {
            // No other process of this machine has a newer one.
            return Ok(());
        }
        let mut anew = order.reason == FetchReason::Anew;
        let claimed = loop {
            let claim = match &self.fleet {
                Some(fleet) => fleet.claim(name, anew).await,
                None => Err(ServerLost),
            };
            // The fleet may have missed what this instance had before it was killed; and who had the store in use may have
            // ended meanwhile.
            will_do |= self.take_kept(host).await && order.reason.takes_any_copy();
            match claim {
                Ok(Claim::Fetch(right, old)) => break Some((right, old)),
                Ok(Claim::Copy(copy)) => match self.unpack(host.file, Some(copy)).await {
                    Some(entry) if !is_older(&entry, &host.load()) && (anew || is_enough(&entry)) => {
                        self.keep(host, Arc::new(entry));
                        return Ok(());
                    }
                    // A server's that lags, or good for others for longer than for this instance.
                    Some(_) if !anew => anew = true,
                    // Another version's.
                    Some(_) | None => break None,
                },
                Err(ServerLost) => break None,
            }
        };
        let alone = async {
            match will_do {
                true => Ok(()),
                false => self.refresh_alone(host, order, fetch).await,
            }
        };
        let Some((right, old)) = claimed else { return alone.await };
        if let Some(old) = self.unpack(host.file, old).await.filter(|old| is_newer(old, &host.load())) {
            let is_enough = order.reason.takes_any_copy() && was_unknown && old.usable(SystemTime::now()).is_some();
            self.keep(host, Arc::new(old));
            if is_enough {
                // Whoever uses it has it renewed, in the background.
                return Ok(());
            }
        }
        let refreshed = right.meanwhile(alone).await;
        if refreshed.is_ok() {
            right.publish(host.load_full()).await;
        }
        refreshed
    }

    /// What another instance has published, whatever is under way here: a fetch of our own may be about to fail.
    pub(super) async fn take_published(self: &Arc<Self>, fleet: &Fleet, host: &HostEntry) {
        let published = self.unpack(host.file, fleet.take(host.name()).await).await;
        if let Some(entry) = published.filter(|entry| !is_older(entry, &host.load())) {
            self.keep(host, Arc::new(entry));
        }
    }

    /// Away from the threads that serve requests: how long it takes is the sender's to say. It is fresh for no longer
    /// than this instance has it.
    pub(super) async fn unpack(self: &Arc<Self>, file: SiteFile, copy: Option<Parcel>) -> Option<Entry> {
        let (inner, copy) = (self.clone(), copy?);
        let unpack = move || {
            let robots = &inner.settings.load().robots;
            let options = robots.parse_options();
            let entry = snapshot::unpack(&copy.bytes, copy.sent, SystemTime::now(), |name, body| {
                inner.files.named(file, name, &options, body)
            });
            entry.map(|entry| entry.fresh_within(robots.max_ttl))
        };
        tokio::task::spawn_blocking(unpack).await.map_err(rethrown).ok().flatten()
    }

    /// Where nothing is known: what the store has. True: it will do for those who wait.
    async fn take_kept(self: &Arc<Self>, host: &HostEntry) -> bool {
        let old = host.load_full();
        if !is_unknown(&old) {
            return false;
        }
        let Some(kept) = self.kept(&host.authority, host.file).await else { return false };
        let (kept, now) = (self.hosts.put_over(host, &old, kept), SystemTime::now());
        kept.usable(now).is_some() || !kept.may_fetch(now)
    }

    /// From the origin.
    async fn refresh_alone(self: &Arc<Self>, host: &HostEntry, order: &Order, fetch: &Fetch) -> Result<(), Refusal> {
        let old = host.load_full();
        let settings = self.settings.load_full();
        let fetched = match self.ask(&settings, host, &old, order, fetch).await {
            Ok(fetched) => fetched,
            Err(FetchError::Unreachable(why) | FetchError::Again(_, why)) => Fetched::Unreachable(why),
            Err(FetchError::NotAsked(refusal)) => return Err(refusal),
        };
        // As they are by now: a reload may have come meanwhile.
        let (settings, old) = (self.settings.load_full(), host.load_full());
        let Some(entry) = self.read(host.file, old.clone(), fetched, settings).await else { return Ok(()) };
        let entry = Arc::new(entry);
        let is_failed = entry.trouble.is_some();
        let count = if is_failed { &self.failed } else { &self.fetched };
        count[host.file as usize].fetch_add(1, Ordering::Relaxed);
        if let (Some(before), SiteFile::Robots) = (&old.answer, host.file) {
            self.ages[usize::from(is_failed)].observe(Duration::from_secs(before.freshness.age(SystemTime::now())));
        }
        if !is_failed {
            let malformed = self.malformed.iter().zip(entry.malformed());
            malformed.filter(|(_, is)| *is).for_each(|(count, _)| _ = count.fetch_add(1, Ordering::Relaxed));
        }
        tell(host, &old, &entry);
        self.keep(host, entry);
        Ok(())
    }

    /// What an answer says, read away from the threads that serve requests if it is long. `None`: the proxy is stopping.
    async fn read(
        self: &Arc<Self>,
        file: SiteFile,
        old: Arc<Entry>,
        fetched: Fetched,
        settings: Arc<Settings>,
    ) -> Option<Entry> {
        let is_long = matches!(&fetched, Fetched::Answer { body, .. } if body.len() > LONG);
        let inner = self.clone();
        let read = move || interpret_response(file, &old, &fetched, &inner.files, &settings, SystemTime::now());
        match is_long {
            true => tokio::task::spawn_blocking(read).await.map_err(rethrown).ok(),
            false => Some(read()),
        }
    }

    /// A fetch that a fault of ours has ended is a failure like another, so that it is not begun anew at once.
    pub(super) async fn or_failed<T>(&self, host: &HostEntry, work: impl Future<Output = T>) -> Option<T> {
        let panic = AssertUnwindSafe(work).catch_unwind().await;
        panic
            .inspect_err(|panic| {
                let why = words(&**panic);
                let file = host.file.name();
                tracing::error!(authority = %host.authority, "{file}: an internal error ended its fetch: {why}");
                let (old, settings) = (host.load_full(), self.settings.load());
                let failed = Fetched::Unreachable("an internal error of the proxy".to_owned());
                let (files, now) = (&self.files, SystemTime::now());
                self.keep(host, Arc::new(interpret_response(host.file, &old, &failed, files, &settings, now)));
                self.failed[host.file as usize].fetch_add(1, Ordering::Relaxed);
            })
            .ok()
    }

    /// What an earlier process knew, or this one before memory ran short.
    pub(super) async fn kept(self: &Arc<Self>, authority: &Authority, file: SiteFile) -> Option<Arc<Entry>> {
        if !self.store.is_on_disk() {
            return None;
        }
        let (inner, authority) = (self.clone(), authority.clone());
        let load = move || {
            let settings = inner.settings.load();
            let options = settings.robots.parse_options();
            let kept =
                inner.store.load(file.of(&authority), |name, body| inner.files.named(file, name, &options, body))?;
            Some(if settings.store.is_impatient { Arc::new(kept.due(SystemTime::now())) } else { kept })
        };
        tokio::task::spawn_blocking(load).await.map_err(rethrown).ok().flatten()
    }

    /// Whether where a redirect leads may be fetched, by the robots.txt there: as this crawler is configured, or by its own name.
    async fn may_follow(self: &Arc<Self>, hop: &FetchHop<'_>, to: &Url) -> Result<bool, FetchError> {
        let at = Authority::from_url(to.as_str()).map_err(|error| format!("redirected to {to}: {error}"))?;
        let (target, tokens) = (target(to), [ProductToken::parse(OWN_NAME).expect("it is a token")]);
        let request = policy::Request { agent_tokens: &tokens, ..policy::Request::new(&at, target.as_bytes()) };
        let rules = &hop.settings.hosts.get(at.host()).rules;
        let host = self.hosts.host(&at, SiteFile::Robots);
        let judge = || policy::judge_file(&host.load(), rules, &request, SystemTime::now());
        let mut ruling = judge();
        if let Ruling::Fetch(_) = ruling {
            let order = Order { reason: FetchReason::FirstUse, crawl_delay: None, ..*hop.order };
            RobotsCache(self.clone()).refresh(&host, order).end().await.map_err(FetchError::NotAsked)?;
            ruling = judge();
        }
        match ruling {
            Ruling::Allow(_) | Ruling::Report(_) => Ok(true),
            Ruling::Refuse(why @ Refusal::RobotsUnreachable { .. }) => {
                Err(FetchError::Unreachable(format!("redirected to {to}: {why}")))
            }
            Ruling::Refuse(_) | Ruling::Fetch(_) => Ok(false),
        }
    }

    /// Follows redirects to the file, within `robots.timeout` in all, waiting for turns not counted.
    async fn ask(
        self: &Arc<Self>,
        settings: &Settings,
        host: &HostEntry,
        old: &Entry,
        order: &Order,
        fetch: &Fetch,
    ) -> Result<Fetched, FetchError> {
        let (authority, file) = (&host.authority, host.file);
        // The page goes right after its robots.txt alone.
        let is_first_fetch = file == SiteFile::Robots && old.answer.is_none();
        let start = Url::parse(&authority.url(file.path())).map_err(|error| error.to_string())?;
        let mut trail = Trail::new(start);
        let mut hop = FetchHop { settings, order, first: authority, is_first_fetch, fetch };
        let mut left = settings.robots.timeout;
        let mut asked_again = None;
        let versions = order.versions;
        loop {
            let url = trail.current().clone();
            let at = Authority::from_url(url.as_str()).map_err(|error| format!("redirected to {url}: {error}"))?;
            // They are those of a file that was here; what is found elsewhere is kept without.
            let validators = old.answer.as_ref().map(|answer| &answer.validators).filter(|_| !trail.is_redirected());
            let want = Want { versions, ..Want::default() };
            let mut request = FileRequest { authority: &at, url: &url, file, validators, want, is_repeated: false };
            let mut reply = self.in_turn(&mut hop, &mut request, &mut left).await?;
            if reply.asks_for_signature {
                request.is_repeated = true;
                reply = self.in_turn(&mut hop, &mut request, &mut left).await?;
            }
            if is_our_fault(reply.status) && asked_again.is_none() {
                let (first_status, first_version) = (reply.status, reply.version);
                asked_again = Some(AskedAgain { first_status, first_version });
                request.want = Want { fresh: true, versions: Versions::Http1Only, ..Want::default() };
                // It may be what they ask that was at fault.
                request.validators = None;
                reply = self.in_turn(&mut hop, &mut request, &mut left).await.map_err(|error| match error {
                    FetchError::Unreachable(why) => {
                        let first = format!("status {first_status} over {first_version}");
                        FetchError::Unreachable(format!("{first}; retried over HTTP/1.1: {why}"))
                    }
                    other @ (FetchError::NotAsked(_) | FetchError::Again(..)) => other,
                })?;
                tracing::warn!(
                    %authority, first_status, status = reply.status,
                    "{}: the answer over {first_version} says that our request is malformed; retried over HTTP/1.1",
                    file.name()
                );
            }
            match trail.after(&reply) {
                None => {
                    let Reply { status, headers, body, .. } = reply;
                    let is_redirected = trail.is_redirected();
                    return Ok(Fetched::Answer { status, headers, body, is_redirected, asked_again });
                }
                Some(Ok(())) if file == SiteFile::Robots || self.may_follow(&hop, trail.current()).await? => {}
                Some(Ok(())) => return Ok(Fetched::DeadEnd { status: reply.status, why: DeadEnd::Disallowed }),
                Some(Err(why)) => return Ok(Fetched::DeadEnd { status: reply.status, why }),
            }
        }
    }

    /// A fetch is a request to the host that it goes to, like any other, and takes its turn there.
    async fn in_turn(
        &self,
        hop: &mut FetchHop<'_>,
        request: &mut FileRequest<'_>,
        left: &mut Duration,
    ) -> Result<Reply, FetchError> {
        for _ in 0..RETRIES {
            match self.once_in_turn(hop, request, left).await {
                Err(FetchError::Again(want, _)) => request.want = want,
                answered => return answered,
            }
        }
        self.once_in_turn(hop, request, left).await
    }

    async fn once_in_turn(
        &self,
        hop: &mut FetchHop<'_>,
        request: &FileRequest<'_>,
        left: &mut Duration,
    ) -> Result<Reply, FetchError> {
        let settings = hop.settings;
        let late = |_| format!("no complete answer within {:?}", settings.robots.timeout);
        let began = Instant::now();
        // Before its turn, which a resolver that takes long would waste. Its silence is not the site's.
        let found = timeout(*left, self.fetcher.first_address(request.authority, hop.order.client)).await;
        let address = found.map_err(|_| no_resolver(request.authority))??;
        *left = left.saturating_sub(began.elapsed());
        let dialled = match settings.pace.key {
            KeyBy::Address => address,
            KeyBy::Host | KeyBy::Site => None,
        };
        let pace = self.pacer.pace(&terms::key(settings, request.authority, dialled));
        let (client, terms) = (hop.order.client, self.terms(hop, request.authority));
        let in_turn = self.places.take_in_turn(client, &pace, &terms, settings.robots.timeout).await;
        let (_place, mut permit) = in_turn.map_err(FetchError::NotAsked)?;
        let began = Instant::now();
        let answered = timeout(*left, self.fetcher.get(request, hop.order.client, settings, &mut permit)).await;
        *left = left.saturating_sub(began.elapsed());
        let reply = answered.map_err(late)??;
        permit.outcome = match reply.status {
            429 | 503 => PaceOutcome::Backoff { retry_after: asked_to_wait(&reply.headers, SystemTime::now()) },
            _ => PaceOutcome::Success,
        };
        hop.fetch.goes_on();
        Ok(reply)
    }

    fn terms(&self, hop: &FetchHop<'_>, at: &Authority) -> Terms {
        let FetchHop { settings, order, first, is_first_fetch, fetch } = *hop;
        let known = self.hosts.find(at, SiteFile::Robots).map(|host| host.load_full()).unwrap_or_default();
        let rules = &settings.hosts.get(at.host()).rules;
        let known = rules.crawl_delay(&known, &policy::Request::new(at, b"/robots.txt"));
        let asked = order.crawl_delay.filter(|_| at == first);
        let crawl_delay = known.max(asked);
        // The page that it is fetched for goes right after it; there is none at another host.
        let is_first_fetch = is_first_fetch && at.host() == first.host();
        // Once the site has answered, the rest is not given up for want of a turn.
        let is_renewal = order.reason != FetchReason::FirstUse || fetch.is_going_on();
        Terms { is_renewal, ..terms::terms(settings, &rules.manners, crawl_delay, is_first_fetch) }
    }
}

/// What is the same for each request of one fetch.
struct FetchHop<'a> {
    settings: &'a Settings,
    order: &'a Order,
    first: &'a Authority,
    is_first_fetch: bool,
    fetch: &'a Fetch,
}

/// What was said of a panic, in the log of the panic itself too.
fn words(panic: &(dyn Any + Send)) -> &str {
    let literal = panic.downcast_ref::<&str>().copied();
    literal.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no words for it")
}

/// Whether the status says that our own message was at fault, so that it is worth another try in the plainest form.
fn is_our_fault(status: u16) -> bool {
    matches!(status, 400 | 408 | 412 | 421 | 426 | 431 | 494 | 505)
}

fn is_newer(one: &Entry, other: &Entry) -> bool {
    is_unknown(other) || is_older(other, one)
}

/// Whether there is nothing to fetch for now.
fn is_enough(entry: &Entry) -> bool {
    let now = SystemTime::now();
    !entry.may_fetch(now) || matches!(entry.usable(now), Some((_, CopyState::Fresh)))
}

/// By more time than clocks and ways make of one and the same. What a clock that was ahead has dated came just now at the latest.
fn is_older(one: &Entry, other: &Entry) -> bool {
    let now = SystemTime::now();
    let validated = |entry: &Entry| entry.answer.as_ref().map(|answer| answer.freshness.validated_at().min(now));
    validated(other).is_some_and(|other| validated(one).is_none_or(|one| other > one + SAME))
}

fn tell(host: &HostEntry, old: &Entry, new: &Entry) {
    let (authority, file) = (&host.authority, host.file.name());
    match (&old.trouble, &new.trouble) {
        (_, Some(trouble)) => tracing::warn!(%authority, failures = trouble.failures, "{file}: {}", trouble.why),
        (Some(_), None) => tracing::info!(%authority, "{file} can be read again"),
        (None, None) => {
            tracing::debug!(%authority, status = new.answer.as_ref().map(|a| a.status), "{file} fetched")
        }
    }
}

/// As whom files are fetched where nobody has configured another name.
const OWN_NAME: &str = "politely";
/// Of a request whose connection was at fault.
const RETRIES: usize = 2;

/// Two copies this far apart may be one.
const SAME: Duration = Duration::from_secs(1);

/// Bytes that take about 100 µs to read.
const LONG: usize = 16 << 10;

#[cfg(test)]
pub(super) mod tests;
