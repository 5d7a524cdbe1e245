//! A client connection in any protocol, and its user.

use super::super::Proxy;
use super::super::exchange::carry::Client;
use super::super::exchange::previous_request::PreviousRequest;
use super::super::exchange::{LastPlace, Outcome};
use super::super::io::{Buffer, Timer};
use super::super::limits::per_client::Place;
use super::super::limits::total::ConnectionPermit;
use super::wire::{LINGER_TIME, Wire};
use super::{Peer, auth};
use crate::config::{Settings, User};
use crate::policy::Refusal;
use std::num::NonZeroUsize;
use std::time::Duration;

/// A client connection. Always boxed, because a future that takes a connection by value reserves space for it twice.
pub struct Connection {
    pub wire: Wire,
    /// Input that was read but not consumed.
    pub input: Buffer,
    pub peer: Peer,
    pub timer: Timer,
    /// The place that counts against the limit on all connections.
    pub permit: ConnectionPermit,
    /// The place that counts against the user's limit while a request is in flight.
    pub place: Option<Place<String>>,
    /// The previous request; `last_place`: its destination.
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
    ) -> Box<Self> {
        Box::new(Connection {
            wire,
            input,
            peer,
            timer,
            permit,
            place,
            last: PreviousRequest::default(),
            last_place: LastPlace::default(),
        })
    }

    /// Ends the connection with a lingering close.
    pub(super) async fn linger(mut self: Box<Self>, proxy: &Proxy) {
        self.input.release();
        let limit = if proxy.is_stopping() { STOP_LINGER_TIME } else { LINGER_TIME };
        self.wire.lingering_close(&mut self.timer, limit, usize::MAX).await;
    }
}

/// Identifies the user of a request and counts the connection against the user's limit. Fails if the request is refused or the client
/// disconnects.
pub(super) async fn identify<C: Client>(
    proxy: &Proxy,
    settings: &Settings,
    peer: &mut Peer,
    place: &mut Option<Place<String>>,
    credentials: Option<&[u8]>,
    client: &mut C,
    timer: &mut Timer,
) -> Result<(), Outcome> {
    find_user(proxy, settings, peer, (credentials, None), client, timer).await?;
    *place = user_place(proxy, peer.user.as_deref(), place.take()).map_err(Outcome::Refused)?;
    Ok(())
}

/// The value of Proxy-Authorization, and `tries` of [`auth::Passwords::user`].
type Credentials<'a> = (Option<&'a [u8]>, Option<&'a tokio::sync::Mutex<()>>);

/// Identifies the user of a request. Requests inside a tunnel belong to the user who opened the tunnel.
pub(super) async fn find_user<C: Client>(
    proxy: &Proxy,
    settings: &Settings,
    peer: &mut Peer,
    (credentials, tries): Credentials<'_>,
    client: &mut C,
    timer: &mut Timer,
) -> Result<(), Outcome> {
    auth::admit(&settings.access, peer).map_err(Outcome::Refused)?;
    if peer.tunnel.is_some() {
        return auth::readmit(&settings.access, &mut peer.user).map_err(Outcome::Refused);
    }
    if !settings.access.needs_user() {
        peer.set_user(None);
        return Ok(());
    }
    let users = &settings.access.users;
    let user = match (&peer.certificate, credentials) {
        (Some(certificate), None) => Some(auth::certified(users, certificate)),
        _ => {
            // Boxed, because most requests need no user.
            let mut identifying = Box::pin(proxy.passwords.user(users, peer.address.ip(), credentials, tries));
            client.wait(timer, identifying.as_mut()).await
        }
    };
    // A refused client must not keep the previous user.
    peer.set_user(user.as_ref().and_then(|user| user.as_ref().ok()).cloned());
    user.map_or(Err(Outcome::ClientGone), |user| user.map(drop).map_err(Outcome::Refused))
}

/// Takes a place among the user's connections in use, or reuses the connection's place if it has the same user. If there are
/// several users, each has at most half of all places.
pub(super) fn user_place(
    proxy: &Proxy,
    user: Option<&User>,
    has: Option<Place<String>>,
) -> Result<Option<Place<String>>, Refusal> {
    let Some(user) = user else { return Ok(None) };
    let name = user.name.as_ref();
    if let Some(place) = has.filter(|place| place.client() == name) {
        return Ok(Some(place));
    }
    let settings = proxy.settings.load();
    let is_one_of_many = settings.access.users.len() > 1;
    let share = is_one_of_many.then(|| proxy.room.half(settings.limits.max_connections.get()));
    let Some(limit) = user.max_connections.map(NonZeroUsize::get).into_iter().chain(share).min() else {
        return Ok(None);
    };
    let place = proxy.users.enter_or(name.to_owned(), limit, || proxy.room.close_idle_of_user(name));
    place.map(Some).ok_or(Refusal::ConnectionLimit { limit })
}

/// Idle time after which a connection forgets its last host and frees the memory that requests need. Not less than
/// the initial wait of a new timer, which would otherwise be set twice.
pub(super) const FORGET: Duration = Duration::from_millis(100);
/// Duration of a lingering close while the proxy stops.
const STOP_LINGER_TIME: Duration = Duration::from_millis(500);
