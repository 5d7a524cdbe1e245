//! A connection for one request: one that was kept, a stream on one that is shared, or a new one.

use super::dial_error::{DialError, DialFault};
use super::endpoint::Idle;
use super::hop::is_tls;
use super::http2::{self, FoundConnection, Http2Link};
use super::private::PrivateConnections;
use super::route::Route;
use super::stream::Stream;
use http::Version;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// What a request wants of its connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct Want {
    /// A new one: a kept one has just turned out to be dead.
    pub fresh: bool,
    pub versions: Versions,
    /// The request cannot be sent a second time: a kept connection is looked at once more right before its use.
    pub once: bool,
    /// The request has a body.
    pub uploads: bool,
    /// The address to try before the others: where the one before was.
    pub first: Option<SocketAddr>,
}

/// Which versions of HTTP a request may go over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Versions {
    /// What the origin chooses.
    #[default]
    Http2First,
    /// HTTP/2, where there is no TLS to negotiate it in: the caller knows the origin. Over TLS the origin chooses.
    Http2Known,
    /// HTTP/2 only with an origin that speaks nothing else: what need not be translated is not.
    Http1First,
    /// For upgrades, and where the origin asks for it.
    Http1Only,
}

impl Versions {
    /// The client's own first. `knows`: it speaks as if to the origin itself.
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
    /// It has carried requests before, so that the origin may be about to close it.
    pub reused: bool,
    /// The other end: the origin's, or the upstream proxy's.
    pub address: SocketAddr,
    pub link: HttpLink,
}

/// What is spoken on it.
pub enum HttpLink {
    Http1(Http1Link),
    Http2(Http2Link),
}

impl HttpLink {
    /// Nothing has been asked on it: others may.
    pub fn put_back(self) {
        match self {
            Self::Http1(link) => link.keep(),
            Self::Http2(shared) => drop(shared),
        }
    }
}

/// A connection on which one exchange goes on at a time. Dropped, it is closed. Over TLS, an end without close_notify is read
/// as the error [`io::ErrorKind::UnexpectedEof`].
pub struct Http1Link {
    stream: Stream,
    address: SocketAddr,
    route: Route,
    /// The client connection that it serves alone.
    private: Option<Arc<PrivateConnections>>,
}

impl Http1Link {
    /// Whether it serves one client connection alone.
    pub fn is_private(&self) -> bool {
        self.private.is_some()
    }

    /// For the next request: after a whole exchange only, when nothing is left to be read.
    pub fn keep(self) {
        let Http1Link { stream, address, route, private } = self;
        let idle =
            Idle { stream, address, since: Instant::now(), private: private.as_ref().map(|private| private.id()) };
        route.0.by.dialler.pool.put(&route.0.endpoint, idle, route.0.by.limits());
        // Once it is there: what is noted and is not there is forgotten.
        if let Some(private) = &private {
            private.note(&route.0.endpoint);
        }
    }

    /// The same. `private`: for requests of this client connection alone, from now on.
    pub fn keep_private(mut self, private: Option<&Arc<PrivateConnections>>) {
        self.private = private.cloned().or(self.private);
        self.keep();
    }

    /// For another protocol.
    pub fn into_stream(self) -> Stream {
        self.stream
    }
}

impl Route {
    /// A connection for one request.
    ///
    /// # Errors
    /// No address can be reached, or what is spoken there is not what is wanted.
    pub async fn connect(&self, want: Want) -> Result<OriginConnection, DialError> {
        self.connect_for(want, None).await
    }

    /// The same for a request of a client connection, which may have connections that serve it alone: these come first.
    ///
    /// # Errors
    /// No address can be reached, or what is spoken there is not what is wanted.
    pub async fn connect_for(
        &self,
        mut want: Want,
        private: Option<&Arc<PrivateConnections>>,
    ) -> Result<OriginConnection, DialError> {
        want.versions = self.versions(want.versions);
        // Where its turn is.
        want.first = self.place(want.first).or(want.first);
        if !want.fresh
            && let Some(private) = private.filter(|private| private.may_be_at(&self.0.endpoint))
            && let Some(kept) = self.kept_http1(want, Some(private)).await
        {
            return Ok(kept);
        }
        if !want.fresh
            && let Some(kept) = self.kept(want).await
        {
            return Ok(kept);
        }
        // So that what most requests need not do takes no room in them.
        Box::pin(self.open_for(want)).await
    }

    /// HTTP/1.1 before HTTP/2, unless the version is known without TLS: then the origin may have no other.
    pub fn http1_first(&self, versions: Versions) -> Versions {
        match versions {
            Versions::Http2First | Versions::Http2Known if is_tls(&self.0.authority) => Versions::Http1First,
            versions => versions,
        }
    }

    /// Those that a request may go over, as far as it is known what the origin makes of them.
    fn versions(&self, wanted: Versions) -> Versions {
        if self.0.endpoint.http2.is_broken_off.load(Relaxed) { self.http1_first(wanted) } else { wanted }
    }

    /// Whether HTTP/2 is to be spoken, as far as it is known what the origin speaks.
    fn may_be_http2(&self, versions: Versions) -> bool {
        let shared = &self.0.endpoint.http2;
        let may_be = match versions {
            Versions::Http2Known if self.is_known_http2(versions) => return true,
            Versions::Http2First | Versions::Http2Known => !shared.is_http1.load(Relaxed),
            Versions::Http1First => shared.is_only.load(Relaxed),
            Versions::Http1Only => false,
        };
        may_be && is_tls(&self.0.authority)
    }

    /// Whether HTTP/2 is worth a try with an origin that has ended a new connection without a word: some that speak nothing else
    /// say so in no other way. From then on it is offered, until it is seen not to be chosen.
    pub fn may_be_only_http2(&self, versions: Versions) -> bool {
        let shared = &self.0.endpoint.http2;
        self.versions(versions) == Versions::Http1First
            && is_tls(&self.0.authority)
            && shared.chose_none.load(Relaxed)
            && !shared.is_http1.load(Relaxed)
            && !shared.is_only.swap(true, Relaxed)
    }

    pub(super) fn is_known_http2(&self, versions: Versions) -> bool {
        versions == Versions::Http2Known && !is_tls(&self.0.authority) && self.asks().is_none()
    }

    /// One that is there; where the pace is kept by addresses, at that which is wanted.
    async fn kept(&self, want: Want) -> Option<OriginConnection> {
        if !self.may_be_http2(want.versions) {
            return self.kept_http1(want, None).await;
        }
        let place = self.place(want.first);
        loop {
            match self.0.endpoint.http2.take(place, want.uploads) {
                FoundConnection::Link(link, address) => {
                    return Some(OriginConnection { reused: true, address, link: HttpLink::Http2(link) });
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
        if want.fresh {
            return self.open_now(want, true).await;
        }
        // Where it may be HTTP/2, one opens a connection, and the others see what has become of it.
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
        let opened = self.open_now(want, true).await;
        *opening = opened.as_ref().err().map(|error| (Instant::now(), error.clone()));
        opened
    }

    async fn open_now(&self, want: Want, may_be_http2: bool) -> Result<OriginConnection, DialError> {
        let way = &*self.0;
        let limits = way.by.limits();
        let (stream, address) = way.dial(is_tls(&way.authority), may_be_http2, want.first).await?;
        let chosen = stream.chose_http2();
        let is_http2 = chosen == Some(true) || self.is_known_http2(want.versions);
        way.endpoint.http2.chose_none.store(chosen.is_none(), Relaxed);
        if may_be_http2 {
            way.endpoint.http2.is_http1.store(!is_http2, Relaxed);
            way.endpoint.http2.is_only.fetch_and(is_http2, Relaxed);
        }
        let link = match is_http2 {
            true => {
                way.by.dialler.pool.opened_http2(&way.endpoint, limits);
                let opening = http2::Http2Connection::open(stream, address, &way.endpoint, limits, want.uploads);
                let link = opening.await?;
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

impl AsyncRead for Http1Link {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Http1Link {
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
