//! HTTP/1 messages as bytes: heads, and bodies by their framing. Strict, as the proxy's output must be correct.

use super::pattern;
use tokio::io::{AsyncRead, AsyncReadExt};

/// A start line and fields, in order and case as received.
#[derive(Clone, Debug, Default)]
pub struct Head {
    pub start_line: Vec<u8>,
    pub fields: Vec<(String, String)>,
}

impl Head {
    /// Parses `bytes`, which end with the empty line.
    pub fn parse(bytes: &[u8]) -> Self {
        let text: &[u8] = bytes.strip_suffix(b"\r\n\r\n").unwrap_or_else(|| panic!("no empty line: {}", show(bytes)));
        let mut lines = split_lines(text);
        let start_line = lines.next().unwrap_or_default().to_vec();
        let fields = lines
            .map(|line| {
                let colon = line.iter().position(|&byte| byte == b':');
                let colon = colon.unwrap_or_else(|| panic!("a field without a colon: {}", show(line)));
                (lossy(&line[..colon]), lossy(&line[colon + 1..]).trim().to_owned())
            })
            .collect();
        Self { start_line, fields }
    }

    pub fn status(&self) -> u16 {
        let line = lossy(&self.start_line);
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        status.unwrap_or_else(|| panic!("not a status line: {line:?}"))
    }

    /// The value of the field, if present; panics if it occurs twice.
    pub fn field(&self, name: &str) -> Option<&str> {
        let all = self.all(name);
        assert!(all.len() < 2, "{name} came {} times: {all:?}", all.len());
        all.first().copied()
    }

    pub fn all(&self, name: &str) -> Vec<&str> {
        let named = self.fields.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    }

    /// Whether `token` is a member of the comma-separated field.
    pub fn lists(&self, name: &str, token: &str) -> bool {
        let members = self.all(name).into_iter().flat_map(|value| value.split(','));
        members.into_iter().any(|member| member.trim().eq_ignore_ascii_case(token))
    }

    /// The `error` of the proxy's own member in `Proxy-Status` (RFC 9209 §2.1.1).
    pub fn proxy_error(&self) -> Option<String> {
        self.proxy_status_parameter("error")
    }

    /// A parameter of the member `politely` in `Proxy-Status`.
    pub fn proxy_status_parameter(&self, name: &str) -> Option<String> {
        let (_, parameters) = self.proxy_status().into_iter().find(|(proxy, _)| proxy == "politely")?;
        parameters.into_iter().find_map(|(key, value)| (key == name).then_some(value))
    }

    /// Whether `Proxy-Status` has a member with the proxy's name.
    pub fn names_the_proxy(&self) -> bool {
        self.proxy_status().iter().any(|(proxy, _)| proxy == "politely")
    }

    /// Parses `Proxy-Status` by RFC 9209 §2: a list of tokens or strings with parameters.
    fn proxy_status(&self) -> Vec<(String, Vec<(String, String)>)> {
        let field = self.all("proxy-status").join(", ");
        let list: sfv::List = sfv::Parser::new(&field)
            .parse()
            .unwrap_or_else(|error| panic!("not a structured list: {field:?}: {error}"));
        let members = list.into_iter().filter_map(|entry| match entry {
            sfv::ListEntry::Item(item) => Some(item),
            sfv::ListEntry::InnerList(_) => None,
        });
        let plain = |item: &sfv::BareItem| match item {
            sfv::BareItem::Token(token) => token.as_str().to_owned(),
            sfv::BareItem::String(string) => string.as_str().to_owned(),
            other => format!("{other:?}"),
        };
        let parameters = |item: &sfv::Item| {
            item.params.iter().map(|(key, value)| (key.as_str().to_owned(), plain(value))).collect::<Vec<_>>()
        };
        members.map(|item| (plain(&item.bare_item), parameters(&item))).collect()
    }

    pub fn framing(&self, request_method: &str) -> Framing {
        let status = self.start_line.starts_with(b"HTTP/").then(|| self.status());
        let without_body = status.is_some_and(|status| (100..200).contains(&status) || matches!(status, 204 | 304));
        if without_body || request_method == "HEAD" || (request_method == "CONNECT" && status == Some(200)) {
            return Framing::None;
        }
        if self.lists("transfer-encoding", "chunked") {
            return Framing::Chunked;
        }
        match self.field("content-length") {
            Some(length) => Framing::Length(length.parse().expect("a Content-Length is a number")),
            // Without either, a request has no body and a response ends with the connection (RFC 9112 §6.3).
            None if status.is_some() => Framing::UntilClose,
            None => Framing::None,
        }
    }
}

/// How a body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    None,
    Length(u64),
    Chunked,
    UntilClose,
}

/// A whole response.
#[derive(Clone, Debug, Default)]
pub struct Response {
    pub head: Head,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
}

impl Response {
    pub fn status(&self) -> u16 {
        self.head.status()
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.field(name)
    }

    pub fn text(&self) -> String {
        lossy(&self.body)
    }

    /// The body as RFC 9457 problem details.
    pub fn problem(&self) -> serde_json::Value {
        assert_eq!(self.field("content-type"), Some("application/problem+json"), "{}", self.text());
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

/// The received part of a body.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// The bytes, unless there are more than [`Body::KEPT`].
    pub kept: Vec<u8>,
    pub pattern: pattern::Checker,
    pub trailers: Vec<(String, String)>,
    /// Whether it ended as its framing requires.
    pub complete: bool,
}

impl Body {
    pub const KEPT: usize = 4 << 20;

    pub fn push(&mut self, bytes: &[u8]) {
        self.pattern.update(bytes);
        let room = Self::KEPT - self.kept.len();
        self.kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    pub fn length(&self) -> u64 {
        self.pattern.length()
    }
}

/// Bytes from a peer; what was read too far is kept for later.
pub struct Source<R> {
    pub inner: R,
    pub ahead: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Source<R> {
    pub fn new(inner: R) -> Self {
        Self { inner, ahead: Vec::new() }
    }

    /// Reads more bytes; false at the end. A reset counts as the end.
    pub async fn fill(&mut self) -> bool {
        self.ahead.reserve(READ);
        self.inner.read_buf(&mut self.ahead).await.is_ok_and(|length| length > 0)
    }

    /// The bytes up to and including the next `end`; `None` if the peer ends first.
    pub async fn until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        let mut searched = 0;
        loop {
            if let Some(at) = find(&self.ahead[searched..], end) {
                return Some(self.take(searched + at + end.len()));
            }
            searched = self.ahead.len().saturating_sub(end.len() - 1);
            if !self.fill().await {
                return None;
            }
        }
    }

    /// Some bytes, at most `limit`; empty at the end.
    pub async fn some(&mut self, limit: u64) -> Vec<u8> {
        if self.ahead.is_empty() && !self.fill().await {
            return Vec::new();
        }
        let length = self.ahead.len().min(usize::try_from(limit).unwrap_or(usize::MAX));
        self.take(length)
    }

    /// The first `length` of the buffered bytes.
    pub fn take(&mut self, length: usize) -> Vec<u8> {
        // Copies blocks; draining would copy single bytes in an unoptimised build.
        let rest = self.ahead.split_off(length);
        std::mem::replace(&mut self.ahead, rest)
    }

    /// Reads a body, passing each piece to `sink`.
    pub async fn body(&mut self, framing: Framing, mut sink: impl FnMut(&[u8])) -> BodyEnd {
        match framing {
            Framing::None => BodyEnd::complete(),
            Framing::Length(length) => BodyEnd { complete: self.pieces(length, &mut sink).await, trailers: Vec::new() },
            Framing::UntilClose => {
                self.pieces(u64::MAX, &mut sink).await;
                BodyEnd::complete()
            }
            Framing::Chunked => self.chunks(&mut sink).await.unwrap_or_default(),
        }
    }

    async fn pieces(&mut self, length: u64, sink: &mut impl FnMut(&[u8])) -> bool {
        let mut left = length;
        while left > 0 {
            let piece = self.some(left).await;
            if piece.is_empty() {
                return false;
            }
            left -= piece.len() as u64;
            sink(&piece);
        }
        true
    }

    async fn chunks(&mut self, sink: &mut impl FnMut(&[u8])) -> Option<BodyEnd> {
        loop {
            let line = lossy(&self.until(b"\r\n").await?);
            let size = line.trim_end().split(';').next().unwrap_or_default();
            let size = u64::from_str_radix(size, 16).unwrap_or_else(|_| panic!("not a chunk size: {line:?}"));
            if size == 0 {
                break;
            }
            if !self.pieces(size, sink).await {
                return None;
            }
            assert_eq!(self.until(b"\r\n").await?, b"\r\n", "a chunk ends where its size says");
        }
        let mut section = b"trailers\r\n".to_vec();
        loop {
            let line = self.until(b"\r\n").await?;
            section.extend_from_slice(&line);
            if line == b"\r\n" {
                return Some(BodyEnd { complete: true, trailers: Head::parse(&section).fields });
            }
        }
    }
}

/// How a body ended.
#[derive(Default)]
pub struct BodyEnd {
    pub complete: bool,
    pub trailers: Vec<(String, String)>,
}

impl BodyEnd {
    fn complete() -> Self {
        Self { complete: true, trailers: Vec::new() }
    }
}

/// Bytes per read.
const READ: usize = 128 * 1024;

pub fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The bytes for messages, escaped and shortened to a few hundred.
pub fn show(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(600)].escape_ascii().to_string()
}

pub fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

fn split_lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        match find(text, b"\r\n") {
            Some(at) => {
                rest = Some(&text[at + 2..]);
                Some(&text[..at])
            }
            None => {
                rest = None;
                Some(text)
            }
        }
    })
}
