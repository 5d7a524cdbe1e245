//! Fetches under way: each is shared by all requests that need it. Once it has begun it ends, whether or not anybody waits.

use crate::policy::pace::ClientId;
use crate::policy::{Authority, Refusal, SiteFile};
use crate::upstream::Versions;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::timeout_at;

/// Those under way, by what is fetched.
pub(super) type FetchTable = HashMap<(SiteFile, Authority), Arc<Fetch>>;

/// A fetch to be made.
#[derive(Debug, Clone, Copy)]
pub(in crate::gate) struct Order {
    pub reason: FetchReason,
    /// At whose cost.
    pub client: ClientId,
    /// The gap for the request that causes it.
    pub crawl_delay: Option<Duration>,
    /// The versions of HTTP of the request that causes it, which uses the same connection.
    pub versions: Versions,
}

/// Why robots.txt is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) enum FetchReason {
    /// A request waits for it, as there is no copy yet. Dropped if none waits any more before it has begun.
    FirstUse,
    /// The copy in use grows old. Waits its turn however long.
    Renewal,
    /// It is wanted from the origin, whatever is kept.
    Anew,
}

impl FetchReason {
    /// Whether a copy that can be used will do, from wherever it can be had.
    pub fn takes_any_copy(self) -> bool {
        matches!(self, Self::FirstUse | Self::Renewal)
    }
}

/// One fetch under way.
pub(super) struct Fetch {
    progress: watch::Sender<FetchProgress>,
    /// The site is being asked, or it is a background fetch: it ends by itself.
    has_begun: AtomicBool,
}

/// How far it is.
#[derive(Default)]
struct FetchProgress {
    /// While it waits for its host's turn: when that is likely to come.
    due: Option<Instant>,
    /// An error says that nobody was asked, and why not.
    end: Option<Result<(), Refusal>>,
}

/// Somebody's part in a fetch.
#[derive(Clone)]
pub(in crate::gate) struct Fetching(watch::Receiver<FetchProgress>);

impl Order {
    /// At nobody's cost.
    pub fn background(reason: FetchReason) -> Self {
        Order { reason, client: BACKGROUND, crawl_delay: None, versions: Versions::default() }
    }
}

impl Fetch {
    pub fn new(reason: FetchReason) -> Self {
        let has_begun = AtomicBool::new(reason != FetchReason::FirstUse);
        Fetch { progress: watch::Sender::default(), has_begun }
    }

    pub fn join(&self) -> Fetching {
        Fetching(self.progress.subscribe())
    }

    /// It waits for a turn that is likely to come then, or does not wait for one any more.
    pub fn set_due(&self, due: Option<Instant>) {
        self.progress.send_modify(|progress| progress.due = due);
    }

    pub fn set_end(&self, end: Result<(), Refusal>) {
        self.progress.send_modify(|progress| progress.end = Some(end));
    }

    pub fn begin(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    pub fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }
}

impl Fetching {
    /// Returns when it is over. An error: nobody was asked, for a reason that is not the site's.
    pub async fn end(mut self) -> Result<(), Refusal> {
        match self.0.wait_for(|progress| progress.end.is_some()).await {
            Ok(progress) => progress.end.clone().unwrap_or(Ok(())),
            // The runtime is going away.
            Err(_) => Err(Refusal::Draining { retry_after: DRAINING }),
        }
    }

    /// Returns when it is certain that a turn which it waits for comes after `latest`, with when that is likely to be.
    pub async fn late(mut self, latest: Instant) -> Instant {
        loop {
            let due = self.0.borrow_and_update().due;
            match due {
                Some(due) if due > latest || Instant::now() >= latest => return due,
                Some(_) => _ = timeout_at(latest.into(), self.0.changed()).await,
                // It has ended, without anybody who could change it.
                None if self.0.changed().await.is_err() => return pending().await,
                None => {}
            }
        }
    }
}

/// Its place among the fetches under way.
pub(super) struct Underway<'a> {
    pub fetches: &'a Mutex<FetchTable>,
    pub key: (SiteFile, Authority),
    pub fetch: &'a Arc<Fetch>,
}

impl Underway<'_> {
    /// `None`: nobody waited any more before it began.
    pub async fn unless_unwanted<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Some(done),
                () = self.fetch.progress.closed() => {}
            }
            let mut fetches = self.fetches.lock();
            if self.fetch.has_begun() {
                drop(fetches);
                return Some(work.await);
            }
            // Later requests join under this lock.
            if self.fetch.progress.receiver_count() == 0 {
                fetches.remove(&self.key);
                return None;
            }
        }
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        let mut fetches = self.fetches.lock();
        if fetches.get(&self.key).is_some_and(|fetch| Arc::ptr_eq(fetch, self.fetch)) {
            fetches.remove(&self.key);
        }
    }
}

const DRAINING: Duration = Duration::from_secs(1);
/// Renewals and the operator's own share their bound as one client does.
pub(super) const BACKGROUND: ClientId = ClientId(u64::MAX - 1);
