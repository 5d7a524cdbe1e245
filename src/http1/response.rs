//! The head of an answer (RFC 9112 §4–§6): accepted if it has only one meaning, and then normalised.

use super::fields::{Field, FieldKind, FieldRoom, is_named, list};
use super::scan::{number, text_end, token_end, trim, within};
use super::{Framing, HeadError};
use std::mem::replace;

/// The head of an answer, up to its empty line; interim answers (1xx) are separate heads.
#[derive(Debug, Clone, Copy)]
pub struct ResponseHead<'r> {
    /// Number of input bytes, the empty line included.
    pub len: usize,
    /// The bytes of the head.
    pub raw: &'r [u8],
    /// 100 to 999.
    pub status: u16,
    pub reason: &'r [u8],
    /// Minor version of HTTP/1: 0 or 1.
    pub minor: u8,
    /// The fields, with at most one framing (§6.3). Repeated lengths are merged. Content-Length is removed if Transfer-Encoding overrides
    /// it. Both are removed from 1xx, 204 and an answer that grants a CONNECT, and Transfer-Encoding from 304.
    pub fields: &'r [Field<'r>],
    /// The framing of this answer, given the request's method.
    pub framing: Framing,
    /// Whether the connection cannot be reused: the origin says so, the body ends with the connection, or the framing was doubtful.
    pub close: bool,
    /// Whether the head deviates from RFC 9112: lines without CR, or spaces before colons.
    pub is_irregular: bool,
    /// The protocol that the origin switches to; `None` unless Connection lists `upgrade` too.
    pub upgrade: Option<&'r [u8]>,
    named: &'r [&'r [u8]],
}

impl ResponseHead<'_> {
    /// Whether another answer follows this answer. False for 101, after which the connection is no longer HTTP.
    #[inline]
    pub fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }

    /// Whether the field was meant for this connection only (RFC 9110 §7.6.1).
    #[inline]
    pub fn ends_here(&self, field: &Field<'_>) -> bool {
        field.kind.is_hop_by_hop() || is_named(self.named, field)
    }
}

/// Reads one head from the start of `input`, the answer to a request with this method, and passes it to `look`. `None`: the head is
/// incomplete. `scanned` is 0 for a new head; with more input for the same head, pass the value that the previous call left. `input` is
/// mutable because folded lines are joined in place (§5.2).
///
/// # Errors
/// The input is not an HTTP/1 answer, has control characters, or is over a limit. Or its Content-Lengths differ or are not numbers. Or it
/// has a Transfer-Encoding other than `chunked`, or any in HTTP/1.0 (§6.1).
#[inline]
pub fn read_response<R>(
    input: &mut [u8],
    scanned: &mut usize,
    limit: usize,
    method: &str,
    look: impl FnOnce(&ResponseHead<'_>) -> R,
) -> Result<Option<R>, HeadError> {
    // Fast path: nearly all heads come in one piece, without folded lines.
    if *scanned == 0
        && let Ok(head) = read(input, method, &mut FieldRoom::new())
        && head.len <= limit
    {
        return Ok(Some(look(&head)));
    }
    let end = end_of_head(input, scanned)?;
    within(limit, end, input.len())?;
    let Some(end) = end else { return Ok(None) };
    read(&input[..end], method, &mut FieldRoom::new()).map(|head| Some(look(&head)))
}

fn end_of_head(input: &mut [u8], scanned: &mut usize) -> Result<Option<usize>, HeadError> {
    let there = input.len().min(PREFIX.len());
    if input[..there] != PREFIX[..there] {
        return Err(HeadError::Malformed("it does not begin with HTTP/1"));
    }
    let mut from = (*scanned).min(input.len());
    let mut is_folded = false;
    while let Some(at) = memchr::memchr(b'\n', &input[from..]).map(|at| at + from) {
        if input[at - 1] == b'\n' || input[at - 1] == b'\r' && input[at - 2] == b'\n' {
            return Ok(Some(at + 1));
        }
        match input.get(at + 1) {
            // A line is checked at its first fold only, even if more folds follow.
            Some(b' ' | b'\t') => {
                if !replace(&mut is_folded, true) && !is_field_before(&input[..at]) {
                    return Err(HeadError::Malformed("a folded line that is not a header field"));
                }
                unfold(input, at);
            }
            Some(_) => is_folded = false,
            // The head is incomplete: the next line may continue this one.
            None => {
                *scanned = at;
                return Ok(None);
            }
        }
        from = at + 1;
    }
    *scanned = input.len();
    Ok(None)
}

/// Whether the last line is a field line: only those may be folded, not the status line (§2.2).
#[cold]
fn is_field_before(input: &[u8]) -> bool {
    memchr::memrchr(b'\n', input).is_some_and(|before| input[before + 1..].contains(&b':'))
}

/// Joins a folded line with the one before (§5.2).
#[cold]
fn unfold(input: &mut [u8], at: usize) {
    input[at] = b' ';
    if input[at - 1] == b'\r' {
        input[at - 1] = b' ';
    }
}

/// Reads the head that `input` begins with. An incomplete head is an error.
fn read<'r, 'a: 'r>(input: &'a [u8], method: &str, room: &'r mut FieldRoom<'a>) -> Result<ResponseHead<'r>, HeadError> {
    let (status, minor) = match input {
        // RFC 9110 §2.5: a higher minor version is read as the highest that is known.
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor @ b'0'..=b'9', b' ', a @ b'1'..=b'9', b, c, rest @ ..]
            if b.is_ascii_digit() && c.is_ascii_digit() && matches!(rest.first(), Some(b' ' | b'\r' | b'\n')) =>
        {
            let digit = |byte: &u8| u16::from(byte - b'0');
            (digit(a) * 100 + digit(b) * 10 + digit(c), (minor - b'0').min(1))
        }
        _ => {
            return Err(HeadError::Malformed(
                "it does not begin with HTTP/1.1 or HTTP/1.0 and a status of three digits",
            ));
        }
    };
    let mut is_irregular = false;
    let (reason, mut at) = line(input, STATUS_END, &mut is_irregular)?;

    let mut known = ResponseFields::default();
    while !matches!(input.get(at), Some(b'\r' | b'\n')) {
        let name_end = token_end(input, at);
        let name = &input[at..name_end];
        let mut colon = name_end;
        // §5.1: spaces before the colon must be removed.
        while matches!(input.get(colon), Some(b' ' | b'\t')) {
            colon += 1;
            is_irregular = true;
        }
        if name.is_empty() || input.get(colon) != Some(&b':') {
            return Err(HeadError::Malformed("a header field has no colon, or its name has invalid characters"));
        }
        let (value, next) = line(input, colon + 1, &mut is_irregular)?;
        let field = Field { name, value, kind: FieldKind::of(name) };
        if field.kind.is_of_message() {
            known.note(&field, room)?;
        }
        room.push(field)?;
        at = next;
    }
    let len = match &input[at..] {
        [b'\r', b'\n', ..] => at + 2,
        [b'\n', ..] => {
            is_irregular = true;
            at + 1
        }
        _ => return Err(HeadError::Malformed("a CR without LF")),
    };

    let (framing, doubt) = known.framing(status, minor, method, room)?;
    let room = &*room;
    Ok(ResponseHead {
        len,
        raw: &input[..len],
        status,
        reason,
        minor,
        fields: &room.fields,
        framing,
        close: room.close || doubt || framing == Framing::UntilClose || (minor == 0 && !room.keep_alive),
        is_irregular,
        upgrade: room.upgrade(),
        named: &room.named,
    })
}

/// The text from here to the end of its line, and where the next line begins.
#[inline]
fn line<'a>(input: &'a [u8], from: usize, is_irregular: &mut bool) -> Result<(&'a [u8], usize), HeadError> {
    let end = text_end(input, from);
    let next = match (input.get(end), input.get(end + 1)) {
        (Some(b'\r'), Some(b'\n')) => end + 2,
        (Some(b'\n'), _) => {
            *is_irregular = true;
            end + 1
        }
        _ => return Err(HeadError::Malformed("a control character in its head")),
    };
    Ok((trim(&input[from..end]), next))
}

/// The values of the fields that determine the framing.
#[derive(Default)]
struct ResponseFields {
    length: Option<u64>,
    /// Content-Length occurs several times or as a list, always with the same value.
    repeated: bool,
    chunked: bool,
}

impl ResponseFields {
    #[inline]
    fn note<'a>(&mut self, field: &Field<'a>, room: &mut FieldRoom<'a>) -> Result<(), HeadError> {
        match field.kind {
            FieldKind::ContentLength => self.lengths(field.value)?,
            FieldKind::TransferEncoding => {
                if self.chunked || !field.value.eq_ignore_ascii_case(b"chunked") {
                    return Err(HeadError::Malformed("a Transfer-Encoding other than chunked"));
                }
                self.chunked = true;
            }
            _ => room.note(field)?,
        }
        Ok(())
    }

    /// RFC 9110 §8.6: the same number given several times counts once.
    fn lengths(&mut self, value: &[u8]) -> Result<(), HeadError> {
        if self.length.is_none() {
            self.length = number(value);
            if self.length.is_some() {
                return Ok(());
            }
        }
        // The field will be rewritten as one number.
        self.repeated = true;
        let mut any = false;
        for member in list(value) {
            let length = number(member).ok_or(HeadError::Malformed("its Content-Length is not a number"))?;
            if self.length.replace(length).is_some_and(|before| before != length) {
                return Err(HeadError::Malformed("two Content-Lengths that differ"));
            }
            any = true;
        }
        if any { Ok(()) } else { Err(HeadError::Malformed("its Content-Length is not a number")) }
    }

    /// The framing (§6.3), and whether the connection must be closed after this answer. Removes the fields that contradict the framing.
    fn framing(
        &self,
        status: u16,
        minor: u8,
        method: &str,
        room: &mut FieldRoom<'_>,
    ) -> Result<(Framing, bool), HeadError> {
        if self.chunked && minor == 0 {
            return Err(HeadError::Malformed("Transfer-Encoding in an HTTP/1.0 answer"));
        }
        let tunnel = method == "CONNECT" && (200..300).contains(&status);
        let without_body = status < 200 || status == 204 || tunnel;
        if self.length.is_some() || self.chunked {
            let both = self.length.is_some() && self.chunked;
            let mut length_gone = without_body || both;
            let drop_coding = without_body || status == 304;
            if length_gone || drop_coding || self.repeated {
                room.fields.retain(|field| match field.kind {
                    FieldKind::ContentLength => {
                        field.value = list(field.value).next().unwrap_or_default();
                        !std::mem::replace(&mut length_gone, true)
                    }
                    FieldKind::TransferEncoding => !drop_coding,
                    _ => true,
                });
            }
            if without_body {
                return Ok((Framing::None, self.chunked || self.length != Some(0)));
            }
            if method == "HEAD" || status == 304 {
                return Ok((Framing::None, both));
            }
            return Ok(match self.length {
                Some(length) if !self.chunked => (Framing::Length(length), false),
                Some(_) | None => (Framing::Chunked, both),
            });
        }
        let without_body = without_body || method == "HEAD" || status == 304;
        Ok((if without_body { Framing::None } else { Framing::UntilClose }, false))
    }
}

const PREFIX: &[u8] = b"HTTP/1.";
/// Length of `HTTP/1.1 200`.
const STATUS_END: usize = 12;
