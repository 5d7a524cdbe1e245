//! Decides how to answer a request for a page that was fetched recently (`min_revisit`). Pure; time is an argument.

use super::cache::CacheControl;
use super::{Refusal, Reservation, entity_tag};
use crate::robots::path::{self, PathByte};
use std::borrow::Cow;
use std::time::{Duration, Instant};

/// The last delivery of a page: its time, and the fields that a 304 repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visit {
    at: Instant,
    /// The fields as lines of HTTP/1.1. `None`: they are too long to keep, or private.
    fields: Option<Vec<u8>>,
    is_whole_anyway: bool,
}

/// The conditions of a request: the values of If-None-Match and of If-Modified-Since.
#[derive(Debug, Clone, Copy)]
pub struct Conditions<'a> {
    pub none_match: &'a [&'a [u8]],
    pub modified_since: Option<&'a [u8]>,
}

/// How to answer a request, according to the last delivery of its page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again<'a> {
    /// Fetch the page.
    Go,
    /// Answer 304, as the client has the page that was delivered last.
    NotModified,
    TooSoon {
        retry_after: Duration,
    },
    /// Refuse, as the page has said no to a declared purpose.
    Reserved(&'a Reservation),
}

impl Again<'_> {
    pub fn refusal(self) -> Option<Refusal> {
        match self {
            Self::Go | Self::NotModified => None,
            Self::TooSoon { retry_after } => Some(Refusal::RevisitTooSoon { retry_after }),
            Self::Reserved(reservation) => Some(Refusal::AnswerReserved(Box::new(reservation.clone()))),
        }
    }
}

impl Visit {
    pub fn new(at: Instant) -> Self {
        Self { at, fields: Some(Vec::new()), is_whole_anyway: false }
    }

    /// Records that a request for a part or for another protocol was answered with the whole page. The next such request then counts as
    /// a request for the whole page.
    pub fn set_whole_anyway(&mut self) {
        self.is_whole_anyway = true;
    }

    pub fn is_whole_anyway(&self) -> bool {
        self.is_whole_anyway
    }

    /// Keeps a field of the answer if a 304 needs it.
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        let Some(name) = KEPT.iter().find(|kept| kept.eq_ignore_ascii_case(name)) else { return };
        if *name == CACHE_CONTROL && is_for_one(value) {
            self.keep_private();
        }
        self.fields = self.fields.take().filter(|fields| fields.len() + name.len() + value.len() < MOST_FIELDS);
        if let Some(fields) = &mut self.fields {
            fields.extend([name, b": " as &[u8], value, b"\r\n"].concat());
        }
    }

    /// Drops the fields, and all fields added later, as the answer was for one client only and must not reach others.
    pub fn keep_private(&mut self) {
        self.fields = None;
    }

    /// The visit after a 304 of the site, completed with the fields of `before`, as fields that a 304 omits have not changed (RFC 9110
    /// §15.4.5).
    #[must_use]
    pub fn confirmed(mut self, before: Option<&Self>) -> Self {
        let answer = self.clone();
        for (name, value) in before.into_iter().flat_map(Self::fields) {
            if name != AGE && answer.value(name).is_none() {
                self.field(name, value);
            }
        }
        self
    }

    /// Decides how to answer the next request for the page. `after`: the minimum time between two fetches.
    pub fn again(&self, after: Duration, conditions: &Conditions<'_>, now: Instant) -> Again<'static> {
        let since = now.saturating_duration_since(self.at);
        if since >= after {
            Again::Go
        } else if self.fields.is_some() && self.is_known_to(conditions) {
            Again::NotModified
        } else {
            Again::TooSoon { retry_after: after - since }
        }
    }

    /// The fields of a 304, and the age of the page in seconds (RFC 9111 §4). Last-Modified is among the fields only if there is no
    /// ETag.
    pub fn repeated(&self, now: Instant) -> (impl Iterator<Item = (&[u8], &[u8])>, u64) {
        let left_out = if self.value(ETAG).is_some() { LAST_MODIFIED } else { AGE };
        let repeated = self.fields().filter(move |(name, _)| *name != AGE && *name != left_out);
        let age = self.value(AGE).and_then(|age| str::from_utf8(age).ok()?.parse::<u32>().ok());
        (repeated, u64::from(age.unwrap_or_default()) + now.saturating_duration_since(self.at).as_secs())
    }

    /// Approximate size in memory, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.fields.as_ref().map_or(0, Vec::capacity)
    }

    fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let lines = self.fields.iter().flat_map(|fields| fields.split(|byte| *byte == b'\n'));
        let lines = lines.filter_map(|line| line.strip_suffix(b"\r"));
        lines.filter_map(|line| {
            KEPT.iter().find_map(|name| Some((*name, line.strip_prefix(*name)?.strip_prefix(b": ")?)))
        })
    }

    fn value(&self, name: &[u8]) -> Option<&[u8]> {
        self.fields().find(|(it, _)| *it == name).map(|(_, value)| value)
    }

    fn is_known_to(&self, Conditions { none_match, modified_since }: &Conditions<'_>) -> bool {
        // `*` does not show which version the client has.
        let is_any = none_match.iter().any(|value| value.trim_ascii() == b"*");
        !is_any && entity_tag::is_known(none_match, *modified_since, self.value(ETAG), self.value(LAST_MODIFIED))
    }
}

/// Path and query in the same form for all spellings of a URL: escapes normalised, dot segments removed (RFC 3986 §6.2.2).
pub fn normalised(target: &[u8]) -> Cow<'_, [u8]> {
    let unescaped = unescaped(target);
    let removed = path::may_have_dot_segment(&unescaped).then(|| path::without_dot_segments(&unescaped)).flatten();
    removed.map_or(unescaped, Cow::Owned)
}

/// A path with escapes of unreserved bytes decoded and other escapes in upper case (RFC 3986 §6.2.2).
fn unescaped(path: &[u8]) -> Cow<'_, [u8]> {
    if !path.contains(&b'%') {
        return path.into();
    }
    let mut out = Vec::with_capacity(path.len());
    for piece in path::pieces(path) {
        match piece {
            PathByte::Byte(byte) => out.push(byte),
            PathByte::Literal(byte) | PathByte::Escaped(byte) => path::push_escaped(byte, &mut out),
        }
    }
    out.into()
}

/// Whether a Cache-Control reserves the answer for its client (RFC 9111 §5.2.2). `private` and `no-store` count anywhere in the value, as
/// not sharing an answer is always safe.
pub fn is_for_one(value: &[u8]) -> bool {
    let control = CacheControl::read([value]);
    control.private || control.no_store
}

const CACHE_CONTROL: &[u8] = b"cache-control";
const ETAG: &[u8] = b"etag";
const LAST_MODIFIED: &[u8] = b"last-modified";
const AGE: &[u8] = b"age";
/// The fields of a 200 that a 304 repeats (RFC 9110 §15.4.5), and the fields that are needed to create a 304.
const KEPT: [&[u8]; 8] = [b"date", b"vary", CACHE_CONTROL, b"expires", ETAG, b"content-location", LAST_MODIFIED, AGE];
/// Maximum size of the fields kept for one page, in bytes.
const MOST_FIELDS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: &str = "Sun, 06 Nov 1994 12:00:00 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 13:00:00 GMT";
    const HOUR: Duration = Duration::from_secs(3600);

    fn visit(at: Instant, fields: &[(&str, &str)]) -> Visit {
        let mut visit = Visit::new(at);
        fields.iter().for_each(|(name, value)| visit.field(name.as_bytes(), value.as_bytes()));
        visit
    }

    fn again(visit: &Visit, none_match: &[&[u8]], modified_since: Option<&[u8]>, after: u64) -> Again<'static> {
        let conditions = Conditions { none_match, modified_since };
        visit.again(HOUR, &conditions, visit.at + Duration::from_secs(after))
    }

    fn repeated(visit: &Visit, after: u64) -> (Vec<String>, u64) {
        let (fields, age) = visit.repeated(visit.at + Duration::from_secs(after));
        let text = |bytes| String::from_utf8_lossy(bytes);
        (fields.map(|(name, value)| format!("{}: {}", text(name), text(value))).collect(), age)
    }

    fn too_soon(seconds: u64) -> Again<'static> {
        Again::TooSoon { retry_after: Duration::from_secs(seconds) }
    }

    #[test]
    fn escaped_spellings_are_the_same_page() {
        for (path, same) in [
            ("/mr", "/mr"),
            ("/%6Dr%2d%7E", "/mr-~"),
            ("/a%2fb?c=%c3%bc", "/a%2Fb?c=%C3%BC"),
            ("/%2a%", "/%2A%"),
            ("/%4", "/%4"),
            ("/%zz%4g", "/%zz%4g"),
        ] {
            assert_eq!(normalised(path.as_bytes()), same.as_bytes(), "{path}");
        }
    }

    #[test]
    fn dot_segments_are_the_same_page() {
        for (path, same) in [
            ("/./mr", "/mr"),
            ("/a/b/../../%2E/mr", "/mr"),
            ("/%2e%2E/mr", "/mr"),
            ("/a/..", "/"),
            ("/a/.?/../x", "/a/?/../x"),
            ("//mr", "//mr"),
            ("/.mr/...", "/.mr/..."),
            ("/a%2f../mr", "/a%2F../mr"),
        ] {
            assert_eq!(normalised(path.as_bytes()), same.as_bytes(), "{path}");
        }
    }

    #[test]
    fn page_may_be_fetched_again_after_min_revisit() {
        let visit = Visit::new(Instant::now());
        for (after, expected) in [(0, too_soon(3600)), (3599, too_soon(1)), (3600, Again::Go), (7200, Again::Go)] {
            assert_eq!(again(&visit, &[], None, after), expected, "{after}");
        }
    }

    #[test]
    fn matching_validators_get_304() {
        let both = visit(Instant::now(), &[("ETag", "\"a\""), ("Last-Modified", NOON)]);
        for (tags, since, expected) in [
            (&[b"\"a\"" as &[u8]][..], None, Again::NotModified),
            (&[b"\"b\"", b"W/\"a\""], None, Again::NotModified),
            (&[b"*"], None, too_soon(3600)),
            (&[b"\"b\""], None, too_soon(3600)),
            (&[b"\"b\""], Some(LATER), too_soon(3600)),
            (&[], Some(NOON), Again::NotModified),
            (&[], Some(LATER), Again::NotModified),
            (&[], Some("Sun, 06 Nov 1994 11:59:59 GMT"), too_soon(3600)),
            (&[], Some("soon"), too_soon(3600)),
        ] {
            assert_eq!(again(&both, tags, since.map(str::as_bytes), 0), expected, "{tags:?} {since:?}");
        }
        let bare = Visit::new(both.at);
        assert_eq!(again(&bare, &[b"\"a\""], None, 0), too_soon(3600), "the version that the client has is unknown");
        assert_eq!(again(&bare, &[], Some(NOON.as_bytes()), 0), too_soon(3600));
    }

    #[test]
    fn private_answers_give_no_304() {
        for value in ["private", "max-age=60, Private", "No-Store", "private=\"x-a\""] {
            let fields = [("ETag", "\"a\""), ("Cache-Control", value), ("Last-Modified", NOON)];
            let kept = visit(Instant::now(), &fields);
            assert_eq!(again(&kept, &[b"\"a\""], None, 0), too_soon(3600), "{value}");
            assert_eq!(kept.fields().count(), 0, "{value}");
            let public = visit(Instant::now(), &fields[..1]);
            assert_eq!(kept.confirmed(Some(&public)).fields().count(), 0, "{value}");
        }
    }

    #[test]
    fn revisit_304_contains_caching_fields_and_age() {
        let mut fields = vec![
            ("Date", NOON),
            ("vary", "Accept"),
            ("Vary", "Cookie"),
            ("Cache-Control", "max-age=60"),
            ("EXPIRES", LATER),
            ("Content-Type", "text/html"),
            ("Content-Location", "/page.html"),
            ("Last-Modified", NOON),
            ("Age", "7"),
        ];
        let expected = |last: &str| {
            let all = "date: NOON|vary: Accept|vary: Cookie|cache-control: max-age=60|expires: LATER|";
            let all = format!("{all}content-location: /page.html|{last}").replace("NOON", NOON).replace("LATER", LATER);
            all.split('|').map(str::to_owned).collect::<Vec<_>>()
        };
        let at = Instant::now();
        assert_eq!(repeated(&visit(at, &fields), 3), (expected("last-modified: NOON"), 10));
        fields.push(("ETag", "\"a\""));
        assert_eq!(repeated(&visit(at, &fields), 0), (expected("etag: \"a\""), 7));
        assert_eq!(repeated(&visit(at, &[("Age", "soon")]), 2), (vec![], 2));
    }

    #[test]
    fn overlong_fields_are_not_kept_and_prevent_304() {
        let long = visit(Instant::now(), &[("ETag", "\"a\""), ("Vary", &"x, ".repeat(2000)), ("Date", NOON)]);
        assert_eq!(again(&long, &[b"\"a\""], None, 0), too_soon(3600));
        assert!(long.bytes() < 100, "{}", long.bytes());
    }

    #[test]
    fn fields_missing_in_a_304_are_kept() {
        let now = Instant::now();
        let before = visit(now, &[("ETag", "\"a\""), ("Date", NOON), ("Vary", "Cookie")]);
        assert_eq!(Visit::new(now + HOUR).confirmed(Some(&before)), Visit { at: now + HOUR, ..before.clone() });
        let mut aged = before.clone();
        aged.field(b"age", b"9");
        assert_eq!(Visit::new(now).confirmed(Some(&aged)), before, "the page's age counts from the 304");
        let newer = visit(now + HOUR, &[("Date", LATER), ("Vary", "Accept"), ("Vary", "Origin")]);
        let expected = ["date", "vary", "vary", "etag"];
        let confirmed = newer.clone().confirmed(Some(&before));
        assert!(confirmed.fields().map(|(name, _)| name).eq(expected.map(str::as_bytes)), "{confirmed:?}");
        assert_eq!(
            (confirmed.value(b"date"), confirmed.value(b"vary")),
            (Some(LATER.as_bytes()), Some(&b"Accept"[..]))
        );
        assert_eq!(newer.clone().confirmed(None), newer);
    }
}
