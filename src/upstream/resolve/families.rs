//! Queries to the system's resolver: one for all addresses of a name, and if that is slow, one for each family. Some name
//! servers never answer for IPv6, and the system's resolver waits for both answers (15 s in glibc).

use super::answer::LookupFault;
use dns_lookup::{AddrFamily, AddrInfoHints, SockType, getaddrinfo};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::timeout;

pub(super) type FoundAddresses = Result<Vec<IpAddr>, LookupFault>;
/// A query in flight.
pub(super) type PendingAddresses = BoxFuture<'static, FoundAddresses>;

/// The unanswered queries for one name. Each occupies a thread until the resolver gives up.
pub(super) struct Questions(FuturesUnordered<BoxFuture<'static, (Option<AddrFamily>, FoundAddresses)>>);

impl Questions {
    /// Begins with `of_all`, the query for all addresses.
    pub fn new(of_all: PendingAddresses) -> Self {
        let this = Self(FuturesUnordered::new());
        this.add(None, of_all);
        this
    }

    pub fn add(&self, family: Option<AddrFamily>, asked: PendingAddresses) {
        self.0.push(Box::pin(async move { (family, asked.await) }));
    }

    /// Waits for the addresses of all families, or for the error. Once one family's query has found addresses, waits for the other only
    /// [`RESOLUTION_DELAY`] longer (RFC 8305 §3). Cancel-safe.
    pub async fn first(&mut self) -> FoundAddresses {
        loop {
            match self.0.next().await {
                Some((Some(_), Ok(mut found))) if !found.is_empty() => {
                    match timeout(RESOLUTION_DELAY, self.0.next()).await {
                        Ok(Some((None, Ok(all)))) if !all.is_empty() => return Ok(all),
                        Ok(Some((_, Ok(more)))) => found.extend(more),
                        Ok(Some((_, Err(_))) | None) | Err(_) => {}
                    }
                    return Ok(found);
                }
                // The name may have addresses of the other family.
                Some((Some(_), _)) => {}
                Some((None, found)) => return found,
                None => return Ok(Vec::new()),
            }
        }
    }

    /// Waits until no query occupies a thread.
    pub async fn end(mut self) {
        while self.0.next().await.is_some() {}
    }
}

/// Resolves a name. Blocks. Calls `getaddrinfo` directly, as the standard library does not distinguish a missing name from an
/// unreachable resolver.
pub(super) fn ask_system(name: &str, family: Option<AddrFamily>) -> FoundAddresses {
    let hints = AddrInfoHints {
        socktype: SockType::Stream.into(),
        address: family.map_or(libc::AF_UNSPEC, Into::into),
        ..AddrInfoHints::default()
    };
    let found = getaddrinfo(Some(name), None, Some(hints))?;
    Ok(found.flatten().map(|found| found.sockaddr.ip()).collect())
}

/// Time to wait for the other family's addresses, as recommended by RFC 8305 §3.
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);
