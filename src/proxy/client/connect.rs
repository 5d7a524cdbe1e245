//! CONNECT (RFC 9110 §9.3.6). A CONNECT to an intercepted host is granted even if requests to the host are refused: exchange/decide.rs
//! refuses those inside, with an answer that the client can read.

use super::super::Proxy;
use super::super::exchange::carry::{Client, Http1, Http1Client};
use super::super::exchange::request::Request;
use super::super::exchange::{Exchange, Outcome};
use super::super::io::{Buffer, Timer};
use super::super::limits::total::ConnectionPermit;
use super::connection::Connection;
use super::wire::{LINGER_TIME, NOT_HTTP, TLS_HANDSHAKE, Wire};
use super::{Tunnel, tls};
use crate::config::InterceptMode;
use crate::http1::Framing;
use crate::policy::{Authority, Host, Refusal, Scheme};
use crate::tls::{Distrust, UNRECOGNIZED_NAME};
use crate::upstream::OutgoingFields;
use http::Version;
use std::borrow::Cow;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;
use tokio_rustls::StartHandshake;

/// How a CONNECT ended.
pub enum ConnectResult {
    /// The CONNECT was refused, or the client did not receive the grant.
    NotGranted,
    TunnelEnded,
    /// The CONNECT was granted, and the proxy must serve the requests inside.
    Intercepted,
}

/// Handles a CONNECT over HTTP/1 or SOCKS. Reads no request after a refusal (RFC 9931 §8). `via`: the Via fields of the
/// CONNECT. `prefer_wait`: how long the CONNECT may wait for its slot.
pub async fn connect(
    proxy: &Arc<Proxy>,
    mut connection: Box<Connection>,
    authority: Authority,
    via: Option<String>,
    prefer_wait: Option<Duration>,
) {
    let agent = connection.last.agent();
    let Connection { wire, input, peer, timer, permit, .. } = &mut *connection;
    // This request is not forwarded: it serves the decision, the log and the answer.
    let request = Request {
        user_agent: agent.as_deref().map(str::as_bytes),
        prefer_wait,
        ..Request::new(Version::HTTP_11, "CONNECT", authority.clone(), Cow::Borrowed(b""), OutgoingFields::Own(&[]))
    };
    let mut client = Http1Client::new(Http1::new(wire, input), Framing::None);
    client.is_socks = peer.is_socks;
    client.persists = false;
    let exchange = Exchange::new(proxy, proxy.settings.load_full(), &request, peer, Instant::now());
    match grant(exchange, via.as_deref(), &mut client, timer, permit).await {
        ConnectResult::NotGranted if client.is_cut => {}
        ConnectResult::NotGranted => connection.linger(proxy).await,
        ConnectResult::TunnelEnded => {}
        ConnectResult::Intercepted => serve_intercepted(proxy, connection, authority, agent).await,
    }
}

/// Grants or refuses a CONNECT, and carries a tunnel until it ends. `via`: the Via fields of the CONNECT.
pub async fn grant<C: Client>(
    mut exchange: Exchange<'_>,
    via: Option<&str>,
    client: &mut C,
    timer: &mut Timer,
    permit: &ConnectionPermit,
) -> ConnectResult {
    let (proxy, authority) = (exchange.proxy, &exchange.request.authority);
    let is_looped = via.is_some_and(|via| proxy.upstream.via().is_in(via.as_bytes()));
    let policy = exchange.settings.hosts_of(exchange.peer.user.as_deref()).get(authority.host());
    let opened = match policy.intercept {
        _ if is_looped => Err(Outcome::Refused(Refusal::Loop)),
        InterceptMode::Deny => Err(Outcome::Refused(policy.https_denied())),
        // `egress` and `deny` are applied to the requests inside: clients show a refusal of a request, but not of a CONNECT.
        InterceptMode::Intercept => Ok(None),
        InterceptMode::Tunnel => match client.wait(timer, Box::pin(exchange.open_tunnel(via)).as_mut()).await {
            Some(opened) => opened.map(Some),
            None => Err(Outcome::ClientGone),
        },
    };
    match opened {
        Ok(None) => match exchange.intercepted(client, timer).await {
            true => ConnectResult::Intercepted,
            false => ConnectResult::NotGranted,
        },
        Ok(Some(origin)) => {
            permit.set_user(exchange.peer.user.as_ref().map(|user| user.name.as_ref()));
            exchange.tunnelled(origin, client, timer, permit).await;
            ConnectResult::TunnelEnded
        }
        Err(outcome) => {
            exchange.finish(outcome, client, timer).await;
            ConnectResult::NotGranted
        }
    }
}

/// Serves an intercepted connection. `agent`: the User-Agent of the CONNECT.
pub async fn serve_intercepted(
    proxy: &Arc<Proxy>,
    connection: Box<Connection>,
    authority: Authority,
    agent: Option<String>,
) {
    if let Err(error) = intercept(proxy, connection, authority, agent).await {
        tracing::debug!(%error, "an intercepted connection has ended");
    }
}

/// Serves TLS with our leaf certificate, or plain HTTP. Closes the connection if another protocol follows.
async fn intercept(
    proxy: &Arc<Proxy>,
    mut connection: Box<Connection>,
    authority: Authority,
    agent: Option<String>,
) -> io::Result<()> {
    let at = Instant::now() + proxy.settings.load().limits.header_timeout;
    match first_byte(proxy, &mut connection, at).await.transpose()? {
        Some(Some(TLS_HANDSHAKE)) => {
            let (address, host) = (connection.peer.address, authority.to_string());
            let log = |how| proxy.log_distrust(address, &host, agent.as_deref(), how);
            let mut inside = decrypt(proxy, connection, authority, log).await?;
            // Some clients check the certificate only after the handshake, and close without an alert.
            let at = Instant::now() + LEAF_CHECK_TIME;
            let first = first_byte(proxy, &mut inside, at).await;
            if let Some(Ok(Some(_))) = first {
                proxy.distrusted.note_accepted(address.ip(), &host);
            }
            let left = match first {
                Some(Ok(None)) if !proxy.is_stopping() => Some(Distrust::Closed),
                Some(Err(error)) => Distrust::of(&error),
                Some(Ok(_)) | None => None,
            };
            match left {
                Some(how) => log(how),
                None => Box::pin(inside.serve(proxy)).await,
            }
        }
        Some(Some(byte)) if byte.is_ascii_alphabetic() => {
            // A new connection inside the tunnel: state such as the previous request does not carry over.
            let Connection { wire, input, peer, timer, permit, place, .. } = *connection;
            let peer = peer.within(Tunnel { authority: authority.with_scheme(Scheme::Http), other_name: None });
            Box::pin(Connection::new(wire, input, peer, timer, permit, place).serve(proxy)).await;
        }
        first => {
            // Logs a client that sends nothing, as it probably waits for the server to speak first, but not a client that has closed.
            if !matches!(first, Some(None)) {
                tracing::info!(client = %connection.peer.address, %authority, "{NOT_HTTP}");
            }
            connection.timer.limit(at + LINGER_TIME, connection.wire.shutdown()).await.transpose()?;
        }
    }
    Ok(())
}

/// Waits for the first byte and peeks at it. Inner `None`: end of input, or the proxy stops. Outer `None`: timeout.
async fn first_byte(proxy: &Proxy, connection: &mut Connection, at: Instant) -> Option<io::Result<Option<u8>>> {
    let Connection { wire, input, timer, permit, place, .. } = connection;
    // Between requests, a connection does not count against the user's limit.
    *place = None;
    permit.waits(Instant::now());
    let peeked = async {
        if input.is_empty() {
            poll_fn(|cx| input.poll_fill(cx, wire)).await?;
        }
        Ok(input.bytes().first().copied())
    };
    let first = tokio::select! {
        first = timer.limit(at, peeked) => first,
        () = proxy.stopped_after_grace() => Some(Ok(None)),
    };
    permit.busy();
    first
}

/// Performs the TLS handshake with a leaf certificate for the host. `connected`: the authority of the CONNECT.
async fn decrypt(
    proxy: &Proxy,
    outside: Box<Connection>,
    connected: Authority,
    log: impl Fn(Distrust),
) -> io::Result<Box<Connection>> {
    let address = outside.peer.address.ip();
    let choose = async |hello: &mut StartHandshake<Wire>, permit: &ConnectionPermit| {
        let name = hello.client_hello().server_name().map(str::to_owned);
        let tunnel = tunnel_target(connected, name.as_deref());
        // The leaf has the name in the ClientHello, so that the client accepts it and can read the 421 for a wrong name.
        let host = match &tunnel.other_name {
            Some(name) => match Host::parse(name) {
                Ok(host) => host,
                Err(error) => {
                    hello.io.write_all(UNRECOGNIZED_NAME).await?;
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
            },
            None => tunnel.authority.host().clone(),
        };
        if proxy.leaves.is_new(&host) {
            let mut ahead = Buffer::new();
            let turn = proxy.leaf_rate.turn(address);
            let mut client = Http1Client::not_http(&mut hello.io, &mut ahead);
            permit.busy();
            if client.wait(&mut Timer::new(), pin!(turn)).await.is_none() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            hello.io.unread(ahead);
            permit.waits(Instant::now());
        }
        Ok((proxy.leaves.config_for(&host), tunnel))
    };
    let (mut inside, tunnel) = tls::accept(proxy, outside, choose, log).await?;
    inside.peer = inside.peer.within(tunnel);
    Ok(inside)
}

/// Combines the authority of the CONNECT with the name in the ClientHello. If the CONNECT has an IP address, the name
/// replaces it; any other name that differs goes into `other_name`.
fn tunnel_target(connected: Authority, name: Option<&str>) -> Tunnel {
    let Some(name) = name else { return Tunnel { authority: connected, other_name: None } };
    match Authority::new(Scheme::Https, name, Some(connected.port())) {
        Ok(named) if named == connected => Tunnel { authority: connected, other_name: None },
        Ok(named) if connected.host().ip().is_some() && named.host().name().is_some() => {
            Tunnel { authority: named, other_name: None }
        }
        Ok(_) | Err(_) => Tunnel { authority: connected, other_name: Some(name.to_owned()) },
    }
}

/// Time after the handshake in which a close without a request means that the client has rejected the certificate.
const LEAF_CHECK_TIME: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn target(connected: &str, name: Option<&str>) -> (String, Option<String>) {
        let tunnel = tunnel_target(Authority::parse_connect(Scheme::Https, connected.as_bytes()).unwrap(), name);
        (tunnel.authority.to_string(), tunnel.other_name)
    }

    #[test]
    fn the_client_hello_must_name_the_host_of_the_connect() {
        assert_eq!(target("a.example:443", Some("A.example")), ("https://a.example".into(), None));
        assert_eq!(target("a.example:443", None), ("https://a.example".into(), None));
        assert_eq!(target("a.example:443", Some("b.example")), ("https://a.example".into(), Some("b.example".into())));
    }

    #[test]
    fn a_name_replaces_an_address() {
        assert_eq!(target("192.0.2.1:8443", Some("a.example")), ("https://a.example:8443".into(), None));
        assert_eq!(target("[2001:db8::1]:443", None), ("https://[2001:db8::1]".into(), None));
    }
}
