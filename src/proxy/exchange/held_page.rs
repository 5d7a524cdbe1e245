//! A page whose head may say no to the declared purpose (docs/usage.md): nothing of the answer goes out before that is known, within
//! a bound of time and bytes. What was held goes on as it came, in its content coding.

use super::carry::{AnswerHead, BodySource, Client, Flow, Origin, Side};
use super::carry_end::Broken;
use super::held::{HeldBody, HeldPage, LAST};
use super::pages::media_type;
use super::per_user::{asked, rules};
use super::{Exchange, Outcome};
use crate::gate::{DECODERS_BUSY, Taker, decode_beginning};
use crate::http1::Framing;
use crate::policy::usage::page::{LONGEST_HEAD, PageHead};
use crate::policy::{Refusal, RobotsOverride, SiteFile};
use crate::upstream::Route;
use bytes::Bytes;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;

impl Exchange<'_> {
    /// The content type and the codings of an answer, come or stored, that is a page which has to be read first. HEAD and 304 have no head
    /// of a page, nor has a part from its middle.
    #[cold]
    pub(super) fn page_form(&self, head: &AnswerHead<'_>) -> Option<(Vec<u8>, String)> {
        let has_body = !matches!(head.framing, Framing::None | Framing::Length(0)) && self.request.method != "HEAD";
        let is_file = *self.request.target == *SiteFile::TdmRep.path().as_bytes();
        let is_page = self.reads_pages && has_body && !is_file && (200..300).contains(&head.status);
        if !is_page || self.is_from_the_middle(head) {
            return None;
        }
        // Which of several fields counts differs from one client to another.
        let is_page = |types: &Vec<u8>| types.split(|byte| *byte == b',').any(|it| PageHead::is_of(media_type(it)));
        let content_type = head.joined(b"content-type").filter(is_page)?;
        let codings = head.joined(b"content-encoding").unwrap_or_default();
        Some((content_type, String::from_utf8_lossy(&codings).into()))
    }

    /// Whether it is a part (206) that was asked for, and begins behind the first byte.
    fn is_from_the_middle(&self, head: &AnswerHead<'_>) -> bool {
        let begins_at = |range: Vec<u8>| {
            let (first, _) = str::from_utf8(&range).ok()?.strip_prefix("bytes ")?.split_once('-')?;
            first.parse::<u64>().ok().filter(|_| !range.contains(&b','))
        };
        head.status == PARTIAL_CONTENT
            && self.request.head.joined(b"range").is_some()
            && head.joined(b"content-range").and_then(begins_at).is_some_and(|first| first > 0)
    }

    /// Whether the answer is held back to be read.
    #[cold]
    pub(super) fn hold_page(&mut self, head: &AnswerHead<'_>) -> bool {
        let Some((content_type, codings)) = self.page_form(head) else { return false };
        self.held = Some(Box::new(HeldPage {
            head: head.keep(),
            content_type,
            codings,
            body: Arc::default(),
            read_at: 1,
            until: Instant::now() + PATIENCE,
            reading: None,
            spent: Duration::ZERO,
            is_over: false,
            is_unknown: false,
            fault: None,
            released: None,
        }));
        true
    }

    /// Ready when all that was held is with the client: the rest of the body follows it.
    pub(super) fn poll_held<C: Client, O: Origin>(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut C,
        origin: &mut O,
        route: &Route,
        down: &mut Flow,
        over: Duration,
    ) -> Poll<Result<(), Broken>> {
        let Some(mut held) = self.held.take() else { return Poll::Ready(Ok(())) };
        let polled = self.poll_page(cx, &mut held, client, origin, route, down, over);
        if polled.is_pending() {
            self.held = Some(held);
        }
        polled
    }

    #[expect(clippy::too_many_arguments, reason = "as its only caller has them")]
    fn poll_page<C: Client, O: Origin>(
        &mut self,
        cx: &mut Context<'_>,
        held: &mut HeldPage,
        client: &mut C,
        origin: &mut O,
        route: &Route,
        down: &mut Flow,
        over: Duration,
    ) -> Poll<Result<(), Broken>> {
        if held.released.is_none() {
            let refused = |refusal| Broken::Head(Box::new(Outcome::Refused(refusal)));
            let page = ready!(self.poll_read(cx, held, origin)).map_err(refused)?;
            down.moved += held.body.len() as u64;
            let method = self.request.method;
            let checked = held.head.with(method, |head| {
                self.check_lines(&page.lines, head)?;
                self.hand_on(head, client, route);
                Ok(())
            });
            checked.map_err(refused)?;
            let body = Bytes::from(Arc::unwrap_or_clone(std::mem::take(&mut held.body)));
            if let Some(storing) = self.cached.as_mut().and_then(|cached| cached.storing.as_mut()) {
                storing.push(body.clone());
            }
            held.released = Some(HeldBody(body));
            held.until = Instant::now() + over;
        }
        let Some(body) = &mut held.released else { return Poll::Ready(Ok(())) };
        down.is_held_up = true;
        while !body.bytes().is_empty() {
            let Poll::Ready(sent) = client.side().poll_send(cx, body) else {
                origin.side().gather(cx);
                return Poll::Pending;
            };
            sent.map_err(|_| Broken::Gone)?;
            held.until = Instant::now() + over;
        }
        if held.fault.is_some() {
            ready!(client.side().poll_flush(cx)).map_err(|_| Broken::Gone)?;
        }
        if let Some(fault) = held.fault.take() {
            return Poll::Ready(Err(Broken::Cut(format!("the origin: {fault}"))));
        }
        down.at = Instant::now() + over;
        Poll::Ready(Ok(()))
    }

    /// Ready when the page's head is known, or will not be.
    fn poll_read<O: Origin>(
        &self,
        cx: &mut Context<'_>,
        held: &mut HeldPage,
        origin: &mut O,
    ) -> Poll<Result<PageHead, Refusal>> {
        loop {
            if held.reading.is_none() {
                let is_last = held.poll_fill(cx, origin.side()).is_ready() || held.is_over;
                if !is_last && held.body.len() < held.read_at {
                    return Poll::Pending;
                }
                held.read_at = held.body.len() + held.body.len() / 4 + 1;
                if held.codings.is_empty() {
                    let page = self.read_page(&held.body, None, &held.content_type);
                    if is_last || page.is_whole {
                        return Poll::Ready(Ok(page));
                    }
                    continue;
                }
                let (body, codings) = (held.body.clone(), held.codings.clone());
                let decoding = decode_beginning(body, codings, LONGEST_HEAD, held.spent, self.decode_taker());
                held.reading = Some((Box::pin(decoding), is_last));
            }
            let (reading, was_last) = held.reading.as_mut().expect("it has just been begun");
            let Poll::Ready((decoded, spent)) = reading.as_mut().poll(cx) else {
                if !held.is_unknown {
                    return Poll::Pending;
                }
                held.reading = None;
                return Poll::Ready(self.unread().map(|()| PageHead::default()));
            };
            let was_last = *was_last;
            (held.reading, held.spent) = (None, spent);
            let page = self.read_page(&held.body, decoded.as_deref(), &held.content_type);
            if was_last || page.is_whole {
                return Poll::Ready(Ok(page));
            }
        }
    }

    pub(super) fn decode_taker(&self) -> Taker {
        Taker::new(self.peer.client(), &self.request.authority)
    }

    /// Whether a page goes on though the proxy has had no time to decode it.
    pub(super) fn unread(&self) -> Result<(), Refusal> {
        let rules = rules(&self.settings, self.request, self.peer);
        if rules.options.report_only || rules.usage.page != RobotsOverride::Enforce {
            return Ok(());
        }
        Err(Refusal::OwnLimit { retry_after: LAST, why: DECODERS_BUSY.into() })
    }

    /// What is there of the page's head. `decoded`: without its codings, if it has any and they can be undone; what is not in them, whatever
    /// it says of itself, some clients show as it came.
    pub(super) fn read_page(&self, body: &[u8], decoded: Option<&[u8]>, content_type: &[u8]) -> PageHead {
        let asked = asked(self.request, self.peer);
        let product_tokens = rules(&self.settings, self.request, self.peer).product_tokens(&asked);
        let read = |page| PageHead::read(page, content_type, &product_tokens);
        let Some(decoded) = decoded else { return read(body) };
        let is_plain = decoded.is_empty() || body[..body.len().min(4)].contains(&b'<');
        if is_plain { read(decoded).join(read(body)) } else { read(decoded) }
    }
}

/// So long is waited for the end of a page's head, and a second more for what has come to be decoded.
const PATIENCE: Duration = Duration::from_secs(4);
const PARTIAL_CONTENT: u16 = 206;
