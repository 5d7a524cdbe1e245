//! A connection for one request: a kept connection, a stream on a shared connection, or a new connection.

use super::dial_error::{DialError, DialFault};
use super::endpoint::Idle;
use super::http2::{self, FoundConnection, Http2Link};
use super::private::PrivateConnections;
use super::route::Route;
use super::stream::Stream;
use http::Version;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::time::Instant;

/// What a request requires of its connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct Want {
    /// Whether to open a new connection: for an upgrade, or because a kept connection has just failed.
    pub fresh: bool,
    pub versions: Versions,
    /// The request cannot be repeated: a kept connection is checked once more right before use.
    pub once: bool,
    /// The request has a body.
    pub uploads: bool,
    /// The answer may be stored for others. Excludes connections that have carried a body: the origin may take an unread part
    /// of that body for a request, and answer it instead.
    pub shared: bool,
    /// Whether no other request may share the connection over HTTP/2.
    pub alone: bool,
    /// The request is to switch protocols: a new connection reaches the origin itself, through a tunnel if there is an upstream proxy.
    pub upgrade: bool,
    /// The address to try first: that of the previous attempt.
    pub first: Option<SocketAddr>,
}

/// The versions of HTTP that a request may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Versions {
    /// The version that the origin chooses.
    #[default]
    Http2First,
    /// HTTP/2 also without TLS, where it cannot be negotiated: the caller knows that the origin supports it. Over TLS the origin
    /// chooses.
    Http2Known,
    /// HTTP/1.1, as the client's request is, so that no translation is needed; HTTP/2 only if the origin supports nothing else.
    Http1First,
    /// HTTP/1.1 only: for upgrades, and if the origin demands it.
    Http1Only,
}

impl Versions {
    /// Prefers the client's version. `knows`: the client speaks as if directly to the origin, so it knows the origin's version.
    pub fn of(client: Version, knows: bool) -> Self {
        match client {
            Version::HTTP_2 if knows => Self::Http2Known,
            Version::HTTP_2 => Self::Http2First,
            _ => Self::Http1First,
        }
    }
}

/// A connection for one request.
pub struct OriginConnection {
    /// Whether the connection has carried requests before, so that the origin may be about to close it.
    pub reused: bool,
    /// The address of the origin or the upstream proxy.
    pub address: SocketAddr,
    pub link: HttpLink,
}

/// The protocol on the connection.
pub enum HttpLink {
    Http1(Http1Link),
    Http2(Http2Link),
}

/// An HTTP/1 connection, which carries one exchange at a time. Dropping it closes it. Over TLS, an end without close_notify is reported
/// as [`std::io::ErrorKind::UnexpectedEof`].
pub struct Http1Link {
    pub stream: Stream,
    address: SocketAddr,
    route: Route,
    /// The client connection that this connection is reserved for.
    private: Option<Arc<PrivateConnections>>,
}

impl Http1Link {
    /// Whether the connection serves one client connection alone.
    pub fn is_private(&self) -> bool {
        self.private.is_some()
    }

    /// Returns the connection to the pool. Call only after a whole exchange, when nothing is left to be read.
    pub fn keep(self) {
        let Http1Link { stream, address, route, private } = self;
        let idle =
            Idle { stream, address, since: Instant::now(), private: private.as_ref().map(|private| private.id()) };
        route.0.by.dialler.pool.put(&route.0.endpoint, idle, route.0.by.limits());
        // Called after `put`, because `note` forgets endpoints without such a connection.
        if let Some(private) = &private {
            private.note(&route.0.endpoint);
        }
    }

    /// Like [`keep`](Self::keep). `private`: reserves the connection for requests of this client connection.
    pub fn keep_private(mut self, private: Option<&Arc<PrivateConnections>>) {
        self.private = private.cloned().or(self.private);
        self.keep();
    }
}

impl Route {
    /// Takes or opens a connection for one request. `private`: the private connections of the client connection, which are tried first.
    ///
    /// # Errors
    /// No address can be reached, or the origin does not support the wanted protocol.
    pub async fn connect(
        &self,
        mut want: Want,
        private: Option<&Arc<PrivateConnections>>,
    ) -> Result<OriginConnection, DialError> {
        want.versions = self.versions(want.versions);
        // If the pace is kept by address, connects to the address that the request's slot is for.
        want.first = self.place(want.first).or(want.first);
        if !want.fresh
            && let Some(private) = private.filter(|private| !want.shared || private.is_let_in())
            && private.may_be_at(&self.0.endpoint)
            && let Some(kept) = self.kept_http1(want, Some(private)).await
        {
            return Ok(kept);
        }
        if !(want.fresh || want.alone && self.may_be_http2(want.versions))
            && let Some(kept) = self.kept(want).await
        {
            return Ok(kept);
        }
        // Boxed, so that this rare path does not enlarge every request's future.
        Box::pin(self.open_for(want)).await
    }

    /// Prefers HTTP/1.1 to HTTP/2, unless HTTP/2 is known without TLS: the origin may then support nothing else.
    pub fn http1_first(&self, versions: Versions) -> Versions {
        match versions {
            Versions::Http2First | Versions::Http2Known if self.0.authority.is_https() => Versions::Http1First,
            versions => versions,
        }
    }

    /// The versions that a request may use, according to what earlier connections have shown about the origin.
    fn versions(&self, wanted: Versions) -> Versions {
        if self.0.endpoint.http2.is_broken_off.load(Relaxed) { self.http1_first(wanted) } else { wanted }
    }

    /// Whether to use HTTP/2, according to what earlier connections have shown about the origin.
    fn may_be_http2(&self, versions: Versions) -> bool {
        let shared = &self.0.endpoint.http2;
        let may_be = match versions {
            Versions::Http2Known if self.is_known_http2(versions) => return true,
            Versions::Http2First | Versions::Http2Known => !shared.is_http1.load(Relaxed),
            Versions::Http1First => shared.is_only.load(Relaxed),
            Versions::Http1Only => false,
        };
        may_be && self.0.authority.is_https()
    }

    /// Whether to try HTTP/2 with an origin that closed a new connection without an answer: some origins that support only HTTP/2 do
    /// so. From then on HTTP/2 is offered, until the origin chooses something else.
    pub fn may_be_only_http2(&self, versions: Versions) -> bool {
        let shared = &self.0.endpoint.http2;
        self.versions(versions) == Versions::Http1First
            && self.0.authority.is_https()
            && shared.chose_none.load(Relaxed)
            && !shared.is_http1.load(Relaxed)
            && !shared.is_only.swap(true, Relaxed)
    }

    pub(super) fn is_known_http2(&self, versions: Versions) -> bool {
        versions == Versions::Http2Known && !self.0.authority.is_https() && self.asks().is_none()
    }

    /// Takes an existing connection. If the pace is kept by address, only a connection to the wanted address.
    async fn kept(&self, want: Want) -> Option<OriginConnection> {
        if !self.may_be_http2(want.versions) {
            return self.kept_http1(want, None).await;
        }
        let place = self.place(want.first);
        loop {
            match self.0.endpoint.http2.take(place, want.uploads) {
                FoundConnection::Link(link) => {
                    let (address, link) = (link.address(), HttpLink::Http2(link));
                    return Some(OriginConnection { reused: true, address, link });
                }
                FoundConnection::Soon(connection) => connection.soon_known().await,
                FoundConnection::None => return None,
            }
        }
    }

    async fn kept_http1(&self, want: Want, private: Option<&Arc<PrivateConnections>>) -> Option<OriginConnection> {
        let (idle, place) = (self.0.by.limits().idle_timeout, self.place(want.first));
        let id = private.map(|private| private.id());
        let Idle { stream, address, .. } = self.0.endpoint.take(idle, want.once, place, id).await?;
        let link = Http1Link { stream, address, route: self.clone(), private: private.cloned() };
        Some(OriginConnection { reused: true, address, link: HttpLink::Http1(link) })
    }

    async fn open_for(&self, want: Want) -> Result<OriginConnection, DialError> {
        let shared = &self.0.endpoint.http2;
        if !self.may_be_http2(want.versions) {
            match self.open_now(want, matches!(want.versions, Versions::Http2First | Versions::Http2Known)).await {
                Err(error) if error.kind == DialFault::Alpn && want.versions == Versions::Http1First => {
                    shared.is_only.store(true, Relaxed);
                }
                opened => return opened,
            }
        }
        if want.fresh || want.alone {
            return self.open_now(want, true).await;
        }
        // If HTTP/2 is possible, one request opens a connection, and the others wait to see whether they can share it.
        let began = Instant::now();
        let mut opening = shared.opening.lock().await;
        if let Some((at, error)) = &*opening
            && *at > began
        {
            return Err(error.clone());
        }
        if let Some(kept) = self.kept(want).await {
            return Ok(kept);
        }
        // A request over HTTP/1 or with a body does not share a connection, so it need not wait for another request's connection.
        if want.uploads || !self.may_be_http2(want.versions) {
            drop(opening);
            return self.open_now(want, true).await;
        }
        let opened = self.open_now(want, true).await;
        *opening = opened.as_ref().err().map(|error| (Instant::now(), error.clone()));
        opened
    }

    async fn open_now(&self, want: Want, may_be_http2: bool) -> Result<OriginConnection, DialError> {
        let way = &*self.0;
        let limits = way.by.limits();
        let (stream, address) = self.dial(way.authority.is_https() || want.upgrade, may_be_http2, want.first).await?;
        let chosen = stream.chose_http2();
        let is_http2 = chosen == Some(true) || self.is_known_http2(want.versions);
        way.endpoint.http2.chose_none.store(chosen.is_none(), Relaxed);
        if may_be_http2 {
            way.endpoint.http2.is_http1.store(!is_http2, Relaxed);
            way.endpoint.http2.is_only.fetch_and(is_http2, Relaxed);
        }
        let link = match is_http2 {
            true => {
                let opening =
                    http2::Http2Connection::open(stream, address, &way.endpoint, limits, (want.uploads, want.alone));
                let link = opening.await?;
                way.by.dialler.pool.opened_http2(&way.endpoint, limits);
                if chosen != Some(true) {
                    link.spoken(&way.endpoint).await?;
                }
                HttpLink::Http2(link)
            }
            false => HttpLink::Http1(Http1Link { stream, address, route: self.clone(), private: None }),
        };
        Ok(OriginConnection { reused: false, address, link })
    }
}
