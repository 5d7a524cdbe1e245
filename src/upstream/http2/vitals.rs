//! The state of one HTTP/2 connection to an origin: its streams, and when bytes arrived.

use crate::upstream::turns::TaskTurns;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// State that the connection's requests share with its task (`carrier`).
pub(in crate::upstream) struct Vitals {
    streams: AtomicUsize,
    /// Whether the body of one stream's request is in flight.
    pub uploads: AtomicBool,
    /// Whether the connection has had more streams than the one it was opened for.
    pub is_shared: AtomicBool,
    /// Whether the origin's settings have arrived.
    pub is_known: AtomicBool,
    pub is_over: AtomicBool,
    /// Wakes the requests that wait for the settings.
    pub known: Notify,
    /// Wakes the connection's task: the first stream began, the last one ended, or another window size fits.
    pub turned: Notify,
    /// Bytes received since a stream began or ended.
    come: AtomicU64,
    pub began: Instant,
    /// When bytes last arrived, in milliseconds since `began`.
    heard: AtomicU64,
    /// When the last stream ended, in milliseconds since `began`.
    idle_since: AtomicU64,
    /// The number of idle connections of all endpoints, which includes this one while it is idle.
    all: Arc<AtomicUsize>,
    pub turns: TaskTurns,
}

impl Vitals {
    /// The state of a connection that is opened for one stream.
    pub fn new(all: Arc<AtomicUsize>, turns: TaskTurns, uploads: bool) -> Arc<Self> {
        Arc::new(Vitals {
            streams: AtomicUsize::new(1),
            uploads: AtomicBool::new(uploads),
            is_shared: AtomicBool::new(false),
            is_known: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            known: Notify::new(),
            turned: Notify::new(),
            come: AtomicU64::new(0),
            began: Instant::now(),
            heard: AtomicU64::new(0),
            idle_since: AtomicU64::new(0),
            all,
            turns,
        })
    }

    pub fn streams(&self) -> usize {
        self.streams.load(Relaxed) & !EXCLUSIVE
    }

    /// Takes a place for one more stream. `None`: there are `most` streams, or the only stream is exclusive.
    pub fn begin_stream(&self, most: usize) -> Option<()> {
        let add = |streams: usize| (streams < most).then_some(streams + 1);
        if self.streams.fetch_update(Relaxed, Relaxed, add).ok()? == 0 {
            self.all.fetch_sub(1, Relaxed);
            self.turned.notify_one();
        }
        self.is_shared.store(true, Relaxed);
        self.come.store(0, Relaxed);
        Some(())
    }

    /// Reserves the connection for its only stream. `false`: it does not have exactly one stream.
    pub fn keep_others_out(&self) -> bool {
        self.streams.compare_exchange(1, EXCLUSIVE | 1, Relaxed, Relaxed).is_ok()
    }

    /// Whether the reader of the only stream empties its window fast enough for a larger one.
    pub fn keeps_up(&self) -> bool {
        self.come.load(Relaxed) >= KEPT_UP
    }

    pub fn let_others_in(&self) {
        self.streams.fetch_and(!EXCLUSIVE, Relaxed);
    }

    pub fn end_stream(&self) {
        self.idle_since.store(self.began.elapsed().as_millis() as u64, Relaxed);
        self.come.store(0, Relaxed);
        // The connection is counted as idle before it can be taken, so that the count never underflows.
        self.all.fetch_add(1, Relaxed);
        if self.streams.fetch_sub(1, Relaxed) & !EXCLUSIVE == 1 {
            self.turned.notify_one();
        } else {
            self.all.fetch_sub(1, Relaxed);
        }
    }

    /// Since when the connection has been idle. `None`: it has streams.
    pub fn idle_since(&self) -> Option<Instant> {
        (self.streams() == 0).then(|| self.began + Duration::from_millis(self.idle_since.load(Relaxed)))
    }

    /// Accounts for received bytes. `false`: too many arrived without a stream.
    pub fn come(&self, bytes: usize) -> bool {
        self.heard.store(self.began.elapsed().as_millis() as u64, Relaxed);
        let before = self.come.fetch_add(bytes as u64, Relaxed);
        match self.streams.load(Relaxed) {
            1 if before / KEPT_UP < (before + bytes as u64) / KEPT_UP => self.turned.notify_one(),
            // These bytes may confirm the last window size, so that another can be set.
            EXCLUSIVE => self.turned.notify_one(),
            _ => {}
        }
        self.streams() > 0 || before < UNWANTED
    }

    pub fn heard(&self) -> Instant {
        self.began + Duration::from_millis(self.heard.load(Relaxed))
    }

    pub fn set(&self, is: &AtomicBool) {
        is.store(true, Relaxed);
        self.known.notify_waiters();
    }
}

impl Drop for Vitals {
    fn drop(&mut self) {
        if self.streams() == 0 {
            self.all.fetch_sub(1, Relaxed);
        }
    }
}

/// The usual receive window of each stream, in bytes.
pub(super) const WINDOW: u32 = 256 * 1024;
/// Bytes after which the reader of a lone stream has shown that it keeps up: four windows, each emptied.
const KEPT_UP: u64 = 4 * WINDOW as u64;
/// Maximum number of streams on one connection, whatever the origin allows.
pub(super) const MAX_STREAMS: usize = 100;
/// The receive window of a connection: the sum of all streams' windows, so that a stalled reader does not block other streams.
pub(super) const CONNECTION_WINDOW: u32 = WINDOW * MAX_STREAMS as u32;
/// Bytes that may still arrive for cancelled streams: the content that the origin may send within the connection's window, and as much
/// again for heads and frame headers.
const UNWANTED: u64 = 2 * CONNECTION_WINDOW as u64;
/// Flag in the number of streams: no other stream may begin.
const EXCLUSIVE: usize = 1 << (usize::BITS - 1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_windows_of_streams_cancelled_together_may_arrive() {
        let vitals = Vitals::new(Arc::default(), TaskTurns::default(), false);
        for _ in 1..MAX_STREAMS {
            vitals.begin_stream(MAX_STREAMS).expect("there is room");
        }
        (0..MAX_STREAMS).for_each(|_| vitals.end_stream());
        assert!((0..MAX_STREAMS).all(|_| vitals.come(WINDOW as usize)));
        assert!(!(0..=MAX_STREAMS).all(|_| vitals.come(WINDOW as usize)), "an origin may not go on without a stream");
    }
}
