//! Detects the encoding of a file: one byte for each letter, as RFC 9309 §2.3 requires, or two or four bytes (UTF-16, UTF-32), as editors
//! write if asked for "Unicode". Pure.

/// The detected encoding.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// UTF-8, or another encoding with one byte for each ASCII letter.
    Bytes,
    /// UTF-16 or UTF-32, decoded to UTF-8. Ill-formed units become U+FFFD; a byte order mark is kept.
    Wide(Vec<u8>),
    /// Mixed encodings, misaligned units, or a contradicting byte order mark: any reading would lose rules.
    Unknown,
}

/// The layout of ASCII letters in a wide encoding: each letter is one byte, with NULs between letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Bytes from one letter to the next: 2, 4, or a width that no encoding has.
    pub(crate) width: usize,
    /// Offset of the letter in its unit. In all real encodings, this is the first byte (little-endian) or the last (big-endian).
    pub(crate) at: usize,
}

impl Layout {
    /// The layouts of UTF-16 and UTF-32, little-endian and big-endian.
    pub(crate) const KNOWN: [Self; 4] =
        [Self { width: 2, at: 0 }, Self { width: 2, at: 1 }, Self { width: 4, at: 0 }, Self { width: 4, at: 3 }];

    /// Decodes a text; `ill_formed` replaces ill-formed units. `None`: no encoding has this layout.
    pub(crate) fn decode(self, bytes: &[u8], ill_formed: char) -> Option<String> {
        Some(match (self.width, self.at) {
            (2, 0) => decode_utf16(bytes, u16::from_le_bytes, ill_formed),
            (2, 1) => decode_utf16(bytes, u16::from_be_bytes, ill_formed),
            (4, 0) => decode_utf32(bytes, u32::from_le_bytes, ill_formed),
            (4, 3) => decode_utf32(bytes, u32::from_be_bytes, ill_formed),
            _ => return None,
        })
    }

    /// Whether a text begins with the byte order mark of the other byte order.
    fn is_contradicted(self, bytes: &[u8]) -> bool {
        let mark = [0xFF, 0xFE, 0, 0].into_iter().take(self.width);
        let other: Vec<u8> = if self.at == 0 { mark.rev().collect() } else { mark.collect() };
        bytes.starts_with(&other)
    }
}

/// Detects the encoding in which a file has ASCII words, since keys are ASCII. `is_cut`: the file may end inside a unit.
pub(crate) fn detect(bytes: &[u8], is_cut: bool) -> Encoding {
    if !bytes.contains(&0) {
        return Encoding::Bytes;
    }
    let layout = match layouts(bytes).as_slice() {
        [] => match bytes {
            // A byte order mark does not show that a text is UTF-16: a test of reppy has one before single-byte text.
            _ if has_key_in_bytes(bytes) => return Encoding::Bytes,
            [0xFF, 0xFE, rest @ ..] if has_letter(rest, 0) => Layout { width: 2, at: 0 },
            [0xFE, 0xFF, rest @ ..] if has_letter(rest, 1) => Layout { width: 2, at: 1 },
            _ => return Encoding::Bytes,
        },
        [layout] if (is_cut || bytes.len().is_multiple_of(layout.width)) && !has_key_in_bytes(bytes) => *layout,
        _ => return Encoding::Unknown,
    };
    let decoded = layout.decode(bytes, char::REPLACEMENT_CHARACTER).filter(|_| !layout.is_contradicted(bytes));
    decoded.map_or(Encoding::Unknown, |text| Encoding::Wide(text.into_bytes()))
}

/// The layouts in which a word of four letters occurs. Single-byte text has no NULs between letters.
fn layouts(bytes: &[u8]) -> Vec<Layout> {
    let mut found = Vec::new();
    for width in 2..=8 {
        for (start, word) in bytes.windows(3 * width + 1).enumerate() {
            let is_word = word.iter().enumerate().all(|(at, byte)| (*byte != 0) == at.is_multiple_of(width));
            let layout = Layout { width, at: start % width };
            if is_word && !found.contains(&layout) {
                found.push(layout);
            }
        }
    }
    found
}

/// Whether UTF-16 text has a letter below U+0100. `low`: offset of the low byte in each unit.
fn has_letter(bytes: &[u8], low: usize) -> bool {
    bytes.as_chunks::<2>().0.iter().any(|unit| unit[low] != 0 && unit[1 - low] == 0)
}

/// Whether the file also has keys in single bytes.
fn has_key_in_bytes(bytes: &[u8]) -> bool {
    let keys: [&[u8]; 2] = [b"disallow", b"user-agent"];
    keys.iter().any(|key| bytes.windows(key.len()).any(|word| word.eq_ignore_ascii_case(key)))
}

fn decode_utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16, ill_formed: char) -> String {
    let units = bytes.as_chunks::<2>().0.iter().map(|bytes| unit(*bytes));
    char::decode_utf16(units).map(|read| read.unwrap_or(ill_formed)).collect()
}

fn decode_utf32(bytes: &[u8], unit: fn([u8; 4]) -> u32, ill_formed: char) -> String {
    let units = bytes.as_chunks::<4>().0.iter().map(|bytes| unit(*bytes));
    units.map(|unit| char::from_u32(unit).unwrap_or(ill_formed)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two(text: &str, bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(bytes).collect()
    }

    fn all(text: &str) -> [Vec<u8>; 4] {
        let four = |bytes: fn(u32) -> [u8; 4]| text.chars().flat_map(|char| bytes(char.into())).collect();
        [two(text, u16::to_le_bytes), two(text, u16::to_be_bytes), four(u32::to_le_bytes), four(u32::to_be_bytes)]
    }

    fn wide(text: &str) -> Encoding {
        Encoding::Wide(text.as_bytes().to_vec())
    }

    #[test]
    fn wide_encodings_are_read_in_both_byte_orders_with_or_without_a_mark() {
        for begin in
            ["", "# \u{442}\u{435}\u{441}\u{442}\n", "\u{4e00}\u{4e00}\n", "\u{e9}\n", "\u{1f600}", "\u{100}\n"]
        {
            for mark in ["", "\u{feff}"] {
                let text = format!("{mark}{begin}User-agent: *\r\nDisallow: /caf\u{e9}\u{1f600}\n");
                for (number, file) in all(&text).into_iter().enumerate() {
                    assert_eq!(detect(&file, false), wide(&text), "{text:?} {number}");
                    assert_eq!(detect(&file[..file.len() - 1], false), Encoding::Unknown, "{text:?} {number}");
                    assert_ne!(detect(&file[..file.len() - 1], true), Encoding::Unknown, "{text:?} {number}");
                }
            }
        }
    }

    #[test]
    fn a_mark_and_a_letter_are_enough_for_utf16() {
        for bytes in [u16::to_le_bytes, u16::to_be_bytes] {
            assert_eq!(detect(&two("\u{feff}\u{4e2d}: a", bytes), false), wide("\u{feff}\u{4e2d}: a"));
        }
    }

    #[test]
    fn ill_formed_characters_are_replaced() {
        let odd = [&two("\u{feff}a", u16::to_le_bytes)[..], b"b"].concat();
        assert_eq!(detect(&odd, false), wide("\u{feff}a"));
        let half = [0xFEFF, 0xD800, 0x61].map(u16::to_be_bytes).concat();
        assert_eq!(detect(&half, false), wide("\u{feff}\u{fffd}a"));
        let far = [0x61, 0x62, 0x63, 0x64, 0x11_0000, 0xD800].map(u32::to_le_bytes).concat();
        assert_eq!(detect(&far, false), wide("abcd\u{fffd}\u{fffd}"));
    }

    #[test]
    fn files_in_other_encodings_are_unchanged() {
        for file in [
            &b""[..],
            b"U",
            b"U\0",
            b"\xff",
            b"\xef\xbb\xbfUser-agent: *",
            b"User-agent: *",
            b"\0\0\0\0\0\0\0\0",
            b"User-agent: *\0Disallow: /a\0\0Disallow: /b\0",
            b"\xff\xfeUser-agent: *\nDisallow: /\n",
        ] {
            assert_eq!(detect(file, false), Encoding::Bytes, "{file:?}");
        }
    }

    #[test]
    fn only_two_and_four_bytes_per_letter_are_encodings() {
        for width in [3, 5, 6, 7, 8] {
            for begin in [0, width - 1] {
                let spread = b"User-agent: *\nDisallow: /\n"
                    .iter()
                    .flat_map(|letter| (0..width).map(move |at| if at == begin { *letter } else { 0 }));
                assert_eq!(detect(&spread.collect::<Vec<_>>(), false), Encoding::Unknown, "{width}");
            }
        }
    }

    #[test]
    fn mixed_encodings_are_not_decoded() {
        let text = "User-agent: *\nDisallow: /private\n";
        let [le, be, le32, be32] = all(text);
        let bytes = text.as_bytes();
        for file in [
            [bytes, &le[..]].concat(),
            [&le[..], bytes].concat(),
            [b"\n", &le[..]].concat(),
            [&le[..], &be[..]].concat(),
            [&le[..], &le32[..]].concat(),
            [&be32[..], &le32[..]].concat(),
            [b"\n\n", &le32[..], b"\n\n"].concat(),
            [b"\xfe\xff", &le[..]].concat(),
            [b"\0\0\xfe\xff", &le32[..]].concat(),
            le.split_inclusive(|byte| *byte == b'\n').collect::<Vec<_>>().join(&b'\r'),
        ] {
            assert_eq!(detect(&file, false), Encoding::Unknown, "{file:?}");
        }
    }
}
