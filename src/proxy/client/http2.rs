//! A client's connection in HTTP/2 (RFC 9113), inside an intercepted CONNECT: each stream is an exchange of its own, in a task
//! of its own. What one stream is sent and does not read takes no other's room.

use super::super::Proxy;
use super::super::exchange::carry::{Http2, Http2Client};
use super::super::exchange::request::{Request, Unread};
use super::super::exchange::{Exchange, LastPlace, refuse_unread};
use super::super::io::Timer;
use super::super::limits::total::Seat;
use super::Who;
use super::connection::Connection;
use super::wire::Ahead;
use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream};
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// Until one side ends it.
pub async fn serve(proxy: &Arc<Proxy>, connection: Connection) {
    let Connection { wire, mut input, who, seat, .. } = connection;
    let (idle, preface, head) = {
        let limits = &proxy.settings.load().limits;
        (limits.idle_timeout, limits.header_timeout, limits.max_header_size)
    };
    let ahead = Ahead { wire, input: std::mem::take(&mut input) };
    let shaken = Builder::new()
        .max_header_list_size(u32::try_from(head).unwrap_or(u32::MAX))
        .max_concurrent_streams(MAX_STREAMS)
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW * MAX_STREAMS)
        .max_send_buffer_size(SEND_BUFFER)
        .handshake::<_, Bytes>(ahead);
    let shaken = tokio::select! {
        shaken = timeout_at(Instant::now() + preface, shaken) => shaken,
        () = proxy.stopped() => return,
    };
    let Ok(Ok(mut streams)) = shaken else { return };
    let who = Arc::new(who);
    let mut exchanges = JoinSet::new();
    let mut is_stopping = false;
    let mut idle_at = Instant::now() + idle;
    loop {
        tokio::select! {
            stream = streams.accept() => match stream {
                Some(Ok((request, respond))) => {
                    seat.busy();
                    exchanges.spawn(exchange(proxy.clone(), who.clone(), request, respond));
                }
                Some(Err(error)) => return tracing::debug!(%error, "an HTTP/2 connection of a client's has ended"),
                None => break,
            },
            Some(ended) = exchanges.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a stream's task failed");
                }
                idle_at = Instant::now() + idle;
            }
            () = proxy.stopped(), if !is_stopping => {
                is_stopping = true;
                streams.graceful_shutdown();
            }
            () = idle_enough(&seat, idle_at - idle, idle_at), if exchanges.is_empty() => {
                streams.abrupt_shutdown(Reason::NO_ERROR);
                // What was said last goes out, if somebody reads it.
                let _ = timeout_at(Instant::now() + GOODBYE, poll_fn(|cx| streams.poll_closed(cx))).await;
                return;
            }
        }
    }
}

/// Resolves when the connection has been idle long enough, or others need the room.
async fn idle_enough(seat: &Seat, since: Instant, until: Instant) {
    tokio::select! {
        () = tokio::time::sleep_until(until) => {}
        () = poll_fn(|cx| seat.poll_idle(cx, since)) => {}
    }
}

/// One stream.
async fn exchange(proxy: Arc<Proxy>, who: Arc<Who>, request: http::Request<RecvStream>, respond: SendResponse<Bytes>) {
    let began = Instant::now();
    let (parts, body) = request.into_parts();
    let mut timer = Timer::new();
    let ends = body.is_end_stream();
    let mut side = Http2::default();
    side.receiving = (!ends).then_some(body);
    let mut client = Http2Client::new(side, respond, parts.method == http::Method::HEAD);
    let Some(tunnel) = &who.tunnel else { return };
    match Request::read_http2(&parts, ends, &tunnel.authority, &proxy.via) {
        Ok(request) => {
            Exchange::new(&proxy, &request, &who, began).run(&mut client, &mut timer, &mut LastPlace::default()).await
        }
        Err(refusal) => {
            let url = format!("{}{}", tunnel.authority, parts.uri.path_and_query().map_or("", |path| path.as_str()));
            let accept = parts.headers.get(http::header::ACCEPT).map(|accept| accept.as_bytes());
            let unread = Unread { refusal, accept, url: Some(url) };
            refuse_unread(&proxy, unread, &who, began, &mut client, &mut timer).await;
        }
    }
    client.finish().await;
}

/// Requests at a time on one connection.
const MAX_STREAMS: u32 = 100;
/// What a client may send on one stream before it is taken on; the connection has room for that of all streams.
const WINDOW: u32 = 64 * 1024;
const SEND_BUFFER: usize = 64 * 1024;
const GOODBYE: Duration = Duration::from_secs(1);
