//! The field Content-Range (RFC 9110 §14.4). Pure.

/// How long the whole is, in bytes, if the range is all of it: 42 for `bytes 0-41/42`.
pub fn whole_range(value: &[u8]) -> Option<u64> {
    let (unit, range) = str::from_utf8(value).ok()?.trim().split_once(' ')?;
    let (last, length) = range.trim().strip_prefix("0-")?.split_once('/')?;
    let (last, length) = (last.parse::<u64>().ok()?, length.parse::<u64>().ok()?);
    (unit.eq_ignore_ascii_case("bytes") && last.checked_add(1) == Some(length)).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::whole_range;

    #[test]
    fn a_range_is_the_whole_only_if_it_says_so() {
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
}
