//! A part of a stored answer in place of the whole (RFC 9110 §14, RFC 9111 §3.4).

use super::stored::StoredHead;
use super::wanted::Wanted;
use crate::policy::date::http_date;
use std::ops::Range;
use std::time::Duration;

/// The one range of bytes that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteRange {
    /// From the first of these to the last, or to the end.
    From(u64, Option<u64>),
    /// So many at the end.
    Last(u64),
}

/// What a request gets of a stored answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    Whole,
    /// 206 with these bytes.
    Bytes(Range<u64>),
    /// 416: it has none of them.
    Unsatisfiable,
}

impl ByteRange {
    /// The value of a Range field. `None`: several ranges, another unit, or malformed.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (unit, range) = str::from_utf8(value).ok()?.split_once('=')?;
        let (first, last) = range.trim().split_once('-').filter(|_| unit.trim().eq_ignore_ascii_case("bytes"))?;
        let number = |text: &str| text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
        match (first, last) {
            ("", last) => number(last).map(Self::Last),
            (first, "") => number(first).map(|first| Self::From(first, None)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::From(first, Some(last)))
            }
        }
    }

    /// Which bytes these are of so many; `None`: of none.
    fn of(self, length: u64) -> Option<Range<u64>> {
        let range = match self {
            Self::From(first, last) => first..last.map_or(length, |last| last.saturating_add(1).min(length)),
            Self::Last(count) => length.saturating_sub(count)..length,
        };
        (!range.is_empty()).then_some(range)
    }
}

impl StoredHead {
    /// What a GET gets of this answer, whose body has so many bytes. Call after the other conditions (RFC 9110 §13.2.2).
    pub fn part(&self, wanted: &Wanted, length: u64) -> Part {
        let is_same = wanted.if_range.as_deref().is_none_or(|validator| self.is_exactly(validator));
        match wanted.range.filter(|_| self.status == 200 && is_same) {
            None => Part::Whole,
            Some(range) => range.of(length).map_or(Part::Unsatisfiable, Part::Bytes),
        }
    }

    /// If-Range (RFC 9110 §13.1.5): compared byte for byte; a date is exact only if the answer is younger than the second it names
    /// (§8.8.2.2).
    fn is_exactly(&self, validator: &[u8]) -> bool {
        let (validator, modified) = (validator.trim_ascii(), self.value(b"last-modified"));
        if validator.starts_with(b"\"") {
            return self.value(b"etag") == Some(validator);
        }
        let dates = modified.and_then(http_date).zip(self.value(b"date").and_then(http_date));
        let is_strong = dates.is_some_and(|(modified, date)| date >= modified + Duration::from_secs(1));
        is_strong && modified == Some(validator)
    }
}

#[cfg(test)]
mod tests {
    use super::super::stored::tests::head;
    use super::*;

    fn part(range: &str, if_range: Option<&str>, length: u64) -> Part {
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
    fn section_14_1_2_a_range_is_what_it_covers_of_the_content() {
        for (range, length, expected) in [
            ("bytes=0-499", 10_000, Part::Bytes(0..500)),
            ("bytes=500-999", 10_000, Part::Bytes(500..1000)),
            ("bytes=-500", 10_000, Part::Bytes(9500..10_000)),
            ("bytes=9500-", 10_000, Part::Bytes(9500..10_000)),
            ("Bytes= 0-0", 10_000, Part::Bytes(0..1)),
            ("bytes=9999-20000", 10_000, Part::Bytes(9999..10_000)),
            ("bytes=-20000", 10_000, Part::Bytes(0..10_000)),
            ("bytes=0-18446744073709551615", 10_000, Part::Bytes(0..10_000)),
            ("bytes=10000-", 10_000, Part::Unsatisfiable),
            ("bytes=-0", 10_000, Part::Unsatisfiable),
            ("bytes=0-", 0, Part::Unsatisfiable),
            ("bytes=-5", 0, Part::Unsatisfiable),
        ] {
            assert_eq!(part(range, None, length), expected, "{range} of {length}");
        }
    }

    #[test]
    fn what_is_not_one_range_of_bytes_is_none() {
        for range in [
            "bytes=0-1,3-4",
            "bytes=5-4",
            "bytes=-",
            "bytes=a-b",
            "bytes=+1-2",
            "bytes=--1",
            "bytes=0-18446744073709551616",
            "pages=1-2",
            "bytes 0-1",
            "",
        ] {
            assert_eq!(ByteRange::parse(range.as_bytes()), None, "{range}");
        }
    }

    #[test]
    fn section_13_1_5_the_part_is_for_who_has_the_rest_of_the_same() {
        for (if_range, is_part) in [
            ("\"a\"", true),
            ("\"b\"", false),
            ("W/\"a\"", false),
            ("Sun, 06 Nov 1994 11:00:00 GMT", true),
            ("Sun, 06 Nov 1994 11:00:01 GMT", false),
            ("", false),
        ] {
            let expected = if is_part { Part::Bytes(0..1) } else { Part::Whole };
            assert_eq!(part("bytes=0-0", Some(if_range), 9), expected, "{if_range}");
        }
        let wanted = |if_range: &str| Wanted {
            range: ByteRange::parse(b"bytes=0-0"),
            if_range: Some(if_range.into()),
            ..Wanted::default()
        };
        let date = "Sun, 06 Nov 1994 11:00:00 GMT";
        let fresh = head(200, &[("last-modified", date), ("date", date)]);
        assert_eq!(fresh.part(&wanted(date), 9), Part::Whole, "it may have changed in that second");
        let weak = head(200, &[("etag", "W/\"a\"")]);
        assert_eq!(weak.part(&wanted("W/\"a\""), 9), Part::Whole);
    }

    #[test]
    fn only_a_200_has_parts() {
        let wanted = Wanted { range: ByteRange::parse(b"bytes=0-0"), ..Wanted::default() };
        assert_eq!(head(404, &[]).part(&wanted, 9), Part::Whole);
    }
}
