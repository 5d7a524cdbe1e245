//! Opens connections to which requests can be written: TCP, by pingora; then the upstream proxy, if there is one; then TLS for
//! exactly the requested name.

use super::dial_error::{DialError, DialFault};
use super::race::race;
use super::route::{Route, RouteInner};
use super::stream::Stream;
use super::wide::ThreadWait;
use crate::fair_places::Taker;
use crate::policy::Host;
use crate::policy::pace::ClientId;
use http::Version;
use pingora_core::protocols::TcpKeepalive;
use pingora_core::protocols::l4::ext;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::error::Error;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

/// How to connect for a route.
struct Hop<'a> {
    way: &'a RouteInner,
    /// Through an upstream proxy, whether to open a tunnel with CONNECT; otherwise requests are sent to the proxy itself.
    connect: bool,
    /// The lines of Via in the client's CONNECT.
    via: Option<&'a str>,
    /// For TLS with the origin: the taker of a place on OpenSSL's threads, and whether to offer HTTP/2. rustls is tried first,
    /// unless OpenSSL is known to be needed.
    tls: Option<(Taker, bool)>,
}

/// Progress of dialling, for the error message if it times out.
#[derive(Default)]
struct DialProgress {
    /// The address that TCP has connected to.
    reached: OnceLock<SocketAddr>,
    wait: ThreadWait,
}

impl Route {
    /// Opens a connection without adding TLS, for a tunnel. `via`: the lines of Via in the client's CONNECT. `first`: the address to try
    /// before the others.
    pub async fn tunnel(
        &self,
        via: Option<&str>,
        first: Option<SocketAddr>,
    ) -> Result<(Stream, SocketAddr), DialError> {
        Hop { way: &self.0, connect: true, via, tls: None }.open(first).await
    }

    /// Opens a connection to which a request can be written, TLS included. `connect`: as in [`Hop`].
    pub(super) async fn dial(
        &self,
        connect: bool,
        http2: bool,
        first: Option<SocketAddr>,
    ) -> Result<(Stream, SocketAddr), DialError> {
        let Self(way, client) = self;
        let taker = Taker::new(client.unwrap_or(ClientId::GUESTS), &way.authority);
        let tls = way.authority.is_https().then_some((taker, http2));
        Hop { way, connect, via: None, tls }.open(first).await
    }
}

impl Hop<'_> {
    /// Opens a connection. If this machine is at its limits, closes idle connections and retries once. `first`: the address to try
    /// before the others.
    async fn open(&self, first: Option<SocketAddr>) -> Result<(Stream, SocketAddr), DialError> {
        let dialler = &self.way.by.dialler;
        let deadline = Instant::now() + self.limit();
        let opened = match self.by_any_address(first, deadline).await {
            Err(error) if error.kind == DialFault::OwnLimit => {
                dialler.close_idle();
                yield_now().await;
                self.by_any_address(first, deadline).await
            }
            opened => opened,
        };
        dialler.count(self.tls.is_some(), opened.as_ref().err());
        opened
    }

    async fn by_any_address(
        &self,
        first: Option<SocketAddr>,
        deadline: Instant,
    ) -> Result<(Stream, SocketAddr), DialError> {
        let failed = &self.way.by.dialler.failed;
        let mut addresses = failed.order(&self.way.addresses, first);
        let mut failure = None;
        loop {
            let progress = DialProgress::default();
            let opened = timeout_at(deadline, self.dial(&addresses, &progress)).await;
            let error = match opened.unwrap_or_else(|_| Err(self.too_slow(&progress))) {
                Ok(stream) => return Ok((stream, progress.reached.get().copied().unwrap_or(addresses[0]))),
                Err(error) => error,
            };
            // A failure after TCP connected is specific to this address: another address may work.
            let Some(&address) = progress.reached.get().filter(|_| may_differ(error.kind)) else {
                return Err(failure.unwrap_or(error));
            };
            failed.note(address);
            addresses.retain(|&it| it != address);
            // The first failure is the preferred address's, which is the most informative.
            let error = failure.unwrap_or(error);
            if addresses.is_empty() || deadline <= Instant::now() {
                return Err(error);
            }
            failure = Some(error);
        }
    }

    /// Time limit for all steps together.
    fn limit(&self) -> Duration {
        self.way.by.limits().connect_timeout
    }

    fn too_slow(&self, progress: &DialProgress) -> DialError {
        if progress.wait.is_long() {
            return DialError::new(DialFault::Busy, "this proxy's threads for TLS handshakes by OpenSSL are busy");
        }
        let detail = format!("{} timed out after {:?}", self.doing(), self.limit());
        DialError::new(DialFault::TimedOut, detail)
    }

    /// The attempted action, for errors.
    fn doing(&self) -> String {
        match &self.way.by.upstream_proxy {
            Some(upstream_proxy) => format!("connecting to {upstream_proxy}"),
            None => format!("connecting to {}", self.way.authority),
        }
    }

    /// Connects to the first reachable address, and stores it in `progress`. If the origin rejects the parameters of rustls, retries
    /// once with OpenSSL at the same address. The caller enforces the limit.
    async fn dial(&self, addresses: &[SocketAddr], progress: &DialProgress) -> Result<Stream, DialError> {
        let DialProgress { reached, wait } = progress;
        let stream = self.reach(addresses, reached).await?;
        let Some((taker, http2)) = self.tls else { return Ok(stream) };
        let (terms, known) = (&self.way.tls, &self.way.endpoint.tls);
        let host = self.way.authority.host();
        if terms.wide.legacy || known.needs_wide() {
            let opened = terms.wide.connect(stream, host, http2, taker, wait).await;
            if opened.as_ref().is_err_and(|error| error.kind.is_of_tls()) {
                known.forget();
            }
            return opened;
        }
        let usual = if http2 { &terms.either } else { &terms.http1 };
        let usual = async || encrypt(stream, usual, server_name(host)?).await;
        let error = match usual().await {
            Ok(stream) => return Ok(stream),
            Err(error) => DialError::of_handshake(&error),
        };
        let (true, Some(&address)) = (error.is_for_wider, reached.get()) else { return Err(error) };
        if let Some(wider) = known.refusal(address) {
            return Err(wider);
        }
        let Ok(stream) = self.reach(&[address], reached).await else { return Err(error) };
        match terms.wide.connect(stream, host, http2, taker, wait).await {
            Ok(stream) => {
                known.note_wide();
                Ok(stream)
            }
            Err(wider) if wider.kind.is_ours() => Err(wider),
            // OpenSSL's messages about TLS are better. Any other failure is accidental, so the error of rustls is returned.
            Err(wider) if wider.kind.is_of_tls() => {
                known.note_refusal(address, wider.clone());
                Err(wider)
            }
            Err(_) => Err(error),
        }
    }

    /// Connects up to the point where TLS with the origin begins.
    async fn reach(&self, addresses: &[SocketAddr], reached: &OnceLock<SocketAddr>) -> Result<Stream, DialError> {
        let way = self.way;
        let doing = self.doing();
        let during = |error: io::Error| DialError::from_io(&error, &doing);
        let of_tcp = |address, error: io::Error| match error.kind() {
            io::ErrorKind::AddrNotAvailable if is_routable(address) => {
                DialError::new(DialFault::OwnLimit, format!("{doing}: no local port is left"))
            }
            _ => during(error),
        };
        let dial = |address| async move { tcp(address).await.map_err(|error| of_tcp(address, error)) };
        let (tcp, address) = race(addresses, &way.by.dialler.failed, dial).await?;
        let _ = reached.set(address);
        let mut stream = Stream::Tcp(tcp);
        if let Some(upstream_proxy) = &way.by.upstream_proxy {
            if upstream_proxy.at.is_https() {
                let name = server_name(upstream_proxy.at.host()).map_err(during)?;
                stream = encrypt(stream, &way.by.trust.plain.http1, name).await.map_err(during)?;
            }
            if self.connect {
                let own = way.via.line(Version::HTTP_11);
                let via = self.via.map_or(own.to_owned(), |before| format!("{before}, {own}"));
                let ahead = upstream_proxy.connect(&mut stream, &way.authority, &via).await?;
                stream = stream.ahead(ahead);
            }
        }
        Ok(stream)
    }
}

/// Whether another address may succeed.
fn may_differ(kind: DialFault) -> bool {
    match kind {
        DialFault::Refused
        | DialFault::Unroutable
        | DialFault::TimedOut
        | DialFault::Ended
        | DialFault::Tls
        | DialFault::Malformed
        | DialFault::Declined => true,
        DialFault::Certificate
        | DialFault::Alert
        | DialFault::Alpn
        | DialFault::Credentials
        | DialFault::Loop
        | DialFault::Busy
        | DialFault::OwnLimit => false,
    }
}

async fn tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let tcp = ext::connect(&address, None).await.map_err(|error| of_system(&error))?;
    tcp.set_nodelay(true)?;
    ext::set_tcp_keepalive(&tcp, &KEEPALIVE).map_err(|error| of_system(&error))?;
    Ok(tcp)
}

/// Whether this machine has an address to connect from. If it has, but no address is available, its local ports are used up.
fn is_routable(address: SocketAddr) -> bool {
    let any = if address.is_ipv4() { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    // UDP has ports of its own, and nothing is sent.
    UdpSocket::bind((any, 0)).and_then(|socket| socket.connect(address)).is_ok()
}

/// The system's error inside pingora's, which has no `source`.
fn of_system(error: &pingora_core::Error) -> io::Error {
    let mut at: Option<&(dyn Error + 'static)> = Some(error.root_cause());
    while let Some(error) = at {
        if let Some(found) = error.downcast_ref::<io::Error>() {
            return found.raw_os_error().map_or_else(|| found.kind().into(), io::Error::from_raw_os_error);
        }
        at = error.source();
    }
    io::Error::other(error.to_string())
}

/// The name for SNI and certificate verification: always exactly the requested name.
fn server_name(host: &Host) -> io::Result<ServerName<'static>> {
    match host {
        Host::Ip(address) => Ok(ServerName::IpAddress((*address).into())),
        Host::Name(name) => ServerName::try_from(name.to_string()).map_err(io::Error::other),
    }
}

async fn encrypt(stream: Stream, tls: &Arc<ClientConfig>, name: ServerName<'static>) -> io::Result<Stream> {
    Ok(Stream::Tls(Box::new(TlsConnector::from(tls.clone()).connect(name, stream).await?)))
}

/// TCP keepalive, which detects a vanished peer.
const KEEPALIVE: TcpKeepalive = TcpKeepalive {
    idle: Duration::from_secs(60),
    interval: Duration::from_secs(10),
    count: 3,
    user_timeout: Duration::ZERO,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn refused_connection_is_reported_as_the_systems_error() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        assert!(tcp(address).await.is_ok());
        drop(listener);
        assert_eq!(tcp(address).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
