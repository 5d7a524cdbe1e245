//! A client connection in HTTP/2 (RFC 9113), to the proxy or inside a CONNECT. Each stream is an exchange in a task of its
//! own, or a CONNECT. A client that does not read one stream does not block the others.

use super::super::Proxy;
use super::super::exchange::carry::Http2Client;
use super::super::exchange::key_directory::published;
use super::super::exchange::previous_request::PreviousRequest;
use super::super::exchange::request::{Request, Unread};
use super::super::exchange::{Exchange, LastPlace, Outcome, answer_unread, websocket};
use super::super::io::{Buffer, Timer};
use super::super::limits::per_client::{self, Place};
use super::super::limits::total::ConnectionPermit;
use super::Peer;
use super::connect::{self, ConnectResult};
use super::connection::{Connection, FORGET, find_user, user_place};
use super::wire::Wire;
use crate::config::User;
use crate::policy::Refusal;
use crate::upstream::{Gathered, TaskTurns, check_head};
use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream};
use parking_lot::Mutex;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

/// Serves the connection until one side ends it. Boxed, because a stream can contain another connection.
pub fn serve(proxy: &Arc<Proxy>, connection: Box<Connection>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    let turns = TaskTurns::default();
    Box::pin(turns.clone().of(serve_streams(proxy.clone(), connection, turns)))
}

async fn serve_streams(proxy: Arc<Proxy>, connection: Box<Connection>, turns: TaskTurns) {
    let Connection { wire, input, peer, permit, last, .. } = *connection;
    let (idle, preface, head) = {
        let limits = &proxy.settings.load().limits;
        (limits.idle_timeout, limits.header_timeout, limits.max_header_size)
    };
    permit.waits(Instant::now());
    let output = Gathered::to_client(wire.prefixed(input), turns.clone());
    let handshake = Builder::new()
        .enable_connect_protocol()
        // `exchange` answers a head above the limit itself and logs it; the h2 crate rejects one above this size.
        .max_header_list_size(u32::try_from(head.saturating_mul(2)).unwrap_or(u32::MAX).max(LARGE_HEAD))
        .max_concurrent_streams(MAX_STREAMS)
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW * MAX_STREAMS)
        .max_send_buffer_size(SEND_BUFFER)
        .handshake::<_, Bytes>(output);
    let opened = tokio::select! {
        opened = timeout_at(Instant::now() + preface, handshake) => opened,
        () = proxy.stopped_after_grace() => return,
    };
    let Ok(Ok(mut streams)) = opened else { return };
    let shared = Arc::new(SharedConnection {
        peer,
        turns,
        permit,
        places: Mutex::default(),
        last: Mutex::new(last),
        last_place: Mutex::default(),
        tries: Default::default(),
    });
    let mut exchanges = JoinSet::new();
    let mut is_stopping = false;
    let mut idle_at = Instant::now() + idle;
    loop {
        let is_idle = exchanges.is_empty();
        tokio::select! {
            // The cheapest branch comes first. The proxy's stop comes before new streams, which a busy client always has.
            biased;
            Some(ended) = exchanges.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a stream's task failed");
                }
                idle_at = Instant::now() + idle;
            }
            // A graceful shutdown still serves requests that the client sent before it received the GOAWAY.
            () = leaves(&proxy, &shared.permit, is_idle), if !is_stopping => {
                is_stopping = true;
                streams.graceful_shutdown();
            }
            stream = streams.accept() => match stream {
                Some(Ok((request, respond))) => {
                    shared.permit.busy();
                    // The box is allocated before the future is made: otherwise `Box::pin` or spawning would copy the future.
                    let room = Box::new_uninit();
                    let exchange = exchange(proxy.clone(), shared.clone(), request, respond);
                    exchanges.spawn(Box::into_pin(Box::write(room, exchange)));
                }
                Some(Err(error)) => return tracing::debug!(%error, "a client's HTTP/2 connection has ended"),
                None => break,
            },
            () = wait_until_idle(&shared, idle_at - idle, idle_at), if is_idle => {
                shared.permit.busy();
                streams.abrupt_shutdown(Reason::NO_ERROR);
                // Sends the last frames if the client reads.
                let _ = timeout_at(Instant::now() + LINGER_TIME, poll_fn(|cx| streams.poll_closed(cx))).await;
                return;
            }
        }
    }
}

/// Resolves when the proxy stops, or when this connection is idle and was asked to make room.
async fn leaves(proxy: &Proxy, permit: &ConnectionPermit, is_idle: bool) {
    tokio::select! {
        () = proxy.stopped() => {}
        () = ready_if(|| permit.is_last()), if is_idle => {}
    }
}

/// Resolves at the idle timeout, or when the connection must make room. Forgets the last host after the idle time [`FORGET`].
async fn wait_until_idle(shared: &SharedConnection, since: Instant, until: Instant) {
    shared.permit.waits(since);
    let passed = async {
        sleep_until(until.min(since + FORGET)).await;
        *shared.last_place.lock() = LastPlace::default();
        sleep_until(until).await;
    };
    tokio::select! {
        () = passed => {}
        () = ready_if(|| shared.permit.makes_room()) => {}
    }
}

/// Resolves when `is_true` returns true. Whoever changes the result must wake the task.
async fn ready_if(is_true: impl Fn() -> bool) {
    poll_fn(|_| if is_true() { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Connection state shared by all streams.
struct SharedConnection {
    peer: Peer,
    turns: TaskTurns,
    permit: ConnectionPermit,
    /// The places that count against the limits of users. The open streams of a user hold them.
    places: Mutex<Vec<Weak<Place<String>>>>,
    /// The latest request.
    last: Mutex<PreviousRequest>,
    /// The destination of the request that ended last.
    last_place: Mutex<LastPlace>,
    /// The lock that is held while a stream's password is verified.
    tries: tokio::sync::Mutex<()>,
}

impl SharedConnection {
    /// The place of a stream. All streams of one user share one place.
    fn user_place(&self, proxy: &Proxy, user: Option<&User>) -> Result<Option<Arc<Place<String>>>, Refusal> {
        let mut places = self.places.lock();
        places.retain(|place| place.strong_count() > 0);
        let mut held = places.iter().filter_map(Weak::upgrade);
        if let Some(held) = held.find(|place| user.is_some_and(|user| place.client() == user.name.as_ref())) {
            return Ok(Some(held));
        }
        let place = user_place(proxy, user, None)?.map(Arc::new);
        places.extend(place.as_ref().map(Arc::downgrade));
        Ok(place)
    }
}

/// Serves one stream.
async fn exchange(
    proxy: Arc<Proxy>,
    shared: Arc<SharedConnection>,
    request: http::Request<RecvStream>,
    respond: SendResponse<Bytes>,
) {
    let _in_flight = proxy.in_flight.subscribe();
    let began = Instant::now();
    let (mut parts, body) = request.into_parts();
    websocket::add_key(&mut parts);
    let mut timer = Timer::new();
    let ends = body.is_end_stream();
    let is_head = parts.method == http::Method::HEAD;
    let mut client = Http2Client::new((!ends).then_some(body), respond, shared.turns.clone(), is_head);
    let inside = shared.peer.tunnel.as_ref().map(|tunnel| &tunnel.authority);
    let authority = parts.uri.authority().map_or("", |authority| authority.as_str());
    if let Some(answer) =
        published(&proxy, &shared.peer, parts.method.as_str(), parts.uri.path().as_bytes(), Some(authority))
    {
        let (nothing, answered) = (Unread { is_head, ..Unread::default() }, Outcome::Answered(answer));
        answer_unread(&proxy, &nothing, answered, &shared.peer, began, &mut client, &mut timer).await;
        return client.finish().await;
    }
    let settings = proxy.settings.load_full();
    let limit = usize::try_from(settings.limits.max_header_size).unwrap_or(usize::MAX);
    let target = parts.uri.path_and_query().map_or(0, |path| path.as_str().len());
    let read = check_head(target, &parts.headers, limit)
        .map_err(Refusal::from)
        .and_then(|()| Request::read_http2(&parts, ends, inside, proxy.upstream.via(), &mut shared.last.lock()));
    match read {
        Ok(request) => {
            let mut peer = shared.peer.clone();
            // A stream that waits for its password check does not block streams whose password is cached.
            let credentials = (request.credentials, Some(&shared.tries));
            let found = find_user(&proxy, &settings, &mut peer, credentials, &mut client, &mut timer).await;
            let identified =
                found.and_then(|()| shared.user_place(&proxy, peer.user.as_deref()).map_err(Outcome::Refused));
            let mut exchange = Exchange::new(&proxy, settings, &request, &peer, began);
            match identified {
                Err(outcome) => exchange.finish(outcome, &mut client, &mut timer).await,
                Ok(_place) if request.is_connect() && inside.is_none() => {
                    // Boxed, because most streams are not tunnels.
                    return Box::pin(connect(&proxy, exchange, &shared.permit, client, timer)).await;
                }
                Ok(_place) => {
                    if request.is_upgrade {
                        client.withhold();
                    }
                    let mut last_place = shared.last_place.lock().clone();
                    exchange.run(&mut client, &mut timer, &mut last_place).await;
                    *shared.last_place.lock() = last_place;
                }
            }
        }
        Err(refusal) => {
            let path = parts.uri.path_and_query().map_or("", |path| path.as_str());
            // Userinfo before an `@` is secret.
            let named = || Some(parts.uri.to_string()).filter(|url| !url.contains('@'));
            let url = inside.map_or_else(named, |authority| Some(format!("{authority}{path}")));
            let accept = parts.headers.get(http::header::ACCEPT).map(|accept| accept.as_bytes());
            let (unread, refused) = (Unread { is_head, accept, url }, Outcome::Refused(refusal));
            answer_unread(&proxy, &unread, refused, &shared.peer, began, &mut client, &mut timer).await;
        }
    }
    client.finish().await;
}

/// Serves a CONNECT stream, which counts as a connection against each limit.
async fn connect(
    proxy: &Arc<Proxy>,
    mut exchange: Exchange<'_>,
    outer: &ConnectionPermit,
    mut client: Http2Client,
    mut timer: Timer,
) {
    let (request, peer) = (exchange.request, exchange.peer);
    let (permit, _client, user) = match Box::pin(places(proxy, peer)).await {
        Ok(places) => places,
        Err(refusal) => {
            exchange.finish(Outcome::Refused(refusal), &mut client, &mut timer).await;
            return client.finish().await;
        }
    };
    permit.set_outer(outer);
    permit.busy();
    let serve = |permit: ConnectionPermit| async move {
        match connect::grant(exchange, request.via.as_deref(), &mut client, &mut timer, &permit).await {
            ConnectResult::Intercepted => {
                let wire = Wire::Stream(Box::new(client.side));
                let connection = Connection::new(wire, Buffer::new(), peer.clone(), timer, permit, user);
                let agent = request.user_agent.map(|agent| String::from_utf8_lossy(agent).into_owned());
                connect::serve_intercepted(proxy, connection, request.authority.clone(), agent).await;
            }
            ConnectResult::NotGranted | ConnectResult::TunnelEnded => client.finish().await,
        }
    };
    permit.serve(serve).await;
}

/// A place under each limit: of all connections, of the client's, of the user's.
type Places = (ConnectionPermit, Place<IpAddr>, Option<Place<String>>);

async fn places(proxy: &Proxy, peer: &Peer) -> Result<Places, Refusal> {
    let address = per_client::client(peer.address.ip());
    let client = proxy.client_place(address).map_err(|limit| Refusal::ConnectionLimit { limit })?;
    let limit = || proxy.settings.load().limits.max_connections.get();
    let Ok(permit) = timeout(LINGER_TIME, proxy.room.permit(address, limit)).await else {
        let why = format!("{} connections are open, the maximum allowed", limit()).into();
        return Err(Refusal::OwnLimit { retry_after: LINGER_TIME, why });
    };
    Ok((permit, client, user_place(proxy, peer.user.as_deref(), None)?))
}

/// Size of a head that is read to its end even if it is above the limit. The h2 crate adds 32 bytes to each field.
const LARGE_HEAD: u32 = 64 * 1024;
/// Maximum number of concurrent streams per connection.
const MAX_STREAMS: u32 = 100;
/// Receive window of a stream, in bytes. The connection's window is the sum of all streams'.
const WINDOW: u32 = 64 * 1024;
const SEND_BUFFER: usize = 64 * 1024;
const LINGER_TIME: Duration = Duration::from_secs(1);
