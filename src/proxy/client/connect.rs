//! CONNECT (RFC 9110 §9.3.6): intercepted, tunnelled or denied by the host's policy.

use super::super::Proxy;
use super::super::exchange::carry::{Client, Http1, Http1Client};
use super::super::exchange::request::{Head, Request};
use super::super::exchange::{Exchange, Outcome, hosts, tunnel};
use super::super::io::Buffer;
use super::super::respond::Failure;
use super::connection::Connection;
use super::wire::{Ahead, Wire};
use super::{Tunnel, Who};
use crate::config::InterceptMode;
use crate::http1::Framing;
use crate::policy::{self, Authority, Host, Refusal, Scheme};
use crate::upstream::{ReachError, Stream};
use http::Version;
use rustls::server::Acceptor;
use std::borrow::Cow;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;
use tokio_rustls::LazyConfigAcceptor;

/// `via`: what the CONNECT says of the way so far. Gives the connection back where the CONNECT was refused and another
/// request may follow.
pub async fn connect(
    proxy: &Arc<Proxy>,
    mut connection: Connection,
    authority: Authority,
    via: Option<&str>,
) -> Option<Connection> {
    let began = Instant::now();
    let Connection { wire, input, who, timer, .. } = &mut connection;
    let request = asked(&authority);
    let mut client = Http1Client::new(Http1::new(wire, input), Framing::None);
    let exchange = Exchange::new(proxy, &request, who, began);
    let is_looped = via.is_some_and(|via| proxy.via.is_in(via.as_bytes()));
    let mode = proxy.intercept_mode(&authority, who.user.as_deref());
    let opened = match mode {
        _ if is_looped => Err(Outcome::Refused(Refusal::Loop)),
        // A denied host is denied inside, where the client sees the status.
        InterceptMode::Intercept | InterceptMode::Deny => Ok(None),
        InterceptMode::Tunnel => match client.wait(timer, open(proxy, &authority, who, via)).await {
            Some(opened) => opened.map(Some),
            None => Err(Outcome::Gone),
        },
    };
    let origin = match opened {
        Ok(origin) => origin,
        Err(outcome) => {
            exchange.finish(outcome, &mut client, timer).await;
            let goes_on = !client.is_last && !client.is_cut;
            return goes_on.then_some(connection);
        }
    };
    let is_tunnel = origin.is_some();
    client.side.out.put(b"HTTP/1.1 200 Connection Established\r\n\r\n");
    if !exchange.established(is_tunnel, &mut client, timer).await {
        return None;
    }
    match origin {
        Some(mut origin) => {
            let mut ahead = Buffer::new();
            let mut origin = Http1::new(&mut origin, &mut ahead);
            client.open();
            origin.open();
            let idle = proxy.settings.load().limits.tunnel_idle_timeout;
            tunnel::run(&mut client.side, &mut origin, idle, timer).await;
        }
        None => {
            if let Err(error) = intercept(proxy, connection, authority).await {
                tracing::debug!(%error, "what is inside a CONNECT has ended");
            }
        }
    }
    None
}

/// Connects first, so that a failure is an answer and not an end. Only starts are paced: the turn ends here.
async fn open(proxy: &Proxy, authority: &Authority, who: &Who, via: Option<&str>) -> Result<Stream, Outcome> {
    let route = match proxy.upstream.reach_for(authority, Some(who.client())).await {
        Ok(route) => route,
        Err(ReachError::Denied(denied)) => return Err(Outcome::Refused(denied.into())),
        Err(ReachError::Resolve(error)) => return Err(Outcome::Failed(Failure::from_resolve(&error))),
    };
    let request =
        policy::Request { client: who.client(), address: route.origin(), ..policy::Request::new(authority, b"") };
    let admitted = proxy.gate.admit_connection(&request, hosts(who.user.as_deref())).await;
    let (mut permit, reported) = admitted.map_err(Outcome::Refused)?;
    if let Some(reported) = reported {
        proxy.tell_reported(Some(who.address.ip()), &authority.to_string(), &reported);
    }
    let origin = route.tunnel(via).await.map_err(|error| Outcome::Failed(Failure::from_dial(&error)))?;
    permit.leaves();
    permit.has_left();
    permit.outcome = crate::gate::Outcome::Success;
    Ok(origin)
}

/// Serves what the client sends inside: TLS on our leaf, or plain HTTP. Anything else is closed.
async fn intercept(proxy: &Arc<Proxy>, mut connection: Connection, authority: Authority) -> io::Result<()> {
    let at = Instant::now() + proxy.settings.load().limits.header_timeout;
    let Connection { wire, input, timer, .. } = &mut connection;
    let peeked = async {
        if input.is_empty() {
            poll_fn(|cx| input.poll_fill(cx, wire)).await?;
        }
        Ok::<_, io::Error>(input.bytes().first().copied())
    };
    let first = tokio::select! {
        first = timer.limit(at, peeked) => first.transpose()?.flatten(),
        () = proxy.stopped() => None,
    };
    match first {
        Some(TLS_HANDSHAKE) => {
            let inside = decrypt(proxy, connection, authority).await?;
            Box::pin(inside.serve(proxy)).await;
        }
        Some(byte) if byte.is_ascii_alphabetic() => {
            let Connection { wire, input, mut who, timer, seat, .. } = connection;
            who.tunnel = Some(Tunnel { authority: authority.with_scheme(Scheme::Http), other_name: None });
            Box::pin(Connection::new(wire, input, who, timer, seat).serve(proxy)).await;
        }
        Some(_) => {
            tracing::info!(client = %connection.who.address, %authority, "neither TLS nor HTTP inside CONNECT: closed");
            connection.wire.shutdown().await?;
        }
        None => connection.wire.shutdown().await?,
    }
    Ok(())
}

async fn decrypt(proxy: &Proxy, connection: Connection, connected: Authority) -> io::Result<Connection> {
    let Connection { wire, input, who, mut timer, seat, .. } = connection;
    let handshake = async {
        let ahead = Ahead { wire, input };
        let mut hello = LazyConfigAcceptor::new(Acceptor::default(), ahead).await?;
        let name = hello.client_hello().server_name().map(str::to_owned);
        let tunnel = agree(connected, name.as_deref());
        // The leaf is for the name that the client asks for, so that it can read the 421 that a wrong name earns.
        let host = match &tunnel.other_name {
            Some(name) => match Host::parse(name) {
                Ok(host) => host,
                Err(error) => {
                    hello.io.write_all(UNRECOGNIZED_NAME).await?;
                    hello.io.shutdown().await?;
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
            },
            None => tunnel.authority.host().clone(),
        };
        if proxy.leaves.is_new(&host) {
            proxy.mints.turn(who.address.ip()).await;
        }
        let config = proxy.leaves.config_for(&host);
        Ok::<_, io::Error>((hello.into_stream(config).await?, tunnel))
    };
    let at = Instant::now() + proxy.settings.load().limits.header_timeout;
    let handshake = Box::pin(handshake);
    let (tls, tunnel) = timer.limit(at, handshake).await.ok_or(io::ErrorKind::TimedOut)??;
    let who = Who { tunnel: Some(tunnel), address: who.address, user: who.user.clone() };
    Ok(Connection::new(Wire::Tls(Box::new(tls)), Buffer::new(), who, timer, seat))
}

/// The authority that CONNECT and ClientHello mean together. A name stands for an address that CONNECT gave; two
/// different names do not agree.
fn agree(connected: Authority, name: Option<&str>) -> Tunnel {
    let Some(name) = name else { return Tunnel { authority: connected, other_name: None } };
    match Authority::new(Scheme::Https, name, Some(connected.port())) {
        Ok(named) if named == connected => Tunnel { authority: connected, other_name: None },
        Ok(named) if connected.host().ip().is_some() && named.host().name().is_some() => {
            Tunnel { authority: named, other_name: None }
        }
        Ok(_) | Err(_) => Tunnel { authority: connected, other_name: Some(name.to_owned()) },
    }
}

/// The CONNECT, for the log and for the answer to it.
fn asked(authority: &Authority) -> Request<'static> {
    Request {
        version: Version::HTTP_11,
        method: "CONNECT",
        authority: authority.clone(),
        target: Cow::Borrowed(b""),
        framing: Framing::None,
        expects_continue: false,
        is_upgrade: false,
        persists: true,
        is_looped: false,
        user_agent: None,
        agent_tokens: Cow::Borrowed(&[]),
        accept: None,
        credentials: None,
        is_subresource: false,
        prefer_wait: None,
        max_forwards: None,
        via: None,
        head: Head::Connect,
    }
}

/// The content type of a TLS record that begins a handshake (RFC 8446 §5.1).
const TLS_HANDSHAKE: u8 = 0x16;
/// The record of a fatal alert (RFC 8446 §6): the name in the handshake is none.
const UNRECOGNIZED_NAME: &[u8] = &[0x15, 3, 3, 0, 2, 2, 112];

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed(connected: &str, name: Option<&str>) -> (String, Option<String>) {
        let tunnel = agree(Authority::parse_connect(Scheme::Https, connected.as_bytes()).unwrap(), name);
        (tunnel.authority.to_string(), tunnel.other_name)
    }

    #[test]
    fn the_name_in_the_client_hello_must_be_connects() {
        assert_eq!(agreed("a.example:443", Some("A.example")), ("https://a.example".into(), None));
        assert_eq!(agreed("a.example:443", None), ("https://a.example".into(), None));
        assert_eq!(agreed("a.example:443", Some("b.example")), ("https://a.example".into(), Some("b.example".into())));
    }

    #[test]
    fn a_name_stands_for_an_address() {
        assert_eq!(agreed("192.0.2.1:8443", Some("a.example")), ("https://a.example:8443".into(), None));
        assert_eq!(agreed("[2001:db8::1]:443", None), ("https://[2001:db8::1]".into(), None));
    }
}
