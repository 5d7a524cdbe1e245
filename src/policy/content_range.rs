//! The field Content-Range (RFC 9110 §14.4). Pure.

use std::ops::Range;

/// The bytes that a Content-Range names, and the length of the whole content if it is known: `0..41` and 42 for `bytes 0-40/42`. `None`:
/// the value is malformed, or has another unit.
pub fn content_range(value: &[u8]) -> Option<(Range<u64>, Option<u64>)> {
    let (unit, range) = str::from_utf8(value).ok()?.trim().split_once(' ')?;
    let (bytes, length) = range.trim().split_once('/')?;
    let (first, last) = bytes.split_once('-').filter(|_| unit.eq_ignore_ascii_case("bytes"))?;
    let number = |text: &str| text.parse::<u64>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    let bytes = number(first)?..number(last)?.checked_add(1)?;
    let length = if length == "*" { None } else { Some(number(length)?) };
    (!bytes.is_empty() && length.is_none_or(|length| bytes.end <= length)).then_some((bytes, length))
}

/// The length of the whole content, if a Content-Range covers all of it.
pub fn whole_range(value: &[u8]) -> Option<u64> {
    let (bytes, length) = content_range(value)?;
    length.filter(|length| bytes == (0..*length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_range_is_whole_only_if_it_covers_all_bytes() {
        for (value, length) in [
            ("bytes 0-41/42", Some(42)),
            ("BYTES  0-0/1 ", Some(1)),
            ("bytes 0-40/42", None),
            ("bytes 1-41/42", None),
            ("bytes 0-41/*", None),
            ("bytes */42", None),
            ("pages 0-41/42", None),
            ("bytes 0-41/42, bytes 0-41/42", None),
            ("bytes 0-18446744073709551615/0", None),
            ("", None),
        ] {
            assert_eq!(whole_range(value.as_bytes()), length, "{value}");
        }
    }

    #[test]
    fn ambiguous_content_range_is_none() {
        assert_eq!(content_range(b"bytes 5-9/100"), Some((5..10, Some(100))));
        assert_eq!(content_range(b"Bytes 5-9/*"), Some((5..10, None)));
        for value in [
            "bytes 5-9",
            "bytes 5-9/x",
            "bytes 9-5/100",
            "bytes 5-100/100",
            "bytes +5-9/100",
            "bytes 5-9/100, bytes 0-4/100",
            "bytes 5-18446744073709551615/*",
            "bytes=5-9/100",
            "5-9/100",
        ] {
            assert_eq!(content_range(value.as_bytes()), None, "{value}");
        }
    }
}
