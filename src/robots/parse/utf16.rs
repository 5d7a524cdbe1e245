//! Files in UTF-16, as some editors save what they call "Unicode". Pure.

/// The file in UTF-8, if it is in UTF-16: it begins with a byte order mark, and has letters of ASCII, without which there is no key; or
/// it begins with such letters. What is not well-formed becomes U+FFFD; the mark stays one.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<u8>> {
    let (units, _) = bytes.as_chunks::<2>();
    let unit = match units.first()? {
        [0xFF, 0xFE] if units.iter().any(|unit| is_letter(unit, 0)) => u16::from_le_bytes,
        [0xFE, 0xFF] if units.iter().any(|unit| is_letter(unit, 1)) => u16::from_be_bytes,
        _ if begins_with_letters(units, 0) => u16::from_le_bytes,
        _ if begins_with_letters(units, 1) => u16::from_be_bytes,
        _ => return None,
    };
    let decoded = char::decode_utf16(units.iter().map(|bytes| unit(*bytes)));
    let text: String = decoded.map(|read| read.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    Some(text.into_bytes())
}

fn begins_with_letters(units: &[[u8; 2]], low: usize) -> bool {
    let first = &units[..units.len().min(4)];
    first.len() >= 2 && first.iter().all(|unit| is_letter(unit, low))
}

/// Whether it is a character of one byte, the one at `low`; the other one is NUL.
fn is_letter(unit: &[u8; 2], low: usize) -> bool {
    unit[low] != 0 && unit[1 - low] == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(text: &str, bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(bytes).collect()
    }

    #[test]
    fn both_orders_are_read_with_and_without_a_mark() {
        for text in ["\u{feff}User-agent: *\r\nDisallow: /caf\u{e9}\u{1f600}\n", "User-agent: *", "\u{feff}\u{4e2d}: a"]
        {
            for bytes in [u16::to_le_bytes, u16::to_be_bytes] {
                assert_eq!(decode(&encoded(text, bytes)).as_deref(), Some(text.as_bytes()), "{text:?}");
            }
        }
    }

    #[test]
    fn what_is_not_well_formed_is_replaced() {
        let odd = [&encoded("\u{feff}a", u16::to_le_bytes)[..], b"b"].concat();
        assert_eq!(decode(&odd).as_deref(), Some("\u{feff}a".as_bytes()));
        let half = [0xFEFF, 0xD800, 0x61].map(u16::to_be_bytes).concat();
        assert_eq!(decode(&half).as_deref(), Some("\u{feff}\u{fffd}a".as_bytes()));
    }

    #[test]
    fn other_files_are_left_as_they_are() {
        for file in
            [&b""[..], b"U", b"U\0", b"\xff", b"\xef\xbb\xbfUser-agent: *", b"User-agent: *", b"\0\0\0\0", b"a\0\0b"]
        {
            assert_eq!(decode(file), None, "{file:?}");
        }
        // The mark alone makes no UTF-16 of a text (reppy).
        assert_eq!(decode(b"\xff\xfeUser-agent: *\nDisallow: /\n"), None);
    }
}
