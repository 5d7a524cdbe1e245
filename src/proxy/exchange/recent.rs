//! Recent refusals, enforced or only reported, for the status and the dashboard.

use crate::config::User;
use crate::gate::Reported;
use crate::policy::Refusal;
use futures_util::stream::{self, Stream, StreamExt};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::broadcast::{self, error::RecvError};

/// Recent decisions, and a stream of new ones.
pub struct Decisions {
    kept: Mutex<Kept>,
    live: broadcast::Sender<Arc<RecentDecision>>,
}

#[derive(Default)]
struct Kept {
    last: VecDeque<Arc<RecentDecision>>,
    made: u64,
}

/// The decision on a request that was refused, or that report mode let through although it would have been refused or held.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RecentDecision {
    /// Sequence number, from 1 since the start.
    pub number: u64,
    pub at: SystemTime,
    pub client: IpAddr,
    pub user: Option<Box<str>>,
    /// `None`: the request could not be read.
    pub url: Option<Box<str>>,
    pub what: Reported,
    /// False in report mode: the request was let through.
    pub enforced: bool,
}

impl Default for Decisions {
    fn default() -> Self {
        Decisions { kept: Mutex::default(), live: broadcast::Sender::new(KEPT) }
    }
}

impl Decisions {
    /// Adds an enforced refusal.
    pub(in crate::proxy) fn refused(
        &self,
        client: IpAddr,
        user: Option<&User>,
        url: Option<Box<str>>,
        refusal: Refusal,
        at: SystemTime,
    ) {
        self.add((client, user), url, (at, true), |what| match what {
            // Reuses the allocation.
            Some(Reported::Refused(mut place)) => {
                *place = refusal;
                Reported::Refused(place)
            }
            Some(Reported::Held(_)) | None => refusal.into(),
        });
    }

    /// Adds a decision that report mode did not enforce.
    pub(in crate::proxy) fn reported(&self, client: IpAddr, user: Option<&User>, url: Box<str>, reported: Reported) {
        self.add((client, user), Some(url), (SystemTime::now(), false), |_| reported);
    }

    /// Adds a decision. `what` receives the value of the dropped decision, to reuse its allocation.
    fn add(
        &self,
        (client, user): (IpAddr, Option<&User>),
        url: Option<Box<str>>,
        (at, enforced): (SystemTime, bool),
        what: impl FnOnce(Option<Reported>) -> Reported,
    ) {
        let user = user.map(|user| user.name.as_ref().into());
        let mut kept = self.kept.lock();
        kept.made += 1;
        let number = kept.made;
        let mut oldest = if kept.last.len() == KEPT { kept.last.pop_front() } else { None };
        let decision = match oldest.as_mut().and_then(Arc::get_mut) {
            Some(place) => {
                let before = std::mem::replace(&mut place.what, Reported::Held(Duration::ZERO));
                *place = RecentDecision { number, at, client, user, url, what: what(Some(before)), enforced };
                oldest.expect("the entry was checked above")
            }
            None => Arc::new(RecentDecision { number, at, client, user, url, what: what(None), enforced }),
        };
        if self.live.receiver_count() > 0 {
            // Fails if the last receiver has just gone.
            let _ = self.live.send(decision.clone());
        }
        kept.last.push_back(decision);
    }

    /// Decisions with a number greater than `after`, in order.
    pub fn after(&self, after: u64) -> Vec<Arc<RecentDecision>> {
        self.kept.lock().after(after)
    }

    /// Streams decisions with a number greater than `after`, then new ones without a gap. A slow reader misses the oldest
    /// if more than 500 arrive at once.
    pub fn follow(&self, after: u64) -> impl Stream<Item = Arc<RecentDecision>> + Send + use<> {
        let kept = self.kept.lock();
        let live = stream::unfold(self.live.subscribe(), async |mut live| Some((next_value(&mut live).await?, live)));
        stream::iter(kept.after(after)).chain(live)
    }
}

/// The next value that is still available.
async fn next_value<T: Clone>(live: &mut broadcast::Receiver<T>) -> Option<T> {
    loop {
        match live.recv().await {
            Ok(one) => return Some(one),
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return None,
        }
    }
}

impl Kept {
    fn after(&self, after: u64) -> Vec<Arc<RecentDecision>> {
        let first = self.last.partition_point(|decision| decision.number <= after);
        self.last.iter().skip(first).cloned().collect()
    }
}

/// Maximum number of decisions kept.
const KEPT: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::net::Ipv4Addr;

    fn add(decisions: &Decisions, url: &str) {
        decisions.refused(Ipv4Addr::LOCALHOST.into(), None, Some(url.into()), Refusal::Loop, SystemTime::now());
    }

    fn numbers(decisions: &[Arc<RecentDecision>]) -> Vec<u64> {
        decisions.iter().map(|decision| decision.number).collect()
    }

    #[test]
    fn the_latest_decisions_are_kept_in_order() {
        let decisions = Decisions::default();
        for number in 1..=KEPT + 3 {
            add(&decisions, &number.to_string());
        }
        let (kept, most) = (decisions.after(0), KEPT as u64);
        assert_eq!((kept.len(), kept[0].number, kept[0].url.as_deref()), (KEPT, 4, Some("4")));
        assert_eq!(numbers(&decisions.after(most + 1)), [most + 2, most + 3]);
        assert_eq!(decisions.after(most + 3).len(), 0);
    }

    #[tokio::test]
    async fn a_follower_misses_no_decision() {
        let decisions = Decisions::default();
        add(&decisions, "a");
        let followed = decisions.follow(0);
        add(&decisions, "b");
        drop(decisions);
        assert_eq!(numbers(&followed.collect::<Vec<_>>().await), [1, 2]);
    }

    #[tokio::test]
    async fn a_lagging_reader_gets_the_latest_values() {
        let (sender, mut live) = broadcast::channel(2);
        (1..=5).for_each(|number| _ = sender.send(number).unwrap());
        assert_eq!(next_value(&mut live).now_or_never(), Some(Some(4)));
        assert_eq!(next_value(&mut live).now_or_never(), Some(Some(5)));
        assert_eq!(next_value(&mut live).now_or_never(), None);
        drop(sender);
        assert_eq!(next_value(&mut live).await, None);
    }
}
