//! One client connection, whatever protocol it speaks, and its user.

use super::super::Proxy;
use super::super::exchange::carry::Client;
use super::super::exchange::request::PreviousRequest;
use super::super::exchange::{LastPlace, Outcome};
use super::super::io::{Buffer, Timer};
use super::super::limits::per_client::Place;
use super::super::limits::total::ConnectionPermit;
use super::wire::{GOODBYE, Wire};
use super::{Peer, auth};
use crate::config::{Settings, User};
use crate::policy::Refusal;
use std::pin::Pin;
use std::time::Duration;

/// A connection between two requests, or inside of one.
pub struct Connection {
    pub wire: Wire,
    /// Read from the client, not yet taken.
    pub input: Buffer,
    pub peer: Peer,
    pub timer: Timer,
    /// Among all connections.
    pub permit: ConnectionPermit,
    /// Among the connections of the client's user.
    pub place: Option<Place<String>>,
    /// The request before, and where it went.
    pub last: PreviousRequest,
    pub last_place: LastPlace,
}

impl Connection {
    pub fn new(
        wire: Wire,
        input: Buffer,
        peer: Peer,
        timer: Timer,
        permit: ConnectionPermit,
        place: Option<Place<String>>,
    ) -> Self {
        Connection {
            wire,
            input,
            peer,
            timer,
            permit,
            place,
            last: PreviousRequest::default(),
            last_place: LastPlace::default(),
        }
    }

    /// The end, behind the last answer.
    pub(super) async fn linger(mut self, proxy: &Proxy) {
        self.input.release();
        let patience = if proxy.is_stopping() { LAST_LINGER } else { GOODBYE };
        self.wire.say_goodbye(&mut self.timer, patience, usize::MAX).await;
    }
}

/// Finds the user of a request, who has a place among the connections of the user then.
pub(super) async fn identify(
    proxy: &Proxy,
    settings: &Settings,
    peer: &mut Peer,
    place: &mut Option<Place<String>>,
    credentials: Option<&[u8]>,
) -> Result<(), Refusal> {
    find_user(proxy, settings, peer, credentials, None).await?;
    take_place(proxy, peer, place)
}

/// Who it is, if the client stays for that: who has left takes no turn of those whose password has yet to be judged.
pub(super) async fn while_there<C: Client>(
    client: &mut C,
    timer: &mut Timer,
    found: Pin<&mut impl Future<Output = Result<(), Refusal>>>,
) -> Result<(), Outcome> {
    client.wait(timer, found).await.map_or(Err(Outcome::Gone), |found| found.map_err(Outcome::Refused))
}

/// What comes through a tunnel belongs to the user who opened it. `tries`: as in [`auth::Passwords::identify`].
pub(super) async fn find_user(
    proxy: &Proxy,
    settings: &Settings,
    peer: &mut Peer,
    credentials: Option<&[u8]>,
    tries: Option<&tokio::sync::Mutex<()>>,
) -> Result<(), Refusal> {
    auth::admit(&settings.access, peer)?;
    if peer.tunnel.is_some() {
        return auth::readmit(&settings.access, &mut peer.user);
    }
    if settings.access.users.is_empty() {
        peer.set_user(None);
        return Ok(());
    }
    let users = &settings.access.users;
    let user = match (&peer.certificate, credentials) {
        (Some(certificate), None) => auth::certified(users, certificate).map(Some),
        _ => proxy.passwords.identify(users, peer.address.ip(), credentials, tries).await,
    };
    // Who is refused is not the user before on the connection.
    peer.set_user(user.as_ref().ok().cloned().flatten());
    user.map(drop)
}

/// That of a tunnel it has had from the start.
pub(super) fn take_place(proxy: &Proxy, peer: &Peer, place: &mut Option<Place<String>>) -> Result<(), Refusal> {
    if peer.tunnel.is_none() {
        *place = user_place(proxy, peer.user.as_deref(), place.take())?;
    }
    Ok(())
}

/// A place among the user's connections: the one that this connection has, if it is of the same user.
pub(super) fn user_place(
    proxy: &Proxy,
    user: Option<&User>,
    has: Option<Place<String>>,
) -> Result<Option<Place<String>>, Refusal> {
    let Some((user, limit)) = user.and_then(|user| Some((user, user.max_connections?.get()))) else { return Ok(None) };
    let name = user.name.as_ref();
    match has.filter(|place| place.client() == name) {
        Some(place) => Ok(Some(place)),
        None => proxy.users.enter(name.to_owned(), limit).map(Some).ok_or(Refusal::ConnectionLimit { limit }),
    }
}

/// When the proxy stops, which waits for it.
const LAST_LINGER: Duration = Duration::from_millis(500);
