//! Decodes a page in each encoding in which a client may read it. Clients disagree about byte order marks and charset labels, so the bytes
//! decide: markup in UTF-16 and UTF-32 has zeros, and ISO-2022-JP has escapes before characters that look like markup. All other encodings
//! in use write names and rules as in ASCII. Pure.

use std::borrow::Cow;

use crate::robots::Layout;

/// All forms in which the page has to be read: decoded from each wide encoding in which it has markup, with the two-byte characters of
/// ISO-2022-JP removed, and unchanged. The last two are left out if all markup is in UTF-16 or UTF-32.
pub(super) fn in_encodings(page: &[u8]) -> Vec<Cow<'_, [u8]>> {
    let mut texts = Vec::new();
    if memchr::memchr(0, page).is_some() {
        let has = |is_tag: &dyn Fn(usize) -> bool| memchr::memchr_iter(b'<', page).any(is_tag);
        let wide = Layout::KNOWN.into_iter().filter(|layout| has(&|at| is_tag(page, at, *layout)));
        texts.extend(
            wide.filter_map(|layout| layout.decode(page, char::REPLACEMENT_CHARACTER))
                .map(|text| Cow::from(text.into_bytes())),
        );
        if !texts.is_empty() && !has(&|at| page.get(at + 1).is_some_and(u8::is_ascii_alphabetic)) {
            return texts;
        }
    }
    if memchr::memmem::find(page, b"\x1b$").is_some() {
        texts.push(without_jis(page).into());
    }
    texts.push(page.into());
    texts
}

/// Whether the `<` at this offset begins a tag in this layout: a letter follows, and all bytes between them are zero.
fn is_tag(page: &[u8], at: usize, layout: Layout) -> bool {
    let Layout { width, at: letter } = layout;
    let Some(start) = at.checked_sub(letter).filter(|start| start.is_multiple_of(width)) else { return false };
    let is_in_place = |(place, byte): (usize, &u8)| match place % width == letter {
        true => place < width || byte.is_ascii_alphabetic(),
        false => *byte == 0,
    };
    page.get(start..start + 2 * width).is_some_and(|units| units.iter().enumerate().all(is_in_place))
}

/// Removes the two-byte characters of ISO-2022-JP (RFC 1468).
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

const ESCAPE: u8 = 0x1b;
