//! Names to addresses, through the system's resolver. A name is looked up once for all who ask at the same time; what was
//! found is used a while longer while it is looked up again; a look-up of a name that does not answer holds up whoever
//! asked for it, and nobody else.

use crate::policy::Host;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use std::collections::HashMap;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};

/// Looks names up and keeps the answers for a short while: the system's resolver tells no lifetime. Cheap to clone.
#[derive(Clone)]
pub(super) struct Resolver(Arc<Inner>);

struct Inner {
    answers: Cache<Arc<str>, Answer>,
    /// What is being looked up, and where it is told.
    flights: Mutex<HashMap<Arc<str>, Flight>>,
    /// Each look-up holds a thread, and one of a dead name holds it for many seconds.
    lookups: Arc<Semaphore>,
    /// Of these, what each client may have.
    shares: Mutex<HashMap<Client, Arc<Share>>>,
    ask: Ask,
}

/// Whose look-ups share one allowance: an address (in IPv6, its /64), or nobody's in particular.
pub(super) type Client = Option<IpAddr>;

/// Why a name has no address.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ResolveError {
    /// The resolver's own words.
    #[error("cannot resolve {name}: {why}")]
    Failed { name: Arc<str>, why: Arc<str> },
    /// It did not answer in time.
    #[error("cannot resolve {name}: no answer in time")]
    TimedOut { name: Arc<str> },
    /// This machine could not ask: it has no descriptor or memory left.
    #[error("cannot resolve {name}: {why}")]
    OwnLimit { name: Arc<str>, why: Arc<str> },
}

struct Share {
    /// Look-ups that have just begun,
    quick: Arc<Semaphore>,
    /// and those that take long: what comes behind them may be quick again.
    slow: Arc<Semaphore>,
}

#[derive(Clone)]
struct Answer {
    found: Found,
    at: Instant,
    /// When to look again.
    until: Instant,
}

type Found = Result<Arc<[IpAddr]>, ResolveError>;
type Flight = watch::Receiver<Option<Found>>;
/// The addresses of a name.
type Ask = Box<dyn Fn(Arc<str>) -> Pin<Box<dyn Future<Output = std::io::Result<Vec<IpAddr>>> + Send>> + Send + Sync>;

impl Resolver {
    pub fn new() -> Self {
        Self::asking(Box::new(|name| {
            Box::pin(async move { Ok(tokio::net::lookup_host((&*name, 0)).await?.map(|it| it.ip()).collect()) })
        }))
    }

    fn asking(ask: Ask) -> Self {
        Resolver(Arc::new(Inner {
            answers: Cache::new(CACHED_NAMES),
            flights: Mutex::default(),
            lookups: Arc::new(Semaphore::new(LOOKUPS)),
            shares: Mutex::default(),
            ask,
        }))
    }

    /// `client`: for whom.
    pub async fn lookup(&self, host: &Host, client: Client) -> Found {
        let name = match host {
            Host::Ip(address) => return Ok(Arc::new([*address])),
            Host::Name(name) if is_local(name) => return Ok(LOOPBACK.clone()),
            Host::Name(name) => name,
        };
        match self.0.answers.get(name) {
            Some(answer) if answer.is_fresh() => answer.found,
            // What held a moment ago is better than to wait.
            Some(answer) if answer.is_usable() => {
                self.flight(name, client);
                answer.found
            }
            Some(_) | None => self.landed(name, client, LOOKUP_TIME).await,
        }
    }

    /// As [`lookup`](Self::lookup), for whoever can do without. What takes longer than `limit` is not waited for again soon.
    pub async fn lookup_within(&self, host: &Host, client: Client, limit: Duration) -> Found {
        match (timeout(limit, self.lookup(host, client)).await, host) {
            (Ok(answer), _) => answer,
            (Err(_), Host::Ip(address)) => Ok(Arc::new([*address])),
            (Err(_), Host::Name(name)) => {
                let answer = Err(ResolveError::TimedOut { name: name.clone() });
                self.0.answers.insert(name.clone(), Answer::now(answer.clone()));
                answer
            }
        }
    }

    /// Whether these are the host's addresses still, as far as is known without asking.
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

    /// As if the name had been looked up just now.
    #[cfg(test)]
    pub fn remember(&self, name: &str, addresses: &[IpAddr]) {
        self.0.answers.insert(name.into(), Answer::now(Ok(addresses.into())));
    }

    async fn landed(&self, name: &Arc<str>, client: Client, limit: Duration) -> Found {
        let mut flight = self.flight(name, client);
        match timeout(limit, flight.wait_for(Option::is_some)).await {
            Ok(Ok(answer)) => answer.clone().expect("it was waited for"),
            // It goes on; until it ends, others need not wait as long again.
            Ok(Err(_)) | Err(_) => {
                let answer = Err(ResolveError::TimedOut { name: name.clone() });
                self.0.answers.insert(name.clone(), Answer::now(answer.clone()));
                answer
            }
        }
    }

    /// The look-up of the name that is under way, or a new one.
    fn flight(&self, name: &Arc<str>, client: Client) -> Flight {
        let mut flights = self.0.flights.lock();
        if let Some(flight) = flights.get(name) {
            return flight.clone();
        }
        let (tell, flight) = watch::channel(None);
        flights.insert(name.clone(), flight.clone());
        drop(flights);
        let (this, name) = (self.clone(), name.clone());
        tokio::spawn(async move {
            let answer = this.ask(&name, client.map(of_one_client)).await;
            // Addresses that were found before hold until they are too old, whatever the resolver's trouble.
            let known = match this.0.answers.get(&name) {
                Some(before) if answer.is_err() && before.is_usable() => {
                    Answer { until: Instant::now() + KEEP_FAILURE, ..before }
                }
                Some(_) | None => Answer::now(answer.clone()),
            };
            this.0.answers.insert(name.clone(), known);
            this.0.flights.lock().remove(&name);
            tell.send_replace(Some(answer));
        });
        flight
    }

    async fn ask(&self, name: &Arc<str>, client: Client) -> Found {
        let failed = |why: &str| ResolveError::Failed { name: name.clone(), why: why.into() };
        let share = self.share(client);
        // The client's own turn first: its waiting look-ups take no place that another could have.
        let mut turn = share.quick.clone().acquire_owned().await;
        let place = self.0.lookups.acquire().await;
        let mut lookup = (self.0.ask)(name.clone());
        let found = match timeout(SLOW, &mut lookup).await {
            Ok(found) => found,
            Err(_) => {
                if let Ok(slow) = share.slow.clone().try_acquire_owned() {
                    turn = Ok(slow);
                }
                // The thread is held until the resolver has given up, whoever still waits.
                lookup.await
            }
        };
        drop((turn, place));
        drop(share);
        self.0.shares.lock().retain(|_, share| Arc::strong_count(share) > 1);
        match found {
            Err(error) if super::dial_error::is_own_limit(&error) => {
                Err(ResolveError::OwnLimit { name: name.clone(), why: error.to_string().into() })
            }
            Err(error) => Err(failed(&error.to_string())),
            Ok(addresses) if addresses.is_empty() => Err(failed("it has no address")),
            Ok(addresses) => Ok(addresses.into()),
        }
    }

    fn share(&self, client: Client) -> Arc<Share> {
        let new = || Share { quick: Arc::new(Semaphore::new(QUICK)), slow: Arc::new(Semaphore::new(LOOKUPS / 2)) };
        self.0.shares.lock().entry(client).or_insert_with(|| Arc::new(new())).clone()
    }
}

/// RFC 6761 §6.3: these names are loopback, and never asked of a server.
fn is_local(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// One customer's network has one allowance.
fn of_one_client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & (u128::MAX << 64)).into()),
        v4 @ IpAddr::V4(_) => v4,
    }
}

impl Answer {
    fn now(found: Found) -> Self {
        let at = Instant::now();
        let keep = match found {
            // Whoever asks again may have to wait as long again.
            Ok(_) | Err(ResolveError::TimedOut { .. }) => KEEP,
            Err(ResolveError::Failed { .. }) => KEEP_FAILURE,
            Err(ResolveError::OwnLimit { .. }) => Duration::ZERO,
        };
        Answer { found, at, until: at + keep }
    }

    fn is_fresh(&self) -> bool {
        Instant::now() < self.until
    }

    /// Whether it will do while it is looked up again.
    fn is_usable(&self) -> bool {
        self.found.is_ok() && self.at.elapsed() < STALE
    }
}

static LOOPBACK: LazyLock<Arc<[IpAddr]>> =
    LazyLock::new(|| Arc::new([Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]));
const CACHED_NAMES: usize = 10_000;
/// Threads of the runtime's for what blocks, of which there are 512.
const LOOKUPS: usize = 256;
const QUICK: usize = 32;
const SLOW: Duration = Duration::from_secs(1);
const LOOKUP_TIME: Duration = Duration::from_secs(10);
const KEEP: Duration = Duration::from_secs(30);
/// Addresses are used for so long while nothing newer can be found.
const STALE: Duration = Duration::from_secs(600);
const KEEP_FAILURE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
