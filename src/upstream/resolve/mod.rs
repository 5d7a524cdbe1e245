//! Resolves names with the system's resolver. Concurrent look-ups of a name share one request. An expired answer is used for a while if
//! it cannot be renewed (RFC 8767). A name that does not resolve delays only requests for that name.

mod answer;
mod families;
mod share;

pub use answer::{KEEP, ResolveError};

use crate::histogram::{Distribution, Histogram};
use crate::policy::Host;
use crate::policy::pace::ClientId;
use answer::{KEEP_FAILURE, LookupAnswer, LookupFault, LookupResult, LookupState, Whose};
use dns_lookup::AddrFamily;
use families::{FoundAddresses, PendingAddresses, Questions, ask_system};
use hashbrown::HashMap;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use share::{LookupShare, LookupShares};
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// Resolves names. Caches answers for a short fixed time, as the system's resolver does not report their TTL. Cheap to clone.
#[derive(Clone)]
pub(super) struct Resolver(Arc<ResolverInner>);

struct ResolverInner {
    answers: Cache<Arc<str>, LookupAnswer>,
    /// Look-ups in flight, and where to send their answers.
    in_flight: Mutex<HashMap<Arc<str>, ResultSender>>,
    shares: LookupShares,
    /// When the resolver last answered, even if only that a name does not exist.
    answered: Mutex<Option<Instant>>,
    /// Durations of look-ups that found an address, and of those that did not.
    times: [Histogram; 2],
    ask: Ask,
}

type ResultReceiver = watch::Receiver<LookupState>;
type ResultSender = watch::Sender<LookupState>;
/// Function that resolves a name, to addresses of one family or of all.
type Ask = Box<dyn Fn(Arc<str>, Option<AddrFamily>) -> PendingAddresses + Send + Sync>;

impl Resolver {
    pub fn new() -> Self {
        Self::asking(Box::new(|name, family| {
            let asked = tokio::task::spawn_blocking(move || ask_system(&name, family));
            Box::pin(async move {
                asked.await.unwrap_or_else(|gone| Err(LookupFault { whose: Whose::Ours, why: gone.to_string() }))
            })
        }))
    }

    fn asking(ask: Ask) -> Self {
        Resolver(Arc::new(ResolverInner {
            answers: Cache::new(CACHED_NAMES),
            in_flight: Mutex::default(),
            shares: LookupShares::default(),
            answered: Mutex::default(),
            times: Default::default(),
            ask,
        }))
    }

    /// Durations of look-ups that found an address, and of those that did not.
    pub fn times(&self) -> [Distribution; 2] {
        [self.0.times[0].read(), self.0.times[1].read()]
    }

    /// Looks the host up. `client`: whose share of look-ups to use.
    pub async fn lookup(&self, host: &Host, client: Option<ClientId>) -> LookupResult {
        self.lookup_within(host, client, LOOKUP_TIME).await
    }

    /// Like [`lookup`](Self::lookup), for callers that can do without an answer. A look-up that exceeds `limit` is cached as timed
    /// out, so that other requests do not wait for it, too.
    pub async fn lookup_within(&self, host: &Host, client: Option<ClientId>, limit: Duration) -> LookupResult {
        let name = match host {
            Host::Ip(address) => return Ok(Arc::new([*address])),
            Host::Name(name) if is_local(name) => return Ok(LOOPBACK.clone()),
            Host::Name(name) => name,
        };
        match self.0.answers.get(name) {
            Some(answer) if answer.is_fresh() => answer.found,
            Some(answer) if answer.is_usable() => {
                self.wait_a_moment(name, host, client, limit).await;
                self.0.answers.get(name).unwrap_or(answer).found
            }
            Some(_) | None => self.wait_for_answer(name, host, client, limit).await,
        }
    }

    /// Whether these are still the host's addresses, as far as is known without a look-up.
    pub fn is_current(&self, host: &Host, addresses: &Arc<[IpAddr]>) -> bool {
        match host {
            Host::Ip(_) => true,
            Host::Name(name) if is_local(name) => true,
            Host::Name(name) => match self.0.answers.get(name) {
                Some(answer) => answer.is_fresh() && answer.found.is_ok_and(|known| Arc::ptr_eq(&known, addresses)),
                None => false,
            },
        }
    }

    /// Caches addresses as if just looked up.
    #[cfg(test)]
    pub fn remember(&self, name: &str, addresses: &[IpAddr]) {
        self.0.answers.insert(name.into(), LookupAnswer::now(Ok(addresses.into())));
    }

    /// Caches a failure as if it had just occurred.
    #[cfg(test)]
    pub fn remember_failure(&self, name: &str, why: ResolveError) {
        self.0.answers.insert(name.into(), LookupAnswer::now(Err(why)));
    }

    /// Joins or starts a look-up of the name, and waits for its end: until the look-up is slow (`RESPONSE_TIME`), and at most for `limit`.
    async fn wait_a_moment(&self, name: &Arc<str>, host: &Host, client: Option<ClientId>, limit: Duration) {
        let mut result = self.join_or_start(name, host, client);
        let passed = match *result.borrow() {
            LookupState::Begun(began) => began.elapsed(),
            LookupState::Queued | LookupState::Done(_) => Duration::ZERO,
        };
        let moment = RESPONSE_TIME.saturating_sub(passed).min(limit);
        let _ = timeout(moment, result.wait_for(|state| matches!(state, LookupState::Done(_)))).await;
    }

    async fn wait_for_answer(
        &self,
        name: &Arc<str>,
        host: &Host,
        client: Option<ClientId>,
        limit: Duration,
    ) -> LookupResult {
        let mut result = self.join_or_start(name, host, client);
        let _ = timeout(limit, result.wait_for(|state| matches!(state, LookupState::Done(_)))).await;
        let state = result.borrow().clone();
        match state {
            LookupState::Done(answer) => answer,
            // The look-up continues. The cached timeout keeps other requests from waiting as long.
            LookupState::Begun(began) if began.elapsed() >= limit / 2 => {
                let is_alone = self.0.answered.lock().is_some_and(|answered| answered > began);
                let answer = Err(ResolveError::TimedOut { name: name.clone(), is_alone });
                self.0.answers.insert(name.clone(), LookupAnswer::now(answer.clone()));
                answer
            }
            // The look-up is still queued, or has only just begun, so the timeout says nothing about the name.
            LookupState::Queued | LookupState::Begun(_) => {
                let why = "this proxy looks up too many other names for the same client".into();
                Err(ResolveError::OwnLimit { name: name.clone(), why })
            }
        }
    }

    /// Joins the look-up of the name in flight, or starts one, which is cancelled if nobody waits for it when it could begin.
    fn join_or_start(&self, name: &Arc<str>, host: &Host, client: Option<ClientId>) -> ResultReceiver {
        let mut in_flight = self.0.in_flight.lock();
        if let Some(tell) = in_flight.get(name) {
            return tell.subscribe();
        }
        let (tell, result) = watch::channel(LookupState::Queued);
        in_flight.insert(name.clone(), tell.clone());
        drop(in_flight);
        let (this, name, site) = (self.clone(), name.clone(), Box::from(host.domain().unwrap_or(name)));
        tokio::spawn(async move {
            let of = (client, site);
            this.ask(&name, &this.0.shares.join(&of), &tell).await;
            this.0.shares.leave(&of);
        });
        result
    }

    /// Looks a name up, unless nobody waits for it any more. Returns when the look-up occupies no thread any more.
    async fn ask(&self, name: &Arc<str>, LookupShare { client, site }: &LookupShare, tell: &ResultSender) {
        let was_silent = self.0.answers.get(name).is_some_and(|answer| answer.is_silence());
        // The smallest share is taken first, so that look-ups that wait for it occupy no places that others could use.
        let begins =
            async { (site.acquire().await, client.take(was_silent).await, self.0.shares.threads.acquire().await) };
        let Some((_site, mut of_client, _thread)) = self.while_somebody_waits(name, tell, begins).await else { return };
        let began = Instant::now();
        tell.send_replace(LookupState::Begun(began));
        let asking = |family| (self.0.ask)(name.clone(), family);
        let mut questions = Questions::new(asking(None));
        let (found, _more_threads) = match timeout(SLOW, questions.first()).await {
            Ok(found) => (found, None),
            Err(_) => {
                let more =
                    of_client.is_slow().then(|| self.0.shares.threads.try_acquire_many(EACH_FAMILY.len() as u32));
                let more = more.and_then(Result::ok);
                if more.is_some() {
                    EACH_FAMILY.map(Some).into_iter().for_each(|family| questions.add(family, asking(family)));
                }
                (questions.first().await, more)
            }
        };
        let is_found = found.as_ref().is_ok_and(|addresses| !addresses.is_empty());
        self.0.times[usize::from(!is_found)].observe(began.elapsed());
        let is_said = found.as_ref().err().is_none_or(|fault| fault.whose == Whose::Names);
        let answer = self.judged(name, found, began).await;
        self.settle(name, answer, is_said, tell);
        questions.end().await;
    }

    /// Interprets the resolver's answer.
    async fn judged(&self, name: &Arc<str>, found: FoundAddresses, began: Instant) -> LookupResult {
        let failed = |why: String| Err(ResolveError::Failed { name: name.clone(), why: why.into() });
        let fault = match found {
            Ok(addresses) => {
                *self.0.answered.lock() = Some(Instant::now());
                return match addresses.len() {
                    0 => failed("it has no address".to_owned()),
                    // Limited, because all addresses are screened, and cached with those of many other names.
                    count if count > MOST_ADDRESSES => {
                        failed(format!("it has {count} addresses, more than {MOST_ADDRESSES}"))
                    }
                    _ => Ok(addresses.into()),
                };
            }
            Err(fault) => fault,
        };
        match fault.whose {
            Whose::Names => {
                *self.0.answered.lock() = Some(Instant::now());
                failed(fault.why)
            }
            Whose::Unknown if began.elapsed() < LOOKUP_TIME && self.answers_at_all().await => {
                failed(format!("its name servers fail: {}", fault.why))
            }
            Whose::Unknown => Err(ResolveError::NoResolver { name: name.clone(), why: fault.why.into() }),
            Whose::Ours => Err(ResolveError::OwnLimit { name: name.clone(), why: fault.why.into() }),
        }
    }

    /// Whether the resolver answers at all, even for `invalid.`, a name that it knows not to exist (RFC 6761 §6.4).
    async fn answers_at_all(&self) -> bool {
        matches!((self.0.ask)("invalid.".into(), None).await, Ok(_) | Err(LookupFault { whose: Whose::Names, .. }))
    }

    /// Caches and reports the answer. `is_said`: the resolver has answered about the name, even if only that it does not exist.
    fn settle(&self, name: &Arc<str>, answer: LookupResult, is_said: bool, tell: &ResultSender) {
        let known = match self.0.answers.get(name) {
            // Addresses found before remain in use until they are too old, or until the resolver says something about the name.
            Some(before) if !is_said && before.is_usable() => {
                LookupAnswer { until: Instant::now() + KEEP_FAILURE, ..before }
            }
            // The cached timeout stays: the resolver gave up after our own timeout, which tells nothing new.
            Some(before) if answer.is_err() && before.is_silence() && before.is_fresh() => before,
            Some(_) | None => LookupAnswer::now(answer.clone()),
        };
        self.0.answers.insert(name.clone(), known);
        self.0.in_flight.lock().remove(name);
        tell.send_replace(LookupState::Done(answer));
    }

    async fn while_somebody_waits<T>(
        &self,
        name: &Arc<str>,
        tell: &ResultSender,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Some(done),
                () = tell.closed() => {}
            }
            // New requests join under this lock.
            let mut in_flight = self.0.in_flight.lock();
            if tell.receiver_count() == 0 {
                in_flight.remove(name);
                return None;
            }
        }
    }
}

/// RFC 6761 §6.3: loopback names, never sent to a server.
fn is_local(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

static LOOPBACK: LazyLock<Arc<[IpAddr]>> =
    LazyLock::new(|| Arc::new([Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]));
const EACH_FAMILY: [AddrFamily; 2] = [AddrFamily::Inet, AddrFamily::Inet6];
const CACHED_NAMES: usize = 10_000;
/// A name with more addresses is not resolved.
const MOST_ADDRESSES: usize = 256;
const SLOW: Duration = Duration::from_secs(1);
const LOOKUP_TIME: Duration = Duration::from_secs(10);
/// RFC 8767 §5: after this wait, an outdated answer is used; the RFC recommends 1.8 s.
const RESPONSE_TIME: Duration = Duration::from_millis(1_800);
#[cfg(test)]
mod tests;
