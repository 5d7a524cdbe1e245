//! The head of a request (RFC 9112 §2–§6), read strictly.

use super::fields::{Field, FieldKind, FieldRoom, is_named};
use super::scan::{number, target_end, text_end, token_end, trim, within};
use super::{Framing, HeadError};
use memchr::memmem::Finder;
use std::sync::LazyLock;

/// The head of a request, up to its empty line. Borrowed parts are as sent.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'r> {
    /// Number of input bytes, the empty line included.
    pub len: usize,
    /// The bytes of the head.
    pub raw: &'r [u8],
    pub method: &'r str,
    /// The request target as sent. It has no spaces or control characters.
    pub target: &'r [u8],
    /// Minor version of HTTP/1: 0 or 1.
    pub minor: u8,
    pub fields: &'r [Field<'r>],
    pub host: Option<&'r [u8]>,
    pub framing: Framing,
    /// Connection has `close`.
    pub close: bool,
    /// Connection has `keep-alive`.
    pub keep_alive: bool,
    /// The protocol that the client offers to switch to; `None` unless Connection lists `upgrade` too.
    pub upgrade: Option<&'r [u8]>,
    named: &'r [&'r [u8]],
}

impl RequestHead<'_> {
    /// Whether the field was meant for this connection only (RFC 9110 §7.6.1): by its name, or because Connection lists it. Framing,
    /// Host, Cache-Control and Via cannot be removed by listing them.
    #[inline]
    pub fn ends_here(&self, field: &Field<'_>) -> bool {
        field.kind.is_hop_by_hop() || is_named(self.named, field)
    }

    /// Whether the client wants to keep the connection (RFC 9112 §9.3).
    #[inline]
    pub fn persists(&self) -> bool {
        !self.close && (self.minor == 1 || self.keep_alive)
    }
}

/// Reads one head from the start of `input`. `None`: the head is incomplete. `scanned` is 0 for a new head; with more input for the same
/// head, pass the value that the previous call left. Empty lines before the head are skipped (§2.2).
///
/// # Errors
/// The head is over a limit, or ambiguous: bare LF or CR, folded lines, spaces around names, two Hosts, any doubt about the length of the
/// body (§6.3). An end of line without CR is refused at once, even if the head is incomplete.
#[inline]
pub fn read_request<'r, 'a: 'r>(
    input: &'a [u8],
    scanned: &mut usize,
    limit: usize,
    room: &'r mut FieldRoom<'a>,
) -> Result<Option<RequestHead<'r>>, HeadError> {
    let Some(end) = find_request_end(input, scanned, limit)? else { return Ok(None) };
    read_whole_request(&input[..end], room).map(Some)
}

/// Like [`read_request`], for an `input` that is exactly one whole head.
///
/// # Errors
/// The head is malformed or ambiguous, or has too many fields.
#[inline]
pub fn read_whole_request<'r, 'a: 'r>(
    input: &'a [u8],
    room: &'r mut FieldRoom<'a>,
) -> Result<RequestHead<'r>, HeadError> {
    room.clear();
    read(input, start(input), room).map_err(|error| every_line_has_cr(input, 0).err().unwrap_or(error))
}

/// Finds the end of the head that [`read_request`] would read. `None`: the head is incomplete.
///
/// # Errors
/// A line without CR, or a head over the limit.
#[inline]
pub fn find_request_end(input: &[u8], scanned: &mut usize, limit: usize) -> Result<Option<usize>, HeadError> {
    let end = end_of_head(input, start(input), scanned)?;
    within(limit, end, input.len())?;
    Ok(end)
}

/// Offset after the empty lines that may precede a head.
fn start(input: &[u8]) -> usize {
    let mut start = 0;
    while input[start..].starts_with(b"\r\n") {
        start += 2;
    }
    start
}

fn end_of_head(input: &[u8], start: usize, scanned: &mut usize) -> Result<Option<usize>, HeadError> {
    static END: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\r\n\r\n"));
    let scanned = std::mem::replace(scanned, input.len());
    let from = scanned.saturating_sub(3).clamp(start, input.len());
    let end = END.find(&input[from..]).map(|at| from + at + 4);
    if end.is_none() {
        every_line_has_cr(input, scanned.min(input.len()))?;
    }
    Ok(end)
}

#[cold]
fn every_line_has_cr(input: &[u8], from: usize) -> Result<(), HeadError> {
    let mut ends = memchr::memchr_iter(b'\n', &input[from..]).map(|at| at + from);
    match ends.all(|at| at > 0 && input[at - 1] == b'\r') {
        true => Ok(()),
        false => Err(HeadError::Malformed("a line ends with LF instead of CRLF")),
    }
}

fn read<'r, 'a: 'r>(input: &'a [u8], start: usize, room: &'r mut FieldRoom<'a>) -> Result<RequestHead<'r>, HeadError> {
    let method_end = token_end(input, start);
    let method = std::str::from_utf8(&input[start..method_end]).unwrap_or_default();
    if method.is_empty() || input[method_end] != b' ' {
        return Err(HeadError::Malformed("the request line does not begin with a method"));
    }
    let target_end = target_end(input, method_end + 1);
    let target = &input[method_end + 1..target_end];
    if target.is_empty() || input[target_end] != b' ' {
        return Err(HeadError::Malformed("the request target is missing, or has characters that no URL may have"));
    }
    let minor = match input.get(target_end + 1..target_end + 11) {
        Some(b"HTTP/1.1\r\n") => 1,
        Some(b"HTTP/1.0\r\n") => 0,
        // RFC 9110 §2.5: a higher minor version is read as the highest that is known.
        Some([b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9', b'\r', b'\n']) => 1,
        _ => return Err(HeadError::Malformed("the request line does not end with a version of HTTP/1")),
    };

    let mut known = RequestFields::default();
    let mut at = target_end + 11;
    while input[at] != b'\r' {
        let name_end = token_end(input, at);
        let name = &input[at..name_end];
        if name.is_empty() || input[name_end] != b':' {
            return Err(HeadError::Malformed(match input[at] {
                b' ' | b'\t' => "a folded header line",
                b':' => "a header field without a name",
                _ => "a header field has no colon, or its name has invalid characters",
            }));
        }
        let value_end = text_end(input, name_end + 1);
        if input[value_end] != b'\r' || input[value_end + 1] != b'\n' {
            return Err(HeadError::Malformed("a control character in a header field"));
        }
        let field = Field { name, value: trim(&input[name_end + 1..value_end]), kind: FieldKind::of(name) };
        if field.kind.is_of_message() {
            known.note(&field, minor, room)?;
        }
        room.push(field)?;
        at = value_end + 2;
    }
    if at + 2 != input.len() {
        return Err(HeadError::Malformed("a CR without LF"));
    }

    let framing = match (known.length, known.chunked) {
        (None, false) => Framing::None,
        (Some(length), false) => Framing::Length(length),
        (None, true) => Framing::Chunked,
        (Some(_), true) => return Err(HeadError::Malformed("both Content-Length and Transfer-Encoding")),
    };
    let room = &*room;
    Ok(RequestHead {
        len: input.len(),
        raw: input,
        method,
        target,
        minor,
        fields: &room.fields,
        host: known.host,
        framing,
        close: room.close,
        keep_alive: room.keep_alive,
        upgrade: room.upgrade().filter(|_| minor == 1),
        named: &room.named,
    })
}

/// The values of the fields that determine host and framing.
#[derive(Default)]
struct RequestFields<'a> {
    host: Option<&'a [u8]>,
    length: Option<u64>,
    chunked: bool,
}

impl<'a> RequestFields<'a> {
    #[inline]
    fn note(&mut self, field: &Field<'a>, minor: u8, room: &mut FieldRoom<'a>) -> Result<(), HeadError> {
        let value = field.value;
        match field.kind {
            FieldKind::Host if self.host.replace(value).is_some() => {
                return Err(HeadError::Malformed("more than one Host field"));
            }
            FieldKind::ContentLength => {
                let length = number(value).ok_or(HeadError::Malformed("Content-Length is not a number"))?;
                if self.length.replace(length).is_some() {
                    return Err(HeadError::Malformed("more than one Content-Length field"));
                }
            }
            FieldKind::TransferEncoding => {
                if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(HeadError::Malformed("a Transfer-Encoding other than chunked"));
                }
                if minor == 0 {
                    return Err(HeadError::Malformed("Transfer-Encoding in an HTTP/1.0 request"));
                }
                self.chunked = true;
            }
            _ => room.note(field)?,
        }
        Ok(())
    }
}
