//! Fetches one file, such as robots.txt, over the same connections as pages. The caller limits the time, and limits the size by reading
//! no further.

use super::body_stream::{BodyStream, GetError, ReplyBody};
use super::connect::{Http1Link, HttpLink, OriginConnection, Versions, Want};
use super::dial_error::DialFault;
use super::http2::{Http2Link, check_head, is_broken_off, is_unprocessed, wants_http1};
use super::outgoing_request::Outgoing;
use super::route::Route;
use crate::http1::{Body, Field, MAX_INTERIM, ResponseHead, read_response};
use bytes::BytesMut;
use http::{HeaderMap, StatusCode, Version};
use std::future::{Future, poll_fn};
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::Poll;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A final answer.
pub struct Got {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: BodyStream,
    pub version: Version,
    /// Whether the connection had carried requests before.
    pub reused: bool,
}

/// A failed attempt.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Unanswered {
    pub error: GetError,
    /// What a repetition of the request requires of its connection. `None`: a repetition would be unsafe or futile.
    pub again: Option<Want>,
}

/// Progress of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The request is about to be sent, to this address if the pace is kept by address.
    Begins(Option<IpAddr>),
    /// Nothing was sent after all.
    Withdrawn,
    Whole,
}

impl Route {
    /// Requests a file once. `on_sent` reports progress; if it returns `false` for [`Sent::Begins`], the request is not sent.
    pub async fn ask(
        &self,
        mut want: Want,
        request: &Outgoing<'_>,
        mut on_sent: impl FnMut(Sent) -> bool,
    ) -> Result<Got, Unanswered> {
        if !request.fits_http2() {
            want.versions = Versions::Http1Only;
        }
        // A client's assumption that the origin supports HTTP/2 may be wrong.
        let http1 = self.is_known_http2(want.versions).then_some(Want { versions: Versions::Http1Only, ..want });
        let connected = self.connect(want, None).await;
        let OriginConnection { reused, address, link } = connected.map_err(|error| {
            let again = http1.filter(|_| error.kind == DialFault::Malformed);
            Unanswered { error: error.into(), again }
        })?;
        let begins = Sent::Begins(self.paced_at(Some(address)));
        let answered = match link {
            HttpLink::Http1(link) => self.get_http1(link, request, begins, &mut on_sent).await,
            HttpLink::Http2(link) => self.get_http2(link, request, begins, &mut on_sent).await,
        };
        let error = match answered {
            Ok(got) => return Ok(Got { reused, ..got }),
            Err(error) => error,
        };
        let first = Some(address);
        let fresh = Some(Want { fresh: true, first, ..want });
        let again = match &error {
            GetError::NotSent => Some(Want { first, ..want }),
            GetError::Http2(_) if self.is_known_http2(want.versions) => http1,
            GetError::Http2(error) if want.versions != Versions::Http1Only && wants_http1(error) => {
                Some(Want { versions: Versions::Http1Only, first, ..Want::default() })
            }
            GetError::Http2(error) if !want.fresh && is_broken_off(error) => {
                Some(Want { fresh: true, versions: self.http1_first(want.versions), first, ..want })
            }
            GetError::Http2(error) if !want.fresh && (reused || is_unprocessed(error)) => fresh,
            GetError::Ended(_) if !want.fresh && (reused || self.may_be_only_http2(want.versions)) => fresh,
            _ => None,
        };
        Err(Unanswered { error, again })
    }

    async fn get_http1(
        &self,
        mut link: Http1Link,
        request: &Outgoing<'_>,
        begins: Sent,
        on_sent: &mut impl FnMut(Sent) -> bool,
    ) -> Result<Got, GetError> {
        let mut input = Vec::with_capacity(HEAD);
        request.write_http1(self, &mut input);
        if !on_sent(begins) {
            link.keep();
            return Err(GetError::NotSent);
        }
        link.stream.write_all(&input).await?;
        link.stream.flush().await?;
        on_sent(Sent::Whole);
        input.clear();
        let (mut scanned, mut interim, limit) = (0, 0, self.0.by.limits().max_header_size as usize);
        let look = |head: &ResponseHead<'_>| {
            let head_of = |headers| (head.status, headers, Body::of_response(head.framing), head.close);
            (head.len, if head.is_interim() { Ok(None) } else { headers(head).map(head_of).map(Some) })
        };
        loop {
            let Some((len, head)) = read_response(&mut input, &mut scanned, limit, request.method, look)? else {
                if link.stream.read_buf(&mut input).await? == 0 {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                }
                continue;
            };
            match head? {
                Some((101, ..)) => return Err(GetError::Malformed(SWITCHES)),
                Some((status, headers, body, close)) => {
                    let mut body = ReplyBody::Http1 { link, input: BytesMut::from(&input[len..]), body, close };
                    body.keep_if_done();
                    return Ok(Got::new(status, headers, body, Version::HTTP_11));
                }
                None => count_interim(&mut interim)?,
            }
            input.drain(..len);
            scanned = 0;
        }
    }

    async fn get_http2(
        &self,
        link: Http2Link,
        request: &Outgoing<'_>,
        begins: Sent,
        on_sent: &mut impl FnMut(Sent) -> bool,
    ) -> Result<Got, GetError> {
        let request = request.to_http2(self).map_err(|_| GetError::Malformed("HTTP/2 cannot carry the request"))?;
        if !on_sent(begins) {
            return Err(GetError::NotSent);
        }
        let sent = link.send_request(request, true).inspect_err(|_| {
            on_sent(Sent::Withdrawn);
        });
        let (mut response, _, mut head) = sent?;
        // If the connection always has more to write, it never reports this request as written. Then the answer shows that it was.
        let (mut is_reported, mut interim, limit) = (false, 0, self.0.by.limits().max_header_size as usize);
        let response = poll_fn(|cx| {
            if !is_reported && head.poll_written(cx).is_ready() {
                is_reported = true;
                on_sent(Sent::Whole);
            }
            while let Poll::Ready(Some(informational)) = response.poll_informational(cx) {
                let informational = informational?;
                check_head(0, informational.headers(), limit)?;
                if informational.status() == StatusCode::SWITCHING_PROTOCOLS {
                    // RFC 9113 §8.6: HTTP/2 does not use status 101.
                    return Poll::Ready(Err(GetError::Malformed(SWITCHES)));
                }
                count_interim(&mut interim)?;
            }
            Pin::new(&mut response).poll(cx).map_err(GetError::from)
        });
        let response = response.await;
        if !is_reported {
            on_sent(Sent::Whole);
        }
        let (head, stream) = response?.into_parts();
        check_head(0, &head.headers, limit)?;
        let body = ReplyBody::Http2 { stream, _link: link };
        Ok(Got::new(head.status.as_u16(), head.headers, body, Version::HTTP_2))
    }
}

impl Got {
    fn new(status: u16, headers: HeaderMap, carried: ReplyBody, version: Version) -> Self {
        Self { status, headers, body: BodyStream { carried, may_be_cut: false }, version, reused: false }
    }
}

fn headers(head: &ResponseHead<'_>) -> Result<HeaderMap, GetError> {
    let field = |field: &Field<'_>| Some((field.name.try_into().ok()?, field.value.try_into().ok()?));
    head.fields.iter().map(field).collect::<Option<_>>().ok_or(GetError::Malformed("invalid header field"))
}

fn count_interim(count: &mut u32) -> Result<(), GetError> {
    *count += 1;
    if *count > MAX_INTERIM { Err(GetError::Malformed("too many interim answers")) } else { Ok(()) }
}

const SWITCHES: &str = "status 101 although no upgrade was requested";
const HEAD: usize = 4 * 1024;
