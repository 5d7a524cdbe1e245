//! The head of a stored answer: its age and freshness lifetime (RFC 9111 §4.2), the requests that it answers (§4.1, §4.3.2), and the
//! changes that a 304 makes (§3.2).

use super::control::CacheControl;
use super::range::BodyPart;
use super::request_wish::Wanted;
use crate::policy::date::{http_date, shown_http_date};
use crate::policy::entity_tag;
use crate::policy::retry_after::delta_seconds;
use std::time::{Duration, SystemTime};

/// The head of a stored answer. Its file has the members in this order, so another order needs another version of the file format.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "proxy", derive(serde::Serialize, serde::Deserialize))]
pub struct StoredHead {
    pub url: Vec<u8>,
    pub status: u16,
    /// The version of HTTP in which the answer came: 10, 11 or 20.
    pub version: u8,
    /// The fields: names in lower case, and values; without Age, framing and hop-by-hop fields.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// The request's fields that Vary names, and their values. `None`: the request did not have the field.
    pub selected_by: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// When the answer was received or last confirmed, in milliseconds since 1970.
    pub received: u64,
    /// Age of the answer at the time `received`, in milliseconds.
    pub initial_age: u64,
    /// The identifier under which evidence records the fetch of the answer, and the time of the fetch in milliseconds since 1970.
    pub fetch: (String, u64),
}

/// A received answer, without its fields.
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    pub url: &'a [u8],
    pub status: u16,
    pub version: u8,
    pub at: SystemTime,
    /// Time from the request to the head of the answer.
    pub delay: Duration,
    pub fetch: &'a str,
}

impl StoredHead {
    /// The head of a received answer. `each` calls its argument with the name and value of each field of the answer. `field` returns the
    /// value of a field of the request, its lines joined.
    pub fn new(
        received: &Received<'_>,
        each: impl FnOnce(&mut dyn FnMut(&[u8], &[u8])),
        field: impl Fn(&[u8]) -> Option<Vec<u8>>,
    ) -> Self {
        let mut head = StoredHead {
            url: received.url.to_vec(),
            status: received.status,
            version: received.version,
            fields: Vec::new(),
            selected_by: Vec::new(),
            received: 0,
            initial_age: 0,
            fetch: (received.fetch.to_owned(), millis(received.at)),
        };
        let age = head.take(each);
        head.dated(received.at, received.delay, age);
        head.selected_for(field)
    }

    /// Sets the request's fields by which Vary selects this answer (§4.1).
    fn selected_for(mut self, field: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Self {
        let names = self.values(b"vary").flat_map(|value| value.split(|byte| *byte == b','));
        let names = names.map(|name| name.trim_ascii().to_ascii_lowercase()).filter(|name| !name.is_empty());
        self.selected_by = names.map(|name| (field(&name), name)).map(|(value, name)| (name, value)).collect();
        self
    }

    /// The head after a 304 has confirmed it: the 304's fields replace the stored ones (§3.2), except those that describe content, which a
    /// 304 does not have. A stored ETag stays, as a strong ETag of the 304 may belong to another encoding (§4.3.4). `field`: returns the
    /// value of a field in the request that was answered 304, as Vary may have changed.
    #[must_use]
    pub fn confirmed(
        &self,
        at: SystemTime,
        delay: Duration,
        each: impl FnOnce(&mut dyn FnMut(&[u8], &[u8])),
        field: impl Fn(&[u8]) -> Option<Vec<u8>>,
    ) -> Self {
        let mut news = StoredHead { fields: Vec::new(), ..self.clone() };
        let age = news.take(each);
        let has_tag = self.value(b"etag").is_some();
        let is_contents = |name: &[u8]| OF_CONTENT.iter().any(|of_content| of_content.as_bytes() == name);
        news.fields.retain(|(name, _)| !(is_contents(name) || has_tag && name == b"etag"));
        let is_new = |name: &[u8]| news.fields.iter().any(|(it, _)| it == name) || name == b"date";
        let kept = self.fields.iter().filter(|(name, _)| !is_new(name)).cloned().collect::<Vec<_>>();
        news.fields.splice(0..0, kept);
        news.dated(at, delay, age);
        news.selected_for(field)
    }

    /// Whether a 304 with this ETag and Last-Modified may confirm this answer, which must be a 200 (RFC 9110 §13.1).
    pub fn is_confirmed_by(&self, etag: Option<&[u8]>, modified: Option<&[u8]>) -> bool {
        let own = [self.value(b"etag"), self.value(b"last-modified")];
        self.status == 200 && entity_tag::is_confirmed(own, [etag, modified])
    }

    /// Whether Vary selects this answer for a request with these fields.
    pub fn is_selected_by(&self, field: impl Fn(&[u8]) -> Option<Vec<u8>>) -> bool {
        self.selected_by.iter().all(|(name, value)| field(name) == *value)
    }

    /// Whether the answer may be used for a request with the Cache-Control `asked` without being confirmed first. `at_least`: time for
    /// which the answer counts as fresh even beyond its lifetime (`min_revisit`), unless its own Cache-Control forbids stale answers.
    pub fn is_fresh_for(&self, asked: &CacheControl, at_least: Duration, now: SystemTime) -> bool {
        let own = self.control();
        let Some(age) = self.age(now).filter(|_| !own.no_cache && !asked.no_cache) else { return false };
        let lifetime = self.lifetime();
        let is_too_old = asked.max_age.is_some_and(|most| age > most);
        let is_too_stale_soon = asked.min_fresh.is_some_and(|left| lifetime.saturating_sub(age) < left);
        if is_too_old || is_too_stale_soon {
            return false;
        }
        if age < lifetime {
            return true;
        }
        // §4.2.4; s-maxage implies proxy-revalidate (§5.2.2.10).
        let may_be_stale = !own.must_revalidate && own.s_maxage.is_none();
        let is_accepted = asked.max_stale.is_some_and(|most| age - lifetime <= most);
        let is_recent = millis(now).saturating_sub(self.received) < whole_millis(at_least);
        may_be_stale && (is_accepted || is_recent)
    }

    /// The age of the answer (§4.2.3). `None`: unknown, as the clock was set back.
    pub fn age(&self, now: SystemTime) -> Option<Duration> {
        let resident = millis(now).checked_sub(self.received)?;
        Some(Duration::from_millis(self.initial_age.saturating_add(resident)))
    }

    /// Whether the client has this answer already (§4.3.2).
    pub fn is_known_to(&self, wanted: &Wanted) -> bool {
        let tags: Vec<&[u8]> = wanted.none_match.iter().map(Vec::as_slice).collect();
        let modified = self.value(b"last-modified").or_else(|| self.value(b"date"));
        self.status == 200
            && entity_tag::is_known(&tags, wanted.modified_since.as_deref(), self.value(b"etag"), modified)
    }

    /// The part of the body that a GET gets. `length`: bytes of the body. To be called after the other conditions have been checked (RFC
    /// 9110 §13.2.2).
    pub fn part(&self, wanted: &Wanted, length: u64) -> BodyPart {
        let is_same = wanted.if_range.as_deref().is_none_or(|validator| self.is_exactly(validator));
        match wanted.range.filter(|_| self.status == 200 && is_same) {
            None => BodyPart::Whole,
            Some(range) => range.part_of(length),
        }
    }

    /// Whether If-Range names exactly this answer (RFC 9110 §13.1.5). Validators are compared byte for byte, and a date counts only if the
    /// answer's Date is at least a second after its Last-Modified (§8.8.2.2).
    fn is_exactly(&self, validator: &[u8]) -> bool {
        let (validator, modified) = (validator.trim_ascii(), self.value(b"last-modified"));
        if validator.starts_with(b"\"") {
            return self.value(b"etag") == Some(validator);
        }
        let dates = modified.and_then(http_date).zip(self.value(b"date").and_then(http_date));
        let is_strong = dates.is_some_and(|(modified, date)| date >= modified + Duration::from_secs(1));
        is_strong && modified == Some(validator)
    }

    /// The conditions that ask the site whether the answer is current (§4.3.1). Empty without a validator, or if the answer is not a
    /// 200.
    pub fn conditions(&self) -> Vec<(&'static str, Vec<u8>)> {
        let of = |name: &[u8]| self.value(name).filter(|_| self.status == 200).map(<[u8]>::to_vec);
        let tag = of(b"etag").map(|tag| ("If-None-Match", tag));
        let date = of(b"last-modified").map(|date| ("If-Modified-Since", date));
        tag.into_iter().chain(date).collect()
    }

    /// Size of the fields in bytes, written as in HTTP/1.1.
    pub fn size(&self) -> u64 {
        self.fields.iter().map(|(name, value)| (name.len() + value.len() + ": \r\n".len()) as u64).sum()
    }

    pub fn has_validator(&self) -> bool {
        self.value(b"etag").is_some() || self.value(b"last-modified").is_some()
    }

    /// The first value of a field.
    pub fn value(&self, name: &[u8]) -> Option<&[u8]> {
        self.values(name).next()
    }

    fn values(&self, name: &[u8]) -> impl Iterator<Item = &[u8]> {
        self.fields.iter().filter(move |(it, _)| it == name).map(|(_, value)| value.as_slice())
    }

    pub(super) fn control(&self) -> CacheControl {
        CacheControl::read(self.values(b"cache-control"))
    }

    pub(super) fn has_explicit_lifetime(&self) -> bool {
        let control = self.control();
        control.s_maxage.is_some() || control.max_age.is_some() || self.value(b"expires").is_some()
    }

    /// The freshness lifetime (§4.2.1). Without a stated lifetime: a tenth of the time since Last-Modified, up to a day (§4.2.2).
    pub(super) fn lifetime(&self) -> Duration {
        let control = self.control();
        if let Some(said) = control.s_maxage.or(control.max_age) {
            return said;
        }
        let date = self.value(b"date").and_then(http_date);
        let mut expires = self.values(b"expires");
        if let Some(first) = expires.next() {
            // `0` and other malformed dates are in the past (§5.3). Two different dates count as malformed.
            let is_one = expires.all(|other| other == first);
            let until = http_date(first).filter(|_| is_one).zip(date);
            return until.and_then(|(expires, date)| expires.duration_since(date).ok()).unwrap_or_default();
        }
        let modified = self.value(b"last-modified").and_then(http_date);
        let unchanged = modified.zip(date).and_then(|(modified, date)| date.duration_since(modified).ok());
        let may_be = is_heuristic(self.status) || control.public;
        unchanged.filter(|_| may_be).map_or(Duration::ZERO, |unchanged| (unchanged / 10).min(MOST_HEURISTIC))
    }

    /// Adds the answer's fields, except Age and framing. Returns the Age.
    fn take(&mut self, each: impl FnOnce(&mut dyn FnMut(&[u8], &[u8]))) -> Option<Duration> {
        let mut age = None;
        each(&mut |name, value| {
            let name = name.to_ascii_lowercase();
            match &*name {
                b"age" => {
                    // The first Age counts (§5.1), and the first member of a list.
                    let first = value.split(|byte| *byte == b',').next().unwrap_or_default();
                    let read = str::from_utf8(first).ok().and_then(|first| delta_seconds(first.trim()));
                    age = age.or(read);
                }
                b"content-length" | b"transfer-encoding" | b"trailer" => {}
                _ => self.fields.push((name, value.to_vec())),
            }
        });
        age
    }

    /// Sets the time of receipt and the age at that time (§4.2.3). Adds a Date if there is no valid one.
    fn dated(&mut self, at: SystemTime, delay: Duration, age: Option<Duration>) {
        let date = self.value(b"date").and_then(http_date);
        if date.is_none() {
            // RFC 9110 §6.6.1: a recipient that stores an answer without a Date adds the time of receipt.
            self.fields.retain(|(name, _)| name != b"date");
            self.fields.push((b"date".to_vec(), shown_http_date(at).into_bytes()));
        }
        let apparent = date.and_then(|date| at.duration_since(date).ok()).unwrap_or_default();
        // Dates are in whole seconds.
        let apparent = Duration::from_secs(apparent.as_secs());
        let corrected = age.unwrap_or_default().saturating_add(delay);
        (self.received, self.initial_age) = (millis(at), whole_millis(apparent.max(corrected)));
    }
}

/// Whether an answer with this status may be fresh without a stated lifetime (RFC 9110 §15.1). 206 is not stored.
pub(super) fn is_heuristic(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

fn millis(time: SystemTime) -> u64 {
    whole_millis(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

fn whole_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Fields that describe content. A 304 has no content, so its values of these fields are meaningless.
const OF_CONTENT: [&str; 4] = ["content-encoding", "content-length", "content-range", "content-type"];
const MOST_HEURISTIC: Duration = Duration::from_secs(24 * 3600);

#[cfg(test)]
pub(super) mod tests {
    use super::super::range::ByteRange;
    use super::*;

    /// Sun, 06 Nov 1994 12:00:00 GMT.
    const NOON: u64 = 784_123_200;

    fn at(after: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(NOON + after)
    }

    #[expect(clippy::type_complexity, reason = "an `impl` type cannot have an alias")]
    fn of<'a>(fields: &'a [(&str, &str)]) -> impl FnOnce(&mut dyn FnMut(&[u8], &[u8])) + 'a {
        |take| fields.iter().for_each(|(name, value)| take(name.as_bytes(), value.as_bytes()))
    }

    fn received(status: u16) -> Received<'static> {
        Received { url: b"http://a.example/", status, version: 11, at: at(0), delay: Duration::ZERO, fetch: "1" }
    }

    /// The head of an answer that was received at noon.
    pub fn head(status: u16, fields: &[(&str, &str)]) -> StoredHead {
        StoredHead::new(&received(status), of(fields), |_| None)
    }

    /// The lifetime, and the age on arrival, in seconds.
    fn times(fields: &[(&str, &str)]) -> (u64, u64) {
        let head = head(200, fields);
        (head.lifetime().as_secs(), head.age(at(0)).unwrap().as_secs())
    }

    fn usable(fields: &[(&str, &str)], asked: &str, after: u64) -> bool {
        let asked = CacheControl::read([asked.as_bytes()]);
        head(200, fields).is_fresh_for(&asked, Duration::ZERO, at(after))
    }

    #[test]
    fn answer_without_a_date_gets_one_at_any_clock() {
        let day = Duration::from_secs(24 * 3600);
        let far = SystemTime::UNIX_EPOCH + Duration::from_secs(300_000_000_000);
        for (at, date) in [
            (SystemTime::UNIX_EPOCH - day, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (SystemTime::UNIX_EPOCH, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (far, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (self::at(0), "Sun, 06 Nov 1994 12:00:00 GMT"),
        ] {
            let head = StoredHead::new(&Received { at, ..received(200) }, of(&[]), |_| None);
            assert_eq!(head.value(b"date"), Some(date.as_bytes()));
        }
    }

    #[test]
    fn section_4_2_1_lifetime_is_s_maxage_then_max_age_then_expires() {
        let (noon, one) = ("Sun, 06 Nov 1994 12:00:00 GMT", "Sun, 06 Nov 1994 13:00:00 GMT");
        for (fields, expected) in [
            (&[("Cache-Control", "max-age=60, s-maxage=30")][..], 30),
            (&[("cache-control", "max-age=60"), ("expires", one), ("date", noon)], 60),
            (&[("expires", one), ("date", noon)], 3600),
            (&[("expires", one)], 3600),
            (&[("expires", "0"), ("date", noon)], 0),
            (&[("expires", one), ("expires", noon), ("date", noon)], 0),
            (&[("expires", "Sunday, 06-Nov-94 13:00:00 GMT"), ("date", noon)], 3600),
        ] {
            assert_eq!(times(fields).0, expected, "{fields:?}");
        }
    }

    #[test]
    fn section_4_2_2_heuristic_lifetime_is_a_tenth_of_the_pages_age_up_to_a_day() {
        let modified = |date| times(&[("date", "Sun, 06 Nov 1994 12:00:00 GMT"), ("last-modified", date)]).0;
        assert_eq!(modified("Sun, 06 Nov 1994 11:00:00 GMT"), 360);
        assert_eq!(modified("Sun, 07 Nov 1993 12:00:00 GMT"), 24 * 3600);
        assert_eq!(modified("Sun, 06 Nov 1994 13:00:00 GMT"), 0);
        let created = head(201, &[("last-modified", "Sun, 06 Nov 1994 11:00:00 GMT")]);
        assert_eq!(created.lifetime(), Duration::ZERO, "a heuristic lifetime is not for every status");
    }

    #[test]
    fn section_4_2_3_age_is_the_larger_of_age_and_apparent_age() {
        let early = ("date", "Sun, 06 Nov 1994 11:59:50 GMT");
        for (fields, expected) in [
            (&[("age", "7")][..], 7),
            (&[("age", "7"), early], 10),
            (&[("age", "20"), early], 20),
            (&[("age", "20, 30")], 20),
            (&[("age", "x")], 0),
            (&[("date", "Sun, 06 Nov 1994 12:30:00 GMT")], 0),
        ] {
            assert_eq!(times(fields).1, expected, "{fields:?}");
        }
        let slow = Received { delay: Duration::from_secs(5), ..received(200) };
        let slow = StoredHead::new(&slow, of(&[("age", "7")]), |_| None);
        assert_eq!(slow.age(at(3)), Some(Duration::from_secs(15)));
        assert_eq!(slow.age(SystemTime::UNIX_EPOCH), None, "the clock was set back");
        assert!(!slow.is_fresh_for(&CacheControl::default(), Duration::MAX, SystemTime::UNIX_EPOCH));
    }

    #[test]
    fn section_4_2_freshness_respects_request_directives() {
        let minute = &[("cache-control", "max-age=60")][..];
        for (asked, after, expected) in [
            ("", 59, true),
            ("", 60, false),
            ("no-cache", 0, false),
            ("max-age=10", 10, true),
            ("max-age=10", 11, false),
            ("min-fresh=10", 50, true),
            ("min-fresh=10", 51, false),
            ("max-stale", 600, true),
            ("max-stale=10", 70, true),
            ("max-stale=10", 71, false),
        ] {
            assert_eq!(usable(minute, asked, after), expected, "{asked} {after}");
        }
        for strict in ["must-revalidate", "proxy-revalidate", "s-maxage=60"] {
            let strict = format!("max-age=60, {strict}");
            assert!(!usable(&[("cache-control", &strict)], "max-stale", 61), "{strict}");
        }
        assert!(!usable(&[("cache-control", "max-age=60, no-cache")], "max-stale", 0));
    }

    #[test]
    fn min_revisit_is_a_lower_bound_except_for_no_cache() {
        let hour = Duration::from_secs(3600);
        let fresh = |control: &str, asked: &str, after| {
            let head = head(200, &[("cache-control", control)]);
            head.is_fresh_for(&CacheControl::read([asked.as_bytes()]), hour, at(after))
        };
        assert!(fresh("max-age=1", "", 3599) && !fresh("max-age=1", "", 3600));
        for control in ["no-cache", "max-age=1, must-revalidate", "s-maxage=1"] {
            assert!(!fresh(control, "", 60), "{control}");
        }
        assert!(!fresh("max-age=1", "no-cache", 60));
    }

    #[test]
    fn section_4_1_vary_selects_by_request_fields() {
        let english = |name: &[u8]| (name == b"accept-language").then(|| b"en".to_vec());
        let head = StoredHead::new(&received(200), of(&[("Vary", "Accept-Language, x"), ("vary", "y")]), english);
        assert_eq!(head.selected_by.len(), 3);
        assert!(head.is_selected_by(english));
        assert!(!head.is_selected_by(|_| None));
        assert!(!head.is_selected_by(|name| english(name).or((name == b"x").then(Vec::new))));
    }

    #[test]
    fn section_4_3_2_conditional_request_is_answered_304() {
        let asks = |tags: &[&str], since: Option<&str>| Wanted {
            none_match: tags.iter().map(|tag| tag.as_bytes().to_vec()).collect(),
            modified_since: since.map(|since| since.as_bytes().to_vec()),
            ..Wanted::default()
        };
        let (noon, later) = ("Sun, 06 Nov 1994 12:00:00 GMT", "Sun, 06 Nov 1994 13:00:00 GMT");
        let stored = head(200, &[("etag", "\"a\""), ("last-modified", noon)]);
        for (tags, since, expected) in [
            (&["\"a\""][..], None, true),
            (&["\"b\", W/\"a\""], None, true),
            (&["*"], None, true),
            (&["\"b\""], Some(later), false),
            (&[], Some(noon), true),
            (&[], Some("Sun, 06 Nov 1994 11:00:00 GMT"), false),
            (&[], None, false),
        ] {
            assert_eq!(stored.is_known_to(&asks(tags, since)), expected, "{tags:?} {since:?}");
        }
        assert!(
            head(200, &[("date", noon)]).is_known_to(&asks(&[], Some(later))),
            "by Date if there is no other validator"
        );
        assert!(!head(404, &[("etag", "\"a\"")]).is_known_to(&asks(&["\"a\""], None)));
    }

    #[test]
    fn section_3_2_304_replaces_the_fields_it_contains() {
        let stored = head(
            200,
            &[
                ("etag", "\"a\""),
                ("date", "Sun, 06 Nov 1994 11:00:00 GMT"),
                ("link", "<x>"),
                ("link", "<y>"),
                ("content-type", "text/html"),
                ("x-kept", "1"),
            ],
        );
        let news = [("Link", "<z>"), ("X-Robots-Tag", "noindex"), ("Content-Type", "x"), ("Age", "3")];
        let confirmed = stored.confirmed(at(100), Duration::ZERO, of(&news), |_| None);
        let values = |name: &str| confirmed.values(name.as_bytes()).map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert_eq!(values("link"), [b"<z>"]);
        assert_eq!(values("x-robots-tag"), [b"noindex"]);
        assert_eq!((values("content-type"), values("x-kept")), (vec![b"text/html".to_vec()], vec![b"1".to_vec()]));
        assert_eq!(
            values("date"),
            [b"Sun, 06 Nov 1994 12:01:40 GMT"],
            "without a Date, a 304 counts as sent when received"
        );
        assert_eq!(confirmed.age(at(100)), Some(Duration::from_secs(3)));
        assert_eq!(confirmed.fetch, stored.fetch);
    }

    #[test]
    fn section_4_3_4_weak_tag_does_not_become_strong() {
        for own in ["W/\"a\"", "\"a\""] {
            let stored = head(200, &[("etag", own)]);
            for other in ["W/\"a\"", "\"a\""] {
                let confirmed = stored.confirmed(at(0), Duration::ZERO, of(&[("ETag", other)]), |_| None);
                assert_eq!(confirmed.values(b"etag").collect::<Vec<_>>(), [own.as_bytes()], "{other}");
            }
        }
        let untagged = head(200, &[]).confirmed(at(0), Duration::ZERO, of(&[("ETag", "\"a\"")]), |_| None);
        assert_eq!(untagged.value(b"etag"), Some(&b"\"a\""[..]));
    }

    #[test]
    fn section_4_3_4_304_with_another_validator_does_not_match() {
        let stored = head(200, &[("etag", "\"a\""), ("last-modified", "x")]);
        for (etag, modified, expected) in [
            (Some("\"a\""), None, true),
            (Some("W/\"a\""), None, true),
            (Some("\"b\""), Some("x"), false),
            (None, Some("x"), true),
            (None, Some("y"), false),
            (None, None, true),
        ] {
            let is_confirmed = stored.is_confirmed_by(etag.map(str::as_bytes), modified.map(str::as_bytes));
            assert_eq!(is_confirmed, expected, "{etag:?} {modified:?}");
        }
    }

    #[test]
    fn framing_fields_are_not_stored() {
        let stored = head(200, &[("Content-Length", "3"), ("Transfer-Encoding", "chunked"), ("Age", "3"), ("X", "y")]);
        let names: Vec<_> = stored.fields.iter().map(|(name, _)| String::from_utf8_lossy(name)).collect();
        assert_eq!(names, ["x", "date"]);
    }

    fn part(range: &str, if_range: Option<&str>, length: u64) -> BodyPart {
        let fields = [
            ("etag", "\"a\""),
            ("last-modified", "Sun, 06 Nov 1994 11:00:00 GMT"),
            ("date", "Sun, 06 Nov 1994 11:00:01 GMT"),
        ];
        let wanted = Wanted {
            range: ByteRange::parse(range.as_bytes()),
            if_range: if_range.map(|it| it.as_bytes().to_vec()),
            ..Wanted::default()
        };
        head(200, &fields).part(&wanted, length)
    }

    #[test]
    fn section_13_1_5_if_range_must_match_for_a_part() {
        for (if_range, is_part) in [
            ("\"a\"", true),
            ("\"b\"", false),
            ("W/\"a\"", false),
            ("Sun, 06 Nov 1994 11:00:00 GMT", true),
            ("Sun, 06 Nov 1994 11:00:01 GMT", false),
            ("", false),
        ] {
            let expected = if is_part { BodyPart::Bytes(0..1) } else { BodyPart::Whole };
            assert_eq!(part("bytes=0-0", Some(if_range), 9), expected, "{if_range}");
        }
        let wanted = |if_range: &str| Wanted {
            range: ByteRange::parse(b"bytes=0-0"),
            if_range: Some(if_range.into()),
            ..Wanted::default()
        };
        let date = "Sun, 06 Nov 1994 11:00:00 GMT";
        let fresh = head(200, &[("last-modified", date), ("date", date)]);
        assert_eq!(fresh.part(&wanted(date), 9), BodyPart::Whole, "the page may have changed again within that second");
        let weak = head(200, &[("etag", "W/\"a\"")]);
        assert_eq!(weak.part(&wanted("W/\"a\""), 9), BodyPart::Whole);
    }

    #[test]
    fn ranges_apply_only_to_200() {
        let wanted = Wanted { range: ByteRange::parse(b"bytes=0-0"), ..Wanted::default() };
        assert_eq!(head(404, &[]).part(&wanted, 9), BodyPart::Whole);
    }
}
