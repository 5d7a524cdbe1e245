//! Names to addresses, through the system's resolver. Called by `Upstream::reach`.

use crate::policy::Host;
use quick_cache::sync::Cache;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// Looks names up and keeps the answers for a short while: the system's resolver tells no lifetime.
pub(super) struct Resolver {
    answers: Cache<Arc<str>, Answer>,
    /// Each look-up holds a thread, and one of a dead name holds it for many seconds.
    lookups: Semaphore,
}

/// Why a name has no address.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ResolveError {
    /// The resolver's own words.
    #[error("cannot resolve {name}: {why}")]
    Failed { name: Arc<str>, why: Arc<str> },
    /// It did not answer in time.
    #[error("cannot resolve {name}: no answer in time")]
    TimedOut { name: Arc<str> },
}

type Answer = (Instant, Result<Arc<[IpAddr]>, ResolveError>);

impl Resolver {
    pub fn new() -> Self {
        Resolver { answers: Cache::new(CACHED_NAMES), lookups: Semaphore::new(LOOKUPS) }
    }

    pub async fn lookup(&self, host: &Host) -> Result<Arc<[IpAddr]>, ResolveError> {
        let name = match host {
            Host::Ip(address) => return Ok(Arc::new([*address])),
            Host::Name(name) => name,
        };
        if is_local(name) {
            return Ok(Arc::new([Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]));
        }
        if let Some(answer) = self.cached(name) {
            return answer;
        }
        let _lookup = self.lookups.acquire().await.expect("the semaphore is never closed");
        // Somebody else may have asked for it while we waited for our turn.
        if let Some(answer) = self.cached(name) {
            return answer;
        }
        let answer = ask(name).await;
        self.answers.insert(name.clone(), (Instant::now(), answer.clone()));
        answer
    }

    /// As [`lookup`](Self::lookup), for whoever can do without. What takes longer than `limit` is not asked again soon.
    pub async fn lookup_within(&self, host: &Host, limit: Duration) -> Result<Arc<[IpAddr]>, ResolveError> {
        match (timeout(limit, self.lookup(host)).await, host) {
            (Ok(answer), _) => answer,
            (Err(_), Host::Ip(address)) => Ok(Arc::new([*address])),
            (Err(_), Host::Name(name)) => {
                let answer = Err(ResolveError::TimedOut { name: name.clone() });
                self.answers.insert(name.clone(), (Instant::now(), answer.clone()));
                answer
            }
        }
    }

    /// Whether these are the host's addresses still, as far as is known without asking.
    pub fn is_current(&self, host: &Host, addresses: &Arc<[IpAddr]>) -> bool {
        match host {
            Host::Ip(_) => true,
            Host::Name(name) if is_local(name) => true,
            Host::Name(name) => matches!(self.cached(name), Some(Ok(cached)) if Arc::ptr_eq(&cached, addresses)),
        }
    }

    /// As if the name had been looked up just now.
    #[cfg(test)]
    pub fn remember(&self, name: &str, addresses: &[IpAddr]) {
        self.answers.insert(name.into(), (Instant::now(), Ok(addresses.into())));
    }

    fn cached(&self, name: &Arc<str>) -> Option<Result<Arc<[IpAddr]>, ResolveError>> {
        let (at, answer) = self.answers.get(name)?;
        let lifetime = match answer {
            // Whoever asks again may have to wait as long again.
            Ok(_) | Err(ResolveError::TimedOut { .. }) => KEEP,
            Err(ResolveError::Failed { .. }) => KEEP_FAILURE,
        };
        (at.elapsed() < lifetime).then_some(answer)
    }
}

/// RFC 6761 §6.3: these names are loopback, and never asked of a server.
fn is_local(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

async fn ask(name: &Arc<str>) -> Result<Arc<[IpAddr]>, ResolveError> {
    let failed = |why: &str| ResolveError::Failed { name: name.clone(), why: why.into() };
    match timeout(LOOKUP_TIME, tokio::net::lookup_host((&**name, 0))).await {
        Err(_) => Err(ResolveError::TimedOut { name: name.clone() }),
        Ok(Err(error)) => Err(failed(&error.to_string())),
        Ok(Ok(addresses)) => {
            let addresses: Arc<[IpAddr]> = addresses.map(|address| address.ip()).collect();
            if addresses.is_empty() { Err(failed("it has no address")) } else { Ok(addresses) }
        }
    }
}

const CACHED_NAMES: usize = 10_000;
const LOOKUPS: usize = 64;
const LOOKUP_TIME: Duration = Duration::from_secs(10);
const KEEP: Duration = Duration::from_secs(30);
const KEEP_FAILURE: Duration = Duration::from_secs(5);
