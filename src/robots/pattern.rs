//! RFC 9309 §2.2.3: path patterns in the form that is compared. Pure. Called by `matcher`.

use std::ops::Range;

use super::path::{self, Piece};

/// The patterns of one rule set, normalised, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    text: Vec<u8>,
}

/// A pattern in an arena: a literal, and what follows its first star.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    pub(crate) literal: Range<usize>,
    /// Literals with stars between them; empty if there is no star.
    rest: Range<usize>,
    pub(crate) kind: PatternKind,
    /// The octets that count for precedence: all of the normalised pattern's, `*` and `$` included.
    pub(crate) octets: usize,
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
    pub(crate) fn with_capacity(octets: usize) -> Self {
        Self { text: Vec::with_capacity(octets) }
    }

    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    /// Normalises a pattern as it is written.
    pub(crate) fn push(&mut self, written: &[u8]) -> Pattern {
        let (body, anchored) = match written.strip_suffix(b"$") {
            Some(body) => (body, true),
            None => (written, false),
        };
        let start = self.text.len();
        if path::is_plain(body) {
            self.text.extend(body.iter().map(|&octet| if octet == b'*' { STAR } else { octet }));
        } else {
            self.push_escaped(body);
        }
        let octets = self.text.len() - start + usize::from(anchored);
        let Some(star) = memchr::memchr(STAR, &self.text[start..]) else {
            let kind = if anchored { PatternKind::Exact } else { PatternKind::Prefix };
            return Pattern { literal: start..self.text.len(), rest: 0..0, kind, octets };
        };
        let rest = start + star..self.text.len();
        let tail = &self.text[rest.clone()];
        let kind = if tail.iter().all(|&octet| octet == STAR) {
            PatternKind::Prefix
        } else if anchored && tail.last() != Some(&STAR) {
            PatternKind::AnchoredPieces
        } else {
            PatternKind::Pieces
        };
        Pattern { literal: start..start + star, rest, kind, octets }
    }

    /// Where the literals between and after the stars of a pattern are; none is empty.
    pub(crate) fn pieces(&self, pattern: &Pattern) -> impl DoubleEndedIterator<Item = Range<usize>> {
        let place = |piece: &[u8]| {
            let start = piece.as_ptr() as usize - self.text.as_ptr() as usize;
            start..start + piece.len()
        };
        let pieces = self.text[pattern.rest.clone()].split(|&octet| octet == STAR);
        pieces.filter(|piece| !piece.is_empty()).map(place)
    }

    fn push_escaped(&mut self, mut body: &[u8]) {
        while let Some((piece, after)) = path::next(body) {
            match piece {
                Piece::Octet(b'*') => self.text.push(STAR),
                Piece::Octet(octet) | Piece::Literal(octet) => self.text.push(octet),
                Piece::Escaped(octet) => path::push_escaped(octet, &mut self.text),
            }
            body = after;
        }
    }
}

/// Stands for a wildcard in an arena; no octet below `!` can stand for itself there.
const STAR: u8 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    fn show(written: &str) -> String {
        let mut arena = Arena::default();
        arena.push(b"/before*it$");
        let pattern = arena.push(written.as_bytes());
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        let mut parts = vec![text(&arena.text()[pattern.literal.clone()])];
        parts.extend(arena.pieces(&pattern).map(|piece| text(&arena.text()[piece])));
        let end = match pattern.kind {
            PatternKind::Prefix => "",
            PatternKind::Exact | PatternKind::AnchoredPieces => "$",
            PatternKind::Pieces => "..",
        };
        format!("{}{end} {}", parts.join("|"), pattern.octets)
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
    fn rfc_escapes_are_normalised_before_octets_are_counted() {
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
