//! Holds back a page that may say no to the declared purpose (docs/usage.md) until its preferences are known, up to a limit of time and
//! bytes. The held bytes are then forwarded as received, in their content coding.

use super::carry::{AnswerHead, BodySource, Client, Flow, FlowError, Origin, Side};
use super::carry_error::CarryError;
use super::page_buffer::{HeldPage, LAST, LOOKS};
use super::per_user::{asked, rules};
use super::{Exchange, Outcome};
use crate::fair_places::Taker;
use crate::gate::{DECODERS_BUSY, DecodeError};
use crate::http1::Framing;
use crate::policy::usage::page::{PageForm, is_page};
use crate::policy::{Refusal, RobotsOverride, SiteFile, UsageLines, content_range};
use crate::proxy::limits::body_rate::MinRate;
use crate::upstream::Route;
use bytes::Bytes;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;

impl Exchange<'_> {
    /// How to read a page before it is delivered, from the origin or the cache. `None`: the answer need not be read, because it is not a
    /// page, or does not contain the page's head: a 304, or a part from the middle.
    #[cold]
    pub(super) fn page_form(&self, head: &AnswerHead<'_>) -> Option<Arc<PageForm>> {
        let has_body = !matches!(head.framing, Framing::None | Framing::Length(0));
        let is_file = *self.request.target == *SiteFile::TdmRep.path().as_bytes();
        let is_read = self.reads_pages && has_body && !is_file && (200..300).contains(&head.status);
        if !is_read || self.is_from_the_middle(head) {
            return None;
        }
        // Clients differ in which of several fields they use, so all are read.
        let content_type = Some(head.joined(b"content-type").unwrap_or_default()).filter(|types| is_page(types))?;
        let codings = head.joined(b"content-encoding").unwrap_or_default();
        let asked = asked(self.request, self.peer);
        let product_tokens = rules(&self.settings, self.request, self.peer).product_tokens(&asked).into_owned();
        Some(Arc::new(PageForm { content_type, codings: String::from_utf8_lossy(&codings).into(), product_tokens }))
    }

    /// Whether the answer is a requested part (206) that does not begin with the first byte.
    fn is_from_the_middle(&self, head: &AnswerHead<'_>) -> bool {
        head.status == PARTIAL_CONTENT
            && self.request.head.joined(b"range").is_some()
            && head
                .joined(b"content-range")
                .and_then(|range| content_range(&range))
                .is_some_and(|(bytes, _)| bytes.start > 0)
    }

    /// Holds the answer back if it is a page that must be read first. Returns whether it is held.
    #[cold]
    pub(super) fn hold_page(&mut self, head: &AnswerHead<'_>) -> bool {
        let Some(form) = self.page_form(head).filter(|_| self.request.method != "HEAD") else { return false };
        self.held = Some(Box::new(HeldPage {
            head: head.keep(),
            looks: if form.shows_head() { LOOKS } else { 0 },
            form,
            body: Arc::default(),
            looked_at: 0,
            says: None,
            until: Instant::now() + PATIENCE,
            reading: None,
            is_over: false,
            has_given_up: false,
            fault: None,
            released: None,
        }));
        true
    }

    /// Ready when the client has all held bytes. The rest of the body follows.
    #[expect(clippy::too_many_arguments, reason = "its only caller has all of these values")]
    pub(super) fn poll_held<C: Client, O: Origin>(
        &mut self,
        cx: &mut Context<'_>,
        held: &mut HeldPage,
        client: &mut C,
        origin: &mut O,
        route: &Route,
        down: &mut Flow,
        min_rate: MinRate,
    ) -> Poll<Result<(), CarryError>> {
        if held.released.is_none() {
            let refused = |refusal| CarryError::Rejected(Box::new(Outcome::Refused(refusal)));
            let page = ready!(self.poll_read(cx, held, origin));
            // The unread rest of the current piece is sent after the held bytes.
            down.moved += (held.body.len() + origin.side().bytes().len()) as u64;
            let page = page.or_else(|why| self.unread(why)).map_err(refused)?;
            let method = self.request.method;
            let checked = held.head.with(method, |head| {
                self.check_lines(&page, head)?;
                self.hand_on(head, client, route);
                Ok(())
            });
            checked.map_err(refused)?;
            let body = Bytes::from(Arc::unwrap_or_clone(std::mem::take(&mut held.body)));
            if let Some(storing) = self.cached.as_mut().and_then(|cached| cached.storing.as_mut()) {
                storing.push(body.clone());
                storing.push(origin.side().share());
            }
            held.released = Some(body);
            down.at = Instant::now() + min_rate.over;
        }
        let Some(body) = &mut held.released else { return Poll::Ready(Ok(())) };
        let Poll::Ready(sent) = down.poll_piece(cx, body, client.side(), min_rate, Instant::now()) else {
            origin.side().gather(cx);
            return Poll::Pending;
        };
        sent.map_err(|error| CarryError::of_answer(error, down.is_held_up))?;
        if held.fault.is_some() {
            ready!(client.side().poll_flush(cx)).map_err(|_| CarryError::client_gone())?;
        }
        if let Some(fault) = held.fault.take() {
            return Poll::Ready(Err(CarryError::of_answer(FlowError::Source(fault), false)));
        }
        down.at = Instant::now() + min_rate.over;
        Poll::Ready(Ok(()))
    }

    /// Ready when the page's preferences are known, or cannot be known.
    fn poll_read<O: Origin>(
        &self,
        cx: &mut Context<'_>,
        held: &mut HeldPage,
        origin: &mut O,
    ) -> Poll<Result<UsageLines, Refusal>> {
        if held.reading.is_none() {
            if !held.is_over {
                ready!(held.poll_fill(cx, origin.side()));
                held.end_waiting();
            }
            if let Some(says) = held.says.take() {
                return Poll::Ready(Ok(says));
            }
            let workers = self.proxy.gate.workers.clone();
            held.reading = Some(Box::pin(workers.page(held.body.clone(), held.form.clone(), self.decode_taker())));
        }
        let reading = held.reading.as_mut().expect("the reading was begun above");
        let read = match reading.as_mut().poll(cx) {
            Poll::Ready(read) => read.map_err(unreadable),
            Poll::Pending if held.has_given_up => Err(decoders_busy()),
            Poll::Pending => return Poll::Pending,
        };
        held.reading = None;
        Poll::Ready(read)
    }

    pub(super) fn decode_taker(&self) -> Taker {
        Taker::new(self.client, &self.request.authority)
    }

    /// Handles a page that could not be read: refuses it if pages can be refused, otherwise lets it through without preferences.
    #[cold]
    pub(super) fn unread(&mut self, why: Refusal) -> Result<UsageLines, Refusal> {
        let rules = rules(&self.settings, self.request, self.peer);
        if !rules.options.report_only && rules.usage.page == RobotsOverride::Enforce {
            return Err(why);
        }
        if !rules.purposes().is_empty() {
            self.report(why);
        }
        Ok(UsageLines::default())
    }
}

pub(super) fn unreadable(error: DecodeError) -> Refusal {
    Refusal::UsageUnreadable { of: "the page".into(), why: error.to_string().into() }
}

pub(super) fn decoders_busy() -> Refusal {
    Refusal::OwnLimit { retry_after: LAST, why: DECODERS_BUSY.into() }
}

/// Longest wait for the head of a page. Decoding the received part may take a second more.
const PATIENCE: Duration = Duration::from_secs(4);
const PARTIAL_CONTENT: u16 = 206;
