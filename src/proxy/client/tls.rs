//! TLS with clients: with the proxy itself (`listen.tls`), and inside a CONNECT.

use super::super::Proxy;
use super::super::io::{Buffer, Timer};
use super::super::limits::total::ConnectionPermit;
use super::Peer;
use super::connection::Connection;
use super::wire::{LINGER_BYTES, LINGER_TIME, Wire};
use crate::tls::{ClientCertificate, Distrust};
use crate::tls_words;
use rustls::ServerConfig;
use rustls::server::Acceptor;
use std::io;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::{LazyConfigAcceptor, StartHandshake};

/// The TLS settings of one listener.
pub struct Tls {
    pub config: Arc<ServerConfig>,
    /// Whether clients must present a certificate.
    pub identifies: bool,
}

/// Performs the TLS handshake and returns the decrypted connection. `None`: the handshake failed, or the proxy stops.
pub(super) async fn decrypted(
    proxy: &Proxy,
    mut tcp: TcpStream,
    peer: Peer,
    permit: ConnectionPermit,
    tls: &Tls,
) -> Option<Box<Connection>> {
    let (address, here) = (peer.address, tcp.local_addr().ok()?.to_string());
    let limit = proxy.settings.load().limits.header_timeout;
    let mut first = [0];
    tokio::select! {
        peeked = timeout(limit, tcp.peek(&mut first)) => drop(peeked.ok()?.ok()?),
        () = proxy.stopped_after_grace() => return None,
    }
    if first[0].is_ascii_alphabetic() {
        tracing::info!(client = %address, "plain HTTP on a TLS listener: write https:// in the client's proxy URL");
        timeout(limit, tcp.write_all(NOT_TLS)).await.ok()?.ok()?;
        Wire::Tcp(tcp).lingering_close(&mut Timer::new(), LINGER_TIME, LINGER_BYTES).await;
        return None;
    }
    let outside = Connection::new(Wire::Tcp(tcp), Buffer::new(), peer, Timer::new(), permit, None);
    let choose = async |_: &mut StartHandshake<Wire>, _: &ConnectionPermit| Ok((tls.config.clone(), ()));
    let log = |how| match how {
        // A close without an alert does not count: the client may not even have seen the certificate.
        Distrust::Closed => {}
        how => proxy.log_distrust(address, &here, None, how),
    };
    let failed = |error: &io::Error| match certificate_fault(error).filter(|_| tls.identifies) {
        Some(why) => tracing::info!(client = %address, "a client's certificate was refused (`client_ca`): {why}"),
        None => tracing::debug!(client = %address, %error, "the TLS handshake with a client failed"),
    };
    let (mut inside, ()) = accept(proxy, outside, choose, log).await.inspect_err(failed).ok()?;
    if let Wire::Tls(wire) = &inside.wire {
        let shown = wire.get_ref().1.peer_certificates().and_then(<[_]>::first);
        inside.peer.certificate = shown.map(|der| Arc::new(ClientCertificate::new(der.clone())));
    }
    Some(inside)
}

/// Performs the TLS handshake, and counts it. `choose`: returns the settings for this ClientHello, and a value to pass on to
/// the caller. `log`: called if the client rejects the certificate.
pub(super) async fn accept<T>(
    proxy: &Proxy,
    outside: Box<Connection>,
    choose: impl AsyncFnOnce(&mut StartHandshake<Wire>, &ConnectionPermit) -> io::Result<(Arc<ServerConfig>, T)>,
    log: impl Fn(Distrust),
) -> io::Result<(Box<Connection>, T)> {
    let Connection { wire, input, peer, mut timer, permit, place, .. } = *outside;
    permit.waits(Instant::now());
    let handshake = Box::pin(async {
        let mut acceptor = LazyConfigAcceptor::new(Acceptor::default(), wire.prefixed(input));
        let mut hello = (&mut acceptor).await.map_err(|error| (error, acceptor.take_io()))?;
        let (config, said) = match choose(&mut hello, &permit).await {
            Ok(chosen) => chosen,
            Err(error) => return Err((error, Some(hello.io))),
        };
        let finished = hello.into_stream(config).into_fallible().await;
        finished.map(|tls| (tls, said)).map_err(|(error, io)| {
            Distrust::of(&error).into_iter().for_each(&log);
            (error, Some(io))
        })
    });
    let at = Instant::now() + proxy.settings.load().limits.header_timeout;
    let finished = tokio::select! {
        finished = timer.limit(at, handshake) => finished,
        () = proxy.stopped_after_grace() => None,
    };
    proxy.counters.handshake(matches!(finished, Some(Ok(_))));
    match finished.unwrap_or_else(|| Err((io::ErrorKind::TimedOut.into(), None))) {
        Ok((tls, said)) => {
            let wire = Wire::Tls(Box::new(tls));
            Ok((Connection::new(wire, Buffer::new(), peer, timer, permit, place), said))
        }
        Err((error, io)) => {
            if let Some(mut io) = io {
                io.lingering_close(&mut timer, LINGER_TIME, LINGER_BYTES).await;
            }
            Err(error)
        }
    }
}

/// The fault of the client's certificate that made the handshake fail. `None`: the handshake failed for another reason.
fn certificate_fault(error: &io::Error) -> Option<String> {
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::NoCertificatesPresented => Some("the client sent no certificate".into()),
        error @ rustls::Error::InvalidCertificate(_) => Some(tls_words::in_plain(error)),
        _ => None,
    }
}

const NOT_TLS: &[u8] =
    b"HTTP/1.1 400 TLS Wanted\r\nContent-Type: text/plain\r\nContent-Length: 77\r\nConnection: close\r\n\r\n\
    this proxy speaks TLS on this port: write https:// in the client's proxy URL\n";
