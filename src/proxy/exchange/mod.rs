//! One request, from its head to the line in the log: decided, carried to its origin, answered. What ends here ends in
//! `finish`, which alone counts, records, logs and answers.

mod access_log;
pub mod carry;
pub mod counters;
mod decide;
mod forward;
pub mod offers;
pub mod pages;
pub mod published;
pub mod recent;
mod record;
pub mod request;
pub mod reserved;
pub mod revisit;
mod target;
pub mod tunnel;
pub mod via;
pub mod websocket;

pub use decide::{LastPlace, hosts, intercept_mode};

use super::Proxy;
use super::client::Who;
use super::io::{Buffer, Timer};
use super::respond::{Answer, Asked, Failure, SetupRequest, robots_copy, setup};
use crate::config::Settings;
use crate::gate::{Account, Permit, Reported};
use crate::policy::{Noted, Refusal, Visit};
use crate::upstream::Stream;
use carry::{Client, Http1, Moved, Side};
use decide::{Decided, is_listed};
use http::header;
use request::{Request, Unread};
use std::cell::Cell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;
use tokio::time::Instant;

/// What is known of the request under way.
pub struct Exchange<'a> {
    pub proxy: &'a Proxy,
    pub request: &'a Request<'a>,
    pub who: &'a Who,
    /// All that is done about it goes by these.
    pub settings: Arc<Settings>,
    pub began: Instant,
    /// Its turn at the host.
    permit: Option<Permit>,
    /// If the answer is a page, its parts may follow it.
    leads: bool,
    signature: Signature,
    trip: Trip,
    is_concluded: bool,
}

/// What has become of the request's signature (Web Bot Auth).
#[derive(Default)]
struct Signature {
    /// It left with one of ours.
    is_ours: bool,
    /// It came with the client's own.
    is_clients: bool,
    /// The origin has asked for one, and the request is to be sent again.
    is_wanted: bool,
    /// It has been sent again.
    is_repeated: bool,
}

/// How a request has fared so far, for the log.
#[derive(Default)]
struct Trip {
    gate: Account,
    /// In report mode, what would have been.
    reported: Option<Reported>,
    /// What the answer says about its use.
    noted: Option<Box<Noted>>,
    /// The other end of the connection that it was sent on, and whether that was there before.
    upstream: Option<(SocketAddr, bool)>,
    /// From when it was sent to the head of the answer.
    origin: Option<Duration>,
    /// That the client was answered with by the origin; 0: none.
    status: u16,
    moved: Moved,
    /// What is remembered of the page once it has been delivered.
    visit: Option<Box<(u64, Visit)>>,
    /// It is a CONNECT whose inside is not served here, and it was granted.
    is_tunnel: bool,
}

/// How it ended.
pub enum Outcome {
    /// The origin's answer was handed on, or the connection is another protocol's from now on.
    Forwarded,
    /// Answered from here, with what was asked for.
    Answered(Answer),
    /// A CONNECT whose inside is served here was granted.
    Intercepted,
    /// A CONNECT was granted, and what came of it is over.
    Tunnelled,
    Refused(Refusal),
    Failed(Failure),
    /// The origin's answer broke off.
    Cut(String),
    /// The client has left.
    Gone,
    /// The proxy does not wait for it any longer.
    Stopped,
}

impl From<Failure> for Box<Outcome> {
    fn from(failure: Failure) -> Self {
        Box::new(Outcome::Failed(failure))
    }
}

impl<'a> Exchange<'a> {
    pub fn new(
        proxy: &'a Proxy,
        settings: Arc<Settings>,
        request: &'a Request<'a>,
        who: &'a Who,
        began: Instant,
    ) -> Self {
        let trip = Trip { gate: Account::new(proxy.wanted()), ..Trip::default() };
        Exchange {
            proxy,
            request,
            who,
            settings,
            began,
            permit: None,
            leads: false,
            signature: Signature::default(),
            trip,
            is_concluded: false,
        }
    }

    /// From the decision to the end of the answer. `last`: where the request before on its connection went.
    pub async fn run<C: Client>(mut self, client: &mut C, timer: &mut Timer, last: &mut LastPlace) {
        let outcome = self.outcome(client, timer, last).await;
        self.finish(outcome, client, timer).await;
    }

    async fn outcome<C: Client>(&mut self, client: &mut C, timer: &mut Timer, last: &mut LastPlace) -> Outcome {
        if let Err(refusal) = self.agree() {
            return Outcome::Refused(refusal);
        }
        if self.request.max_forwards == Some(0) && !self.request.is_looped {
            return Outcome::Answered(Answer::last_forward(self.request.method));
        }
        let decided = {
            let deciding = pin!(self.decide(last));
            client.wait(timer, deciding).await
        };
        if is_timed() && self.trip.gate.held().is_zero() {
            self.proxy.counters.decided(self.began.elapsed());
        }
        let decided = match decided {
            Some(Ok(decided)) => decided,
            Some(Err(refusal)) => return Outcome::Refused(refusal),
            None => return Outcome::Gone,
        };
        match decided {
            Decided::Go(go) => {
                self.permit = Some(go.permit);
                self.trip.reported = go.reported.or(self.trip.reported.take());
                self.forward(client, timer, go.route).await
            }
            Decided::NotModified(answer) => Outcome::Answered(answer),
            Decided::Robots(copy) => {
                let conditions = self.request.head.fields_named(&[header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE]);
                Outcome::Answered(robots_copy(&copy, &conditions))
            }
            Decided::Setup => {
                let Request { method, target, accept, authority, .. } = self.request;
                let host = authority.host().to_string();
                let asked = SetupRequest { method, target, accept: *accept, host: &host };
                Outcome::Answered(setup(&self.proxy.leaves.ca(), &asked))
            }
        }
    }

    /// A CONNECT is granted: its inside is served here. `false`: the client does not hear it.
    pub async fn intercepted<C: Client>(mut self, client: &mut C, timer: &mut Timer) -> bool {
        self.trip.status = 200;
        client.grant();
        self.conclude(Outcome::Intercepted);
        let settings = self.settings.clone();
        flush(&settings, client, timer).await
    }

    /// A CONNECT is granted: what is inside goes through unread, until one side ends it.
    pub async fn tunnelled<C: Client>(mut self, mut origin: Stream, client: &mut C, timer: &mut Timer) {
        (self.trip.status, self.trip.is_tunnel) = (200, true);
        self.proxy.counters.tunnelled();
        self.proxy.counters.forwarded(self.who.user.as_deref());
        client.grant();
        if flush(&self.settings, client, timer).await {
            let mut ahead = Buffer::new();
            let mut origin = Http1::new(&mut origin, &mut ahead);
            client.open();
            origin.open();
            let idle = self.settings.limits.tunnel_idle_timeout;
            tunnel::run(client.side(), &mut origin, idle, timer, &mut self.trip.moved).await;
        }
        self.conclude(Outcome::Tunnelled);
    }

    /// The name in the TLS handshake has to be that of the CONNECT around it.
    fn agree(&self) -> Result<(), Refusal> {
        match self.who.tunnel.as_ref().and_then(|tunnel| Some((tunnel, tunnel.other_name.as_ref()?))) {
            Some((tunnel, name)) => Err(Refusal::AuthorityMismatch {
                connection: tunnel.authority.to_string().into(),
                request: format!("{name} (the name in the TLS handshake)").into(),
            }),
            None => Ok(()),
        }
    }

    /// The only end. The turn is given back before anything is written.
    pub async fn finish<C: Client>(mut self, outcome: Outcome, client: &mut C, timer: &mut Timer) {
        self.permit = None;
        // Where the body has stopped nobody waits for its rest.
        let is_after_origin = matches!(outcome, Outcome::Failed(_) | Outcome::Refused(Refusal::AnswerReserved(_)));
        let is_last = is_after_origin && !client.is_received();
        match self.conclude(outcome) {
            Last::Answer(answer) => {
                // The connection stays usable unless the rest of the request cannot be told from the next.
                let is_last = is_last || self.proxy.is_leaving() || !client.may_skip_body();
                client.answer_locally(answer, is_last);
                flush(&self.settings, client, timer).await;
            }
            Last::Cut => client.cut(),
            Last::Said => {}
        }
    }

    fn conclude(&mut self, outcome: Outcome) -> Last {
        self.is_concluded = true;
        let sent = self.trip.upstream.is_some() || self.trip.is_tunnel;
        self.trip.gate.settle(sent, self.trip.moved.down);
        if matches!(outcome, Outcome::Forwarded) {
            self.delivered();
        }
        let Exchange { proxy, ref settings, who, began, request, ref trip, .. } = *self;
        About { proxy, settings, who, began, request: Ok(request), trip }.conclude(outcome)
    }
}

/// Its task has ended before it: with the client's HTTP/2 connection, or the proxy.
impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        if !self.is_concluded {
            self.conclude(match (self.trip.is_tunnel, self.proxy.is_stopping()) {
                (true, _) => Outcome::Tunnelled,
                (false, true) => Outcome::Stopped,
                (false, false) => Outcome::Gone,
            });
        }
    }
}

/// What is known of an exchange at its end. `request`: what there is of one that could not be read.
struct About<'a> {
    proxy: &'a Proxy,
    settings: &'a Settings,
    who: &'a Who,
    began: Instant,
    request: Result<&'a Request<'a>, &'a Unread<'a>>,
    trip: &'a Trip,
}

/// What is left to be done for the client.
enum Last {
    /// It has its answer.
    Said,
    Answer(Answer),
    /// There is none.
    Cut,
}

impl About<'_> {
    /// Counts, records and logs.
    fn conclude(&self, outcome: Outcome) -> Last {
        let proxy = self.proxy;
        let user = self.who.user.as_deref();
        let line = proxy.is_logging.load(Ordering::Relaxed).then(|| self.line(&outcome));
        let record = proxy.evidence.as_ref().map(|evidence| (evidence, self.record(evidence, &outcome)));
        let last = match outcome {
            Outcome::Forwarded => {
                proxy.counters.forwarded(user);
                Last::Said
            }
            Outcome::Answered(answer) => {
                proxy.counters.forwarded(user);
                Last::Answer(answer)
            }
            // Counted when it was granted.
            Outcome::Tunnelled | Outcome::Intercepted => Last::Said,
            Outcome::Refused(refusal) => {
                let url = self.url();
                let asked = Asked { url: url.as_deref(), accept: self.accept() };
                let answer = Answer::refusal(&refusal, &asked, self.settings);
                proxy.tell_refused(self.who, url, refusal);
                Last::Answer(answer)
            }
            Outcome::Failed(failure) => {
                self.count_failure(&failure.detail);
                let url = self.url();
                Last::Answer(Answer::failure(&failure, &Asked { url: url.as_deref(), accept: self.accept() }))
            }
            Outcome::Cut(why) => {
                self.count_failure(&why);
                Last::Cut
            }
            Outcome::Gone => {
                proxy.counters.client_gone(user);
                Last::Cut
            }
            Outcome::Stopped => Last::Cut,
        };
        if let Some(line) = line {
            line.write(self, &last);
        }
        if let Some((evidence, record)) = record {
            self.put(evidence, record, &last);
        }
        last
    }

    fn count_failure(&self, why: &str) {
        let user = self.who.user.as_deref();
        match self.request {
            Ok(request) => self.proxy.counters.failed_at(&request.authority, why, user),
            Err(_) => self.proxy.counters.failed(user),
        }
    }

    fn url(&self) -> Option<String> {
        self.request.map_or_else(|unread| unread.url.clone(), |request| Some(request.url()))
    }

    fn accept(&self) -> Option<&[u8]> {
        self.request.map_or_else(|unread| unread.accept, |request| request.accept)
    }
}

/// Answers a head that is no request. In HTTP/1 nothing is kept of the connection.
pub async fn refuse_unread<C: Client>(
    proxy: &Proxy,
    unread: Unread<'_>,
    who: &Who,
    began: Instant,
    client: &mut C,
    timer: &mut Timer,
) {
    let settings = proxy.settings.load_full();
    let about = About { proxy, settings: &settings, who, began, request: Err(&unread), trip: &Trip::default() };
    if let Last::Answer(answer) = about.conclude(Outcome::Refused(unread.refusal.clone())) {
        client.answer_locally(answer, true);
        flush(&settings, client, timer).await;
    }
}

/// One who asks in another protocol is refused in its words.
pub fn refuse_unanswered(proxy: &Proxy, refusal: Refusal, who: &Who, began: Instant) {
    let unread = Unread { refusal, accept: None, url: None };
    let settings = proxy.settings.load_full();
    let about = About { proxy, settings: &settings, who, began, request: Err(&unread), trip: &Trip::default() };
    about.conclude(Outcome::Refused(unread.refusal.clone()));
}

/// Whether the time that this decision took is taken: one in so many is enough to know.
fn is_timed() -> bool {
    thread_local!(static COUNT: Cell<u8> = const { Cell::new(0) });
    COUNT.with(|count| count.replace((count.get() + 1) % TIMED)) == 0
}

const TIMED: u8 = 64;

/// A client that does not read loses its connection.
async fn flush<C: Client>(settings: &Settings, client: &mut C, timer: &mut Timer) -> bool {
    let at = Instant::now() + settings.limits.read_timeout;
    let flushed = poll_fn(|cx| match client.side().poll_flush(cx) {
        Poll::Ready(flushed) => Poll::Ready(flushed.is_ok()),
        Poll::Pending => timer.poll(cx, at).map(|()| false),
    });
    let flushed = flushed.await;
    if !flushed {
        client.cut();
    }
    flushed
}
