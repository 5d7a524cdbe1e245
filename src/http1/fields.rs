//! Header fields: which ones have a meaning for the proxy, and which ones are hop-by-hop (RFC 9110 §7.6.1).

use super::scan::trim;
use super::{HeadError, MAX_FIELDS};
use smallvec::SmallVec;

/// One field line: the name as sent, and the value as sent, without the spaces around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    pub name: &'a [u8],
    pub value: &'a [u8],
    pub kind: FieldKind,
}

/// Fields with a meaning for the proxy. Look-up is by the name's length, then by its bytes, without regard to case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    Host,
    ContentLength,
    TransferEncoding,
    Connection,
    KeepAlive,
    ProxyConnection,
    ProxyAuthorization,
    ProxyAuthenticate,
    ProxyAuthenticationInfo,
    Te,
    Trailer,
    Upgrade,
    /// Alt-Svc and Alt-Used (RFC 7838).
    Alternative,
    Expect,
    Via,
    CacheControl,
    ContentType,
    Cookie,
    Authorization,
    MaxForwards,
    UserAgent,
    Accept,
    Prefer,
    SecFetchDest,
    /// Proxy-Status (RFC 9209) and Cache-Status (RFC 9211), in which each proxy has members of its own.
    ProxyStatus,
    /// A field of an answer that says how its content may be used, or what it costs: Content-Usage, Content-Signal, Robots-Tag,
    /// X-Robots-Tag, TDM-Reservation, Link (which may name a licence), crawler-charged, crawler-error.
    Signal,
    /// A field of a request that offers a price: crawler-max-price, crawler-exact-price.
    CrawlerPrice,
    Other,
}

impl FieldKind {
    #[inline]
    pub fn of(name: &[u8]) -> Self {
        match name.len() {
            2 if is(name, b"te") => Self::Te,
            3 if is(name, b"via") => Self::Via,
            4 if is(name, b"host") => Self::Host,
            4 if is(name, b"link") => Self::Signal,
            6 if is(name, b"accept") => Self::Accept,
            6 if is(name, b"cookie") => Self::Cookie,
            6 if is(name, b"expect") => Self::Expect,
            6 if is(name, b"prefer") => Self::Prefer,
            7 if is(name, b"alt-svc") => Self::Alternative,
            7 if is(name, b"trailer") => Self::Trailer,
            7 if is(name, b"upgrade") => Self::Upgrade,
            8 if is(name, b"alt-used") => Self::Alternative,
            10 if is(name, b"robots-tag") => Self::Signal,
            10 if is(name, b"user-agent") => Self::UserAgent,
            10 if is(name, b"connection") => Self::Connection,
            10 if is(name, b"keep-alive") => Self::KeepAlive,
            12 if is(name, b"content-type") => Self::ContentType,
            12 if is(name, b"max-forwards") => Self::MaxForwards,
            12 if is(name, b"proxy-status") || is(name, b"cache-status") => Self::ProxyStatus,
            12 if is(name, b"x-robots-tag") => Self::Signal,
            13 if is(name, b"authorization") => Self::Authorization,
            13 if is(name, b"cache-control") => Self::CacheControl,
            13 if is(name, b"content-usage") => Self::Signal,
            13 if is(name, b"crawler-error") => Self::Signal,
            14 if is(name, b"content-signal") => Self::Signal,
            14 if is(name, b"content-length") => Self::ContentLength,
            14 if is(name, b"sec-fetch-dest") => Self::SecFetchDest,
            15 if is(name, b"tdm-reservation") => Self::Signal,
            15 if is(name, b"crawler-charged") => Self::Signal,
            16 if is(name, b"proxy-connection") => Self::ProxyConnection,
            17 if is(name, b"transfer-encoding") => Self::TransferEncoding,
            17 if is(name, b"crawler-max-price") => Self::CrawlerPrice,
            18 if is(name, b"proxy-authenticate") => Self::ProxyAuthenticate,
            19 if is(name, b"proxy-authorization") => Self::ProxyAuthorization,
            19 if is(name, b"crawler-exact-price") => Self::CrawlerPrice,
            25 if is(name, b"proxy-authentication-info") => Self::ProxyAuthenticationInfo,
            _ => Self::Other,
        }
    }

    /// Whether the field is about the message's length, host or connection.
    #[inline]
    pub(super) fn is_of_message(self) -> bool {
        matches!(self, Self::Host | Self::ContentLength | Self::TransferEncoding | Self::Connection | Self::Upgrade)
    }

    /// Whether the field is for one connection only, even if Connection does not list it, or offers a way past the proxy. False for
    /// framing fields, whose handling depends on where the message goes.
    #[inline]
    pub fn is_hop_by_hop(self) -> bool {
        matches!(
            self,
            Self::Connection
                | Self::KeepAlive
                | Self::ProxyConnection
                | Self::ProxyAuthorization
                | Self::ProxyAuthenticate
                | Self::ProxyAuthenticationInfo
                | Self::Te
                | Self::Upgrade
                | Self::Alternative
        )
    }
}

impl Field<'_> {
    /// Whether the field is removed if Connection lists it. False for fields that frame or route the message or detect loops, and
    /// for fields meant for all recipients (RFC 9110 §7.6.1), such as those about content, use and caching.
    fn can_be_named(&self) -> bool {
        match self.kind {
            FieldKind::ContentLength
            | FieldKind::TransferEncoding
            | FieldKind::Host
            | FieldKind::CacheControl
            | FieldKind::Via
            | FieldKind::ContentType
            | FieldKind::Signal => false,
            FieldKind::Other => {
                let mut kept = NO_TRAILERS.iter().chain(&VALIDATORS);
                !kept.any(|name| name.as_bytes().eq_ignore_ascii_case(self.name))
            }
            _ => true,
        }
    }

    /// Whether the field may be a trailer (RFC 9110 §6.5.1): not if it frames or routes the message, is hop-by-hop, authenticates,
    /// or says how to read, cache or use the content before it.
    pub fn may_trail(&self) -> bool {
        match self.kind {
            FieldKind::Other => !NO_TRAILERS.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(self.name)),
            kind => {
                matches!(kind, FieldKind::Accept | FieldKind::Prefer | FieldKind::SecFetchDest | FieldKind::ProxyStatus)
            }
        }
    }
}

/// Storage for a head's fields while the head is in use: on the stack, unless there are many. Also holds what the fields say about the
/// connection.
#[derive(Default)]
pub struct FieldRoom<'a> {
    pub(super) fields: SmallVec<[Field<'a>; 32]>,
    /// The options in Connection, other than `close` and `keep-alive`.
    pub(super) named: SmallVec<[&'a [u8]; 4]>,
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    upgrade: Option<&'a [u8]>,
}

impl<'a> FieldRoom<'a> {
    #[inline]
    pub fn new() -> Self {
        FieldRoom::default()
    }

    pub(super) fn clear(&mut self) {
        self.fields.clear();
        self.named.clear();
        (self.close, self.keep_alive, self.upgrade) = (false, false, None);
    }

    #[inline]
    pub(super) fn push(&mut self, field: Field<'a>) -> Result<(), HeadError> {
        if self.fields.len() == MAX_FIELDS {
            return Err(HeadError::TooManyFields);
        }
        self.fields.push(field);
        Ok(())
    }

    /// Evaluates what a field says about the connection.
    #[inline]
    pub(super) fn note(&mut self, field: &Field<'a>) -> Result<(), HeadError> {
        match field.kind {
            FieldKind::Upgrade => self.upgrade = Some(field.value),
            FieldKind::Connection if field.value.eq_ignore_ascii_case(b"keep-alive") => self.keep_alive = true,
            FieldKind::Connection => self.note_options(field.value)?,
            _ => {}
        }
        Ok(())
    }

    fn note_options(&mut self, value: &'a [u8]) -> Result<(), HeadError> {
        for option in list(value) {
            match () {
                () if option.eq_ignore_ascii_case(b"close") => self.close = true,
                () if option.eq_ignore_ascii_case(b"keep-alive") => self.keep_alive = true,
                () if self.named.len() == MAX_NAMED => {
                    return Err(HeadError::Malformed("Connection names too many fields"));
                }
                () => self.named.push(option),
            }
        }
        Ok(())
    }

    /// The protocol to switch to, if Connection lists `upgrade` too.
    pub(super) fn upgrade(&self) -> Option<&'a [u8]> {
        self.upgrade.filter(|_| self.named.iter().any(|name| name.eq_ignore_ascii_case(b"upgrade")))
    }
}

#[inline]
pub(super) fn is_named(named: &[&[u8]], field: &Field<'_>) -> bool {
    !named.is_empty() && named.iter().any(|name| name.eq_ignore_ascii_case(field.name)) && field.can_be_named()
}

/// Whether a token equals a name of lower-case letters and hyphens, ignoring case: setting the lower-case bit turns no other
/// token byte into one of these. Compares words of 8 bytes; the last one overlaps the one before.
#[inline(always)]
fn is<const N: usize>(token: &[u8], name: &[u8; N]) -> bool {
    let Ok(token) = <&[u8; N]>::try_from(token) else { return false };
    let word = |bytes: &[u8; N], at: usize| bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    let differs = |at: usize| (word(token, at) | WORD_OF_SPACES) ^ word(name, at);
    match N {
        ..8 => (0..N).fold(0, |other, at| other | ((token[at] | 0x20) ^ name[at])) == 0,
        8.. => (0..N / 8).fold(differs(N - 8), |other, at| other | differs(at * 8)) == 0,
    }
}

/// The members of a comma-separated list (RFC 9110 §5.6.1), without empty ones. Not for lists with quoted strings.
#[inline]
pub fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim).filter(|member| !member.is_empty())
}

/// The value of the first field with this name, in a head that may be malformed: the answer to such a head depends on its Accept field.
pub fn find_field<'a>(raw: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let lines = raw.split(|&byte| byte == b'\n').take_while(|line| !matches!(line, [] | [b'\r']));
    lines.map(<[u8]>::trim_ascii_end).find_map(|line| {
        let start = line.get(..name.len())?;
        let value = line[name.len()..].strip_prefix(b":")?;
        start.eq_ignore_ascii_case(name.as_bytes()).then(|| value.trim_ascii())
    })
}

const MAX_NAMED: usize = 32;
const WORD_OF_SPACES: u64 = u64::from_le_bytes([0x20; 8]);
/// Fields without a kind that must not be trailers: credentials, conditions, content description, caching.
const NO_TRAILERS: [&str; 18] = [
    "www-authenticate",
    "set-cookie",
    "content-encoding",
    "content-location",
    "content-range",
    "if-match",
    "if-none-match",
    "if-modified-since",
    "if-unmodified-since",
    "if-range",
    "range",
    "age",
    "date",
    "expires",
    "location",
    "pragma",
    "retry-after",
    "vary",
];
const VALIDATORS: [&str; 2] = ["etag", "last-modified"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_kinds_ignore_case() {
        assert_eq!(FieldKind::of(b"TRANSFER-encoding"), FieldKind::TransferEncoding);
        assert_eq!(FieldKind::of(b"Transfer_Encoding"), FieldKind::Other);
        assert_eq!(FieldKind::of(b""), FieldKind::Other);
        assert_eq!(FieldKind::of(b"hos\xc5"), FieldKind::Other);
    }

    #[test]
    fn unknown_tokens_are_kind_other() {
        for byte in (0..=255).filter(|&byte| super::super::scan::is_token(byte)) {
            for (place, name) in [(0, *b"host"), (3, *b"link")] {
                let mut other = name;
                other[place] = byte;
                assert_eq!(FieldKind::of(&other) != FieldKind::Other, other.eq_ignore_ascii_case(&name), "{byte}");
            }
            let hyphen =
                [b't', b'r', b'a', b'n', b's', b'f', b'e', b'r', byte, b'e', b'n', b'c', b'o', b'd', b'i', b'n', b'g'];
            assert_eq!(FieldKind::of(&hyphen) == FieldKind::TransferEncoding, byte == b'-', "{byte}");
        }
    }

    #[test]
    fn a_field_of_a_malformed_head_is_found() {
        let raw = b"GET /\x00 nonsense\r\nAccept-Encoding: x\nACCEPT:  text/html \r\n\r\nAccept: body";
        assert_eq!(find_field(raw, "accept"), Some(&b"text/html"[..]));
        assert_eq!(find_field(raw, "accept-encoding"), Some(&b"x"[..]));
        assert_eq!(find_field(raw, "host"), None);
    }

    #[test]
    fn lists_have_no_empty_members() {
        assert_eq!(list(b" a,, b\t,").collect::<Vec<_>>(), [&b"a"[..], b"b"]);
    }
}
