//! A client connection in HTTP/1: reads each head, then forwards the request or opens a CONNECT. Hands other
//! protocols over.

use super::super::Proxy;
use super::super::exchange::carry::{BodySource, Client, Http1, Http1Client, UNWANTED};
use super::super::exchange::key_directory::published;
use super::super::exchange::request::{Request, Unread};
use super::super::exchange::{Exchange, LastPlace, Outcome, answer_unread};
use super::super::io::{Buffer, Timer};
use super::connect;
use super::connection::{Connection, identify, while_there};
use super::foreign;
use super::http2;
use crate::http1::{self, FieldRoom, Framing};
use crate::policy::{Authority, Refusal};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

/// What comes between two requests.
enum Came {
    /// At least the beginning of one.
    Head,
    /// HTTP/2 with prior knowledge (RFC 9113 §3.3).
    Http2,
    /// No HTTP.
    Foreign,
    /// The client has left, was idle too long, or the proxy stops.
    Nothing,
    /// Others need the room.
    TakenAway,
    /// Nothing so far.
    Idle,
}

/// What follows a request.
enum Then {
    Another,
    /// No other so far, or another protocol.
    Came(Came),
    /// Another protocol, or the inside of a CONNECT.
    Opened(Authority, Option<String>),
    /// Nothing: the answer says so.
    Close,
    /// Nothing, and the last answer is not whole.
    Cut,
}

impl Connection {
    /// Serves the connection until one side ends it.
    pub async fn serve(mut self, proxy: &Arc<Proxy>) {
        if self.wire.is_h2() {
            return http2::serve(proxy, self).await;
        }
        let mut stop = Stop { stopped: Box::pin(proxy.stopped_for_a_while()), is_set: false };
        let mut since = Instant::now();
        let mut came = Came::Idle;
        loop {
            match came {
                Came::Head | Came::Idle => {}
                Came::Nothing => break,
                Came::Http2 => return http2::serve(proxy, self).await,
                Came::Foreign => return Box::pin(foreign::serve(proxy, self)).await,
                Came::TakenAway => {
                    // Sends close_notify without waiting.
                    let _ = self.timer.limit(Instant::now(), self.wire.shutdown()).await;
                    return;
                }
            }
            came = self.idle(proxy, since, &mut stop).await;
            if !matches!(came, Came::Head) {
                continue;
            }
            // Boxed, so that an idle connection does not hold the state of a request. `Box::pin` would copy the
            // future.
            let requests = self.requests(proxy, &mut since, &mut stop);
            came = match Box::into_pin(Box::write(Box::new_uninit(), requests)).await {
                Then::Another => Came::Idle,
                Then::Came(came) => came,
                Then::Opened(authority, via) => {
                    // Boxed, because most connections are not tunnels.
                    return Box::pin(connect::connect(proxy, self, authority, via, false)).await;
                }
                Then::Close => break,
                Then::Cut => return,
            };
        }
        self.linger(proxy).await;
    }

    /// Waits for the start of a head and forgets the last host. `since`: start of the idle time.
    async fn idle(&mut self, proxy: &Proxy, since: Instant, stop: &mut Stop<'_>) -> Came {
        self.last_place = LastPlace::default();
        // Settings are not borrowed across an await: that would keep old ones alive and slow other borrowers down.
        let until = since + proxy.settings.load().limits.idle_timeout;
        while self.input.is_empty() {
            match self.more(proxy, since, until, stop).await {
                Ok(()) => {}
                Err(Came::Idle) => return Came::Nothing,
                Err(came) => return came,
            }
        }
        Came::Head
    }

    /// Serves requests until the connection is idle.
    async fn requests(&mut self, proxy: &Arc<Proxy>, since: &mut Instant, stop: &mut Stop<'_>) -> Then {
        let mut head = Buffer::new();
        loop {
            match self.next_head(proxy, &mut head, since, stop).await {
                Ok(Came::Head) => {}
                Ok(came) => return Then::Came(came),
                Err(refusal) => {
                    let raw = std::mem::take(&mut self.input);
                    let (unread, refused) = (Unread::of_http1(raw.bytes()), Outcome::Refused(refusal));
                    let mut client = Http1Client::new(Http1::new(&mut self.wire, &mut self.input), Framing::None);
                    let (peer, timer) = (&self.peer, &mut self.timer);
                    answer_unread(proxy, &unread, refused, peer, Instant::now(), &mut client, timer).await;
                    return Then::Close;
                }
            }
            let then = self.answer(proxy, &head).await;
            head.release();
            match then {
                Then::Another => *since = Instant::now(),
                then => return then,
            }
        }
    }

    /// Reads a whole head and moves it to `head`. `since`: start of the idle time.
    async fn next_head(
        &mut self,
        proxy: &Proxy,
        head: &mut Buffer,
        since: &Instant,
        stop: &mut Stop<'_>,
    ) -> Result<Came, Refusal> {
        let (idle, header, size) = {
            let limits = &proxy.settings.load().limits;
            (limits.idle_timeout, limits.header_timeout, limits.max_header_size)
        };
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let mut deadline = None;
        let mut scanned = 0;
        loop {
            let input = &mut self.input;
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
            let at = deadline.unwrap_or(*since + idle.min(FORGET));
            match self.more(proxy, *since, at, stop).await {
                Ok(()) => {}
                Err(Came::Idle) if deadline.is_some() => return Err(Refusal::HeadTimeout { limit: header }),
                Err(came) => return Ok(came),
            }
        }
    }

    /// Reads once, until `at`. `since`: start of the idle time.
    async fn more(&mut self, proxy: &Proxy, since: Instant, at: Instant, stop: &mut Stop<'_>) -> Result<(), Came> {
        let Connection { wire, input, timer, permit, .. } = self;
        let more = poll_fn(|cx| {
            Poll::Ready(match input.poll_fill(cx, wire) {
                Poll::Ready(Ok(0) | Err(_)) => Err(Came::Nothing),
                Poll::Ready(Ok(_)) => Ok(()),
                Poll::Pending if stop.poll(cx, proxy).is_ready() => Err(Came::Nothing),
                Poll::Pending if input.is_empty() && permit.poll_idle(cx, since).is_ready() => Err(Came::TakenAway),
                Poll::Pending => return timer.poll(cx, at).map(|()| Err(Came::Idle)),
            })
        });
        let more = more.await;
        permit.busy();
        more
    }

    /// Answers one request. The head is parsed once, here.
    async fn answer(&mut self, proxy: &Arc<Proxy>, raw: &Buffer) -> Then {
        let began = Instant::now();
        let Connection { wire, input, peer, timer, place, last, last_place, .. } = self;
        let inside = peer.tunnel.as_ref().map(|tunnel| &tunnel.authority);
        let side = Http1::new(wire, input);
        let mut room = FieldRoom::new();
        let head = http1::read_whole_request(raw.bytes(), &mut room);
        let read = match &head {
            Ok(head) => Request::of_http1(head, inside, &proxy.via, last),
            Err(error) => Err((*error).into()),
        };
        let request = match read {
            Ok(ref request) => request,
            Err(refusal) => {
                let mut client = Http1Client::new(side, Framing::None);
                let directory = head.as_ref().ok().and_then(|head| {
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
        // RFC 9931 §8: the bytes after a refused CONNECT may come from an untrusted source.
        client.persists = request.persists && !request.is_connect();
        let settings = proxy.settings.load_full();
        let identifying = identify(proxy, &settings, peer, place, request.credentials);
        let identified = while_there(&mut client, timer, pin!(identifying)).await;
        if identified.is_ok() && request.is_connect() {
            return Then::Opened(request.authority.clone(), request.via.clone());
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
            return Then::Cut;
        }
        if client.is_last || !drain(&mut client, timer).await { Then::Close } else { Then::Another }
    }
}

/// Drains an unwanted body, so that the next request can be read. Returns false if its end does not come in time.
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

/// The stop signal for one connection, delayed until requests in flight have been read.
struct Stop<'a> {
    stopped: Pin<Box<dyn Future<Output = ()> + Send + 'a>>,
    /// The stop signal will wake the task.
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

/// Start of the HTTP/2 preface.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";
/// A connection without requests for this long forgets its last host.
const FORGET: Duration = Duration::from_secs(1);
