//! A client's connection in HTTP/1: each head is read here, then the request is carried, or a CONNECT opened. What turns out to be
//! another protocol is passed on.

use super::super::Proxy;
use super::super::exchange::carry::{BodySource, Client, Http1, Http1Client, UNWANTED};
use super::super::exchange::key_directory::published;
use super::super::exchange::request::{Request, Unread};
use super::super::exchange::{Exchange, LastPlace, Outcome, answer_unread};
use super::super::io::{Buffer, Timer};
use super::connect;
use super::connection::{Connection, identify};
use super::foreign;
use super::http2;
use crate::http1::{self, FieldRoom, Framing, HeadError};
use crate::policy::{Authority, Refusal};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

/// What comes between two requests.
enum Came {
    Head,
    /// HTTP/2 with prior knowledge (RFC 9113 §3.3).
    Http2,
    /// No HTTP.
    Foreign,
    /// The client has left, was idle too long, or the proxy stops.
    Nothing,
    /// Others need the room.
    TakenAway,
}

/// What follows a request.
enum Then {
    Another,
    /// Another protocol, or the inside of a CONNECT.
    Opened(Authority, Option<String>),
    /// Nothing: the answer says so.
    Close,
    /// Nothing, and the last answer is not whole.
    Cut,
}

impl Connection {
    /// Until one side ends it.
    pub async fn serve(mut self, proxy: &Arc<Proxy>) {
        if self.wire.is_h2() {
            return http2::serve(proxy, self).await;
        }
        let mut stop = Stop { stopped: Box::pin(proxy.stopped_for_a_while()), is_set: false };
        let mut head = Buffer::new();
        loop {
            match self.next_head(proxy, &mut head, &mut stop).await {
                Ok(Came::Head) => {}
                Ok(Came::Nothing) => break,
                Ok(Came::Http2) => return http2::serve(proxy, self).await,
                Ok(Came::Foreign) => return Box::pin(foreign::serve(proxy, self)).await,
                Ok(Came::TakenAway) => {
                    // TLS has a goodbye, for which nobody waits.
                    let _ = self.timer.limit(Instant::now(), self.wire.shutdown()).await;
                    return;
                }
                Err(refusal) => {
                    let raw = std::mem::take(&mut self.input);
                    let (unread, refused) = (Unread::of_http1(raw.bytes()), Outcome::Refused(refusal));
                    let mut client = Http1Client::new(Http1::new(&mut self.wire, &mut self.input), Framing::None);
                    let (peer, timer) = (&self.peer, &mut self.timer);
                    answer_unread(proxy, &unread, refused, peer, Instant::now(), &mut client, timer).await;
                    break;
                }
            }
            // What is needed while a request is under way takes no room in a connection that is idle. It is made where it
            // stays: `Box::pin` would copy all of it.
            let then = Box::into_pin(Box::write(Box::new_uninit(), self.answer(proxy, &head))).await;
            head.release();
            match then {
                Then::Another => {}
                Then::Opened(authority, via) => {
                    // What most connections are not takes no room in them.
                    return Box::pin(connect::connect(proxy, self, authority, via, false)).await;
                }
                Then::Close => break,
                Then::Cut => return,
            }
        }
        self.linger(proxy).await;
    }

    /// Reads until a whole head is there and moves it to `head`.
    async fn next_head(&mut self, proxy: &Proxy, head: &mut Buffer, stop: &mut Stop<'_>) -> Result<Came, Refusal> {
        let Connection { wire, input, timer, permit, last_place, .. } = self;
        // Settings are never lent while anything is waited for: old ones would stay, and each loan makes others dearer.
        let (idle, header, size) = {
            let limits = &proxy.settings.load().limits;
            (limits.idle_timeout, limits.header_timeout, limits.max_header_size)
        };
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let (mut deadline, mut is_forgotten) = (None, false);
        let idle_since = Instant::now();
        let idle_at = idle_since + idle;
        let mut scanned = 0;
        loop {
            // RFC 9112 §2.2: an empty line before the request line is ignored.
            while input.bytes().starts_with(b"\r\n") {
                input.consume(2);
                scanned = 0;
            }
            if input.bytes().starts_with(PREFACE) {
                return Ok(Came::Http2);
            }
            if foreign::is_foreign(input.bytes()) {
                return Ok(Came::Foreign);
            }
            if !input.is_empty()
                && let Some(end) = http1::find_request_end(input.bytes(), &mut scanned, size)?
            {
                head.release();
                std::mem::swap(head, input);
                input.put_rest(head, end);
                return Ok(Came::Head);
            }
            if !input.is_empty() && deadline.is_none() {
                deadline = Some(Instant::now() + header);
            }
            let at = deadline.unwrap_or(if is_forgotten { idle_at } else { idle_at.min(idle_since + FORGET) });
            let read = poll_fn(|cx| {
                if let Poll::Ready(read) = input.poll_fill(cx, wire) {
                    return Poll::Ready(Ok(read));
                }
                if stop.poll(cx, proxy).is_ready() {
                    return Poll::Ready(Err(Came::Nothing));
                }
                if input.is_empty() && permit.poll_idle(cx, idle_since).is_ready() {
                    return Poll::Ready(Err(Came::TakenAway));
                }
                timer.poll(cx, at).map(|()| Err(Came::Head))
            });
            let read = read.await;
            permit.busy();
            match read {
                Err(came @ (Came::Nothing | Came::TakenAway | Came::Http2 | Came::Foreign)) => return Ok(came),
                Ok(Ok(0) | Err(_)) => return Ok(Came::Nothing),
                Ok(Ok(_)) => {}
                // A client that asks for nothing more keeps no host in memory.
                Err(Came::Head) if deadline.is_none() && !is_forgotten => {
                    (is_forgotten, *last_place) = (true, LastPlace::default());
                }
                Err(Came::Head) if deadline.is_none() => return Ok(Came::Nothing),
                Err(Came::Head) => return Err(Refusal::HeadTimeout { limit: header }),
            }
        }
    }

    /// One request. Its head is read here, once.
    async fn answer(&mut self, proxy: &Arc<Proxy>, raw: &Buffer) -> Then {
        let began = Instant::now();
        let Connection { wire, input, peer, timer, place, last, last_place, .. } = self;
        let inside = peer.tunnel.as_ref().map(|tunnel| &tunnel.authority);
        let side = Http1::new(wire, input);
        let mut room = FieldRoom::new();
        // Its end is known: that of the bytes.
        let mut scanned = raw.bytes().len().saturating_sub(2);
        let head = http1::read_request(raw.bytes(), &mut scanned, usize::MAX, &mut room);
        let head = head.and_then(|head| head.ok_or(HeadError::Malformed("the head ends early")));
        let read = match &head {
            Ok(head) => Request::of_http1(head, inside, &proxy.via, last),
            Err(error) => Err((*error).into()),
        };
        let request = match read {
            Ok(request) => request,
            Err(refusal) => {
                let mut client = Http1Client::new(side, Framing::None);
                let directory = head.ok().and_then(|head| {
                    client.is_head = head.method == "HEAD";
                    published(proxy, peer, head.method, head.target, None)
                });
                let outcome = directory.map_or(Outcome::Refused(refusal), Outcome::Answered);
                let unread = Unread::of_http1(raw.bytes());
                Box::pin(answer_unread(proxy, &unread, outcome, peer, began, &mut client, timer)).await;
                return Then::Close;
            }
        };
        let mut client = Http1Client::new(side, request.framing);
        client.is_old = request.version == http::Version::HTTP_10;
        client.is_head = request.method == "HEAD";
        client.expects_continue = request.expects_continue;
        // RFC 9931 §8: what follows a refused CONNECT may be somebody's who is not to be trusted with requests.
        client.persists = request.persists && !request.is_connect();
        let settings = proxy.settings.load_full();
        match identify(proxy, &settings, peer, place, request.credentials).await {
            Err(refusal) => {
                let exchange = Exchange::new(proxy, settings, &request, peer, began);
                exchange.finish(Outcome::Refused(refusal), &mut client, timer).await;
            }
            Ok(()) if request.is_connect() => return Then::Opened(request.authority, request.via),
            Ok(()) => Exchange::new(proxy, settings, &request, peer, began).run(&mut client, timer, last_place).await,
        }
        if client.is_cut {
            if client.until_close {
                wire.will_reset();
            }
            return Then::Cut;
        }
        if client.is_last || !drain(&mut client, timer).await { Then::Close } else { Then::Another }
    }
}

/// Takes the rest of a body that nobody wants, for the sake of the next request. `false`: it does not come.
async fn drain(client: &mut Http1Client<'_>, timer: &mut Timer) -> bool {
    if client.is_received() {
        return true;
    }
    let at = Instant::now() + UNWANTED;
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

/// That the proxy stops, for one connection: not before what its client may be sending has come.
struct Stop<'a> {
    stopped: Pin<Box<dyn Future<Output = ()> + Send + 'a>>,
    /// The connection's task is woken.
    is_set: bool,
}

impl Stop<'_> {
    fn poll(&mut self, cx: &mut Context<'_>, proxy: &Proxy) -> Poll<()> {
        if self.is_set && !proxy.is_stopping() {
            return Poll::Pending;
        }
        self.is_set = true;
        self.stopped.as_mut().poll(cx)
    }
}

/// How HTTP/2 begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";
/// After which a connection no longer knows where its last request went.
const FORGET: Duration = Duration::from_secs(1);
