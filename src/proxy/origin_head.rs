//! The head of an origin's answer, read as strictly as a request's (RFC 9112 §2–§6), and the body that it announces.
//! Called by `upgrade`; other answers are pingora's to read.

use super::chunked::Scanner;
use super::failure::Failure;
use super::head;
use super::meter::{Least, Meter};
use super::wire::send;
use bytes::BytesMut;
use http::header;
use pingora::http::ResponseHeader;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::{Instant, timeout, timeout_at};

/// An origin that answers.
pub(super) struct Answering<S> {
    pub origin: S,
    /// Read, not yet taken.
    pub ahead: BytesMut,
    pub limits: Limits,
}

/// What an answer may take.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// For a head, and between two pieces of a body.
    pub wait: Duration,
    /// Octets a second of a body.
    pub rate: u64,
    /// Of a head.
    pub size: usize,
}

/// How the body ends (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    Length(u64),
    Chunked,
    Close,
}

impl<S: AsyncRead + Unpin> Answering<S> {
    /// The next head, an interim one too.
    pub async fn head(&mut self) -> Result<ResponseHeader, Failure> {
        let deadline = Instant::now() + self.limits.wait;
        let mut scanned = 0;
        loop {
            let end = head::end_of_head(&self.ahead, scanned).map_err(Failure::malformed)?;
            if end.unwrap_or(self.ahead.len()) > self.limits.size {
                return Err(Failure::too_large(self.limits.size));
            }
            if let Some(end) = end {
                return parse(&self.ahead.split_to(end));
            }
            scanned = self.ahead.len().saturating_sub(1);
            match timeout_at(deadline, self.origin.read_buf(&mut self.ahead)).await {
                Ok(Ok(0)) => return Err(Failure::ended("it closed the connection before its answer was complete")),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(Failure::ended(error)),
                Err(_) => return Err(Failure::no_answer(self.limits.wait)),
            }
        }
    }

    /// Hands the body on as it is framed. An error: it was cut short, or does not end as it says.
    pub async fn body(&mut self, framing: Framing, client: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let mut left = match framing {
            Framing::Length(length) => length,
            Framing::Chunked | Framing::Close => u64::MAX,
        };
        let mut scanner = Scanner::new();
        let mut meter = Meter::begin(Instant::now());
        let least = Least { rate: self.limits.rate, over: self.limits.wait };
        loop {
            let piece = self.ahead.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let piece = match framing {
                Framing::Chunked => scanner.advance(&self.ahead[..piece]).map_err(io::Error::other)?,
                Framing::Length(_) | Framing::Close => piece,
            };
            let piece = self.ahead.split_to(piece);
            left -= piece.len() as u64;
            send(client, &piece, self.limits.wait).await?;
            if left == 0 || scanner.is_done() {
                return Ok(());
            }
            self.ahead.reserve(PIECE);
            let read = timeout(self.limits.wait, self.origin.read_buf(&mut self.ahead)).await;
            match (read.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??, framing) {
                (0, Framing::Close) => return Ok(()),
                (0, Framing::Length(_) | Framing::Chunked) => return Err(io::ErrorKind::UnexpectedEof.into()),
                (read, _) if meter.moved(Instant::now(), read, least) => {}
                (_, _) => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
    }
}

impl Framing {
    pub fn of(response: &ResponseHeader) -> Result<Self, Failure> {
        let malformed = |why: &str| Failure::malformed(why);
        let mut lengths = response.headers.get_all(header::CONTENT_LENGTH).iter();
        let length = match (lengths.next(), lengths.next()) {
            (None, _) => None,
            (Some(length), None) => {
                let digits = length.to_str().ok().filter(|text| text.bytes().all(|octet| octet.is_ascii_digit()));
                let length = digits.and_then(|digits| digits.parse().ok());
                Some(length.ok_or_else(|| malformed("its Content-Length is not a number"))?)
            }
            (Some(_), Some(_)) => return Err(malformed("it has more than one Content-Length field")),
        };
        let chunked = response.headers.contains_key(header::TRANSFER_ENCODING);
        match (response.status.as_u16(), length, chunked) {
            (204 | 304, _, _) => Ok(Self::Length(0)),
            (_, Some(_), true) => Err(malformed("it has both Content-Length and Transfer-Encoding")),
            (_, Some(length), false) => Ok(Self::Length(length)),
            (_, None, true) => Ok(Self::Chunked),
            (_, None, false) => Ok(Self::Close),
        }
    }
}

fn parse(octets: &[u8]) -> Result<ResponseHeader, Failure> {
    let mut slots = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut slots);
    match response.parse(octets) {
        Ok(httparse::Status::Complete(length)) if length == octets.len() => {}
        Ok(_) => return Err(Failure::malformed("its head ends early")),
        Err(error) => return Err(Failure::malformed(error)),
    }
    let mut head = ResponseHeader::build(response.code.unwrap_or_default(), Some(response.headers.len()))
        .map_err(Failure::malformed)?;
    if response.version == Some(0) {
        head.set_version(http::Version::HTTP_10);
    }
    for field in response.headers {
        head.append_header(field.name.to_owned(), field.value).map_err(Failure::malformed)?;
    }
    Ok(head)
}

const MAX_FIELDS: usize = 256;
const PIECE: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn answering(octets: &[u8]) -> Answering<&[u8]> {
        Answering {
            origin: octets,
            ahead: BytesMut::new(),
            limits: Limits { wait: Duration::from_secs(20), rate: 0, size: 1024 },
        }
    }

    /// The body as it is handed on.
    async fn passed(octets: &str) -> Result<String, &'static str> {
        let mut answering = answering(octets.as_bytes());
        let head = answering.head().await.map_err(|failure| failure.error)?;
        let framing = Framing::of(&head).map_err(|failure| failure.error)?;
        let mut client = Vec::new();
        answering.body(framing, &mut client).await.map_err(|_| "cut")?;
        Ok(String::from_utf8(client).unwrap())
    }

    #[tokio::test]
    async fn a_body_is_handed_on_as_it_is_framed() {
        for (octets, body) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef", "abc"),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: y\r\n\r\nnext",
                "1\r\na\r\n0\r\nX: y\r\n\r\n",
            ),
            ("HTTP/1.0 200 OK\r\n\r\nabc", "abc"),
            ("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", ""),
        ] {
            assert_eq!(passed(octets).await, Ok(body.to_owned()));
        }
    }

    #[tokio::test]
    async fn what_can_be_read_in_two_ways_is_an_error() {
        for octets in [
            "HTTP/1.1 200 OK\nA: b\n\n",
            "HTTP/1.1 200 OK\r\nA b\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
            "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
            "SSH-2.0-x\r\n\r\n",
        ] {
            assert_eq!(passed(octets).await, Err("http_protocol_error"), "{octets:?}");
        }
        let large = format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "a".repeat(2000));
        assert_eq!(passed(&large).await, Err("http_response_header_section_size"));
    }

    #[tokio::test]
    async fn what_is_cut_short_is_told() {
        for octets in [
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
        ] {
            assert_eq!(passed(octets).await, Err("cut"), "{octets:?}");
        }
        assert_eq!(passed("HTTP/1.1 200 OK\r\n").await, Err("connection_terminated"));
    }
}
