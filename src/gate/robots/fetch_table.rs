//! Single flight: the fetches in flight, each shared by all requests that need it. A fetch that has begun runs to its end, even if nobody
//! waits.

use crate::config::Settings;
use crate::gate::shared_rows::{SharedRow, SharedRows};
use crate::policy::pace::ClientId;
use crate::policy::{Authority, Refusal, SiteFile};
use crate::upstream::Versions;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::timeout_at;

/// The fetches in flight, by file and authority.
pub(super) type FetchTable = SharedRows<(SiteFile, Authority), Fetch>;
pub(super) type FetchRow = SharedRow<(SiteFile, Authority), Fetch>;

/// An order for a fetch.
#[derive(Debug, Clone, Copy)]
pub(in crate::gate) struct Order {
    pub reason: FetchReason,
    /// The client whose share of resources is used.
    pub client: ClientId,
    /// The crawl delay for the request that causes the fetch.
    pub crawl_delay: Option<Duration>,
    /// The HTTP versions of the request that causes the fetch, which uses the same connection.
    pub versions: Versions,
}

/// Why a file is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) enum FetchReason {
    /// A request waits for the file, as there is no copy. The fetch is dropped if nobody waits any more before it begins.
    FirstUse,
    /// The copy in use is ageing. The fetch waits for a slot without limit.
    Renewal,
    /// The file must be fetched from the origin, whatever copies exist.
    Anew,
}

impl FetchReason {
    /// Whether a usable copy from any source is good enough.
    pub fn takes_any_copy(self) -> bool {
        matches!(self, Self::FirstUse | Self::Renewal)
    }
}

/// One fetch in flight.
#[derive(Default)]
pub(super) struct Fetch {
    progress: watch::Sender<FetchProgress>,
    /// Whether the fetch has begun to ask the site, or is a background fetch: then it runs to its end.
    has_begun: AtomicBool,
}

/// Progress of a fetch.
#[derive(Default)]
struct FetchProgress {
    /// When the host's slot is expected, while the fetch waits for it.
    due: Option<Instant>,
    /// The result. An error says why the site was not asked.
    end: Option<Result<(), Refusal>>,
}

/// A subscription to a fetch.
#[derive(Clone)]
pub(in crate::gate) struct Fetching(watch::Receiver<FetchProgress>);

impl Order {
    /// A background fetch, which uses no client's share of resources.
    pub fn background(reason: FetchReason) -> Self {
        Order { reason, client: BACKGROUND, crawl_delay: None, versions: Versions::default() }
    }

    /// How long a fetch may wait for the proxy's own resources, in addition to the site's time. A first fetch: half as long as the requests
    /// that wait for it, so that they can be told why. Other fetches: not at all, as requests for pages continue meanwhile, and may need
    /// the host's slot.
    pub(super) fn patience(&self, settings: &Settings) -> Duration {
        match self.reason {
            FetchReason::FirstUse => settings.pace.max_wait / 2,
            FetchReason::Renewal | FetchReason::Anew => Duration::ZERO,
        }
    }
}

impl Fetch {
    pub fn join(&self) -> Fetching {
        Fetching(self.progress.subscribe())
    }

    /// Sets when the awaited slot is expected. `None`: the fetch does not wait for a slot.
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
    /// A subscription to a fetch that has already ended.
    pub fn ended() -> Self {
        Self(watch::channel(FetchProgress { due: None, end: Some(Ok(())) }).1)
    }

    /// Waits for the end of the fetch. An error is the reason on our side for which the site was not asked.
    pub async fn end(mut self) -> Result<(), Refusal> {
        match self.0.wait_for(|progress| progress.end.is_some()).await {
            Ok(progress) => progress.end.clone().unwrap_or(Ok(())),
            // The runtime shuts down.
            Err(_) => Err(Refusal::Draining { retry_after: DRAINING }),
        }
    }

    /// Waits until it is certain that the awaited slot comes after `latest`, and returns the slot's expected time.
    pub async fn late(mut self, latest: Instant) -> Instant {
        loop {
            let due = self.0.borrow_and_update().due;
            match due {
                Some(due) if due > latest || Instant::now() >= latest => return due,
                Some(_) => _ = timeout_at(latest.into(), self.0.changed()).await,
                // The fetch has ended, so nothing can change any more.
                None if self.0.changed().await.is_err() => return pending().await,
                None => {}
            }
        }
    }
}

/// Runs a fetch's work. `None`: the work was dropped, as nobody waited any more before the fetch began.
pub(super) async fn unless_unwanted<T>(fetch: &Arc<FetchRow>, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let is_unwanted = || !fetch.has_begun() && Arc::strong_count(fetch) == 1 && fetch.progress.receiver_count() == 0;
    loop {
        tokio::select! {
            biased;
            done = &mut work => return Some(done),
            () = fetch.progress.closed() => {}
        }
        if fetch.has_begun() {
            return Some(work.await);
        }
        // A request that is about to join already holds the row, so `is_unwanted` returns false.
        if fetch.leave_if(is_unwanted) {
            return None;
        }
    }
}

const DRAINING: Duration = Duration::from_secs(1);
/// The client for renewals and the operator's requests, which together have one client's share of resources.
pub(super) const BACKGROUND: ClientId = ClientId(u64::MAX - 1);
