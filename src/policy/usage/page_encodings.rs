//! The encodings in which a client may read a page. Marks and labels say different things to different clients, but markup in UTF-16 and
//! UTF-32 has zeros, and ISO-2022-JP has escapes before characters that look like markup; all other encodings that are in use write
//! names and rules as ASCII does. Pure.

use std::borrow::Cow;

/// The page as it is, unless it has markup in UTF-16 or UTF-32 alone, and as each other encoding that it has markup in has it.
pub(super) fn in_encodings(page: &[u8]) -> Vec<Cow<'_, [u8]>> {
    let mut texts = Vec::new();
    if memchr::memchr(0, page).is_some() {
        let is_in = |layout: fn(&[u8], usize) -> bool| memchr::memchr_iter(b'<', page).any(|at| layout(page, at));
        let wide = [
            is_in(utf_16_le).then(|| wide(page, |unit| u16::from_le_bytes(unit).into())),
            is_in(utf_16_be).then(|| wide(page, |unit| u16::from_be_bytes(unit).into())),
            is_in(utf_32_le).then(|| wide(page, u32::from_le_bytes)),
            is_in(utf_32_be).then(|| wide(page, u32::from_be_bytes)),
        ];
        texts.extend(wide.into_iter().flatten().map(Cow::from));
        if !texts.is_empty() && !is_in(|page, at| is_letter(page, at + 1)) {
            return texts;
        }
    }
    if memchr::memmem::find(page, b"\x1b$").is_some() {
        texts.push(without_jis(page).into());
    }
    texts.push(page.into());
    texts
}

/// Whether a tag in this encoding begins with the `<` there.
fn utf_16_le(page: &[u8], at: usize) -> bool {
    at.is_multiple_of(2) && is_zero(page, at + 1, 1) && is_letter(page, at + 2) && is_zero(page, at + 3, 1)
}

fn utf_16_be(page: &[u8], at: usize) -> bool {
    at % 2 == 1 && is_zero(page, at - 1, 1) && is_zero(page, at + 1, 1) && is_letter(page, at + 2)
}

fn utf_32_le(page: &[u8], at: usize) -> bool {
    at.is_multiple_of(4) && is_zero(page, at + 1, 3) && is_letter(page, at + 4) && is_zero(page, at + 5, 3)
}

fn utf_32_be(page: &[u8], at: usize) -> bool {
    at % 4 == 3 && is_zero(page, at - 3, 3) && is_zero(page, at + 1, 3) && is_letter(page, at + 4)
}

fn is_letter(page: &[u8], at: usize) -> bool {
    page.get(at).is_some_and(u8::is_ascii_alphabetic)
}

fn is_zero(page: &[u8], at: usize, count: usize) -> bool {
    page.get(at..at + count).is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0))
}

/// Without the characters of two bytes in ISO-2022-JP (RFC 1468).
fn without_jis(page: &[u8]) -> Vec<u8> {
    let (mut rest, mut is_wide, mut text) = (page, false, Vec::with_capacity(page.len()));
    while let Some((byte, more)) = rest.split_first() {
        match rest {
            [ESCAPE, b'$', b'@' | b'B', more @ ..] => (rest, is_wide) = (more, true),
            [ESCAPE, b'(', b'B' | b'J' | b'I', more @ ..] => (rest, is_wide) = (more, false),
            _ => {
                text.extend((!is_wide).then_some(byte));
                rest = more;
            }
        }
    }
    text
}

/// Units of so many bytes as UTF-8, but for pairs of them.
fn wide<const N: usize>(page: &[u8], read: fn([u8; N]) -> u32) -> Vec<u8> {
    let char = |unit: &[u8; N]| char::from_u32(read(*unit)).unwrap_or(char::REPLACEMENT_CHARACTER);
    page.as_chunks().0.iter().map(char).collect::<String>().into_bytes()
}

const ESCAPE: u8 = 0x1b;
