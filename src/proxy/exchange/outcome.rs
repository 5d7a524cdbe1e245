//! How an exchange ended: the outcome, which is then counted, recorded, logged and answered.

use super::outcome_counts::FORWARDED;
use super::request::{Request, Unread};
use super::state::Trip;
use super::users::Cost;
use crate::config::Settings;
use crate::gate::Reported;
use crate::policy::refusal::shortened;
use crate::policy::{Allowance, LineEvidence, Refusal};
use crate::proxy::Proxy;
use crate::proxy::client::Peer;
use crate::proxy::respond::{Answer, Failure};
use std::sync::atomic::Ordering;
use tokio::time::Instant;

/// How an exchange ended.
#[non_exhaustive]
pub enum Outcome {
    /// The origin's answer was forwarded, or the connection switched protocols.
    Forwarded,
    /// Answered from the cache, possibly after revalidation.
    Cached,
    /// Answered by the proxy itself.
    Answered(Answer),
    /// An intercepted CONNECT was granted.
    Intercepted,
    /// A granted tunnel has ended.
    Tunnelled,
    Refused(Refusal),
    Failed(Failure),
    /// The answer broke off after its beginning was sent: the origin or the cache failed, or one side was too slow.
    Cut(String),
    /// The client has left.
    ClientGone,
    /// The proxy stopped before the exchange ended.
    ProxyStopped,
}

impl Outcome {
    /// The outcome's name, its proxy error type (RFC 9209), and its reason.
    pub(super) fn words(&self, trip: &Trip) -> (&'static str, Option<&'static str>, Option<&str>) {
        match self {
            Outcome::Forwarded => ("forwarded", None, None),
            Outcome::Cached => ("cached", None, None),
            Outcome::Answered(_) => ("answered", None, None),
            Outcome::Intercepted => ("intercepted", None, None),
            Outcome::Tunnelled => ("tunnelled", None, None),
            Outcome::Refused(_) => ("refused", None, None),
            Outcome::Failed(failure) => ("failed", Some(failure.error), Some(&failure.detail)),
            Outcome::Cut(why) => ("cut", None, Some(why)),
            Outcome::ClientGone => ("client-gone", None, None),
            Outcome::ProxyStopped => {
                (if trip.status == 0 { "failed" } else { "cut" }, None, Some("the proxy has stopped"))
            }
        }
    }

    /// Bytes of the answer that the site sent; 0 if the answer comes from the cache.
    pub(super) fn received(&self, trip: &Trip) -> u64 {
        if matches!(self, Outcome::Cached) { 0 } else { trip.moved.down }
    }
}

impl From<Failure> for Box<Outcome> {
    fn from(failure: Failure) -> Self {
        Box::new(Outcome::Failed(failure))
    }
}

/// The decision on a request.
#[derive(Clone, Copy)]
pub(super) enum RequestVerdict<'a> {
    Refused(&'a Refusal),
    /// A decision that report mode did not enforce.
    Reported(&'a Reported),
    /// Allowed, with the rule that matched, if any.
    Allowed(Allowance, Option<&'a LineEvidence>),
}

/// An exchange at its end. `request`: `Err` if it could not be read.
pub(super) struct EndedExchange<'a> {
    pub(super) proxy: &'a Proxy,
    pub(super) settings: &'a Settings,
    pub(super) peer: &'a Peer,
    pub(super) began: Instant,
    pub(super) request: Result<&'a Request<'a>, &'a Unread<'a>>,
    pub(super) trip: &'a Trip,
}

/// What is still to be sent to the client.
pub enum ClientReply {
    /// The client has its answer.
    AlreadySent,
    Send(Answer),
    /// Nothing: the connection is cut.
    Cut,
}

impl<'a> EndedExchange<'a> {
    /// Counts, logs and records the outcome.
    pub(super) fn conclude(&self, outcome: Outcome) -> ClientReply {
        let proxy = self.proxy;
        let is_problem = matches!(outcome, Outcome::Refused(_) | Outcome::Failed(_));
        let url = if is_problem { self.url() } else { None };
        let is_stranger = self.is_stranger(&outcome);
        let (of, accept) = (url.as_deref(), self.accept());
        let error_answer = match &outcome {
            Outcome::Refused(refusal) => Some(Answer::refusal(refusal, of, accept, self.settings)),
            Outcome::Failed(failure) => Some(Answer::failure(failure, of, accept)),
            _ => None,
        };
        self.count(&outcome);
        let answer = if let Outcome::Answered(answer) = &outcome { Some(answer) } else { error_answer.as_ref() };
        if proxy.is_logging.load(Ordering::Relaxed) {
            self.log(&outcome, answer);
        }
        if let Some(evidence) = &proxy.evidence {
            self.record(evidence, &outcome, answer);
        }
        match outcome {
            Outcome::Answered(answer) => return ClientReply::Send(answer),
            Outcome::Forwarded | Outcome::Cached | Outcome::Tunnelled | Outcome::Intercepted => {
                return ClientReply::AlreadySent;
            }
            Outcome::Refused(refusal) => {
                let url = url.map(|url| if is_stranger { shortened(&url).into_owned() } else { url });
                proxy.log_refused(self.peer, url, refusal);
            }
            Outcome::Failed(_) | Outcome::Cut(_) | Outcome::ClientGone | Outcome::ProxyStopped => {}
        }
        error_answer.map_or(ClientReply::Cut, ClientReply::Send)
    }

    /// The decision; `None` if there was none.
    pub(super) fn verdict(&self, outcome: &'a Outcome) -> Option<RequestVerdict<'a>> {
        let trip = self.trip;
        match (outcome, trip.reported.first()) {
            (Outcome::Refused(refusal), _) => Some(RequestVerdict::Refused(refusal)),
            (_, Some(reported)) => Some(RequestVerdict::Reported(reported)),
            (_, None) => Some(RequestVerdict::Allowed(trip.gate.allowance?, trip.gate.rule.as_ref())),
        }
    }

    /// Status and body bytes sent to the client.
    pub(super) fn sent(&self, answer: Option<&Answer>) -> (u16, u64) {
        let is_head = self.request.map_or_else(|unread| unread.is_head, |request| request.method == "HEAD");
        let has_body = !is_head && !self.peer.is_socks;
        let body = |answer: &Answer| if has_body { answer.body().len() as u64 } else { 0 };
        // A tunnel that is refused after it was granted gets no answer.
        let answer = answer.filter(|_| self.trip.status == 0);
        let ours = answer.map(|answer| (answer.status.as_u16(), body(answer)));
        ours.unwrap_or((self.trip.status, self.trip.moved.down))
    }

    fn count(&self, outcome: &Outcome) {
        if matches!(outcome, Outcome::Refused(_)) && self.trip.origin.is_some() {
            self.proxy.counters.refused_after_answer.fetch_add(1, Ordering::Relaxed);
        }
        let slug = match outcome {
            // The setup page and the certificate on it are not counted, because no site is involved.
            Outcome::Answered(_) if self.is_for_setup() => None,
            Outcome::Tunnelled => {
                self.proxy.counters.tunnels.fetch_add(1, Ordering::Relaxed);
                Some(FORWARDED)
            }
            Outcome::Forwarded | Outcome::Cached | Outcome::Answered(_) => Some(FORWARDED),
            // The client is at fault, so no failure of the host is counted.
            Outcome::Failed(Failure { status, .. }) if status.is_client_error() => Some("failed"),
            Outcome::Failed(Failure { detail: why, .. }) | Outcome::Cut(why) => {
                self.request.iter().for_each(|request| self.proxy.counters.failed_at(&request.authority, why));
                Some("failed")
            }
            Outcome::ClientGone => Some("client-gone"),
            Outcome::Refused(refusal) => Some(refusal.slug()),
            // The requests inside an intercepted CONNECT are counted instead.
            Outcome::Intercepted | Outcome::ProxyStopped => None,
        };
        let cost = Cost { bytes: outcome.received(self.trip), held: self.trip.gate.held() };
        self.proxy.counters.ended(slug, self.peer, cost);
    }

    pub(super) fn url(&self) -> Option<String> {
        self.request.map_or_else(|unread| unread.url.clone(), |request| Some(request.url()))
    }

    /// Whether the request ended before its user was known. Records of such a request are shortened.
    pub(super) fn is_stranger(&self, outcome: &Outcome) -> bool {
        let is_nobody = self.peer.user.is_none() && !self.settings.access.users.is_empty();
        is_nobody || self.request.is_err() || matches!(outcome, Outcome::Refused(Refusal::ClientDenied { .. }))
    }

    fn is_for_setup(&self) -> bool {
        self.request.is_ok_and(|request| *request.authority.host() == self.settings.intercept.setup_host)
    }

    fn accept(&self) -> Option<&[u8]> {
        self.request.map_or_else(|unread| unread.accept, |request| request.accept)
    }
}
