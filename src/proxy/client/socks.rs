//! SOCKS5 (RFC 1928, with passwords as in RFC 1929), handled like a CONNECT, for tools that speak nothing else.

use super::super::Proxy;
use super::super::exchange::carry::Http1Client;
use super::super::exchange::request::Unread;
use super::super::exchange::{Outcome, conclude_unread};
use super::super::io::{Buffer, Timer};
use super::super::limits::per_client::Place;
use super::super::limits::total::ConnectionPermit;
use super::connect::connect;
use super::connection::{Connection, identify};
use super::socks_reply::{BAD_ADDRESS, BAD_COMMAND, FAILURE, IPV4, NOT_ALLOWED, VERSION, reply};
use super::wire::{LINGER_BYTES, LINGER_TIME, Wire};
use super::{Peer, auth};
use crate::policy::{Authority, Refusal, Scheme};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

/// Serves the connection to its end.
pub async fn serve(proxy: &Arc<Proxy>, connection: Box<Connection>) {
    let Connection { wire, input, mut peer, mut timer, permit, mut place, .. } = *connection;
    let (mut io, began) = (wire.prefixed(input), Instant::now());
    peer.is_socks = true;
    let negotiated = tokio::select! {
        negotiated = negotiate(proxy, &mut io, &mut peer, &permit, &mut place, &mut timer) => negotiated,
        () = proxy.stopped_after_grace() => return,
    };
    match negotiated {
        Ok(authority) => {
            permit.busy();
            let inner = Connection::new(io, Buffer::new(), peer, timer, permit, place);
            Box::pin(connect(proxy, inner, authority, None, None)).await;
        }
        Err(outcome) => {
            // No HTTP answer is sent: the client has got its SOCKS reply, has left, or was too slow.
            conclude_unread(proxy, &Unread::default(), outcome, &peer, began);
            io.lingering_close(&mut timer, LINGER_TIME, LINGER_BYTES).await;
        }
    }
}

/// Identifies the client and reads its destination. If this returns an error, the client has been answered, has left,
/// or was too slow. The password check does not count against the time limit.
async fn negotiate(
    proxy: &Proxy,
    io: &mut Wire,
    peer: &mut Peer,
    permit: &ConnectionPermit,
    place: &mut Option<Place<String>>,
    timer: &mut Timer,
) -> Result<Authority, Outcome> {
    permit.waits(Instant::now());
    let limit = proxy.settings.load().limits.header_timeout;
    let late = || Outcome::Refused(Refusal::HeadTimeout { limit });
    let at = Instant::now() + limit;
    let credentials = timer.limit(at, negotiate_method(proxy, io, peer)).await.ok_or_else(late)??;
    permit.busy();
    let (settings, began) = (proxy.settings.load_full(), Instant::now());
    let mut ahead = Buffer::new();
    let identified = {
        let mut client = Http1Client::not_http(io, &mut ahead);
        identify(proxy, &settings, peer, place, credentials.as_deref(), &mut client, timer).await
    };
    io.unread(ahead);
    if let Err(Outcome::ClientGone) = identified {
        return Err(Outcome::ClientGone);
    }
    permit.waits(Instant::now());
    let at = at + began.elapsed();
    let told = async {
        match (&credentials, &identified) {
            (Some(_), _) => put(io, &[PASSWORD_VERSION, u8::from(identified.is_err())]).await,
            (None, Ok(())) => Ok(()),
            (None, Err(_)) => {
                destination(io).await.ok();
                put(io, &reply(NOT_ALLOWED)).await
            }
        }
    };
    let told = timer.limit(at, told).await;
    // The refusal takes precedence over a failure to send the reply, which the client may not read.
    identified?;
    told.ok_or_else(late)??;
    let directed = async {
        match destination(io).await? {
            Ok(authority) => Ok(authority),
            Err((code, why)) => {
                put(io, &reply(code)).await?;
                Err(Outcome::Refused(Refusal::bad_request(why)))
            }
        }
    };
    timer.limit(at, directed).await.ok_or_else(late)?
}

/// Agrees on the authentication method with the client. Returns the credentials if they are required.
async fn negotiate_method(proxy: &Proxy, io: &mut Wire, peer: &Peer) -> Result<Option<Vec<u8>>, Outcome> {
    let [_, count] = take(io).await?;
    let methods = take_some(io, count).await?;
    let method = {
        let access = &proxy.settings.load().access;
        let is_certified =
            || peer.certificate.as_ref().is_some_and(|shown| auth::certified(&access.users, shown).is_ok());
        if !access.needs_user() || !methods.contains(&PASSWORD) && is_certified() { ANYBODY } else { PASSWORD }
    };
    if !methods.contains(&method) {
        put(io, &[VERSION, NO_METHOD]).await?;
        return Err(Outcome::Refused(match method {
            PASSWORD => auth::denied("the SOCKS client does not offer password authentication"),
            _ => Refusal::bad_request("the SOCKS client does not offer access without credentials"),
        }));
    }
    put(io, &[VERSION, method]).await?;
    if method == PASSWORD { credentials(io).await.map(Some) } else { Ok(None) }
}

/// Reads name and password, and returns them as a Proxy-Authorization value.
async fn credentials(io: &mut Wire) -> Result<Vec<u8>, Outcome> {
    let [_, length] = take(io).await?;
    let mut both = take_some(io, length).await?;
    both.push(b':');
    let [length] = take(io).await?;
    both.extend(take_some(io, length).await?);
    Ok(format!("Basic {}", BASE64_STANDARD.encode(both)).into_bytes())
}

/// Reads the destination. Inner error: reply code and reason.
async fn destination(io: &mut Wire) -> Result<Result<Authority, (u8, String)>, Outcome> {
    let [_, command, _, kind] = take(io).await?;
    let host = match kind {
        IPV4 => Ipv4Addr::from(take::<4>(io).await?).to_string(),
        IPV6 => format!("[{}]", Ipv6Addr::from(take::<16>(io).await?)),
        NAME => {
            let [length] = take(io).await?;
            String::from_utf8_lossy(&take_some(io, length).await?).into_owned()
        }
        _ => return Ok(Err((BAD_ADDRESS, format!("unknown SOCKS address type {kind}")))),
    };
    let port = u16::from_be_bytes(take(io).await?);
    if command != CONNECT {
        return Ok(Err((BAD_COMMAND, format!("unsupported SOCKS command {command}; only CONNECT is served"))));
    }
    Ok(Authority::new(Scheme::Https, &host, Some(port)).map_err(|error| (FAILURE, format!("{host:?}: {error}"))))
}

async fn take<const N: usize>(io: &mut Wire) -> Result<[u8; N], Outcome> {
    let mut bytes = [0; N];
    io.read_exact(&mut bytes).await.map_err(|_| Outcome::ClientGone)?;
    Ok(bytes)
}

async fn take_some(io: &mut Wire, length: u8) -> Result<Vec<u8>, Outcome> {
    let mut bytes = vec![0; length.into()];
    io.read_exact(&mut bytes).await.map_err(|_| Outcome::ClientGone)?;
    Ok(bytes)
}

async fn put(io: &mut Wire, bytes: &[u8]) -> Result<(), Outcome> {
    io.write_all(bytes).await.map_err(|_| Outcome::ClientGone)
}

const PASSWORD_VERSION: u8 = 1;
const ANYBODY: u8 = 0;
const PASSWORD: u8 = 2;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;
