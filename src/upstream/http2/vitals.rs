//! What is known of one connection to an origin in HTTP/2: its streams, and when something came.

use crate::upstream::stream::Stream;
use crate::upstream::turns::TaskTurns;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;

/// What its requests and its carrier share.
pub(super) struct Vitals {
    streams: AtomicUsize,
    /// One of them has a body under way.
    pub uploads: AtomicBool,
    /// It has had more than the stream it was opened for.
    pub is_shared: AtomicBool,
    /// The origin's settings have come.
    pub is_known: AtomicBool,
    pub is_over: AtomicBool,
    /// Wakes the requests that wait for the settings.
    pub known: Notify,
    /// For the carrier: the first stream began, or the last one ended, or another window fits.
    pub turned: Notify,
    /// What has come for one stream while it was alone.
    pub come_alone: AtomicU64,
    /// What has come since there is no stream.
    come_idle: AtomicU64,
    pub began: Instant,
    /// When bytes came last, in milliseconds since `began`.
    heard: AtomicU64,
    /// When the last stream ended, the same way.
    idle_since: AtomicU64,
    /// The idle connections of all endpoints, this one among them while it is.
    pub all: Arc<AtomicUsize>,
    pub turns: TaskTurns,
}

impl Vitals {
    /// Of a connection that is opened for one stream.
    pub fn new(all: Arc<AtomicUsize>, turns: TaskTurns, uploads: bool) -> Arc<Self> {
        Arc::new(Vitals {
            streams: AtomicUsize::new(1),
            uploads: AtomicBool::new(uploads),
            is_shared: AtomicBool::new(false),
            is_known: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            known: Notify::new(),
            turned: Notify::new(),
            come_alone: AtomicU64::new(0),
            come_idle: AtomicU64::new(0),
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

    /// Takes a place for one more stream, of so many. How many there were.
    pub fn begin_stream(&self, most: usize) -> Option<usize> {
        let add = |streams: usize| (streams < most).then_some(streams + 1);
        self.streams.fetch_update(Relaxed, Relaxed, add).ok()
    }

    /// The one stream that there is has the connection to itself. `false`: there is not just one.
    pub fn keep_others_out(&self) -> bool {
        self.streams.compare_exchange(1, EXCLUSIVE | 1, Relaxed, Relaxed).is_ok()
    }

    /// Whether the reader of the one stream that there is empties windows as they come.
    pub fn keeps_up(&self) -> bool {
        self.come_alone.load(Relaxed) >= KEPT_UP
    }

    pub fn let_others_in(&self) {
        self.streams.fetch_and(!EXCLUSIVE, Relaxed);
    }

    pub fn end_stream(&self) {
        self.idle_since.store(self.began.elapsed().as_millis() as u64, Relaxed);
        self.come_idle.store(0, Relaxed);
        // Before it is idle, so that it is counted when it is taken.
        self.all.fetch_add(1, Relaxed);
        if self.streams.fetch_sub(1, Relaxed) & !EXCLUSIVE == 1 {
            self.turned.notify_one();
        } else {
            self.all.fetch_sub(1, Relaxed);
        }
    }

    /// `None`: it carries something.
    pub fn idle_since(&self) -> Option<Instant> {
        (self.streams() == 0).then(|| self.began + Duration::from_millis(self.idle_since.load(Relaxed)))
    }

    /// `false`: nobody wants what comes, and it comes all the same.
    fn come(&self, bytes: usize) -> bool {
        self.heard.store(self.began.elapsed().as_millis() as u64, Relaxed);
        match self.streams.load(Relaxed) {
            1 => {
                let before = self.come_alone.fetch_add(bytes as u64, Relaxed);
                if before / KEPT_UP < (before + bytes as u64) / KEPT_UP {
                    self.turned.notify_one();
                }
            }
            // This may confirm the window that it had, so that another can be set.
            EXCLUSIVE => self.turned.notify_one(),
            _ => {}
        }
        self.streams() > 0 || self.come_idle.fetch_add(bytes as u64, Relaxed) < UNWANTED
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

/// How far the origin may be ahead in each stream, as a rule.
pub(super) const WINDOW: u32 = 256 * 1024;
/// What has come for one stream alone, when its reader is known to keep up: four windows, which it has emptied as often.
const KEPT_UP: u64 = 4 * WINDOW as u64;
/// What may still come for streams that have been given up: more than any one window.
const UNWANTED: u64 = 8 * 1024 * 1024;
/// In the number of streams: no other may begin.
const EXCLUSIVE: usize = 1 << (usize::BITS - 1);

/// A stream that notes when something came.
pub(super) struct Heard {
    pub stream: Stream,
    pub vitals: Arc<Vitals>,
}

impl AsyncRead for Heard {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut this.stream).poll_read(cx, buf));
        match this.vitals.come(buf.filled().len() - before) {
            true => Poll::Ready(read),
            false => Poll::Ready(Err(io::Error::other("more comes than anybody has asked for"))),
        }
    }
}

impl AsyncWrite for Heard {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
