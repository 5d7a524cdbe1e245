//! A client connection in HTTP/1: reads each head, then forwards the request or handles the CONNECT. Hands connections in
//! other protocols over to their modules.

use super::super::Proxy;
use super::super::exchange::carry::{BodySource, Client, DRAIN_TIMEOUT, Http1, Http1Client};
use super::super::exchange::key_directory::published;
use super::super::exchange::request::{Request, Unread};
use super::super::exchange::{Exchange, LastPlace, Outcome, answer_unread};
use super::super::io::{Buffer, Timer};
use super::connection::{Connection, FORGET, identify};
use super::http2;
use super::other_protocol;
use super::wire::Wire;
use super::{Tunnel, connect};
use crate::http1::{self, FieldRoom, Framing};
use crate::policy::{Authority, Refusal};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

/// The next step of a connection.
enum Next {
    /// Wait for a request.
    Idle,
    /// Read a head, whose first bytes have arrived.
    Head,
    /// HTTP/2 with prior knowledge (RFC 9113 §3.3).
    Http2,
    OtherProtocol,
    /// Handle a CONNECT: its authority, Via fields, and how long it may wait.
    Connect(Authority, Option<String>, Option<Duration>),
    /// Close: the client has left or was idle too long, the proxy stops, or the last answer had `Connection: close`.
    Close,
    /// Close, because another connection needs the place.
    MakeRoom,
    /// Close without lingering: the last answer is incomplete, or the client has closed its side and sends no more input.
    Cut,
}

impl Connection {
    /// Serves the connection until one side ends it.
    pub async fn serve(mut self: Box<Self>, proxy: &Arc<Proxy>) {
        if self.wire.is_h2() {
            return http2::serve(proxy, self).await;
        }
        let mut since = Instant::now();
        loop {
            let next = match self.idle(proxy, since).await {
                Next::Head => {
                    // Boxed, so that an idle connection does not hold the state of a request. `Box::pin` would copy that state.
                    let requests = self.requests(proxy, &mut since);
                    Box::into_pin(Box::write(Box::new_uninit(), requests)).await
                }
                next => next,
            };
            match next {
                Next::Idle | Next::Head => {}
                Next::Http2 => return http2::serve(proxy, self).await,
                Next::OtherProtocol => return Box::pin(other_protocol::serve(proxy, self)).await,
                Next::Connect(authority, via, wait) => {
                    // Boxed, because most connections are not tunnels.
                    return Box::pin(connect::connect(proxy, self, authority, via, wait)).await;
                }
                Next::Close => break,
                Next::MakeRoom => {
                    // Sends close_notify without waiting.
                    let _ = self.timer.limit(Instant::now(), self.wire.shutdown()).await;
                    return;
                }
                Next::Cut => return,
            }
        }
        // Boxed, so that an idle connection does not hold the state of a lingering close.
        Box::pin(self.linger(proxy)).await;
    }

    /// Waits for the start of a head and forgets the last host. `since`: start of the idle time.
    async fn idle(&mut self, proxy: &Proxy, since: Instant) -> Next {
        self.last_place = LastPlace::default();
        // Settings are not borrowed across an await: that would keep old ones alive and slow other borrowers down.
        let until = since + proxy.settings.load().limits.idle_timeout;
        while self.input.is_empty() {
            match self.more(since, until).await {
                Ok(()) => {}
                Err(Next::Idle) => return Next::Close,
                Err(next) => return next,
            }
        }
        Next::Head
    }

    /// Serves requests until the connection is idle.
    async fn requests(&mut self, proxy: &Arc<Proxy>, since: &mut Instant) -> Next {
        let mut head = Buffer::new();
        loop {
            match self.next_head(proxy, &mut head, since).await {
                Ok(Next::Head) => {}
                Ok(next) => return next,
                Err(refusal) => {
                    let raw = std::mem::take(&mut self.input);
                    let (unread, refused) = (Unread::of_http1(raw.bytes()), Outcome::Refused(refusal));
                    let mut client = Http1Client::new(Http1::new(&mut self.wire, &mut self.input), Framing::None);
                    client.is_head = unread.is_head;
                    let (peer, timer) = (&self.peer, &mut self.timer);
                    answer_unread(proxy, &unread, refused, peer, Instant::now(), &mut client, timer).await;
                    return Next::Close;
                }
            }
            let next = self.answer(proxy, &head).await;
            head.release();
            match next {
                Next::Idle => *since = Instant::now(),
                next => return next,
            }
        }
    }

    /// Reads a whole head and moves it to `head`. `since`: start of the idle time.
    async fn next_head(&mut self, proxy: &Proxy, head: &mut Buffer, since: &Instant) -> Result<Next, Refusal> {
        let (idle, header, size) = {
            let limits = &proxy.settings.load().limits;
            (limits.idle_timeout, limits.header_timeout, limits.max_header_size)
        };
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        // When the first bytes of the head arrived.
        let mut began = None;
        let mut scanned = 0;
        loop {
            let input = &mut self.input;
            // RFC 9112 §2.2: an empty line before the request line is ignored.
            while input.bytes().starts_with(b"\r\n") {
                input.consume(2);
                scanned = 0;
            }
            if input.bytes().starts_with(PREFACE) {
                return Ok(Next::Http2);
            }
            if other_protocol::is_other_protocol(input.bytes()) {
                return Ok(Next::OtherProtocol);
            }
            if !input.is_empty()
                && let Some(end) = http1::find_request_end(input.bytes(), &mut scanned, size)?
            {
                head.release();
                std::mem::swap(head, input);
                input.put_rest(head, end);
                return Ok(Next::Head);
            }
            let is_plain = |tunnel: &Tunnel| !tunnel.authority.is_https();
            if self.peer.tunnel.as_ref().is_some_and(is_plain) && other_protocol::is_no_request(input.bytes()) {
                return Ok(Next::OtherProtocol);
            }
            if !input.is_empty() && began.is_none() {
                began = Some(Instant::now());
            }
            let (since, at) = began.map_or((*since, *since + idle.min(FORGET)), |began| (began, began + header));
            match self.more(since, at).await {
                Ok(()) => {}
                Err(Next::Idle) if began.is_some() => return Err(Refusal::HeadTimeout { limit: header }),
                Err(next) => return Ok(next),
            }
        }
    }

    /// Reads once, with the deadline `at`. `since`: when the connection became idle, or when the head began.
    async fn more(&mut self, since: Instant, at: Instant) -> Result<(), Next> {
        let Connection { wire, input, timer, permit, place, .. } = self;
        if input.is_empty() {
            // An idle connection does not count against the user's limit.
            *place = None;
        }
        permit.waits(since);
        let more = poll_fn(|cx| {
            Poll::Ready(match input.poll_fill(cx, wire) {
                Poll::Ready(Ok(0)) if matches!(wire, Wire::Tcp(_)) => Err(Next::Cut),
                Poll::Ready(Ok(0) | Err(_)) => Err(Next::Close),
                Poll::Ready(Ok(_)) => Ok(()),
                Poll::Pending if permit.is_over() => Err(Next::Close),
                Poll::Pending if permit.makes_room() => Err(Next::MakeRoom),
                Poll::Pending => return timer.poll(cx, at).map(|()| Err(Next::Idle)),
            })
        });
        let more = more.await;
        permit.busy();
        more
    }

    /// Answers one request. The head is parsed once, here.
    async fn answer(&mut self, proxy: &Arc<Proxy>, raw: &Buffer) -> Next {
        let began = Instant::now();
        let Connection { wire, input, peer, timer, permit, place, last, last_place, .. } = self;
        let inside = peer.tunnel.as_ref().map(|tunnel| &tunnel.authority);
        let side = Http1::new(wire, input);
        let mut room = FieldRoom::new();
        let head = http1::read_whole_request(raw.bytes(), &mut room);
        let read = match &head {
            Ok(head) => Request::of_http1(head, inside, proxy.upstream.via(), last),
            Err(error) => Err((*error).into()),
        };
        let request = match read {
            Ok(ref request) => request,
            Err(refusal) => {
                let mut client = Http1Client::new(side, Framing::None);
                let unread = Unread::of_http1(raw.bytes());
                let directory = head.as_ref().ok();
                let directory = directory.and_then(|head| published(proxy, peer, head.method, head.target, None));
                client.is_head = unread.is_head;
                let outcome = directory.map_or(Outcome::Refused(refusal), Outcome::Answered);
                Box::pin(answer_unread(proxy, &unread, outcome, peer, began, &mut client, timer)).await;
                return Next::Close;
            }
        };
        let mut client = Http1Client::new(side, request.framing);
        client.is_http10 = request.version == http::Version::HTTP_10;
        client.is_head = request.method == "HEAD";
        client.expects_continue = request.expects_continue;
        // RFC 9931 §8: the connection ends after a refused CONNECT, because the bytes that follow may come from an untrusted source.
        client.persists = request.persists && !request.is_connect() && !permit.is_last();
        let settings = proxy.settings.load_full();
        let identified = identify(proxy, &settings, peer, place, request.credentials, &mut client, timer).await;
        if identified.is_ok() && request.is_connect() {
            return Next::Connect(request.authority.clone(), request.via.clone(), request.prefer_wait);
        }
        let mut exchange = Exchange::new(proxy, settings, request, peer, began);
        match identified {
            Err(outcome) => exchange.finish(outcome, &mut client, timer).await,
            Ok(()) => exchange.run(&mut client, timer, last_place).await,
        }
        if client.is_cut {
            if client.until_close {
                wire.will_reset();
            }
            return Next::Cut;
        }
        if client.is_last || !drain(&mut client, timer).await { Next::Close } else { Next::Idle }
    }
}

/// Drains the rest of a body, so that the next request can be read. Returns false if the body does not end in time.
async fn drain(client: &mut Http1Client<'_>, timer: &mut Timer) -> bool {
    if client.is_received() {
        return true;
    }
    let at = Instant::now() + DRAIN_TIMEOUT;
    let drained = poll_fn(|cx| {
        loop {
            let n = client.side.bytes().len();
            client.side.consume(n);
            match client.side.poll_more(cx) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) => return Poll::Ready(true),
                Poll::Ready(Err(_)) => return Poll::Ready(false),
                Poll::Pending => return Poll::Pending,
            }
        }
    });
    timer.limit(at, drained).await.unwrap_or(false)
}

/// Start of the HTTP/2 preface.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";
