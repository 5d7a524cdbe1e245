//! The way of one client connection: each head is read here, then a request goes to pingora (`forward`), a CONNECT to
//! `connect`. Called by `listener` for accepted connections and by `connect` for what is inside a tunnel.

use super::clients::Place;
use super::downstream::{Downstream, HeadLimits};
use super::head::{self, Head};
use super::respond::{Answer, Asked};
use super::{Proxy, access, connect, upgrade};
use crate::config::User;
use crate::policy::Refusal;
use pingora_core::apps::{HttpServerApp, ServerApp};
use pingora_core::protocols::http::ServerSession;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// Serves a connection until one side ends it.
pub(super) async fn serve(proxy: Arc<Proxy>, mut io: Box<Downstream>) {
    loop {
        match step(&proxy, io).await {
            Ok(Some(next)) => io = next,
            Ok(None) => return,
            Err(error) => return tracing::debug!(%error, "client connection ended"),
        }
    }
}

/// One message. Gives the connection back if another may follow.
async fn step(proxy: &Arc<Proxy>, mut io: Box<Downstream>) -> io::Result<Option<Box<Downstream>>> {
    if io.is_h2() {
        if !io.preface(proxy.settings.load().limits.header_timeout).await? {
            return Ok(None);
        }
        // pingora takes the streams apart, and ends them when we shut down.
        ServerApp::process_new(&proxy.http, io, &proxy.shutdown).await;
        return Ok(None);
    }
    let limits = HeadLimits::from(&proxy.settings.load().limits);
    let raw = tokio::select! {
        biased;
        raw = io.next_head(limits) => raw?,
        () = proxy.stopped() => None,
    };
    let Some(raw) = raw else {
        io.shutdown().await?;
        return Ok(None);
    };
    let tunnel = io.client.tunnel.as_ref().map(|tunnel| &tunnel.authority);
    let admitted = access::admit(&proxy.settings.load().access, io.client.address.ip());
    let accept = raw.as_ref().ok().and_then(|raw| head::accept(raw)).map(<[u8]>::to_vec);
    let head =
        admitted.and(raw).and_then(|raw| Ok((head::read(&raw, tunnel)?, head::credentials(&raw).map(<[u8]>::to_vec))));
    let identified = match head {
        Ok((head, credentials)) => identify(proxy, &mut io, credentials.as_deref()).await.map(|()| head),
        Err(refusal) => Err(refusal),
    };
    match identified {
        Ok(Head::Upgrade(request)) => upgrade::upgrade(proxy, io, request).await,
        Ok(Head::Request(request)) => {
            io.lend(request);
            let mut session = ServerSession::new_http1(io);
            session.set_keepalive(Some(limits.idle.as_secs().max(1)));
            let kept = proxy.http.process_new_http(session, &proxy.shutdown).await;
            Ok(kept.map(|kept| own(kept.consume().0)))
        }
        Ok(Head::Connect { authority, via }) => connect::connect(proxy, io, authority, via.as_deref()).await,
        Err(refusal) => {
            refuse(proxy, &mut io, &refusal, accept.as_deref()).await?;
            Ok(None)
        }
    }
}

/// Finds out whose request it is. What comes through a tunnel is from who opened it.
async fn identify(proxy: &Proxy, io: &mut Downstream, credentials: Option<&[u8]>) -> Result<(), Refusal> {
    if io.client.tunnel.is_none() {
        let settings = proxy.settings.load_full();
        let users = &settings.access.users;
        let user = proxy.passwords.identify(users, io.client.address.ip(), credentials).await?;
        io.seat = seat(proxy, user.as_deref(), io.seat.take())?;
        io.client.user = user;
    }
    Ok(())
}

/// A place among the user's connections: the one that this connection has, if it is of the same user.
fn seat(proxy: &Proxy, user: Option<&User>, has: Option<Place<String>>) -> Result<Option<Place<String>>, Refusal> {
    let Some((user, limit)) = user.and_then(|user| Some((user, user.max_connections?.get()))) else { return Ok(None) };
    let name = user.name.as_ref();
    match has.filter(|place| place.client() == name) {
        Some(place) => Ok(Some(place)),
        None => proxy.users.enter(name.to_owned(), limit).map(Some).ok_or(Refusal::ConnectionLimit { limit }),
    }
}

/// Answers a head that cannot be trusted, and closes.
async fn refuse(proxy: &Proxy, io: &mut Downstream, refusal: &Refusal, accept: Option<&[u8]>) -> io::Result<()> {
    tracing::info!(client = %io.client.address, refusal = refusal.slug(), "{refusal}");
    proxy.tell_refused(Some(io.client.address.ip()), None, refusal);
    let asked = Asked { url: None, accept };
    let answer = Answer::refusal(refusal, &asked, &proxy.settings.load()).map_err(io::Error::other)?;
    answer.write(io, true, proxy.settings.load().limits.read_timeout).await?;
    linger(io).await
}

/// Reads on for a moment: closing with unread bytes would reset the connection and take the answer away with it.
pub(super) async fn linger(io: &mut Downstream) -> io::Result<()> {
    let drained = async {
        io.shutdown().await?;
        io.open();
        tokio::io::copy(&mut tokio::io::AsyncReadExt::take(io, LINGER_BYTES), &mut tokio::io::sink()).await
    };
    let _ = tokio::time::timeout(LINGER, drained).await;
    Ok(())
}

/// pingora gives back the stream that it was lent.
fn own(stream: pingora_core::protocols::Stream) -> Box<Downstream> {
    stream.into_any().downcast().expect("only Downstreams are lent to pingora")
}

const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: u64 = 1 << 20;
