//! HTTP/2 connections to one endpoint, shared by its requests (RFC 9113). A stream is opened only if the origin has room for
//! it. A connection that the origin is about to close takes no more streams. A silent connection is sent a PING, and closed
//! if no answer arrives.

mod carrier;
mod error_meaning;
mod limits;
mod sent_head;
mod vitals;
mod window;

use super::dial_error::{DialError, DialFault};
use super::endpoint::Endpoint;
use super::stream::Stream;
use super::turns::TaskTurns;
use super::write_batch::Gathered;
use crate::config::LimitSettings;
use bytes::Bytes;
use carrier::{FIRST_STREAMS, carry};
pub use error_meaning::{asks_for_calm, is_broken_off, is_unprocessed, wants_http1};
use h2::SendStream;
use h2::client::{Builder, ResponseFuture, SendRequest};
use http::Request;
pub use limits::{check_head, check_trailers};
use parking_lot::Mutex;
pub use sent_head::SentHead;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
pub(super) use vitals::Vitals;
use vitals::{CONNECTION_WINDOW, MAX_STREAMS, WINDOW};

/// A stream on a shared connection. Dropping it ends the stream.
pub struct Http2Link {
    connection: Arc<Http2Connection>,
    /// Whether the request has a body.
    uploads: bool,
}

impl Http2Link {
    /// Sends the head of the request. `end`: no body follows.
    ///
    /// # Errors
    /// The connection takes no more streams; nothing was sent.
    pub fn send_request(
        &self,
        request: Request<()>,
        end: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>, SentHead), h2::Error> {
        let mut send = self.connection.send.clone();
        let (response, body) = send.send_request(request, end)?;
        Ok((response, body, SentHead::new(send, &self.connection.vitals.turns)))
    }

    /// Without ALPN, waits until the origin has spoken HTTP/2: a server of another protocol could take frames for requests.
    pub(super) async fn spoken(&self, endpoint: &Endpoint) -> Result<(), DialError> {
        self.connection.known(SPOKEN_TIME).await;
        if self.connection.vitals.is_known.load(Relaxed) {
            return Ok(());
        }
        endpoint.http2.remove(&self.connection.vitals);
        Err(DialError::new(DialFault::Malformed, "the origin does not speak HTTP/2 without TLS"))
    }

    /// The address of the origin or the upstream proxy.
    pub(super) fn address(&self) -> SocketAddr {
        self.connection.address
    }

    /// Whether the connection accepts another stream.
    pub fn is_alive(&self) -> bool {
        self.connection.is_alive()
    }

    /// Whether the connection has had other streams, which may have caused its end.
    pub fn is_shared(&self) -> bool {
        self.connection.vitals.is_shared.load(Relaxed)
    }
}

impl Drop for Http2Link {
    fn drop(&mut self) {
        if self.uploads {
            self.connection.vitals.uploads.store(false, Relaxed);
        }
        self.connection.vitals.end_stream();
    }
}

/// The HTTP/2 connections of one endpoint.
#[derive(Default)]
pub(super) struct EndpointConnections {
    connections: Mutex<Vec<Arc<Http2Connection>>>,
    /// The number of idle connections of all endpoints.
    all: Arc<AtomicUsize>,
    /// The lock that is held while a connection is opened that other requests may share. Contains the last failure.
    pub opening: tokio::sync::Mutex<Option<(Instant, DialError)>>,
    /// Whether the endpoint chose HTTP/1 most recently, so that there is nothing to share.
    pub is_http1: AtomicBool,
    /// Whether the endpoint rejected HTTP/1, or did not answer it.
    pub is_only: AtomicBool,
    /// Whether one stream's error has ended a whole HTTP/2 connection of the endpoint. Over HTTP/1.1, the same error affects one
    /// request only.
    pub is_broken_off: AtomicBool,
    /// Whether the endpoint most recently chose none of the offered versions.
    pub chose_none: AtomicBool,
}

/// Result of looking for a connection.
pub(super) enum FoundConnection {
    Link(Http2Link),
    /// A new connection that has not announced its stream limit yet.
    Soon(Arc<Http2Connection>),
    None,
}

/// One HTTP/2 connection.
pub(super) struct Http2Connection {
    send: SendRequest<Bytes>,
    address: SocketAddr,
    vitals: Arc<Vitals>,
}

impl EndpointConnections {
    pub fn new(all: Arc<AtomicUsize>) -> Self {
        EndpointConnections { all, ..Self::default() }
    }

    /// Reserves a stream on one of the connections. `place`: only on a connection to this address. `uploads`: only on a connection without
    /// a body in flight, because an origin that does not read one body blocks others on the same connection (RFC 9113 §5.2).
    pub fn take(&self, place: Option<SocketAddr>, uploads: bool) -> FoundConnection {
        let mut connections = self.connections.lock();
        if connections.is_empty() {
            return FoundConnection::None;
        }
        connections.retain(|connection| connection.is_alive());
        let there = || connections.iter().filter(|connection| place.is_none_or(|place| connection.address == place));
        if let Some(link) = there().find_map(|connection| connection.begin(uploads)) {
            return FoundConnection::Link(link);
        }
        // If a connection has not announced its limit for a long time, requests do not wait for other connections' limits, either.
        let is_mute = there().any(|connection| connection.is_mute());
        let may_take = |vitals: &Vitals| !(vitals.is_known.load(Relaxed) || uploads && vitals.uploads.load(Relaxed));
        let soon = there().find(|connection| !is_mute && may_take(&connection.vitals));
        soon.map_or(FoundConnection::None, |connection| FoundConnection::Soon(connection.clone()))
    }

    pub fn is_empty(&self) -> bool {
        self.connections.lock().is_empty()
    }

    fn remove(&self, vitals: &Arc<Vitals>) {
        self.connections.lock().retain(|connection| !Arc::ptr_eq(&connection.vitals, vitals));
    }

    /// Closes the connections that have been idle since `then` or longer.
    pub fn close_idle(&self, then: Instant) {
        self.connections.lock().retain(|connection| connection.vitals.idle_since().is_none_or(|since| since > then));
    }

    fn idle(&self) -> usize {
        self.connections.lock().iter().filter(|connection| connection.vitals.streams() == 0).count()
    }

    /// Appends the time at which each idle connection became idle.
    pub fn idle_since(&self, into: &mut Vec<Instant>) {
        into.extend(self.connections.lock().iter().filter_map(|connection| connection.vitals.idle_since()));
    }
}

impl Http2Connection {
    /// Starts HTTP/2 on a connection and shares it with the endpoint's other requests, unless its first request is to be `alone`.
    pub async fn open(
        stream: Stream,
        address: SocketAddr,
        endpoint: &Arc<Endpoint>,
        limits: &LimitSettings,
        (uploads, alone): (bool, bool),
    ) -> Result<Http2Link, DialError> {
        let turns = TaskTurns::default();
        let vitals = Vitals::new(endpoint.http2.all.clone(), turns.clone(), uploads);
        let heard = Gathered::to_origin(stream, vitals.clone());
        let mut builder = Builder::new();
        builder
            .initial_window_size(WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            // `check_head` rejects a head above the limit. The h2 crate may end the connection for one above this size.
            .max_header_list_size(
                u32::try_from(limits.max_header_size.saturating_mul(2)).unwrap_or(u32::MAX).max(LARGE_HEAD),
            )
            .max_send_buffer_size(WINDOW as usize)
            .enable_push(false)
            .initial_max_send_streams(FIRST_STREAMS);
        let failed = |error: h2::Error| DialError::new(DialFault::Malformed, format!("HTTP/2: {error}"));
        let (send, mut carrier) = builder.handshake::<_, Bytes>(heard).await.map_err(failed)?;
        let ping = carrier.ping_pong().expect("this is the only call");
        let connection = Arc::new(Http2Connection { send, address, vitals: vitals.clone() });
        if !alone {
            endpoint.http2.connections.lock().push(connection.clone());
        }
        // Above this number, idle connections of the endpoint close at once. The pool limits those of all endpoints.
        let most = if limits.max_idle_connections == 0 { 0 } else { limits.max_idle_connections_per_host };
        let (here, timeout) = (Arc::downgrade(endpoint), limits.idle_timeout);
        let idle = move || match here.upgrade().is_some_and(|endpoint| endpoint.http2.idle() > most) {
            true => Duration::ZERO,
            false => timeout,
        };
        let (here, own) = (Arc::downgrade(endpoint), vitals.clone());
        let leave = move || here.upgrade().iter().for_each(|endpoint| endpoint.http2.remove(&own));
        // An error on an unshared connection ends no other request's answer.
        let here = if alone { Weak::new() } else { Arc::downgrade(endpoint) };
        let broken_off = move || here.upgrade().iter().for_each(|it| it.http2.is_broken_off.store(true, Relaxed));
        tokio::spawn(turns.of(carry(carrier, ping, vitals, idle, leave, broken_off)));
        Ok(Http2Link { connection, uploads })
    }

    /// Waits until the stream limit is known, or the connection is [mute](Self::is_mute).
    pub async fn soon_known(&self) {
        self.known(SETTINGS_TIME).await;
    }

    /// Whether the stream limit has been unknown for so long that requests open other connections instead.
    fn is_mute(&self) -> bool {
        !self.vitals.is_known.load(Relaxed) && self.vitals.began.elapsed() >= SETTINGS_TIME
    }

    async fn known(&self, limit: Duration) {
        // Created before the check, so that no notification is missed.
        let known = self.vitals.known.notified();
        if !self.vitals.is_known.load(Relaxed) && !self.vitals.is_over.load(Relaxed) {
            let _ = timeout_at(self.vitals.began + limit, known).await;
        }
    }

    /// Takes a place for one more stream, if there is room. Called by one task at a time.
    fn begin(self: &Arc<Self>, uploads: bool) -> Option<Http2Link> {
        let vitals = &self.vitals;
        if uploads && vitals.uploads.load(Relaxed) {
            return None;
        }
        let most = match vitals.is_known.load(Relaxed) {
            true => self.send.current_max_send_streams().min(MAX_STREAMS),
            false => 1,
        };
        vitals.begin_stream(most)?;
        vitals.uploads.fetch_or(uploads, Relaxed);
        Some(Http2Link { connection: self.clone(), uploads })
    }

    fn is_alive(&self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        // `poll_ready` fails after a GOAWAY, although streams may still be in flight.
        !self.vitals.is_over.load(Relaxed) && !matches!(self.send.clone().poll_ready(&mut cx), Poll::Ready(Err(_)))
    }
}

/// Size of a head that is read to its end even if it is above the limit.
const LARGE_HEAD: u32 = 1 << 20;
/// Time to wait for a connection's settings before opening another.
const SETTINGS_TIME: Duration = Duration::from_secs(1);
/// Time for an origin to show that it speaks HTTP/2, if not negotiated.
const SPOKEN_TIME: Duration = Duration::from_secs(2);
