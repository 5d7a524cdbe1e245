//! Finds the part of a stored answer that a range request asks for (RFC 9110 §14, RFC 9111 §3.4).

use std::ops::Range;

/// The range of bytes that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteRange {
    /// From the first number to the second, both included, or to the end.
    From(u64, Option<u64>),
    /// This number of bytes, counted from the end.
    Last(u64),
}

/// The part of a stored answer's body that a request gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyPart {
    Whole,
    /// 206 with these bytes.
    Bytes(Range<u64>),
    /// 416: the body has no byte of the range.
    Unsatisfiable,
}

impl ByteRange {
    /// Parses the value of a Range field. `None`: the value has several ranges or another unit, or is malformed.
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

    /// The part of a body that the range selects. `length`: bytes of the body.
    pub fn part_of(self, length: u64) -> BodyPart {
        let range = match self {
            // The last bytes of an empty body are the whole body.
            Self::Last(1..) if length == 0 => return BodyPart::Whole,
            Self::From(first, last) => first..last.map_or(length, |last| last.saturating_add(1).min(length)),
            Self::Last(count) => length.saturating_sub(count)..length,
        };
        if range.is_empty() { BodyPart::Unsatisfiable } else { BodyPart::Bytes(range) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_14_1_2_range_selects_bytes_of_the_content() {
        for (range, length, expected) in [
            ("bytes=0-499", 10_000, BodyPart::Bytes(0..500)),
            ("bytes=500-999", 10_000, BodyPart::Bytes(500..1000)),
            ("bytes=-500", 10_000, BodyPart::Bytes(9500..10_000)),
            ("bytes=9500-", 10_000, BodyPart::Bytes(9500..10_000)),
            ("Bytes= 0-0", 10_000, BodyPart::Bytes(0..1)),
            ("bytes=9999-20000", 10_000, BodyPart::Bytes(9999..10_000)),
            ("bytes=-20000", 10_000, BodyPart::Bytes(0..10_000)),
            ("bytes=0-18446744073709551615", 10_000, BodyPart::Bytes(0..10_000)),
            ("bytes=10000-", 10_000, BodyPart::Unsatisfiable),
            ("bytes=-0", 10_000, BodyPart::Unsatisfiable),
            ("bytes=0-", 0, BodyPart::Unsatisfiable),
            ("bytes=-5", 0, BodyPart::Whole),
            ("bytes=-0", 0, BodyPart::Unsatisfiable),
        ] {
            let parsed = ByteRange::parse(range.as_bytes()).unwrap();
            assert_eq!(parsed.part_of(length), expected, "{range} of {length}");
        }
    }

    #[test]
    fn invalid_or_multiple_ranges_are_none() {
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
}
