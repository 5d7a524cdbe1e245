//! Decodes the escapes that some clients write and others do not, before a path is compared in the form that servers see. Pure.

use std::borrow::Cow;

use super::path::{escape, parts, rewritten};

/// Decodes the escapes of bytes that some clients escape and others do not, in a normalised query or pattern: `[]{}|\^`, which no URI may
/// contain, and `:;,@!'()`, which are reserved. `+&=` separate the parts of a query, so they are decoded only in the first `path` bytes,
/// which belong to a path. RFC 9309 distinguishes `[` from `%5B`; servers do not.
pub(super) fn fold(text: &[u8], path: usize) -> Cow<'_, [u8]> {
    let folded = |rest: &[u8]| {
        let is_path = text.len() - rest.len() < path;
        escape(rest).filter(|byte| is_folded(*byte) || is_path && is_folded_in_path(*byte))
    };
    if !memchr::memchr_iter(b'%', text).any(|at| folded(&text[at..]).is_some()) {
        return Cow::Borrowed(text);
    }
    let piece = |rest: &[u8], out: &mut Vec<u8>| {
        out.push(folded(rest)?);
        Some(3)
    };
    Cow::Owned(rewritten(text, piece))
}

/// Whether [`fold`] decodes the byte in paths only.
pub(super) const fn is_folded_in_path(byte: u8) -> bool {
    matches!(byte, b'+' | b'&' | b'=')
}

/// Whether [`fold`] decodes the byte everywhere.
pub(super) const fn is_folded(byte: u8) -> bool {
    matches!(
        byte,
        b'[' | b']' | b'{' | b'}' | b'|' | b'\\' | b'^' | b':' | b';' | b',' | b'@' | b'!' | b'\'' | b'(' | b')'
    )
}

/// Whether a path has a byte, escaped or not, that [`fold`] decodes in patterns. For any other path, a pattern and its folded form match
/// alike.
pub(super) fn has_folded(target: &[u8]) -> bool {
    let path = parts(target).0.len();
    target.iter().enumerate().any(|(at, &byte)| {
        let byte = escape(&target[at..]).unwrap_or(byte);
        is_folded(byte) || at < path && is_folded_in_path(byte)
    })
}
