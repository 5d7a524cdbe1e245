//! One request, from its head to the line in the log: decided, carried to its origin, answered. What ends here ends in
//! `finish`, which alone counts, records, logs and answers.

mod access_log;
pub mod carry;
pub mod counters;
mod decide;
mod forward;
pub mod pages;
pub mod recent;
pub mod request;
mod target;
pub mod tunnel;
pub mod via;
pub mod websocket;

pub use decide::{LastPlace, hosts};

use super::Proxy;
use super::client::Who;
use super::io::Timer;
use super::respond::{Answer, Asked, Failure, SetupRequest, robots_copy, setup};
use crate::gate::{Permit, Reported};
use crate::policy::Refusal;
use access_log::Record;
use carry::{Client, Side};
use decide::Decided;
use http::header;
use request::{Request, Unread};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use tokio::time::Instant;

/// What is known of the request under way.
pub struct Exchange<'a> {
    pub proxy: &'a Proxy,
    pub request: &'a Request<'a>,
    pub who: &'a Who,
    pub began: Instant,
    /// Its turn at the host.
    permit: Option<Permit>,
    /// In report mode, what would have been.
    reported: Option<Reported>,
    /// That the client was answered with by the origin; 0: none.
    status: u16,
    /// If the answer is a page, its parts may follow it.
    leads: bool,
}

/// How it ended.
pub enum Outcome {
    /// The origin's answer was handed on, or the connection is another protocol's from now on.
    Forwarded,
    /// Answered from here, with what was asked for.
    Answered(Answer),
    Refused(Refusal),
    Failed(Failure),
    /// The origin's answer broke off.
    Cut(String),
    /// The client has left.
    Gone,
}

impl<'a> Exchange<'a> {
    pub fn new(proxy: &'a Proxy, request: &'a Request<'a>, who: &'a Who, began: Instant) -> Self {
        Exchange { proxy, request, who, began, permit: None, reported: None, status: 0, leads: false }
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
            let deciding = pin!(self.proxy.decide(self.request, self.who, self.began, last));
            client.wait(timer, deciding).await
        };
        let decided = match decided {
            Some(Ok(decided)) => decided,
            Some(Err(refusal)) => return Outcome::Refused(refusal),
            None => return Outcome::Gone,
        };
        match decided {
            Decided::Go(go) => {
                (self.permit, self.reported) = (Some(go.permit), go.reported);
                self.forward(client, timer, go.route).await
            }
            Decided::Robots(copy) => {
                let conditions = self.request.head.fields_named(&[header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE]);
                Outcome::Answered(robots_copy(&copy, &conditions))
            }
            Decided::Setup => {
                let Request { method, target, accept, authority, .. } = self.request;
                let host = authority.host().to_string();
                let asked = SetupRequest { method, target, accept: *accept, host: &host };
                Outcome::Answered(setup(self.proxy.leaves.ca(), &asked))
            }
        }
    }

    /// A CONNECT is granted: told, counted if its inside is not served here, logged. `false`: the client does not hear it.
    pub async fn established<C: Client>(mut self, is_tunnel: bool, client: &mut C, timer: &mut Timer) -> bool {
        self.status = 200;
        if is_tunnel {
            self.proxy.counters.tunnelled();
            self.about().conclude(Outcome::Forwarded);
        }
        flush(self.proxy, client, timer).await
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
        let is_last = matches!(outcome, Outcome::Failed(_)) && !client.is_received();
        match self.about().conclude(outcome) {
            Last::Answer(answer) => answer_locally(self.proxy, answer, client, timer, is_last).await,
            Last::Cut => client.cut(),
            Last::Said => {}
        }
    }

    fn about(&self) -> About<'_> {
        About {
            proxy: self.proxy,
            who: self.who,
            began: self.began,
            request: Ok(self.request),
            reported: self.reported.as_ref(),
            status: self.status,
        }
    }
}

/// What is known of an exchange at its end. `request`: what there is of one that could not be read.
struct About<'a> {
    proxy: &'a Proxy,
    who: &'a Who,
    began: Instant,
    request: Result<&'a Request<'a>, &'a Unread<'a>>,
    reported: Option<&'a Reported>,
    status: u16,
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
        let (mut refused, mut error) = (None, None);
        let address = self.who.address.ip();
        let last = match outcome {
            Outcome::Forwarded => {
                proxy.counters.forwarded();
                Last::Said
            }
            Outcome::Answered(answer) => {
                proxy.counters.forwarded();
                Last::Answer(answer)
            }
            Outcome::Refused(refusal) => {
                refused = Some(refusal.slug());
                let url = self.url();
                let asked = Asked { url: url.as_deref(), accept: self.accept() };
                let answer = Answer::refusal(&refusal, &asked, &proxy.settings.load());
                proxy.tell_refused(address, url, refusal);
                Last::Answer(answer)
            }
            Outcome::Failed(failure) => {
                self.count_failure(&failure.detail);
                (refused, error) = (Some(failure.error), Some(failure.detail.clone()));
                let url = self.url();
                Last::Answer(Answer::failure(&failure, &Asked { url: url.as_deref(), accept: self.accept() }))
            }
            Outcome::Cut(why) => {
                self.count_failure(&why);
                error = Some(why);
                Last::Cut
            }
            Outcome::Gone => {
                proxy.counters.client_gone();
                error = Some("the client has left".into());
                Last::Cut
            }
        };
        if tracing::enabled!(target: "access", tracing::Level::INFO) {
            let status = match &last {
                Last::Answer(answer) => answer.status.as_u16(),
                Last::Said | Last::Cut => self.status,
            };
            let url = self.url();
            let record = Record {
                client: address,
                method: self.request.ok().map(|request| request.method),
                url: url.as_deref(),
                status,
                began: self.began,
                refused,
                reported: self.reported,
                error,
            };
            record.write();
        }
        last
    }

    fn count_failure(&self, why: &str) {
        match self.request {
            Ok(request) => self.proxy.counters.failed_at(&request.authority, why),
            Err(_) => self.proxy.counters.failed(),
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
    tracing::info!(client = %who.address, refusal = unread.refusal.slug(), "{}", unread.refusal);
    let about = About { proxy, who, began, request: Err(&unread), reported: None, status: 0 };
    if let Last::Answer(answer) = about.conclude(Outcome::Refused(unread.refusal.clone())) {
        client.answer_locally(answer, true);
        flush(proxy, client, timer).await;
    }
}

/// One buffer, one write. The connection stays usable unless the rest of the request cannot be told from the next.
async fn answer_locally<C: Client>(proxy: &Proxy, answer: Answer, client: &mut C, timer: &mut Timer, is_last: bool) {
    let is_last = is_last || proxy.is_stopping() || !client.may_skip_body();
    client.answer_locally(answer, is_last);
    flush(proxy, client, timer).await;
}

/// A client that does not read loses its connection.
async fn flush<C: Client>(proxy: &Proxy, client: &mut C, timer: &mut Timer) -> bool {
    let at = Instant::now() + proxy.settings.load().limits.read_timeout;
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
