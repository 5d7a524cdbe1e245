//! Searches for delimiters, eight bytes at a time.

use super::HeadError;

/// The position of the first byte that no text in a message may contain (RFC 9110 §5.5): a control character other than tab.
#[inline]
pub(super) fn text_end(bytes: &[u8], from: usize) -> usize {
    let is_end = |byte| (byte < b' ' && byte != b'\t') || byte == 0x7f;
    first(bytes, from, |word| below(word, b' ') | equal(word, 0x7f), is_end)
}

/// The position of the first byte that no request target may contain: a space or control character.
#[inline]
pub(super) fn target_end(bytes: &[u8], from: usize) -> usize {
    first(bytes, from, |word| below(word, b' ' + 1) | equal(word, 0x7f), |byte| byte <= b' ' || byte == 0x7f)
}

/// The position of the first byte that cannot be in a token (RFC 9110 §5.6.2).
#[inline]
pub(super) fn token_end(bytes: &[u8], from: usize) -> usize {
    // Nearly all names are letters and hyphens.
    first(bytes, from, |word| !name_bytes(word) & HIGHS, |byte| !is_token(byte))
}

/// The position of the first byte for which `is_one` is true. `marks` sets the high bit of each byte in a word that may match. No match is
/// missed, but marks above the lowest one may be wrong because of carries.
#[inline(always)]
fn first(bytes: &[u8], from: usize, marks: impl Fn(u64) -> u64, is_one: impl Fn(u8) -> bool) -> usize {
    let mut at = from;
    while let Some(word) = bytes.get(at..at + 8) {
        let found = marks(u64::from_le_bytes(word.try_into().expect("eight bytes")));
        if found == 0 {
            at += 8;
            continue;
        }
        at += found.trailing_zeros() as usize / 8;
        if is_one(bytes[at]) {
            return at;
        }
        at += 1;
    }
    let rest = &bytes[at..];
    at + rest.iter().position(|&byte| is_one(byte)).unwrap_or(rest.len())
}

/// Marks letters and hyphens exactly, without carries between bytes.
#[inline]
fn name_bytes(word: u64) -> u64 {
    let ones = |byte: u8| ONES * u64::from(byte);
    let lower = (word | ones(0x20)) & !HIGHS;
    let letters = (lower + ones(0x80 - b'a')) & !(lower + ones(0x7f - b'z'));
    let other = word ^ ones(b'-');
    let hyphens = !(((other & !HIGHS) + ones(0x7f)) | other);
    (letters & !word | hyphens) & HIGHS
}

/// Whether a token may contain the byte.
#[inline]
pub(super) fn is_token(byte: u8) -> bool {
    TOKEN[byte as usize]
}

/// A decimal number of digits only, up to `i64::MAX`.
pub fn number(digits: &[u8]) -> Option<u64> {
    let mut value: u64 = 0;
    for &digit in digits {
        value = value.checked_mul(10)?.checked_add(u64::from(char::from(digit).to_digit(10)?))?;
    }
    (!digits.is_empty() && value <= i64::MAX as u64).then_some(value)
}

/// Removes spaces and tabs at both ends (RFC 9110 §5.6.3).
#[inline]
pub(super) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Returns an error if the head is over the limit. `end`: the head's end, if known. `there`: number of bytes received.
pub(super) fn within(limit: usize, end: Option<usize>, there: usize) -> Result<(), HeadError> {
    if end.unwrap_or(there) > limit { Err(HeadError::TooLarge { limit }) } else { Ok(()) }
}

/// Marks the bytes below a bound of at most 0x80. The lowest mark is exact; higher marks may be wrong because of carries.
#[inline]
pub fn below(word: u64, bound: u8) -> u64 {
    word.wrapping_sub(ONES * u64::from(bound)) & !word & HIGHS
}

/// Marks the bytes that equal `byte`, with the same exactness as [`below`].
#[inline]
pub fn equal(word: u64, byte: u8) -> u64 {
    below(word ^ (ONES * u64::from(byte)), 1)
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let marks = b"!#$%&'*+-.^_`|~";
    let mut at = 0;
    while at < marks.len() {
        table[marks[at] as usize] = true;
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests each byte value at each of 20 places, in two whole words and the start of a third, among several filler bytes.
    #[test]
    fn word_scan_equals_byte_scan() {
        let text = |byte: u8| byte == b'\t' || byte >= b' ' && byte != 0x7f;
        let target = |byte: u8| byte > b' ' && byte != 0x7f;
        for byte in 0..=255 {
            for place in 0..20 {
                for filler in [b'a', 0xff, 0x80, b'~', b'!'] {
                    let mut bytes = [filler; 21];
                    bytes[place] = byte;
                    assert_eq!(text_end(&bytes, 0), if text(byte) { 21 } else { place }, "{byte} at {place}");
                    assert_eq!(target_end(&bytes, 0), if target(byte) { 21 } else { place }, "{byte} at {place}");
                }
            }
        }
        assert_eq!(text_end(b"\t\t\t\t\t\t\t\t\t\x7f", 0), 9);
    }

    #[test]
    fn token_ends_at_the_first_non_token_byte() {
        for byte in 0..=255 {
            for place in 0..20 {
                for filler in [b'a', b'Z', b'-', b'_', b'9'] {
                    let mut bytes = [filler; 21];
                    bytes[place] = byte;
                    assert_eq!(token_end(&bytes, 0), if is_token(byte) { 21 } else { place }, "{byte} at {place}");
                }
            }
        }
    }

    #[test]
    fn content_length_accepts_only_digits() {
        assert_eq!(number(b"0005"), Some(5));
        assert_eq!(number(b"9223372036854775807"), Some(i64::MAX as u64));
        for wrong in ["", "+5", "-5", " 5", "5 ", "5.0", "0x5", "5,5", "9223372036854775808", "99999999999999999999"] {
            assert_eq!(number(wrong.as_bytes()), None, "{wrong:?}");
        }
    }
}
