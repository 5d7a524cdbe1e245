//! RFC 9309 §2.2.3: normalises path patterns for comparison. Pure.

use crate::robots::path::{self, PathByte};

/// Stands for a star in a normalised pattern. NUL ends lines, so no pattern contains it.
pub(crate) const STAR: u8 = 0;

/// Normalises a pattern. The text is without trailing stars, and several stars in a row are merged; for precedence they count as written.
/// A matching path begins with the first literal of the text and contains the others in this order, with anything where a star is. If the
/// pattern is anchored, the path ends with the last literal.
pub(crate) fn normalise(written: &[u8]) -> Shape {
    let mut shape = Shape::new(written);
    let text = &mut shape.text;
    text.truncate(text.iter().rposition(|&byte| byte != STAR).map_or(0, |last| last + 1));
    text.dedup_by(|a, b| (*a, *b) == (STAR, STAR));
    shape
}

/// Number of leading bytes of a normalised pattern that match only a path, not a query: a query may begin at any star.
pub(crate) fn path_bytes(text: &[u8]) -> usize {
    memchr::memchr2(STAR, b'?', text).unwrap_or(text.len())
}

/// A pattern to compare with other patterns: equal shapes match the same paths with the same precedence.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    /// The normalised pattern, with `STAR` for each star, and without an anchor.
    pub(crate) text: Vec<u8>,
    /// Whether the pattern must match up to the end of the path. A pattern without an anchor matches as if it ended with one more star.
    pub(crate) anchored: bool,
    /// The bytes that count for precedence.
    pub(crate) bytes: usize,
}

impl Shape {
    pub(crate) fn new(written: &[u8]) -> Self {
        let body = written.strip_suffix(b"$").unwrap_or(written);
        let mut text = Vec::with_capacity(written.len());
        for piece in path::pieces(body) {
            match piece {
                PathByte::Byte(b'*') => text.push(STAR),
                PathByte::Byte(byte) | PathByte::Literal(byte) => text.push(byte),
                PathByte::Escaped(byte) => path::push_escaped(byte, &mut text),
            }
        }
        let is_anchored = body.len() < written.len();
        let bytes = text.len() + usize::from(is_anchored);
        // After a star, an anchor has no effect.
        let anchored = is_anchored && text.last() != Some(&STAR);
        Self { text, anchored, bytes }
    }

    /// All paths that the pattern matches, as one text in which each star stands for a run of bytes.
    pub(crate) fn paths(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(self.text.len() + 2);
        // Paths begin with `/`: a star at the start matches at least that slash, unless a slash follows the star.
        let second = self.text.iter().find(|&&byte| byte != STAR);
        if self.text.first() == Some(&STAR) && second != Some(&b'/') {
            text.push(b'/');
        }
        text.extend_from_slice(&self.text);
        text.extend((!self.anchored).then_some(STAR));
        text
    }

    /// Whether this pattern matches every one of the [`paths`](Self::paths) of another pattern, given as `text`. May wrongly return false,
    /// but never wrongly returns true.
    ///
    /// A star in `text` is matched only by a star of this pattern, which matches any run, never by a literal.
    pub(crate) fn covers(&self, text: &[u8]) -> bool {
        let mut pieces = self.text.split(|&byte| byte == STAR);
        let first = pieces.next().unwrap_or_default();
        let Some(mut rest) = text.strip_prefix(first) else { return false };
        let mut last = None;
        for piece in pieces {
            // The leftmost match is best for all pieces except the last, which may have to match at the end of the path.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn show(written: &str) -> String {
        let Shape { text, anchored, bytes } = normalise(written.as_bytes());
        let end = match (anchored, text.contains(&STAR)) {
            (true, _) => "$",
            (false, true) => "..",
            (false, false) => "",
        };
        let pieces = text.split(|&byte| byte == STAR).enumerate();
        let pieces = pieces.filter(|(at, piece)| *at == 0 || !piece.is_empty());
        let pieces: Vec<_> = pieces.map(|(_, piece)| String::from_utf8_lossy(piece)).collect();
        format!("{}{end} {bytes}", pieces.join("|"))
    }

    #[test]
    fn consecutive_stars_are_one() {
        let Shape { text, bytes, .. } = normalise(format!("/{}Q", "*".repeat(16_000)).as_bytes());
        assert_eq!((text.as_slice(), bytes), (&[b'/', STAR, b'Q'][..], 16_002));
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
            ("/a*****b", "/a|b.. 8"),
            ("***a", "|a.. 4"),
            ("/a*b*$", "/a|b.. 6"),
            ("/a$b", "/a$b 4"),
            ("/a$$", "/a$$ 4"),
        ] {
            assert_eq!(show(written), expected, "{written}");
        }
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
