//! Connects to where a request can be sent: TCP, opened by pingora, the upstream proxy if there is one, and TLS for exactly the
//! requested name.

use super::dial_error::{DialError, DialFault};
use super::endpoint::Endpoint;
use super::race::{FailedAddresses, race};
use super::stream::Stream;
use super::upstream_proxy::UpstreamProxy;
use super::wide::{ThreadWait, WideTls};
use crate::fair_places::Taker;
use crate::policy::{Authority, Host, Scheme};
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
use tokio_rustls::TlsConnector;

/// How to connect to where a request can be sent.
#[derive(Clone)]
pub(super) struct Hop {
    pub authority: Authority,
    pub upstream_proxy: Option<Through>,
    /// TLS with the origin.
    pub tls: Option<HopTls>,
    /// Time limit for all steps together.
    pub limit: Duration,
}

/// TLS with the origin: rustls first, unless OpenSSL is known to be needed.
#[derive(Clone)]
pub(super) struct HopTls {
    pub usual: Arc<ClientConfig>,
    pub wide: Arc<WideTls>,
    /// For whom OpenSSL's threads are used.
    pub taker: Taker,
    /// Whether to offer HTTP/2.
    pub http2: bool,
    /// The endpoint that remembers which kind of TLS works.
    pub endpoint: Arc<Endpoint>,
}

/// The upstream proxy.
#[derive(Clone)]
pub(super) struct Through {
    pub upstream_proxy: Arc<UpstreamProxy>,
    /// TLS settings for the proxy itself, if it uses TLS.
    pub tls: Arc<ClientConfig>,
    /// Whether to open a tunnel with CONNECT; otherwise requests are sent to the proxy itself.
    pub connect: bool,
    pub via: Arc<str>,
}

/// How far dialling has come, for when it times out.
#[derive(Default)]
pub(super) struct DialProgress {
    /// The address that TCP has connected to.
    pub reached: OnceLock<SocketAddr>,
    pub wait: ThreadWait,
}

impl Hop {
    pub fn too_slow(&self, progress: &DialProgress) -> DialError {
        if progress.wait.is_long() {
            return DialError::new(DialFault::Busy, "this proxy's threads for old kinds of TLS are busy");
        }
        let where_to = match &self.upstream_proxy {
            Some(through) => through.upstream_proxy.to_string(),
            None => self.authority.to_string(),
        };
        let detail = format!("connecting to {where_to} timed out after {:?}", self.limit);
        DialError::new(DialFault::TimedOut, detail)
    }

    /// Connects to the first reachable address, and stores it in `progress`. If the origin rejects the parameters of rustls, retries
    /// once with OpenSSL at the same address. The caller enforces the limit.
    pub async fn dial(
        &self,
        addresses: &[SocketAddr],
        failed: &FailedAddresses,
        progress: &DialProgress,
    ) -> Result<Stream, DialError> {
        let DialProgress { reached, wait } = progress;
        let stream = self.reach(addresses, failed, reached).await?;
        let Some(tls) = &self.tls else { return Ok(stream) };
        let host = self.authority.host();
        let known = &tls.endpoint.tls;
        if tls.wide.legacy || known.needs_wide() {
            let opened = tls.wide.connect(stream, host, tls.http2, tls.taker, wait).await;
            if opened.as_ref().is_err_and(|error| error.kind.is_of_tls()) {
                known.forget();
            }
            return opened;
        }
        let usual = async || encrypt(stream, &tls.usual, server_name(host)?).await;
        let error = match usual().await {
            Ok(stream) => return Ok(stream),
            Err(error) => DialError::of_handshake(&error),
        };
        let (true, Some(&address)) = (error.is_for_wider, reached.get()) else { return Err(error) };
        if let Some(wider) = known.refusal(address) {
            return Err(wider);
        }
        let Ok(stream) = self.reach(&[address], failed, reached).await else { return Err(error) };
        match tls.wide.connect(stream, host, tls.http2, tls.taker, wait).await {
            Ok(stream) => {
                known.note_wide();
                Ok(stream)
            }
            Err(wider) if wider.kind.is_ours() => Err(wider),
            // OpenSSL's messages about TLS are better; any other failure is accidental.
            Err(wider) if wider.kind.is_of_tls() => {
                known.note_refusal(address, wider.clone());
                Err(wider)
            }
            Err(_) => Err(error),
        }
    }

    /// Connects up to the point where TLS with the origin begins.
    async fn reach(
        &self,
        addresses: &[SocketAddr],
        failed: &FailedAddresses,
        reached: &OnceLock<SocketAddr>,
    ) -> Result<Stream, DialError> {
        let doing = match &self.upstream_proxy {
            Some(through) => format!("connecting to {}", through.upstream_proxy),
            None => format!("connecting to {}", self.authority),
        };
        let during = |error: io::Error| DialError::from_io(&error, &doing);
        let of_tcp = |address, error: io::Error| match error.kind() {
            io::ErrorKind::AddrNotAvailable if is_routable(address) => {
                DialError::new(DialFault::OwnLimit, format!("{doing}: no local port is left"))
            }
            _ => during(error),
        };
        let dial = |address| async move { tcp(address).await.map_err(|error| of_tcp(address, error)) };
        let (tcp, address) = race(addresses, failed, dial).await?;
        let _ = reached.set(address);
        let mut stream = Stream::Tcp(tcp);
        if let Some(Through { upstream_proxy, tls, connect, via }) = &self.upstream_proxy {
            if is_tls(&upstream_proxy.at) {
                let name = server_name(upstream_proxy.at.host()).map_err(during)?;
                stream = encrypt(stream, tls, name).await.map_err(during)?;
            }
            if *connect {
                let ahead = upstream_proxy.connect(&mut stream, &self.authority, via).await?;
                stream = stream.ahead(ahead);
            }
        }
        Ok(stream)
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

/// Whether this scheme uses TLS with the origin.
pub(super) fn is_tls(authority: &Authority) -> bool {
    authority.scheme() == Scheme::Https
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

/// Detects a vanished peer.
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
    async fn what_the_system_says_of_a_connection_is_what_is_reported() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        assert!(tcp(address).await.is_ok());
        drop(listener);
        assert_eq!(tcp(address).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
