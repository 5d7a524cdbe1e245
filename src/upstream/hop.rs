//! Connections that pingora does not make: to an upstream proxy, through it, and TLS with settings of the
//! host's own.

use super::dial_error::{DialError, DialFault};
use super::race::{FailedAddresses, race};
use super::stream::Stream;
use super::upstream_proxy::UpstreamProxy;
use crate::policy::{Authority, Host, Scheme};
use pingora_core::protocols::TcpKeepalive;
use pingora_core::protocols::l4::ext::set_tcp_keepalive;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How to get from an address to where a request can be sent.
#[derive(Clone)]
pub(super) struct Hop {
    pub authority: Authority,
    pub upstream_proxy: Option<Through>,
    /// TLS with the origin is ours to make.
    pub tls: Option<Arc<ClientConfig>>,
    /// For everything that is done here.
    pub limit: Duration,
}

/// By way of an upstream proxy.
#[derive(Clone)]
pub(super) struct Through {
    pub upstream_proxy: Arc<UpstreamProxy>,
    /// How TLS is spoken with the proxy itself, if it is.
    pub tls: Arc<ClientConfig>,
    /// Ask for a way through with CONNECT; else requests go to the proxy as they are.
    pub connect: bool,
    pub via: Arc<str>,
}

impl Hop {
    pub fn too_slow(&self) -> DialError {
        let where_to = match &self.upstream_proxy {
            Some(through) => through.upstream_proxy.to_string(),
            None => self.authority.to_string(),
        };
        let detail = format!("no connection by way of {where_to} within {:?}", self.limit);
        DialError::new(DialFault::TimedOut, detail)
    }

    /// By the first of the addresses that can be reached, which is noted in `reached`. The caller keeps to the limit.
    pub async fn dial(
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
        let (tcp, address) =
            race(addresses, failed, |address| async move { tcp(address).await.map_err(during) }).await?;
        let _ = reached.set(address);
        let mut stream = Stream::Tcp(tcp);
        if let Some(Through { upstream_proxy, tls, connect, via }) = &self.upstream_proxy {
            if is_tls(&upstream_proxy.at) {
                stream = encrypt(stream, tls, upstream_proxy.at.host()).await.map_err(during)?;
            }
            if *connect {
                let ahead = upstream_proxy.connect(&mut stream, &self.authority, via).await?;
                stream = stream.ahead(ahead);
            }
        }
        if let Some(tls) = &self.tls {
            let failed = |error: io::Error| DialError::from_io(&error, &format!("TLS with {}", self.authority));
            stream = encrypt(stream, tls, self.authority.host()).await.map_err(failed)?;
        }
        Ok(stream)
    }
}

async fn tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let tcp = TcpStream::connect(address).await?;
    tcp.set_nodelay(true)?;
    set_tcp_keepalive(&tcp, &KEEPALIVE).map_err(io::Error::other)?;
    Ok(tcp)
}

/// Whether TLS is spoken with an origin of this scheme.
pub(super) fn is_tls(authority: &Authority) -> bool {
    authority.scheme() == Scheme::Https
}

async fn encrypt(stream: Stream, tls: &Arc<ClientConfig>, host: &Host) -> io::Result<Stream> {
    let name = match host {
        Host::Ip(address) => ServerName::IpAddress((*address).into()),
        Host::Name(name) => ServerName::try_from(name.to_string()).map_err(io::Error::other)?,
    };
    Ok(Stream::Tls(Box::new(TlsConnector::from(tls.clone()).connect(name, stream).await?)))
}

/// Detects a peer that has gone.
const KEEPALIVE: TcpKeepalive = TcpKeepalive {
    idle: Duration::from_secs(60),
    interval: Duration::from_secs(10),
    count: 3,
    #[cfg(target_os = "linux")]
    user_timeout: Duration::ZERO,
};
