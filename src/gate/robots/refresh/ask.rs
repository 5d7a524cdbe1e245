//! Fetches one file from its site, in the host's slots. Follows redirects, and retries as a plain HTTP/1.1 request if the answer says that
//! our request is malformed.

use super::super::fetch::{self, FetchError, FileRequest, target};
use super::super::fetch_table::Fetch;
use super::super::places::FetchLine;
use super::super::redirect::Trail;
use super::super::response::{Fetched, validators};
use super::super::{FetchReason, HostEntry, Order, RobotsCache};
use crate::config::Settings;
use crate::fair_places::Taker;
use crate::gate::terms;
use crate::policy::pace::Terms;
use crate::policy::{self, AskedAgain, Authority, Entry, KeyBy, PaceKey, Refusal, Ruling, SiteFile, Validators};
use crate::robots::ProductToken;
use crate::upstream::{Versions, Want};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use url::Url;

impl RobotsCache {
    /// Fetches the file, following redirects, within `robots.timeout` in all, not counting waits for slots.
    pub(super) async fn ask(
        self: &Arc<Self>,
        settings: &Settings,
        host: &HostEntry,
        old: &Entry,
        order: &Order,
        fetch: &Fetch,
    ) -> Result<Fetched, FetchError> {
        let (authority, file) = (&host.authority, host.file);
        // Only after a robots.txt may the page follow at once.
        let is_first_fetch = file == SiteFile::Robots && old.answer.is_none();
        let start = Url::parse(&self.place_of(authority, file)?).map_err(|error| error.to_string())?;
        let interrupted = host.interrupted().filter(|_| order.reason != FetchReason::Anew);
        let (mut trail, since) = interrupted.unwrap_or_else(|| (Trail::new(start), Instant::now()));
        let hop = FetchHop { settings, order, first: authority, is_first_fetch, fetch };
        let fetched = self.follow(&hop, old, file, &mut trail).await;
        let is_interrupted = matches!(fetched, Err(FetchError::NotAsked(_))) && trail.is_redirected();
        self.hosts.set_interrupted(host, is_interrupted.then_some((trail, since)));
        fetched
    }

    /// The URL of the file.
    fn place_of(&self, authority: &Authority, file: SiteFile) -> Result<String, FetchError> {
        match file {
            SiteFile::Robots | SiteFile::TdmRep => Ok(authority.url(file.path())),
            SiteFile::License(_) => {
                let robots = self.hosts.find(authority, SiteFile::Robots).map(|host| host.load_full());
                let named = robots.as_ref().and_then(|robots| robots.license_url());
                let named = named.filter(|url| SiteFile::license(url) == file);
                named.map(str::to_owned).ok_or_else(|| "its robots.txt no longer names this file".to_owned().into())
            }
        }
    }

    async fn follow(
        self: &Arc<Self>,
        hop: &FetchHop<'_>,
        old: &Entry,
        file: SiteFile,
        trail: &mut Trail,
    ) -> Result<Fetched, FetchError> {
        let mut left = hop.settings.robots.timeout;
        let mut asked_again = None;
        loop {
            let url = trail.current();
            let at = authority_of(url)?;
            let is_elsewhere = trail.is_redirected() || matches!(file, SiteFile::License(_));
            if is_elsewhere && !Box::pin(self.may_follow(hop, file, url)).await? {
                // A file that exists but may not be read does not allow everything, unlike a missing one.
                let how = if trail.is_redirected() { "redirected to" } else { "the file is at" };
                return Err(FetchError::Unreachable(format!("{how} {url}, which may not be fetched")));
            }
            // Our copy's validators belong to a file fetched without redirects; redirected files are stored without validators.
            let own = old.conditions().filter(|_| !trail.is_redirected());
            let want = Want { versions: hop.order.versions, ..Want::default() };
            let line = if hop.is_at_home(&at) { FetchLine::Own } else { FetchLine::Guest };
            let mut request = FileRequest { authority: &at, url, file, validators: own, want, asked: None, line };
            let asking = async {
                let mut reply = self.in_turn_or_shared(hop, &mut request, &mut left).await?;
                if reply.wanted.is_some() {
                    request.asked = reply.wanted.take();
                    reply = self.in_turn(hop, &mut request, &mut left).await?;
                }
                // A 304 about another file than our copy does not answer our request (RFC 9111 §4.3.4).
                let is_of_other = |own: &mut &Validators| !own.are_confirmed_by(&validators(&reply.headers));
                if reply.status == 304 && request.validators.take_if(is_of_other).is_some() {
                    reply = self.in_turn(hop, &mut request, &mut left).await?;
                }
                if is_our_fault(reply.status) && asked_again.is_none() {
                    let (first_status, first_version) = (reply.status, reply.version);
                    asked_again = Some(AskedAgain { first_status, first_version });
                    request.want = Want { fresh: true, versions: Versions::Http1Only, ..Want::default() };
                    // The conditional fields may be at fault.
                    request.validators = None;
                    request.asked = None;
                    reply = self.in_turn(hop, &mut request, &mut left).await.map_err(|error| match error {
                        FetchError::Unreachable(why) => {
                            let first = format!("status {first_status} over {first_version}");
                            FetchError::Unreachable(format!("{first}; retried over HTTP/1.1: {why}"))
                        }
                        FetchError::NotAsked(_) => error,
                    })?;
                    if !hop.first.is_background() {
                        tracing::warn!(
                            authority = %hop.first, first_status, status = reply.status,
                            "{}: the answer over {first_version} says that our request is malformed; retried over HTTP/1.1",
                            file.name()
                        );
                    }
                }
                Ok((reply, request.validators.is_some()))
            };
            let (reply, is_conditional) =
                asking.await.map_err(|error| if is_elsewhere { elsewhere(error, url) } else { error })?;
            match trail.after(&reply) {
                None => {
                    let (is_redirected, is_foreign) = (trail.is_redirected(), trail.is_away());
                    return Ok(Fetched::Answer { reply, is_conditional, is_redirected, is_foreign, asked_again });
                }
                Some(Ok(())) => {}
                Some(Err(why)) => {
                    return Ok(Fetched::DeadEnd { asked: reply.asked, status: reply.status, why });
                }
            }
        }
    }

    /// Whether a redirect may be followed. The operator's `deny` applies to every URL but `/robots.txt`. A robots.txt is fetched, not
    /// crawled (RFC 9309 §2.3.1.2), so another host's rules for its path do not matter. The other files are not exempt (§2.2.2): the
    /// robots.txt of the host that they come from applies, and is fetched first.
    async fn may_follow(self: &Arc<Self>, hop: &FetchHop<'_>, file: SiteFile, to: &Url) -> Result<bool, FetchError> {
        let (at, target) = (authority_of(to)?, target(to));
        if file == SiteFile::Robots && target == file.path() {
            return Ok(true);
        }
        let tokens = [ProductToken::parse(OWN_NAME).expect("a valid token")];
        let request = policy::Request { agent_tokens: &tokens, ..policy::Request::new(&at, target.as_bytes()) };
        let rules = &hop.settings.hosts.get(at.host()).rules;
        let judge = |robots: &Entry| policy::judge_file(robots, rules, &request, SystemTime::now());
        // At the host whose file is wanted, its robots.txt applies, whatever the scheme or port.
        let of = if hop.is_at_home(&at) { hop.first } else { &at };
        let mut ruling = match file {
            SiteFile::Robots => judge(&Entry::default()),
            SiteFile::TdmRep | SiteFile::License(_) => judge(&self.host(SiteFile::Robots, of).load()),
        };
        if matches!(ruling, Ruling::Fetch(_)) && file != SiteFile::Robots && !hop.is_at_home(&at) {
            let reason = match hop.order.reason {
                FetchReason::FirstUse => FetchReason::FirstUse,
                FetchReason::Renewal | FetchReason::Anew => FetchReason::Renewal,
            };
            let robots = self.host(SiteFile::Robots, &at);
            let fetching = self.refresh(&robots, Order { reason, crawl_delay: None, ..*hop.order });
            fetching.end().await.map_err(FetchError::NotAsked)?;
            ruling = judge(&robots.load());
            return Ok(matches!(ruling, Ruling::Allow(_) | Ruling::Report(_)));
        }
        Ok(!matches!(ruling, Ruling::Refuse(_)))
    }

    pub(super) fn terms(&self, hop: &FetchHop<'_>, at: &Authority) -> Terms {
        let FetchHop { settings, order, first, is_first_fetch, fetch } = *hop;
        let is_at_home = hop.is_at_home(at);
        let known = self.hosts.find(at, SiteFile::Robots).map(|host| host.load_full()).unwrap_or_default();
        let rules = &settings.hosts.get(at.host()).rules;
        // The requesting crawler's crawl delay applies only until the file is known, as that delay may be meant for that crawler alone.
        let asked = order.crawl_delay.filter(|_| at == first && known.answer.is_none());
        let crawl_delay = asked.or_else(|| rules.crawl_delay(&known, &policy::Request::new(at, b"/robots.txt")));
        // The page that waits for the file follows at once, but only on this host.
        let first_fetch = is_first_fetch && is_at_home;
        // A fetch that has begun is not given up because a slot comes late.
        let is_patient = order.reason != FetchReason::FirstUse || is_at_home && fetch.has_begun();
        let terms = terms::terms(settings, rules, at.host(), crawl_delay);
        let max_wait = if is_patient { Duration::MAX } else { terms.max_wait };
        // At a redirect's target, fetches have no precedence.
        Terms { first_fetch, is_renewal: is_patient && is_at_home, max_wait, ..terms }
    }
}

/// The context common to all requests of one fetch.
pub(super) struct FetchHop<'a> {
    pub settings: &'a Settings,
    pub order: &'a Order,
    pub first: &'a Authority,
    pub is_first_fetch: bool,
    pub fetch: &'a Fetch,
}

impl FetchHop<'_> {
    /// Whether the request goes to the host whose file is wanted.
    pub(super) fn is_at_home(&self, at: &Authority) -> bool {
        PaceKey::new(KeyBy::Host, self.first, None).is_of(KeyBy::Host, at, None)
    }

    /// The client and the site whose share of places the fetch uses: the site whose file is wanted.
    pub(super) fn taker(&self) -> Taker {
        Taker::new(self.order.client, self.first)
    }

    /// An error that is not the site's failure: the next request tries again.
    pub(super) fn comes_back(&self, why: &str) -> FetchError {
        let (retry_after, authority) = (fetch::COME_BACK, self.first.clone());
        FetchError::NotAsked(Refusal::RobotsUnreachable { retry_after, authority, why: why.into() })
    }
}

fn authority_of(url: &Url) -> Result<Authority, FetchError> {
    Authority::from_url(url.as_str()).map_err(|error| format!("redirected to {url}: {error}").into())
}

/// Adds the URL to the error of a file that is at another URL. If `egress` denies that URL, it is the site's failure, as the site named the
/// URL.
fn elsewhere(error: FetchError, url: &Url) -> FetchError {
    let why = match error {
        FetchError::NotAsked(why @ (Refusal::EgressDenied { .. } | Refusal::Loop)) => why.to_string(),
        FetchError::NotAsked(_) => return error,
        FetchError::Unreachable(why) => why,
    };
    format!("its file is at {url}, which cannot be fetched: {why}").into()
}

/// Whether the status says that our request is malformed, so that a plain HTTP/1.1 request is worth a try.
fn is_our_fault(status: u16) -> bool {
    matches!(status, 400 | 408 | 412 | 421 | 426 | 431 | 494 | 505)
}

/// Product token for fetching files, unless another is configured.
const OWN_NAME: &str = "politely";
