//! The head of a final answer: checks that it fits the request, learns from it, and forwards it.

use super::carry::{Added, AfterHead, AnswerHead, Client};
use super::connection_auth::authenticates_connection;
use super::pages::Pages;
use super::state::Signature;
use super::{Exchange, Outcome, websocket};
use crate::gate::{PaceOutcome, Permit};
use crate::http1::{Framing, list};
use crate::policy::usage::page::media_type;
use crate::policy::{retry_after, shown_http_date, turns_away};
use crate::proxy::respond::{Failure, proxy_status};
use crate::signing::{ACCEPT_SIGNATURE, ChallengedRequest, RequestSigner};
use crate::upstream::{OutgoingFields, Route};
use http::header;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

impl Exchange<'_> {
    /// Handles the head of a final answer, from which the pace learns. `after`: the time since the request was sent.
    #[inline]
    pub(super) fn on_answer<C: Client>(
        &mut self,
        head: &AnswerHead<'_>,
        after: Duration,
        client: &mut C,
        route: &Route,
    ) -> Result<AfterHead, Box<Outcome>> {
        (self.trip.origin, self.trip.origin_status) = (Some(after), head.status);
        self.proxy.counters.origin.observe(after);
        if let Some(permit) = &mut self.permit {
            permit.answered(after, matches!(head.status, 200..=299 | 304));
        }
        if let Some(upstream_proxy) = route.asks().filter(|_| head.status == 407) {
            return Err(Failure::from_dial(&upstream_proxy.wants_credentials()).into());
        }
        let is_switched = head.status == 101;
        if is_switched && !self.request.is_upgrade {
            return Err(Failure::malformed("status 101 although no upgrade was requested").into());
        }
        let agrees = || head.upgrade.is_some_and(|to| list(to).any(|to| to.eq_ignore_ascii_case(b"websocket")));
        if is_switched && !agrees() {
            return Err(Failure::malformed("it switches to a protocol that was not requested").into());
        }
        if let (true, OutgoingFields::Http2(asked)) = (self.request.is_upgrade, self.request.head) {
            // To an HTTP/2 client, any 2xx means that the WebSocket was accepted, as 101 does in HTTP/1.
            let declined = !is_switched && !(200..300).contains(&head.status);
            let accept = head.named(header::SEC_WEBSOCKET_ACCEPT.as_str().as_bytes());
            let accepts = is_switched && websocket::is_accepted(asked, accept.as_deref());
            if !declined && !accepts {
                return Err(Failure::malformed("it does not accept the WebSocket handshake").into());
            }
        }
        if self.request.is_upgrade && head.is_irregular {
            return Err(Failure::malformed("its head has irregular lines, which an upgrade must not have").into());
        }
        if let Some(signer) = route.signature()
            && self.is_to_be_repeated(head, signer)
        {
            return Err(Failure::ended("the origin asks for a signature").into());
        }
        if matches!(head.status, 401 | 407) && head.any(CHALLENGES, authenticates_connection) {
            self.is_private = true;
            self.peer.private.let_in();
        }
        self.learn(head);
        self.note_unsafe(head);
        if head.status == 304 && self.cached.is_some() && self.is_confirmed(head, after) {
            return Ok(AfterHead::Confirmed);
        }
        // An endless stream releases its slot, like a WebSocket.
        let kind = head.content_type().map(media_type);
        self.trip.is_endless =
            kind.is_some_and(|kind| ENDLESS.iter().any(|endless| endless.eq_ignore_ascii_case(kind)));
        if self.trip.is_endless {
            self.permit = None;
        }
        if head.status == PAYMENT_REQUIRED || head.has_signals() {
            self.check_usage(head).map_err(|refusal| Box::new(Outcome::Refused(refusal)))?;
        }
        if self.reads_pages && self.hold_page(head) {
            return Ok(AfterHead::Body);
        }
        Ok(self.hand_on(head, client, route))
    }

    /// Forwards the head, and notes it for subresources, `min_revisit` and the cache.
    pub(super) fn hand_on<C: Client>(&mut self, head: &AnswerHead<'_>, client: &mut C, route: &Route) -> AfterHead {
        self.note_page(head);
        self.note_visit(head);
        if self.proxy.cache.is_some() {
            self.note_for_cache(head, route);
        }
        self.begin_answer(head, client, route)
    }

    /// Remembers a delivered page, because requests for its subresources may follow.
    pub(super) fn note_page(&self, head: &AnswerHead<'_>) {
        if Pages::are_wanted(&self.settings)
            && (200..300).contains(&head.status)
            && head.content_type().is_some_and(Pages::is_one)
        {
            self.proxy.pages.hand(self.client, self.request, Instant::now());
        }
    }

    /// Sends the head to the client, with the proxy's own fields added.
    pub(super) fn begin_answer<C: Client>(
        &mut self,
        head: &AnswerHead<'_>,
        client: &mut C,
        route: &Route,
    ) -> AfterHead {
        self.trip.status = head.status;
        let proxy_status_value = self.proxy_status_value(route);
        let cache_status = self.cache_status(head.status);
        let date = (!head.has_date()).then(|| shown_http_date(SystemTime::now()));
        let added = Added {
            via: self.proxy.upstream.via().line(head.version),
            proxy_status: proxy_status_value.as_deref(),
            cache_status: cache_status.as_deref(),
            date: date.as_deref(),
        };
        if head.status == 101 {
            self.trip.status = client.switch(head, &added);
            return AfterHead::Switched;
        }
        let is_last = self.request.is_upgrade || self.proxy.is_leaving();
        client.answer(head, &added, is_last);
        AfterHead::Body
    }

    /// Whether to repeat the request with a signature that the origin asks for, and that the request did not have.
    #[cold]
    fn is_to_be_repeated(&mut self, head: &AnswerHead<'_>, signer: &RequestSigner) -> bool {
        if self.signature.is_clients {
            // The client signed the request, and must answer the challenge itself.
            return false;
        }
        let asked = head.joined(ACCEPT_SIGNATURE.as_bytes()).filter(|_| matches!(head.status, 401 | 403));
        let Some(asked) = asked else {
            if self.signature.is_repeated {
                signer.satisfied();
            }
            return false;
        };
        let request = self.request;
        let is_safe = matches!(request.method, "GET" | "HEAD" | "OPTIONS" | "TRACE") && !request.is_upgrade;
        let is_bodiless = matches!(request.framing, Framing::None | Framing::Length(0));
        let Signature { is_ours, is_repeated, .. } = self.signature;
        // Without a slot for the repetition, the client gets the site's answer.
        let permit = self.permit.as_deref_mut();
        let may_repeat = || is_safe && is_bodiless && permit.is_some_and(Permit::stand_again);
        let wanted = signer.challenged(&asked, ChallengedRequest { was_signed: is_ours, is_repeated }, may_repeat);
        let is_again = wanted.is_some();
        if is_again {
            self.signature.asked = wanted;
        }
        is_again
    }

    fn learn(&mut self, head: &AnswerHead<'_>) {
        let Some(permit) = &mut self.permit else { return };
        // The backoff begins now, not when the answer has been read.
        if matches!(head.status, 429 | 503) {
            let (asked, date) = (head.joined(b"retry-after"), head.named(b"date"));
            let wait = asked.and_then(|asked| retry_after(&asked, date.as_deref(), SystemTime::now()));
            permit.learn(PaceOutcome::Backoff { retry_after: wait });
        } else if permit.has_breaker() && turns_away(head.status, |name| head.named(name.as_bytes())) {
            permit.learn(PaceOutcome::TurnedAway);
        } else {
            permit.outcome = PaceOutcome::Success;
        }
    }

    /// Proxy-Status for the client: an unverified certificate, decisions not enforced, and the site's offer.
    fn proxy_status_value(&self, route: &Route) -> Option<String> {
        let unverified = route.is_unverified().then(|| {
            self.proxy.counters.unverified.fetch_add(1, Relaxed);
            UNVERIFIED.to_owned()
        });
        let offer = self.trip.usage_report.as_ref().and_then(|noted| noted.offer_text());
        if unverified.is_none() && self.trip.reported.is_empty() && offer.is_none() {
            return None;
        }
        let reported = self.trip.reported.iter().map(ToString::to_string);
        let details: Vec<String> = unverified.into_iter().chain(reported).chain(offer).collect();
        Some(proxy_status(None, Some(&details.join("; "))))
    }
}

/// Media types of answers without an end.
const ENDLESS: [&[u8]; 2] = [b"text/event-stream", b"multipart/x-mixed-replace"];
/// The challenge fields of a 401 and of a 407.
const CHALLENGES: [&str; 2] = ["www-authenticate", "proxy-authenticate"];
/// 402: the answer may name a price.
const PAYMENT_REQUIRED: u16 = 402;
const UNVERIFIED: &str = "the origin's certificate was not verified, as configured";
