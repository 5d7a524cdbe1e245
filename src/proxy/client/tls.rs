//! TLS between clients and the proxy itself (`listen.tls`).

use super::super::Proxy;
use super::super::io::{Buffer, Timer};
use super::super::limits::total::ConnectionPermit;
use super::Peer;
use super::connection::Connection;
use super::wire::{LINGER_BYTES, LINGER_TIME, Wire};
use crate::tls::{ClientCertificate, Distrust};
use rustls::ServerConfig;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The TLS settings of one listener.
pub struct Tls {
    pub config: Arc<ServerConfig>,
    /// Whether clients must present a certificate.
    pub identifies: bool,
}

/// Performs the TLS handshake and returns the decrypted connection. `None`: the handshake failed, or the proxy stops.
pub(super) async fn decrypted(
    proxy: &Proxy,
    tcp: TcpStream,
    mut peer: Peer,
    permit: ConnectionPermit,
    tls: &Tls,
) -> Option<Box<Connection>> {
    let address = peer.address;
    let wire = tokio::select! {
        wire = decrypt(proxy, tcp, address, tls.config.clone()) => wire,
        () = proxy.stopped_after_grace() => return None,
    };
    let wire = match wire {
        Ok(wire) => wire,
        Err(error) if tls.identifies && is_about_certificate(&error) => {
            tracing::info!(client = %address, %error, "a client's certificate was refused (`client_ca`)");
            return None;
        }
        Err(error) => {
            tracing::debug!(client = %address, %error, "the TLS handshake with a client failed");
            return None;
        }
    };
    let shown = wire.get_ref().1.peer_certificates().and_then(<[_]>::first);
    peer.certificate = shown.map(|der| Arc::new(ClientCertificate::new(der.clone())));
    Some(Connection::new(Wire::Tls(wire), Buffer::new(), peer, Timer::new(), permit, None))
}

/// Whether the handshake failed because the client presented no certificate, or an invalid one.
fn is_about_certificate(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref());
    matches!(error, Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented))
}

async fn decrypt(
    proxy: &Proxy,
    tcp: TcpStream,
    address: SocketAddr,
    config: Arc<ServerConfig>,
) -> io::Result<Box<TlsStream<Wire>>> {
    let limit = proxy.settings.load().limits.header_timeout;
    let here = tcp.local_addr();
    let mut first = [0];
    let is_plain = timeout(limit, tcp.peek(&mut first)).await?? == 1 && first[0].is_ascii_alphabetic();
    let mut wire = Wire::Tcp(tcp);
    if is_plain {
        timeout(limit, wire.write_all(NOT_TLS)).await??;
        wire.lingering_close(&mut Timer::new(), LINGER_TIME, LINGER_BYTES).await;
        tracing::info!(client = %address, "plain HTTP on a TLS listener: write https:// in the client's proxy URL");
        return Err(io::ErrorKind::InvalidData.into());
    }
    let handshake = timeout(limit, TlsAcceptor::from(config).accept(wire).into_fallible()).await;
    proxy.counters.handshake(matches!(handshake, Ok(Ok(_))));
    match handshake? {
        Ok(tls) => Ok(Box::new(tls)),
        Err((error, mut io)) => {
            // A client that closes at once has not seen the certificate.
            if let Some(how) = Distrust::of(&error).filter(|how| *how != Distrust::Closed) {
                proxy.log_distrust(address, &here?.to_string(), None, how);
            }
            io.lingering_close(&mut Timer::new(), LINGER_TIME, LINGER_BYTES).await;
            Err(error)
        }
    }
}

const NOT_TLS: &[u8] =
    b"HTTP/1.1 400 TLS Wanted\r\nContent-Type: text/plain\r\nContent-Length: 75\r\nConnection: close\r\n\r\n\
    politely speaks TLS on this port: write https:// in the client's proxy URL\n";
