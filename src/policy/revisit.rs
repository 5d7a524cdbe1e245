//! What becomes of a page that is fetched again sooner than it may be (`min_revisit`). Pure; time is an argument.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant, SystemTime};

/// When a page was delivered, and by what it is known again. Small, for many are remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visit {
    at: Instant,
    /// Of its ETag; 0: it had none.
    etag: u64,
    /// Its Last-Modified, in seconds since 1970.
    modified: Option<u32>,
}

/// What the client has of it already: the values of If-None-Match, and of If-Modified-Since.
#[derive(Debug, Clone, Copy)]
pub struct Conditions<'a> {
    pub none_match: &'a [&'a [u8]],
    pub modified_since: Option<&'a [u8]>,
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again<'a> {
    /// It may be fetched.
    Go,
    /// The client has what was delivered then. The ETag by which it said so, if it was by one.
    NotModified(Option<&'a [u8]>),
    TooSoon {
        retry_after: Duration,
    },
}

impl Visit {
    /// `etag`, `last_modified`: of the answer.
    pub fn new(at: Instant, etag: Option<&[u8]>, last_modified: Option<&[u8]>) -> Self {
        Self { at, etag: etag.map_or(0, tag), modified: last_modified.and_then(seconds) }
    }

    /// The site has confirmed it: what its 304 leaves out has not changed (RFC 9110 §15.4.5).
    #[must_use]
    pub fn confirmed(self, before: Option<Self>) -> Self {
        let Some(before) = before else { return self };
        let etag = if self.etag == 0 { before.etag } else { self.etag };
        Self { etag, modified: self.modified.or(before.modified), ..self }
    }

    /// `after`: not sooner than that.
    pub fn again<'a>(&self, after: Duration, conditions: &Conditions<'a>, now: Instant) -> Again<'a> {
        let since = now.saturating_duration_since(self.at);
        if since >= after {
            return Again::Go;
        }
        match self.matched(conditions) {
            Some(etag) => Again::NotModified(etag),
            None => Again::TooSoon { retry_after: after - since },
        }
    }

    /// RFC 9110 §13.2.2: If-None-Match decides if it is there, else If-Modified-Since.
    fn matched<'a>(&self, conditions: &Conditions<'a>) -> Option<Option<&'a [u8]>> {
        if !conditions.none_match.is_empty() {
            let tags = conditions.none_match.iter().flat_map(|value| value.split(|byte| *byte == b','));
            let found = tags.map(<[u8]>::trim_ascii).find(|it| *it == b"*" || self.etag != 0 && tag(it) == self.etag);
            return found.map(|found| Some(found).filter(|found| *found != b"*"));
        }
        let since = conditions.modified_since.and_then(seconds)?;
        (self.modified? <= since).then_some(None)
    }
}

/// A path without what escapes of unreserved bytes, and the case of others, differ in (RFC 3986 §6.2.2).
pub fn unescaped(path: &[u8]) -> Cow<'_, [u8]> {
    if !path.contains(&b'%') {
        return path.into();
    }
    let (mut out, mut rest) = (Vec::with_capacity(path.len()), path);
    while let Some((&byte, after)) = rest.split_first() {
        let digit = |at: usize| after.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        rest = match (byte, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                let escaped = (high << 4 | low) as u8;
                match escaped.is_ascii_alphanumeric() || b"-._~".contains(&escaped) {
                    true => out.push(escaped),
                    false => out.extend([b'%', after[0].to_ascii_uppercase(), after[1].to_ascii_uppercase()]),
                }
                &after[2..]
            }
            _ => {
                out.push(byte);
                after
            }
        };
    }
    out.into()
}

/// Compared weakly (RFC 9110 §13.1.2).
fn tag(etag: &[u8]) -> u64 {
    let etag = etag.trim_ascii();
    let mut hasher = DefaultHasher::new();
    etag.strip_prefix(b"W/").unwrap_or(etag).hash(&mut hasher);
    hasher.finish().max(1)
}

fn seconds(date: &[u8]) -> Option<u32> {
    let date = httpdate::parse_http_date(str::from_utf8(date).ok()?.trim()).ok()?;
    u32::try_from(date.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: &[u8] = b"Sun, 06 Nov 1994 12:00:00 GMT";
    const LATER: &[u8] = b"Sun, 06 Nov 1994 13:00:00 GMT";
    const HOUR: Duration = Duration::from_secs(3600);

    fn again<'a>(visit: Visit, none_match: &'a [&'a [u8]], modified_since: Option<&'a [u8]>, after: u64) -> Again<'a> {
        let conditions = Conditions { none_match, modified_since };
        visit.again(HOUR, &conditions, visit.at + Duration::from_secs(after))
    }

    fn too_soon(seconds: u64) -> Again<'static> {
        Again::TooSoon { retry_after: Duration::from_secs(seconds) }
    }

    #[test]
    fn escapes_make_no_other_page() {
        for (path, same) in [
            ("/mr", "/mr"),
            ("/%6Dr%2d%7E", "/mr-~"),
            ("/a%2fb?c=%c3%bc", "/a%2Fb?c=%C3%BC"),
            ("/%2a%", "/%2A%"),
            ("/%4", "/%4"),
            ("/%zz%4g", "/%zz%4g"),
        ] {
            assert_eq!(unescaped(path.as_bytes()), same.as_bytes(), "{path}");
        }
    }

    #[test]
    fn it_may_be_fetched_again_when_the_time_has_passed() {
        let visit = Visit::new(Instant::now(), None, None);
        for (after, expected) in [(0, too_soon(3600)), (3599, too_soon(1)), (3600, Again::Go), (7200, Again::Go)] {
            assert_eq!(again(visit, &[], None, after), expected, "{after}");
        }
    }

    #[test]
    fn who_has_it_already_hears_that_it_has_not_changed() {
        let visit = Visit::new(Instant::now(), Some(b"\"a\""), Some(NOON));
        let same = |tag: &'static [u8]| Again::NotModified(Some(tag));
        for (tags, since, expected) in [
            (&[b"\"a\"" as &[u8]][..], None, same(b"\"a\"")),
            (&[b"W/\"a\""], None, same(b"W/\"a\"")),
            (&[b"\"b\", \"a\""], None, same(b"\"a\"")),
            (&[b"\"b\"", b"\"a\""], None, same(b"\"a\"")),
            (&[b"*"], None, Again::NotModified(None)),
            (&[b"\"b\""], None, too_soon(3600)),
            (&[b"\"b\""], Some(LATER), too_soon(3600)),
            (&[], Some(NOON), Again::NotModified(None)),
            (&[], Some(LATER), Again::NotModified(None)),
            (&[], Some(b"Sun, 06 Nov 1994 11:59:59 GMT"), too_soon(3600)),
            (&[], Some(b"soon"), too_soon(3600)),
        ] {
            assert_eq!(again(visit, tags, since, 0), expected, "{tags:?} {since:?}");
        }
        let bare = Visit::new(visit.at, None, None);
        assert_eq!(again(bare, &[b"\"a\""], None, 0), too_soon(3600), "nobody knows what it has");
        assert_eq!(again(bare, &[], Some(NOON), 0), too_soon(3600));
    }

    #[test]
    fn what_a_304_leaves_out_has_not_changed() {
        let now = Instant::now();
        let before = Visit::new(now, Some(b"\"a\""), Some(NOON));
        assert_eq!(Visit::new(now + HOUR, None, None).confirmed(Some(before)), Visit { at: now + HOUR, ..before });
        let newer = Visit::new(now + HOUR, Some(b"\"b\""), Some(LATER));
        assert_eq!(newer.confirmed(Some(before)), newer);
        assert_eq!(newer.confirmed(None), newer);
    }
}
