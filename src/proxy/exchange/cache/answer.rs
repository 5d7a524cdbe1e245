//! Serves a stored answer: checks its usage preferences like those of an origin's answer, adds Age, and sends all of it, a
//! part, or 304.

use super::super::carry::{AnswerHead, BodySource, Client, FlowError, SideError};
use super::super::held_page::{decoders_busy, unreadable};
use super::super::page_buffer::LAST;
use super::super::{Exchange, Outcome, send_body};
use super::CacheTrace;
use crate::gate::cache::{CacheResult, EntryBody, StoredAnswer};
use crate::http1::Framing;
use crate::policy::cache::{BodyPart, StoredHead};
use crate::policy::usage::page::PageForm;
use crate::policy::{Refusal, UsageLines};
use crate::proxy::io::Timer;
use crate::upstream::Route;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version, header};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;
use tokio::time::timeout;

impl Exchange<'_> {
    /// Takes the stored answer that the origin has confirmed, if any.
    pub(in crate::proxy::exchange) fn confirmed(&mut self) -> Option<Box<StoredAnswer>> {
        self.cached.as_mut()?.confirmed.take()
    }

    /// Sends a stored answer to the client. `is_confirmed`: the origin has just confirmed it.
    pub(in crate::proxy::exchange) async fn serve<C: Client>(
        &mut self,
        client: &mut C,
        timer: &mut Timer,
        stored: Box<StoredAnswer>,
        route: &Route,
        is_confirmed: bool,
    ) -> Outcome {
        let result = if is_confirmed { CacheResult::Revalidated } else { CacheResult::Hit };
        self.trace(result, Some(&stored.head));
        let fields = fields(&stored);
        let is_head = self.request.method == "HEAD";
        let framing = if is_head || stored.head.status == 204 { Framing::None } else { Framing::Length(stored.length) };
        // The page's preferences apply to HEAD as well.
        let whole = Framing::Length(stored.length);
        let form = self.page_form(&answer(&stored.head, stored.head.status, &fields, whole));
        let page = self.read_stored(&stored, form).await;
        let head = answer(&stored.head, stored.head.status, &fields, framing);
        let checked = page.or_else(|why| self.unread(why)).and_then(|page| self.check_stored(&page, &head));
        if is_confirmed {
            self.keep_confirmed(&stored);
            // The origin has answered, so the slot is released: a client that reads slowly must not hold back others.
            self.permit = None;
        }
        if let Err(refusal) = checked {
            return Outcome::Refused(refusal);
        }
        let part = self.part(&stored);
        let fields = fields_of(part.as_ref(), fields, stored.length);
        let (status, framing) = match &part {
            Some(BodyPart::Whole) => (stored.head.status, framing),
            Some(BodyPart::Bytes(bytes)) => (206, Framing::Length(bytes.end - bytes.start)),
            Some(BodyPart::Unsatisfiable) => (416, Framing::Length(0)),
            None => (304, Framing::None),
        };
        self.begin_stored(&answer(&stored.head, status, &fields, framing), client, route, is_confirmed);
        let has_body = !matches!(framing, Framing::None | Framing::Length(0));
        let mut body = stored.body;
        body.select(match part.filter(|_| has_body) {
            Some(BodyPart::Bytes(bytes)) => bytes,
            Some(_) => 0..stored.length,
            None => 0..0,
        });
        let mut body = StoredBody { body, piece: Bytes::new() };
        match send_body(&self.settings, client, timer, &mut body, &mut self.trip.moved.down).await {
            Ok(()) => Outcome::Cached,
            Err(FlowError::Destination(_)) => Outcome::ClientGone,
            Err(FlowError::TooSlow) => Outcome::Cut("the client stopped reading".into()),
            Err(FlowError::Source(fault)) => {
                if let Some(cached) = &self.cached {
                    cached.cache.invalidate(cached.key);
                }
                Outcome::Cut(format!("the stored answer cannot be read: {fault}"))
            }
        }
    }

    /// The part of the stored answer to send. `None`: send 304, because the client already has the answer.
    fn part(&self, stored: &StoredAnswer) -> Option<BodyPart> {
        let Some(cached) = &self.cached else { return Some(BodyPart::Whole) };
        match &cached.wanted {
            wanted if wanted.is_conditional() && stored.head.is_known_to(wanted) => None,
            wanted if self.request.method == "GET" => Some(stored.head.part(wanted, stored.length)),
            _ => Some(BodyPart::Whole),
        }
    }

    fn begin_stored<C: Client>(&mut self, head: &AnswerHead<'_>, client: &mut C, route: &Route, is_confirmed: bool) {
        self.note_page(head);
        if is_confirmed {
            self.note_visit(head);
        }
        self.begin_answer(head, client, route);
    }

    /// Reads the usage preferences in the page. `form`: `None` if the answer is not a page that must be read.
    async fn read_stored(&self, stored: &StoredAnswer, form: Option<Arc<PageForm>>) -> Result<UsageLines, Refusal> {
        let Some(form) = form else { return Ok(UsageLines::default()) };
        let body = Arc::new(stored.body.beginning().to_vec());
        let reading = self.proxy.gate.workers.clone().page(body, form, self.decode_taker());
        timeout(LAST, reading).await.map_err(|_| decoders_busy())?.map_err(unreadable)
    }

    /// Checks the usage preferences of the answer's head and of the page against this client's purposes.
    fn check_stored(&mut self, page: &UsageLines, head: &AnswerHead<'_>) -> Result<(), Refusal> {
        if head.has_signals() {
            self.check_usage(head)?;
        }
        self.check_lines(page, head)
    }

    /// Cache-Status (RFC 9211) of the answer to the client. `None`: the cache is not involved.
    pub(in crate::proxy::exchange) fn cache_status(&self, status: u16) -> Option<String> {
        let cached = self.cached.as_ref()?;
        let CacheTrace { result, .. } = &**self.trip.cache.as_ref()?;
        Some(match *result {
            "hit" => "politely; hit".into(),
            result => {
                let status = if result == "revalidated" { 304 } else { status };
                let stored = if result == "stored" { "; stored" } else { "" };
                format!("politely; fwd={}; fwd-status={status}{stored}", cached.why)
            }
        })
    }
}

/// The fields of a stored answer, with Age and Content-Length.
fn fields(stored: &StoredAnswer) -> HeaderMap {
    let mut fields = HeaderMap::with_capacity(stored.head.fields.len() + 3);
    for (name, value) in &stored.head.fields {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            fields.append(name, value);
        }
    }
    let age = stored.head.age(SystemTime::now()).unwrap_or_default();
    fields.insert(header::AGE, age.as_secs().into());
    if stored.head.status != 204 {
        fields.insert(header::CONTENT_LENGTH, stored.length.into());
    }
    fields
}

/// Changes the fields of the whole answer to those of a part or of a 304. `length`: bytes of the whole body.
fn fields_of(part: Option<&BodyPart>, mut fields: HeaderMap, length: u64) -> HeaderMap {
    let range = match part {
        Some(BodyPart::Whole) => return fields,
        None => {
            OF_CONTENT.iter().for_each(|name| _ = fields.remove(name));
            return fields;
        }
        Some(BodyPart::Bytes(bytes)) => {
            fields.insert(header::CONTENT_LENGTH, (bytes.end - bytes.start).into());
            format!("bytes {}-{}/{length}", bytes.start, bytes.end - 1)
        }
        // `no-store`, because another cache might store the 416 as the answer to requests for the whole content.
        Some(BodyPart::Unsatisfiable) => {
            fields = HeaderMap::from_iter([
                (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
                (header::CONTENT_LENGTH, 0.into()),
            ]);
            format!("bytes */{length}")
        }
    };
    fields.insert(header::CONTENT_RANGE, HeaderValue::try_from(range).expect("Content-Range is ASCII"));
    fields
}

fn answer<'a>(head: &StoredHead, status: u16, fields: &'a HeaderMap, framing: Framing) -> AnswerHead<'a> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    let version = match head.version {
        10 => Version::HTTP_10,
        20 => Version::HTTP_2,
        _ => Version::HTTP_11,
    };
    let mut answer = AnswerHead::of_http2(status, fields, framing);
    answer.version = version;
    answer
}

/// The body of a stored answer, read piece by piece.
struct StoredBody {
    body: EntryBody,
    /// The unsent rest of the current piece.
    piece: Bytes,
}

impl BodySource for StoredBody {
    fn bytes(&self) -> &[u8] {
        &self.piece
    }

    fn consume(&mut self, n: usize) {
        drop(self.piece.split_to(n));
    }

    fn take(&mut self, n: usize) -> Bytes {
        self.piece.split_to(n)
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, SideError>> {
        self.piece = ready!(self.body.poll_piece(cx))?.unwrap_or_default();
        Poll::Ready(Ok(!self.piece.is_empty()))
    }
}

/// Fields that a 304 omits (RFC 9110 §15.4.5).
const OF_CONTENT: [HeaderName; 4] =
    [header::CONTENT_TYPE, header::CONTENT_LENGTH, header::CONTENT_ENCODING, header::CONTENT_LANGUAGE];
