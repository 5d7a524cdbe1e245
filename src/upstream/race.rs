//! Happy Eyeballs (RFC 8305 §5): tries the next address after a delay, or as soon as one fails. Recently failed addresses come
//! last.

use super::dial_error::{DialError, DialFault};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use quick_cache::sync::Cache;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Addresses that failed, or were slower than another address, and when.
pub(super) struct FailedAddresses(Cache<SocketAddr, Instant>);

impl Default for FailedAddresses {
    fn default() -> Self {
        FailedAddresses(Cache::new(REMEMBERED))
    }
}

impl FailedAddresses {
    pub fn note(&self, address: SocketAddr) {
        self.0.insert(address, Instant::now());
    }

    /// The order in which to try addresses. `first`: tried before all others.
    pub fn order(&self, addresses: &[SocketAddr], first: Option<SocketAddr>) -> Vec<SocketAddr> {
        let mut ordered = addresses.to_vec();
        // The sort is stable: addresses with equal keys keep their order.
        ordered.sort_by_cached_key(|&address| (Some(address) != first, self.has_failed(address)));
        ordered
    }

    /// The address that is tried first.
    pub fn first(&self, addresses: &[SocketAddr]) -> Option<SocketAddr> {
        if let [one] = addresses { Some(*one) } else { self.order(addresses, None).first().copied() }
    }

    fn has_failed(&self, address: SocketAddr) -> bool {
        self.0.get(&address).is_some_and(|at| at.elapsed() < KEEP)
    }

    fn forget(&self, address: SocketAddr) {
        self.0.remove(&address);
    }
}

/// Returns the first connection that `dial` opens. If all fail, returns the failure of the address tried first.
pub(super) async fn race<T, F>(
    addresses: &[SocketAddr],
    failed: &FailedAddresses,
    dial: impl Fn(SocketAddr) -> F,
) -> Result<(T, SocketAddr), DialError>
where
    F: Future<Output = Result<T, DialError>>,
{
    let mut left = addresses.iter();
    let (mut running, mut slower) = (FuturesUnordered::new(), Vec::new());
    let mut failure = DialError::new(DialFault::Unroutable, "there is no address");
    let mut reported = usize::MAX;
    loop {
        if let Some(&address) = left.next() {
            let dialling = dial(address);
            slower.push(address);
            running.push(async move { (address, dialling.await) });
        }
        let ended = match left.as_slice() {
            [] => running.next().await,
            // Start the next attempt.
            _ => match timeout(STAGGER, running.next()).await {
                Ok(ended) => ended,
                Err(_) => continue,
            },
        };
        let Some((address, ended)) = ended else { return Err(failure) };
        let before = slower.iter().position(|&it| it == address).unwrap_or_default();
        slower.remove(before);
        match ended {
            Ok(reached) => {
                failed.forget(address);
                // Earlier attempts that are still running were slower: their addresses come last for a while.
                slower[..before].iter().for_each(|&slower| failed.note(slower));
                return Ok((reached, address));
            }
            // The address is not at fault.
            Err(error) if error.kind == DialFault::OwnLimit => return Err(error),
            Err(error) => {
                failed.note(address);
                let place = addresses.iter().position(|&it| it == address).unwrap_or(usize::MAX);
                if place < reported || reported == usize::MAX {
                    (reported, failure) = (place, error);
                }
            }
        }
    }
}

/// Time after which the next attempt starts, as recommended by RFC 8305 §5.
const STAGGER: Duration = Duration::from_millis(250);
/// Time for which a failed address is tried last.
const KEEP: Duration = Duration::from_secs(60);
const REMEMBERED: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::super::addresses::tests::{V4, V6, sockets};
    use super::*;
    use tokio::time::sleep;

    fn refused(address: SocketAddr) -> DialError {
        DialError::new(DialFault::Refused, address.to_string())
    }

    #[test]
    fn preferred_address_is_tried_first() {
        let addresses = sockets(&[V6[0], V4[0], V6[1], V4[1]]);
        let ordered = FailedAddresses::default().order(&addresses, Some(addresses[3]));
        assert_eq!(ordered, sockets(&[V4[1], V6[0], V4[0], V6[1]]));
    }

    #[tokio::test(start_paused = true)]
    async fn failed_address_is_tried_last_for_a_minute() {
        let failed = FailedAddresses::default();
        let addresses = sockets(&[V4[0], V4[1]]);
        failed.note(addresses[0]);
        assert_eq!(failed.order(&addresses, None), sockets(&[V4[1], V4[0]]));
        sleep(KEEP).await;
        assert_eq!(failed.order(&addresses, None), addresses);
    }

    #[tokio::test(start_paused = true)]
    async fn silent_address_delays_only_the_first_connection() {
        let failed = FailedAddresses::default();
        let addresses = sockets(&[V6[0], V4[0]]);
        let dial = |address: SocketAddr| async move {
            if address.is_ipv6() {
                std::future::pending::<()>().await;
            }
            Ok::<_, DialError>(address)
        };
        let began = Instant::now();
        assert_eq!(race(&addresses, &failed, dial).await.unwrap().1, addresses[1]);
        assert_eq!(began.elapsed(), STAGGER);
        let ordered = failed.order(&addresses, None);
        assert_eq!(race(&ordered, &failed, dial).await.unwrap().1, addresses[1]);
        assert_eq!(began.elapsed(), STAGGER, "the second time, the silent address is tried last");
    }

    #[tokio::test(start_paused = true)]
    async fn later_attempt_still_running_does_not_count_as_failed() {
        let failed = FailedAddresses::default();
        let addresses = sockets(&[V6[0], V4[0]]);
        let dial = |address: SocketAddr| async move {
            sleep(STAGGER * if address.is_ipv6() { 2 } else { 9 }).await;
            Ok::<_, DialError>(address)
        };
        assert_eq!(race(&addresses, &failed, dial).await.unwrap().1, addresses[0]);
        assert!(!failed.has_failed(addresses[1]));
    }

    #[tokio::test(start_paused = true)]
    async fn failure_starts_the_next_attempt_and_the_preferred_addresss_error_is_reported() {
        let failed = FailedAddresses::default();
        let addresses = sockets(&V4);
        let began = Instant::now();
        let dial = |address| async move { Err::<(), _>(refused(address)) };
        let error = race(&addresses, &failed, dial).await.unwrap_err();
        assert_eq!(error, refused(addresses[0]));
        assert_eq!(began.elapsed(), Duration::ZERO);
        // The preferred address fails last.
        let dial = |address: SocketAddr| async move {
            if address == sockets(&V4)[0] {
                sleep(STAGGER * 2).await;
            }
            Err::<(), _>(refused(address))
        };
        assert_eq!(race(&addresses, &failed, dial).await.unwrap_err(), refused(addresses[0]));
    }

    #[tokio::test]
    async fn own_limit_does_not_mark_the_address_as_failed() {
        let failed = FailedAddresses::default();
        let addresses = sockets(&V4);
        let dial = |_| async { Err::<(), _>(DialError::new(DialFault::OwnLimit, "too many open files")) };
        assert_eq!(race(&addresses, &failed, dial).await.unwrap_err().kind, DialFault::OwnLimit);
        assert_eq!(failed.order(&addresses, None), addresses);
    }
}
