//! RFC 9309 §2.2.3: path patterns in the form that is compared. Pure.

use std::ops::Range;

use super::path::{self, PathByte};
use crate::robots::options::PercentEncoding;

/// The patterns of one rule set, normalised, one after the other.
#[derive(Debug)]
pub(crate) struct Arena {
    text: Vec<u8>,
    encoding: PercentEncoding,
}

/// A pattern in an arena: a literal, and what follows its first star.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    pub(crate) literal: Range<usize>,
    /// Literals with stars between them; empty if there is no star.
    rest: Range<usize>,
    pub(crate) kind: PatternKind,
    /// The bytes that count for precedence: all of the normalised pattern's, `*` and `$` included.
    pub(crate) bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatternKind {
    /// Matches what begins with the literal.
    Prefix,
    /// Matches the literal alone.
    Exact,
    /// Matches what begins with the literal and has the pieces after it, in this order.
    Pieces,
    /// The same, and ends with the last piece.
    AnchoredPieces,
}

impl Arena {
    /// With room for patterns of so many bytes in all.
    pub(crate) fn new(encoding: PercentEncoding, bytes: usize) -> Self {
        Self { text: Vec::with_capacity(bytes), encoding }
    }

    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    /// Adds a pattern in which nothing is special and nothing must be normalised.
    #[inline]
    pub(crate) fn push_plain(&mut self, written: &[u8]) -> Pattern {
        let start = self.text.len();
        self.text.extend_from_slice(written);
        let literal = start..self.text.len();
        Pattern { rest: 0..0, kind: PatternKind::Prefix, bytes: literal.len(), literal }
    }

    /// Normalises a pattern as it is written.
    pub(crate) fn push(&mut self, written: &[u8]) -> Pattern {
        let (body, anchored) = match written.strip_suffix(b"$") {
            Some(body) => (body, true),
            None => (written, false),
        };
        let start = self.text.len();
        match self.encoding {
            PercentEncoding::Normalised => self.push_normalised(body),
            PercentEncoding::AsWritten => self.push_as_written(body),
        }
        let bytes = self.text.len() - start + usize::from(anchored);
        let Some(star) = memchr::memchr(STAR, &self.text[start..]) else {
            let kind = if anchored { PatternKind::Exact } else { PatternKind::Prefix };
            return Pattern { literal: start..self.text.len(), rest: 0..0, kind, bytes };
        };
        let rest = start + star..self.text.len();
        let tail = &self.text[rest.clone()];
        let kind = if tail.iter().all(|&byte| byte == STAR) {
            PatternKind::Prefix
        } else if anchored && tail.last() != Some(&STAR) {
            PatternKind::AnchoredPieces
        } else {
            PatternKind::Pieces
        };
        Pattern { literal: start..start + star, rest, kind, bytes }
    }

    /// A pattern by itself.
    pub(crate) fn shape(&self, pattern: &Pattern) -> Shape {
        let end = pattern.literal.end.max(pattern.rest.end);
        let anchored = match pattern.kind {
            PatternKind::Exact | PatternKind::AnchoredPieces => true,
            PatternKind::Prefix | PatternKind::Pieces => false,
        };
        Shape { text: self.text[pattern.literal.start..end].into(), anchored, bytes: pattern.bytes }
    }

    /// The pattern that allows a directory where one allows its `index.html` (Google).
    pub(crate) fn push_index(&mut self, written: &[u8]) -> Option<Pattern> {
        let slash = memchr::memrchr(b'/', written)?;
        let (directory, file) = written.split_at(slash + 1);
        file.starts_with(b"index.htm").then(|| self.push(&[directory, b"$"].concat()))
    }

    /// Where the literals between and after the stars of a pattern are; none is empty.
    pub(crate) fn pieces(&self, pattern: &Pattern) -> impl DoubleEndedIterator<Item = Range<usize>> {
        let place = |piece: &[u8]| {
            let start = piece.as_ptr() as usize - self.text.as_ptr() as usize;
            start..start + piece.len()
        };
        let pieces = self.text[pattern.rest.clone()].split(|&byte| byte == STAR);
        pieces.filter(|piece| !piece.is_empty()).map(place)
    }
}

/// A pattern that is compared with others. Used by `lint`.
#[derive(Debug)]
pub(crate) struct Shape {
    /// Normalised, with [`Shape::STAR`] for each star, and without an anchor.
    pub(crate) text: Box<[u8]>,
    /// It matches up to the path's end; what is not anchored is as good as one star more at its end.
    pub(crate) anchored: bool,
    /// The bytes that count for precedence.
    pub(crate) bytes: usize,
}

impl Shape {
    /// In no normalised path.
    pub(crate) const STAR: u8 = STAR;

    /// All paths that it matches, as one: its text, in which each star stands for a run of bytes.
    pub(crate) fn paths(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(self.text.len() + 2);
        // Paths begin with `/`: a star at the start matches at least that, unless what follows is it.
        let second = self.text.iter().find(|&&byte| byte != STAR);
        if self.text.first() == Some(&STAR) && second != Some(&b'/') {
            text.push(b'/');
        }
        text.extend_from_slice(&self.text);
        text.extend((!self.anchored).then_some(STAR));
        text
    }

    /// Whether it matches each of the [`paths`](Self::paths) of another. Never claimed wrongly; it may be missed.
    ///
    /// No literal matches the star that stands for a run, so that only a star of this pattern does, and then it matches
    /// any run.
    pub(crate) fn covers(&self, text: &[u8]) -> bool {
        let mut pieces = self.text.split(|&byte| byte == STAR);
        let first = pieces.next().unwrap_or_default();
        let Some(mut rest) = text.strip_prefix(first) else { return false };
        let mut last = None;
        for piece in pieces {
            // Leftmost is best for all but the last, which may have to end the path.
            if let Some(before) = last.replace(piece) {
                let Some(at) = memchr::memmem::find(rest, before) else { return false };
                rest = &rest[at + before.len()..];
            }
        }
        match last {
            None => rest.is_empty() || !self.anchored,
            Some(last) if self.anchored => rest.ends_with(last),
            Some(last) => memchr::memmem::find(rest, last).is_some(),
        }
    }
}

impl Arena {
    fn push_normalised(&mut self, mut body: &[u8]) {
        while let Some((piece, after)) = path::next(body) {
            match piece {
                PathByte::Byte(b'*') => self.text.push(STAR),
                PathByte::Byte(byte) | PathByte::Literal(byte) => self.text.push(byte),
                PathByte::Escaped(byte) => path::push_escaped(byte, &mut self.text),
            }
            body = after;
        }
    }

    fn push_as_written(&mut self, body: &[u8]) {
        for (at, &byte) in body.iter().enumerate() {
            let is_digit = |place: usize| body.get(place).is_some_and(u8::is_ascii_hexdigit);
            let in_escape = |back: usize| {
                at >= back && body[at - back] == b'%' && is_digit(at + 1 - back) && is_digit(at + 2 - back)
            };
            match byte {
                b'*' => self.text.push(STAR),
                0x80.. => path::push_escaped(byte, &mut self.text),
                _ if in_escape(1) || in_escape(2) => self.text.push(byte.to_ascii_uppercase()),
                _ => self.text.push(byte),
            }
        }
    }
}

/// Stands for a wildcard in an arena; NUL ends lines, and cannot stand for itself.
const STAR: u8 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    fn show(written: &str) -> String {
        let mut arena = Arena::new(PercentEncoding::Normalised, 0);
        arena.push(b"/before*it$");
        let pattern = arena.push(written.as_bytes());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut parts = vec![text(&arena.text()[pattern.literal.clone()])];
        parts.extend(arena.pieces(&pattern).map(|piece| text(&arena.text()[piece])));
        let end = match pattern.kind {
            PatternKind::Prefix => "",
            PatternKind::Exact | PatternKind::AnchoredPieces => "$",
            PatternKind::Pieces => "..",
        };
        format!("{}{end} {}", parts.join("|"), pattern.bytes)
    }

    #[test]
    fn rfc_patterns_are_literals_stars_and_an_anchor() {
        for (written, expected) in [
            ("/fish", "/fish 5"),
            ("/fish$", "/fish$ 6"),
            ("/fish*", "/fish 6"),
            ("/fish***$", "/fish 9"),
            ("*", " 1"),
            ("$", "$ 1"),
            ("/*.php", "/|.php.. 6"),
            ("/*.php$", "/|.php$ 7"),
            ("*a**b*", "|a|b.. 6"),
            ("/a*b*$", "/a|b.. 6"),
            ("/a$b", "/a$b 4"),
            ("/a$$", "/a$$ 4"),
        ] {
            assert_eq!(show(written), expected, "{written}");
        }
    }

    #[test]
    fn plain_patterns_are_only_copied() {
        let mut arena = Arena::new(PercentEncoding::Normalised, 0);
        let (plain, normalised) = (arena.push_plain(b"/fish"), arena.push(b"/fish"));
        assert_eq!((plain.kind, plain.bytes), (normalised.kind, normalised.bytes));
        assert_eq!(arena.text()[plain.literal], arena.text()[normalised.literal]);
    }

    #[test]
    fn rfc_escapes_are_normalised_before_bytes_are_counted() {
        for (written, expected) in [
            ("/%7Ejoe", "/~joe 5"),
            ("/\u{fc}", "/%C3%BC 7"),
            ("/%c3%bc", "/%C3%BC 7"),
            ("/a%2Ab%24", "/a*b$ 5"),
            ("/a%2A*%24$", "/a*|$$ 6"),
            ("/a b", "/a%20b 6"),
        ] {
            assert_eq!(show(written), expected, "{written}");
        }
    }
}
