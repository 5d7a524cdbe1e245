//! HTTP/1.1 messages read a second time, by httparse and the words of RFC 9112, slowly and without a thought to speed: what the
//! proxy's own readers are held against.

use httparse::{ParserConfig, Status};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    pub len: usize,
    /// Method and target; the status.
    pub start: (Vec<u8>, Vec<u8>),
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub framing: Framing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    None,
    Length(u64),
    Chunked,
    UntilClose,
}

/// `None`: it is not whole, or refused.
pub fn request(raw: &[u8], most: usize) -> Option<Head> {
    // Not strict in httparse: what ends a line.
    let end = raw.windows(4).enumerate().position(|(at, four)| four == b"\r\n\r\n" && !only_lines_before(raw, at))? + 4;
    let raw = &raw[..end];
    if raw.split_inclusive(|&byte| byte == b'\n').any(|line| !line.ends_with(b"\r\n")) {
        return None;
    }
    // httparse also requires UTF-8 in targets.
    let mut ascii = raw.to_vec();
    let lines = raw.iter().take_while(|byte| b"\r\n".contains(byte)).count();
    let (first, space) = (raw[lines..].split(|&byte| byte == b'\r').next()?, |byte: &u8| *byte == b' ');
    let target = lines + first.iter().position(space)?..lines + first.len();
    ascii[target].iter_mut().filter(|byte| !byte.is_ascii()).for_each(|byte| *byte = b'x');
    let mut slots = vec![httparse::EMPTY_HEADER; most];
    let mut request = httparse::Request::new(&mut slots);
    let Ok(Status::Complete(len)) = request.parse(&ascii) else { return None };
    let method = request.method?.as_bytes().to_vec();
    let target = raw[lines + method.len() + 1..][..request.path?.len()].to_vec();
    let fields = fields(request.headers);
    let framing = request_framing(&fields, request.version?)?;
    let hosts = values(&fields, "host").len();
    (hosts <= 1 && named(&fields) <= 32).then_some(Head { len, start: (method, target), fields, framing })
}

/// `None`: it is not whole, or refused.
pub fn response(raw: &[u8], method: &str, most: usize) -> Option<Head> {
    if !raw.starts_with(b"HTTP/1.") {
        return None;
    }
    let mut config = ParserConfig::default();
    config.allow_spaces_after_header_name_in_responses(true);
    config.allow_obsolete_multiline_headers_in_responses(true);
    // RFC 9110 §2.5: a higher minor version is read as the highest that is known. httparse refuses it.
    let mut known = raw.to_vec();
    known.get_mut(7).filter(|minor| matches!(minor, b'2'..=b'9')).iter_mut().for_each(|minor| **minor = b'1');
    let mut slots = vec![httparse::EMPTY_HEADER; most];
    let mut response = httparse::Response::new(&mut slots);
    let Ok(Status::Complete(len)) = config.parse_response(&mut response, &known) else { return None };
    let status = response.code.filter(|status| *status >= 100)?;
    let fields = fields(response.headers);
    let framing = response_framing(&fields, response.version?, status, method)?;
    let start = (status.to_string().into_bytes(), Vec::new());
    (named(&fields) <= 32).then_some(Head { len, start, fields, framing })
}

/// Content and length of a chunked body that is whole. `None`: it is not, or is refused.
pub fn chunked(raw: &[u8], strict: bool) -> Option<(Vec<u8>, usize)> {
    let (mut content, mut at) = (Vec::new(), 0);
    let line = |at: usize| {
        let length = raw[at..].windows(2).position(|two| two == b"\r\n")?;
        let line = &raw[at..at + length];
        let text = line.iter().all(|&byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f));
        text.then_some((line, at + length + 2))
    };
    loop {
        let (size, next) = line(at)?;
        let mut size = size.split(|&byte| byte == b';').next()?;
        if !strict {
            size = size.trim_ascii_end();
        }
        let zeros = size.iter().take_while(|&&byte| byte == b'0').count();
        let is_number = (1..=32).contains(&size.len()) && size.iter().all(u8::is_ascii_hexdigit);
        if !is_number || size.len() - zeros > 15 {
            return None;
        }
        let size = usize::from_str_radix(std::str::from_utf8(size).ok()?, 16).ok()?;
        at = next;
        if size == 0 {
            break;
        }
        content.extend_from_slice(raw.get(at..at.checked_add(size)?)?);
        at += size;
        if raw.get(at..at + 2)? != b"\r\n" {
            return None;
        }
        at += 2;
    }
    for count in 0.. {
        let (field, next) = line(at)?;
        at = next;
        if field.is_empty() {
            break;
        }
        let name = &field[..field.iter().position(|&byte| byte == b':')?];
        let is_name = !name.is_empty() && name.iter().all(|&byte| is_tchar(byte));
        let changes = ["host", "content-length", "transfer-encoding", "connection"];
        let changes = changes.iter().any(|changing| name.eq_ignore_ascii_case(changing.as_bytes()));
        if !is_name || count == 64 || (strict && changes) {
            return None;
        }
    }
    Some((content, at))
}

/// RFC 9112 §6.3, with every doubt refused.
fn request_framing(fields: &[(Vec<u8>, Vec<u8>)], minor: u8) -> Option<Framing> {
    let (lengths, codings) = (values(fields, "content-length"), values(fields, "transfer-encoding"));
    match (&lengths[..], &codings[..]) {
        ([], []) => Some(Framing::None),
        ([length], []) => digits(length).map(Framing::Length),
        ([], [coding]) if minor == 1 && coding.eq_ignore_ascii_case(b"chunked") => Some(Framing::Chunked),
        _ => None,
    }
}

/// RFC 9112 §6.3, in its order.
fn response_framing(fields: &[(Vec<u8>, Vec<u8>)], minor: u8, status: u16, method: &str) -> Option<Framing> {
    let (lengths, codings) = (values(fields, "content-length"), values(fields, "transfer-encoding"));
    let coding = match &codings[..] {
        [] => None,
        [coding] if minor == 1 && coding.eq_ignore_ascii_case(b"chunked") => Some(Framing::Chunked),
        _ => return None,
    };
    let mut length = None;
    for line in lengths {
        let mut members = line.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|m| !m.is_empty()).peekable();
        members.peek()?;
        for member in members {
            let told = digits(member)?;
            if length.is_some_and(|length| length != told) {
                return None;
            }
            length = Some(told);
        }
    }
    Some(match () {
        () if method == "HEAD" || status / 100 == 1 || status == 204 || status == 304 => Framing::None,
        () if method == "CONNECT" && status / 100 == 2 => Framing::None,
        () => coding.or(length.map(Framing::Length)).unwrap_or(Framing::UntilClose),
    })
}

fn digits(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    let all = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|&length: &u64| all && length <= i64::MAX as u64)
}

/// Number of fields named by Connection.
fn named(fields: &[(Vec<u8>, Vec<u8>)]) -> usize {
    let options = values(fields, "connection").into_iter().flat_map(|value| value.split(|&byte| byte == b','));
    let options = options.map(<[u8]>::trim_ascii).filter(|option| !option.is_empty());
    let known = |option: &&[u8]| option.eq_ignore_ascii_case(b"close") || option.eq_ignore_ascii_case(b"keep-alive");
    options.filter(|option| !known(option)).count()
}

fn values<'a>(fields: &'a [(Vec<u8>, Vec<u8>)], wanted: &str) -> Vec<&'a [u8]> {
    let found = fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted.as_bytes()));
    found.map(|(_, value)| value.as_slice()).collect()
}

/// Folded lines as one, without the spaces around them.
fn fields(headers: &[httparse::Header<'_>]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let one_line = |value: &[u8]| {
        let spaced: Vec<u8> = value.iter().map(|byte| if b"\r\n".contains(byte) { b' ' } else { *byte }).collect();
        spaced.trim_ascii().to_vec()
    };
    headers.iter().map(|field| (field.name.as_bytes().to_vec(), one_line(field.value))).collect()
}

/// Whether there are only empty lines as far as here.
fn only_lines_before(raw: &[u8], at: usize) -> bool {
    raw[..at].iter().all(|byte| b"\r\n".contains(byte))
}

fn is_tchar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
