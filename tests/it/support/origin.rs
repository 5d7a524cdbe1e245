//! A raw origin server on a free port: plain or TLS, HTTP/1 or h2, answering from a closure.

use super::authority::{TestCa, test_ca};
use super::origin_log::{Log, Protocol, Seen};
use super::reply::Reply;
use super::stamped::{Arrival, Stamped, stamp};
use super::{origin_h1, origin_h2, strict};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub type Handler = Arc<dyn Fn(&Seen) -> Reply + Send + Sync>;

/// The names in the origins' certificates.
pub const NAMES: [&str; 6] = ["localhost", "a.localhost", "b.localhost", "c.localhost", "127.0.0.1", "::1"];

/// The protocols that the TLS origin offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alpn {
    /// Answers without an ALPN extension.
    None,
    H1,
    H2,
    Both,
}

/// A running origin; dropping it ends it.
pub struct Origin {
    address: SocketAddr,
    pub log: Log,
    connections: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    scheme: &'static str,
    accepting: JoinHandle<()>,
}

/// The TLS handshake of an origin.
#[derive(Clone)]
struct Tls {
    acceptor: tokio_rustls::TlsAcceptor,
    pause: Duration,
}

impl From<tokio_rustls::TlsAcceptor> for Tls {
    fn from(acceptor: tokio_rustls::TlsAcceptor) -> Self {
        Self { acceptor, pause: Duration::ZERO }
    }
}

/// Shared by all connections of an origin.
#[derive(Clone)]
pub(super) struct Site {
    pub handler: Handler,
    pub log: Log,
}

/// Shared by all requests of one connection.
#[derive(Clone)]
pub(super) struct Wire {
    pub connection: usize,
    pub sni: Option<String>,
    pub arrival: Arrival,
}

impl Origin {
    /// A plain origin on 127.0.0.1.
    pub async fn http(handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::start("127.0.0.1:0", None, Arc::new(handler)).await.expect("a free loopback port")
    }

    /// A plain origin on another address, if the machine has it.
    pub async fn try_http_on(
        address: &str,
        handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        Self::start(address, None, Arc::new(handler)).await
    }

    /// A TLS origin whose certificate (for [`NAMES`]) is the test authority's.
    pub async fn https(alpn: Alpn, handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::https_as(test_ca(), &NAMES, alpn, handler).await
    }

    /// A TLS origin with a certificate from `ca` for `names`.
    pub async fn https_as(
        ca: &TestCa,
        names: &[&str],
        alpn: Alpn,
        handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let protocols: &[&[u8]] = match alpn {
            Alpn::None => &[],
            Alpn::H1 => &[b"http/1.1"],
            Alpn::H2 => &[b"h2"],
            Alpn::Both => &[b"h2", b"http/1.1"],
        };
        let acceptor = tokio_rustls::TlsAcceptor::from(ca.server_config(names, protocols));
        Self::start("127.0.0.1:0", Some(acceptor.into()), Arc::new(handler)).await.expect("a free loopback port")
    }

    /// A TLS origin with this acceptor.
    pub async fn https_with(
        config: Arc<rustls::ServerConfig>,
        handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let acceptor = tokio_rustls::TlsAcceptor::from(config);
        Self::start("127.0.0.1:0", Some(acceptor.into()), Arc::new(handler)).await.expect("a free loopback port")
    }

    /// A TLS origin with an expired certificate.
    pub async fn https_expired(handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let config = test_ca().server_config_until(2020, &NAMES, &[b"http/1.1"]);
        let acceptor = tokio_rustls::TlsAcceptor::from(config);
        Self::start("127.0.0.1:0", Some(acceptor.into()), Arc::new(handler)).await.expect("a free loopback port")
    }

    /// A TLS origin that delays each handshake by `pause`, like a distant one.
    pub async fn https_after(pause: Duration, handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let acceptor = tokio_rustls::TlsAcceptor::from(test_ca().server_config(&NAMES, &[b"http/1.1"]));
        let tls = Some(Tls { acceptor, pause });
        Self::start("127.0.0.1:0", tls, Arc::new(handler)).await.expect("a free loopback port")
    }

    /// A site whose pages show their target, with this robots.txt.
    pub async fn site(robots: &str) -> Self {
        Self::http(pages(robots)).await
    }

    /// A site with this robots.txt. Its first connection for pages is reset at `/page2`, as a reused connection may be at any time.
    pub async fn resetting(robots: &str) -> Self {
        let robots = robots.to_owned();
        Self::http(move |seen| match seen.path().as_str() {
            "/robots.txt" => Reply::text(&robots).then_close(),
            "/page2" if seen.connection == 1 => Reply::reset(),
            _ => Reply::text("page"),
        })
        .await
    }

    /// Like [`site`](Self::site), over TLS.
    pub async fn tls_site(alpn: Alpn, robots: &str) -> Self {
        Self::https(alpn, pages(robots)).await
    }

    async fn start(address: &str, tls: Option<Tls>, handler: Handler) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        stamp(&listener);
        let address = listener.local_addr().expect("a bound socket has an address");
        let scheme = if tls.is_some() { "https" } else { "http" };
        let connections = Arc::new(AtomicUsize::new(0));
        let log = Log::default();
        let site = Site { handler, log: log.clone() };
        let counter = connections.clone();
        let open = Arc::new(AtomicUsize::new(0));
        let now_open = open.clone();
        let accepting = tokio::spawn(async move {
            // Dropping the origin drops the set, and thereby its connections.
            let mut tasks = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                while tasks.try_join_next().is_some() {}
                let connection = counter.fetch_add(1, Ordering::Relaxed);
                let (tls, site, open) = (tls.clone(), site.clone(), Open::new(&now_open));
                tasks.spawn(async move {
                    let _open = open;
                    serve(stream, tls, site, connection).await;
                });
            }
        });
        Ok(Self { address, log, connections, open, scheme, accepting })
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections accepted so far, including those with a failed handshake.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Connections that are open now.
    pub fn open_connections(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// `a.localhost:PORT`.
    pub fn authority(&self, host: &str) -> String {
        format!("{host}:{}", self.port())
    }

    /// The URL of `target` under the name `a.localhost`.
    pub fn url(&self, target: &str) -> String {
        self.url_at("a.localhost", target)
    }

    pub fn url_at(&self, host: &str, target: &str) -> String {
        format!("{}://{host}:{}{target}", self.scheme, self.port())
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Counts the living instances.
struct Open(Arc<AtomicUsize>);

impl Open {
    fn new(counter: &Arc<AtomicUsize>) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(counter.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Answers robots.txt with `robots` and every other target with `page TARGET`.
pub fn pages(robots: &str) -> impl Fn(&Seen) -> Reply + Send + Sync + 'static {
    let robots = robots.to_owned();
    move |seen| match seen.target.as_slice() {
        b"/robots.txt" => Reply::text(&robots),
        target => Reply::text([b"page ", target].concat()),
    }
}

async fn serve(stream: TcpStream, tls: Option<Tls>, site: Site, connection: usize) {
    stream.set_nodelay(true).ok();
    let stream = Stamped::new(stream);
    let arrival = stream.arrival();
    let Some(tls) = tls else {
        return origin_h1::serve(stream, site, Wire { connection, sni: None, arrival }).await;
    };
    tokio::time::sleep(tls.pause).await;
    let Ok(stream) = tls.acceptor.accept(stream).await else {
        return;
    };
    let session = stream.get_ref().1;
    let wire = Wire { connection, sni: session.server_name().map(ToOwned::to_owned), arrival };
    if session.alpn_protocol() == Some(b"h2") {
        origin_h2::serve(stream, site, wire).await;
    } else {
        origin_h1::serve(stream, site, wire).await;
    }
}

impl Site {
    /// The test's answer, if the request passes a strict server's checks.
    pub(super) fn reply(&self, seen: &mut Seen) -> Reply {
        seen.refused = strict::fault(seen);
        match seen.refused {
            None => (self.handler)(seen),
            Some(fault) => Reply::refusal(fault),
        }
    }
}

impl Wire {
    /// A request that has just arrived on this connection.
    pub(super) fn request(&self, protocol: Protocol) -> Seen {
        Seen {
            method: String::new(),
            target: Vec::new(),
            host: String::new(),
            fields: Vec::new(),
            head: Vec::new(),
            body: Default::default(),
            at: self.arrival.at(),
            connection: self.connection,
            protocol,
            sni: self.sni.clone(),
            refused: None,
            cut: false,
        }
    }
}
