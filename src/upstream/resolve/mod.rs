//! Resolves names with the system's resolver. Concurrent look-ups of a name share one request. An expired answer is used for a while as
//! it is renewed. A name that does not resolve delays only requests for that name.

mod answer;
mod share;

pub use answer::{KEEP, ResolveError};

use crate::histogram::{Distribution, Histogram};
use crate::policy::Host;
use crate::policy::pace::ClientId;
use answer::{KEEP_FAILURE, LookupAnswer, LookupFault, LookupResult, LookupState, Whose};
use dns_lookup::{AddrInfoHints, SockType, getaddrinfo};
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use share::{LOOKUPS, LookupShare, LookupShares};
use std::collections::HashMap;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::{Pin, pin};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};

/// Resolves names and caches answers for a short time, as the system's resolver gives no lifetime. Cheap to clone.
#[derive(Clone)]
pub(super) struct Resolver(Arc<ResolverInner>);

struct ResolverInner {
    answers: Cache<Arc<str>, LookupAnswer>,
    /// Look-ups in flight, and where to send their answers.
    in_flight: Mutex<HashMap<Arc<str>, ResultSender>>,
    /// Look-ups at a time. Each occupies a thread, for many seconds if the name is dead.
    lookups: Arc<Semaphore>,
    shares: LookupShares,
    /// When the resolver last answered, even if only that a name does not exist.
    answered: Mutex<Option<Instant>>,
    /// Durations of look-ups: with an address, and without.
    times: [Histogram; 2],
    ask: Ask,
}

type ResultReceiver = watch::Receiver<LookupState>;
type ResultSender = watch::Sender<LookupState>;
/// Function that resolves a name.
type Ask =
    Box<dyn Fn(Arc<str>) -> Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, LookupFault>> + Send>> + Send + Sync>;

impl Resolver {
    pub fn new() -> Self {
        Self::asking(Box::new(|name| {
            let asked = tokio::task::spawn_blocking(move || ask_system(&name));
            Box::pin(async move {
                asked.await.unwrap_or_else(|gone| Err(LookupFault { whose: Whose::Ours, why: gone.to_string() }))
            })
        }))
    }

    fn asking(ask: Ask) -> Self {
        Resolver(Arc::new(ResolverInner {
            answers: Cache::new(CACHED_NAMES),
            in_flight: Mutex::default(),
            lookups: Arc::new(Semaphore::new(LOOKUPS)),
            shares: LookupShares::default(),
            answered: Mutex::default(),
            times: Default::default(),
            ask,
        }))
    }

    /// Durations of look-ups: with an address, and without.
    pub fn times(&self) -> [Distribution; 2] {
        [self.0.times[0].read(), self.0.times[1].read()]
    }

    /// `client`: whose share of look-ups to use.
    pub async fn lookup(&self, host: &Host, client: Option<ClientId>) -> LookupResult {
        self.lookup_within(host, client, LOOKUP_TIME).await
    }

    /// As [`lookup`](Self::lookup), for callers that can do without an answer. A look-up that exceeds `limit` is not waited for again
    /// soon.
    pub async fn lookup_within(&self, host: &Host, client: Option<ClientId>, limit: Duration) -> LookupResult {
        let name = match host {
            Host::Ip(address) => return Ok(Arc::new([*address])),
            Host::Name(name) if is_local(name) => return Ok(LOOPBACK.clone()),
            Host::Name(name) => name,
        };
        match self.0.answers.get(name) {
            Some(answer) if answer.is_fresh() => answer.found,
            // A recent answer is better than waiting.
            Some(answer) if answer.is_usable() => {
                drop(self.join_or_start(name, host, client));
                answer.found
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
            // The look-up continues; until it ends, others need not wait as long.
            LookupState::Begun(began) if began.elapsed() >= limit / 2 => {
                let is_alone = self.0.answered.lock().is_some_and(|answered| answered > began);
                let answer = Err(ResolveError::TimedOut { name: name.clone(), is_alone });
                self.0.answers.insert(name.clone(), self.noted(name, answer.clone()));
                answer
            }
            // Which says nothing of the name.
            LookupState::Queued | LookupState::Begun(_) => {
                let why = "this proxy looks up too many other names for the same client".into();
                Err(ResolveError::OwnLimit { name: name.clone(), why })
            }
        }
    }

    /// The look-up of the name in flight, or a new one. It is cancelled if nobody waits for it before it begins.
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
            let answer = this.ask(&name, &this.0.shares.join(&of), &tell).await;
            this.0.shares.leave(&of);
            let Some(answer) = answer else { return };
            // Addresses found before remain in use until they are too old, whatever fails now.
            let known = match this.0.answers.get(&name) {
                Some(before) if answer.is_err() && before.is_usable() => {
                    LookupAnswer { until: Instant::now() + KEEP_FAILURE, ..before }
                }
                Some(_) | None => this.noted(&name, answer.clone()),
            };
            this.0.answers.insert(name.clone(), known);
            this.0.in_flight.lock().remove(&name);
            tell.send_replace(LookupState::Done(answer));
        });
        result
    }

    /// `None`: nobody waits for the answer any more.
    async fn ask(
        &self,
        name: &Arc<str>,
        LookupShare { client, site }: &LookupShare,
        tell: &ResultSender,
    ) -> Option<LookupResult> {
        // The smallest share first: look-ups waiting for it must not occupy places that others could use.
        let begins = async { (site.acquire().await, client.take().await, self.0.lookups.acquire().await) };
        let (of_site, mut of_client, thread) = self.while_somebody_waits(name, tell, begins).await?;
        let began = Instant::now();
        tell.send_replace(LookupState::Begun(began));
        let mut lookup = (self.0.ask)(name.clone());
        let found = match timeout(SLOW, &mut lookup).await {
            Ok(found) => found,
            Err(_) => {
                of_client.is_slow();
                // The thread is occupied until the resolver gives up, even if no request waits.
                lookup.await
            }
        };
        drop((of_site, of_client, thread));
        let is_found = found.as_ref().is_ok_and(|addresses| !addresses.is_empty());
        self.0.times[usize::from(!is_found)].observe(began.elapsed());
        let failed = |why: String| ResolveError::Failed { name: name.clone(), why: why.into() };
        let is_of_name = match &found {
            Ok(_) | Err(LookupFault { whose: Whose::Names, .. }) => {
                *self.0.answered.lock() = Some(Instant::now());
                true
            }
            Err(LookupFault { whose: Whose::Unknown, .. }) => self.fails_alone(name),
            Err(LookupFault { whose: Whose::Ours, .. }) => false,
        };
        Some(match found {
            Err(fault) if is_of_name => Err(failed(fault.why)),
            Err(fault) => Err(ResolveError::OwnLimit { name: name.clone(), why: fault.why.into() }),
            Ok(addresses) if addresses.is_empty() => Err(failed("it has no address".to_owned())),
            Ok(addresses) => Ok(addresses.into()),
        })
    }

    /// Whether another name was resolved since this one began to fail.
    fn fails_alone(&self, name: &Arc<str>) -> bool {
        let first = self.0.answers.get(name).and_then(|answer| answer.failing_since());
        first.is_some_and(|first| self.0.answered.lock().is_some_and(|answered| answered > first))
    }

    /// An answer as of now; consecutive failures keep the time of the first.
    fn noted(&self, name: &Arc<str>, found: LookupResult) -> LookupAnswer {
        let answer = LookupAnswer::now(found);
        let before = self.0.answers.get(name).filter(|_| answer.found.is_err());
        LookupAnswer { at: before.and_then(|before| before.failing_since()).unwrap_or(answer.at), ..answer }
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

/// Resolves a name. Blocks. Calls `getaddrinfo` directly, as the standard library does not distinguish a missing name from an
/// unreachable resolver.
fn ask_system(name: &str) -> Result<Vec<IpAddr>, LookupFault> {
    let hints = AddrInfoHints { socktype: SockType::Stream.into(), ..AddrInfoHints::default() };
    let found = getaddrinfo(Some(name), None, Some(hints))?;
    Ok(found.flatten().map(|found| found.sockaddr.ip()).collect())
}

static LOOPBACK: LazyLock<Arc<[IpAddr]>> =
    LazyLock::new(|| Arc::new([Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]));
const CACHED_NAMES: usize = 10_000;
const SLOW: Duration = Duration::from_secs(1);
const LOOKUP_TIME: Duration = Duration::from_secs(10);
#[cfg(test)]
mod tests;
