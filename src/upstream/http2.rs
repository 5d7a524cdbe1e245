//! HTTP/2 connections to one endpoint, which its requests share (RFC 9113): none takes a request that it cannot answer.
//! A stream is opened where the origin has room for one; a connection that the origin is about to close takes no more; one
//! on which nothing comes back is asked for a sign of life, and ended if there is none.

use super::dial_error::{DialError, DialFault};
use super::endpoint::Endpoint;
use super::gathered::Gathered;
use super::stream::Stream;
use super::turns::{HandedOver, TaskTurns};
use super::window::{KEPT_UP, WINDOW, Window};
use bytes::Bytes;
use h2::client::{Builder, Connection as Carrier, ResponseFuture, SendRequest};
use h2::{Ping, PingPong, Reason, SendStream};
use http::Request;
use parking_lot::Mutex;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

/// One stream's right on a connection that others use as well. The right ends with this.
pub struct Http2Link {
    send: SendRequest<Bytes>,
    connection: Arc<Http2Connection>,
}

impl Http2Link {
    /// Sends the head. `end`: no body follows.
    ///
    /// # Errors
    /// The connection takes no more streams: nothing has been sent.
    pub fn send_request(
        &mut self,
        request: Request<()>,
        end: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        self.send.send_request(request, end)
    }

    /// The head that has just been sent, until it has been written.
    pub fn sent_head(&self) -> HandedOver {
        self.connection.vitals.turns.handed_over()
    }

    /// Waits for the origin to speak HTTP/2, where that has not been agreed on: another would take what is sent for requests.
    pub(super) async fn spoken(&self, endpoint: &Endpoint) -> Result<(), DialError> {
        self.connection.known().await;
        if self.connection.vitals.is_known.load(Relaxed) {
            return Ok(());
        }
        endpoint.http2.remove(&self.connection.vitals);
        Err(DialError::new(DialFault::Malformed, "the origin does not speak HTTP/2 without TLS"))
    }

    /// Whether the connection would take another stream.
    pub fn is_alive(&self) -> bool {
        self.connection.is_alive()
    }

    /// Whether others have had streams on the connection, so that its end may be of their making.
    pub fn is_shared(&self) -> bool {
        self.connection.vitals.is_shared.load(Relaxed)
    }
}

impl Drop for Http2Link {
    fn drop(&mut self) {
        self.connection.vitals.end_stream();
    }
}

/// Whether the origin says that it has done nothing with the request (RFC 9113 §8.7): then any may be sent again.
pub fn is_unprocessed(error: &h2::Error) -> bool {
    error.is_remote() && (error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM))
}

/// Whether the origin wants the request over HTTP/1.1.
pub fn wants_http1(error: &h2::Error) -> bool {
    error.is_remote() && error.reason() == Some(Reason::HTTP_1_1_REQUIRED)
}

/// The connections of one endpoint.
pub(super) struct EndpointConnections {
    connections: Mutex<Vec<Arc<Http2Connection>>>,
    /// The idle connections of all endpoints.
    all: Arc<AtomicUsize>,
    /// Held by whoever opens one while others may want to share it. In it, how the last try failed.
    pub opening: tokio::sync::Mutex<Option<(Instant, DialError)>>,
    /// When last asked, the endpoint chose HTTP/1: there is nothing to share.
    pub is_http1: AtomicBool,
    /// The endpoint has refused to speak HTTP/1, or said nothing to it.
    pub is_only: AtomicBool,
    /// When last asked, it chose none of the versions that it was offered.
    pub chose_none: AtomicBool,
}

/// What there is for a request.
pub(super) enum FoundConnection {
    Link(Http2Link, SocketAddr),
    /// A connection of which it is not yet known how many streams it takes.
    Soon(Arc<Http2Connection>),
    None,
}

/// One connection.
pub(super) struct Http2Connection {
    send: SendRequest<Bytes>,
    address: SocketAddr,
    vitals: Arc<Vitals>,
}

/// What its requests and its carrier tell each other.
struct Vitals {
    streams: AtomicUsize,
    /// It has had more than the stream it was opened for.
    is_shared: AtomicBool,
    /// The origin's settings have come.
    is_known: AtomicBool,
    is_over: AtomicBool,
    /// For those who wait for the settings.
    known: Notify,
    /// For the carrier: the first stream began, or the last one ended, or another window fits.
    turned: Notify,
    /// What has come for one stream while it was alone.
    alone: AtomicU64,
    began: Instant,
    /// When bytes came last, in milliseconds since `began`.
    heard: AtomicU64,
    /// When the last stream ended, the same way.
    idle_since: AtomicU64,
    /// The idle connections of all endpoints, this one among them while it is.
    all: Arc<AtomicUsize>,
    turns: TaskTurns,
}

impl EndpointConnections {
    pub fn new(all: Arc<AtomicUsize>) -> Self {
        let (connections, opening) = (Mutex::default(), tokio::sync::Mutex::default());
        EndpointConnections {
            connections,
            all,
            opening,
            is_http1: AtomicBool::new(false),
            is_only: AtomicBool::new(false),
            chose_none: AtomicBool::new(false),
        }
    }

    /// A stream on one of the connections.
    pub fn take(&self) -> FoundConnection {
        let mut connections = self.connections.lock();
        if connections.is_empty() {
            return FoundConnection::None;
        }
        connections.retain(|connection| connection.is_alive());
        if let Some(connection) = connections.iter().find(|connection| connection.begin_stream()) {
            return FoundConnection::Link(connection.link(), connection.address);
        }
        let soon = connections.iter().find(|connection| !connection.vitals.is_known.load(Relaxed));
        soon.map_or(FoundConnection::None, |connection| FoundConnection::Soon(connection.clone()))
    }

    fn remove(&self, vitals: &Arc<Vitals>) {
        self.connections.lock().retain(|connection| !Arc::ptr_eq(&connection.vitals, vitals));
    }

    /// Lets go of those that have carried nothing since `then` or longer.
    pub fn close_idle(&self, then: Instant) {
        self.connections.lock().retain(|connection| connection.vitals.idle_since().is_none_or(|since| since > then));
    }

    /// Since when those have carried nothing that do.
    pub fn idle_since(&self, into: &mut Vec<Instant>) {
        into.extend(self.connections.lock().iter().filter_map(|connection| connection.vitals.idle_since()));
    }
}

impl Http2Connection {
    /// Begins HTTP/2 on a connection and shares it with the endpoint's other requests. `size`: of an answer's head.
    pub async fn open(
        stream: Stream,
        address: SocketAddr,
        endpoint: &Arc<Endpoint>,
        size: u32,
        idle: Duration,
    ) -> Result<Http2Link, DialError> {
        let turns = TaskTurns::default();
        let vitals = Arc::new(Vitals {
            streams: AtomicUsize::new(1),
            is_shared: AtomicBool::new(false),
            is_known: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            known: Notify::new(),
            turned: Notify::new(),
            alone: AtomicU64::new(0),
            began: Instant::now(),
            heard: AtomicU64::new(0),
            idle_since: AtomicU64::new(0),
            all: endpoint.http2.all.clone(),
            turns: turns.clone(),
        });
        let heard = Gathered::new(Heard { stream, vitals: vitals.clone() }, turns.clone());
        let mut builder = Builder::new();
        builder
            .initial_window_size(WINDOW)
            // As much as all streams may hold together: readers that stall take nothing from another.
            .initial_connection_window_size(WINDOW * MAX_STREAMS as u32)
            .max_header_list_size(size)
            .max_send_buffer_size(WINDOW as usize)
            .enable_push(false)
            // Until the origin has said how many: more could be refused.
            .initial_max_send_streams(1);
        let failed = |error: h2::Error| DialError::new(DialFault::Malformed, format!("HTTP/2: {error}"));
        let (send, mut carrier) = builder.handshake::<_, Bytes>(heard).await.map_err(failed)?;
        let ping = carrier.ping_pong().expect("it is taken once");
        let connection = Arc::new(Http2Connection { send, address, vitals: vitals.clone() });
        endpoint.http2.connections.lock().push(connection.clone());
        tokio::spawn(turns.of(carry(carrier, ping, vitals, Arc::downgrade(endpoint), idle)));
        Ok(connection.link())
    }

    /// Waits until it is known how many streams it takes.
    pub async fn known(&self) {
        let known = self.vitals.known.notified();
        tokio::pin!(known);
        known.as_mut().enable();
        if !self.vitals.is_known.load(Relaxed) && !self.vitals.is_over.load(Relaxed) {
            let _ = timeout(SETTINGS_TIME, known).await;
        }
    }

    /// Whether there is room for one more stream; then it is taken.
    fn begin_stream(&self) -> bool {
        let most = match self.vitals.is_known.load(Relaxed) {
            true => self.send.current_max_send_streams().min(MAX_STREAMS),
            false => 1,
        };
        let add = |streams: usize| (streams < most).then_some(streams + 1);
        let before = self.vitals.streams.fetch_update(Relaxed, Relaxed, add);
        if before == Ok(0) {
            self.vitals.all.fetch_sub(1, Relaxed);
        }
        if before.is_ok() {
            self.vitals.is_shared.store(true, Relaxed);
            let may_be_large = self.vitals.alone.swap(0, Relaxed) >= KEPT_UP;
            if before == Ok(0) || may_be_large {
                self.vitals.turned.notify_one();
            }
        }
        before.is_ok()
    }

    fn link(self: &Arc<Self>) -> Http2Link {
        Http2Link { send: self.send.clone(), connection: self.clone() }
    }

    fn is_alive(&self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        // After a GOAWAY this is an error, though streams may still be under way.
        !self.vitals.is_over.load(Relaxed) && !matches!(self.send.clone().poll_ready(&mut cx), Poll::Ready(Err(_)))
    }
}

impl Vitals {
    fn end_stream(&self) {
        self.idle_since.store(self.began.elapsed().as_millis() as u64, Relaxed);
        // Before it is idle, so that whoever takes it finds it counted.
        self.all.fetch_add(1, Relaxed);
        if self.streams.fetch_sub(1, Relaxed) == 1 {
            self.turned.notify_one();
        } else {
            self.all.fetch_sub(1, Relaxed);
        }
    }

    /// `None`: it carries something.
    fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.streams.load(Relaxed) == 0;
        is_idle.then(|| self.began + Duration::from_millis(self.idle_since.load(Relaxed)))
    }

    fn come(&self, bytes: usize) {
        self.heard.store(self.began.elapsed().as_millis() as u64, Relaxed);
        if self.streams.load(Relaxed) == 1 {
            let before = self.alone.fetch_add(bytes as u64, Relaxed);
            if before / KEPT_UP < (before + bytes as u64) / KEPT_UP {
                self.turned.notify_one();
            }
        }
    }

    fn heard(&self) -> Instant {
        self.began + Duration::from_millis(self.heard.load(Relaxed))
    }

    fn tell(&self, is: &AtomicBool) {
        is.store(true, Relaxed);
        self.known.notify_waiters();
    }
}

impl Drop for Vitals {
    fn drop(&mut self) {
        if *self.streams.get_mut() == 0 {
            self.all.fetch_sub(1, Relaxed);
        }
    }
}

/// Moves the frames until the connection ends: by the origin, by its silence, or because it has been idle for `idle`.
async fn carry(
    mut carrier: Carrier<Gathered<Heard>, Bytes>,
    mut ping: PingPong,
    vitals: Arc<Vitals>,
    endpoint: Weak<Endpoint>,
    idle: Duration,
) {
    // The answer comes behind the origin's settings.
    let mut asked = ping.send_ping(Ping::opaque()).ok().map(|()| Instant::now());
    let mut idle_since = Instant::now();
    let mut is_closing = false;
    let mut window = Window::default();
    loop {
        let is_idle = vitals.streams.load(Relaxed) == 0;
        let next = match asked {
            Some(asked) => asked.max(vitals.heard()) + PONG_TIME,
            None if is_closing => idle_since + CLOSE_TIME,
            None if is_idle => idle_since + idle,
            None => vitals.heard() + SILENCE,
        };
        tokio::select! {
            ended = &mut carrier => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "an HTTP/2 connection to an origin ended");
                }
                break;
            }
            pong = poll_fn(|cx| ping.poll_pong(cx)), if asked.is_some() => {
                asked = None;
                if pong.is_ok() {
                    vitals.tell(&vitals.is_known);
                }
            }
            () = vitals.turned.notified() => {
                idle_since = Instant::now();
                window.fit(&mut carrier, vitals.streams.load(Relaxed), vitals.alone.load(Relaxed));
            }
            () = sleep_until(next) => match (asked, is_idle) {
                // Bytes of any kind are a sign as well.
                (Some(_), _) if vitals.heard() + PONG_TIME > Instant::now() => {}
                (Some(_), _) => {
                    tracing::debug!("an HTTP/2 connection to an origin does not respond: closed");
                    break;
                }
                (None, false) if !is_closing => {
                    asked = ping.send_ping(Ping::opaque()).ok().map(|()| Instant::now());
                }
                (None, true) if !is_closing => {
                    // With the last one who could send, the connection ends by itself.
                    is_closing = true;
                    idle_since = Instant::now();
                    if let Some(endpoint) = endpoint.upgrade() {
                        endpoint.http2.remove(&vitals);
                    }
                }
                (None, true) => break,
                (None, false) => idle_since = Instant::now(),
            },
        }
    }
    // Streams that are still under way learn of it as the carrier goes.
    vitals.tell(&vitals.is_over);
    if let Some(endpoint) = endpoint.upgrade() {
        endpoint.http2.remove(&vitals);
    }
}

/// A stream that notes when something came.
struct Heard {
    stream: Stream,
    vitals: Arc<Vitals>,
}

impl AsyncRead for Heard {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut this.stream).poll_read(cx, buf));
        this.vitals.come(buf.filled().len() - before);
        Poll::Ready(read)
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

/// On one connection at a time, whatever the origin takes.
const MAX_STREAMS: usize = 100;
/// How long others wait for the settings of a new connection before they open one of their own.
const SETTINGS_TIME: Duration = Duration::from_secs(2);
/// A connection with streams on which nothing has come for so long is asked for a sign of life,
const SILENCE: Duration = Duration::from_secs(15);
/// which has to come within this.
const PONG_TIME: Duration = Duration::from_secs(10);
const CLOSE_TIME: Duration = Duration::from_secs(5);
