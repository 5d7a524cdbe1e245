//! RFC 9309 §2.2.3: what a rule's path pattern matches. Pure. Called by `ruleset`.

use super::path::{self, Piece};

/// A pattern in the form that is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// Normalised octets; [`STAR`] for a wildcard.
    pub(crate) text: Vec<u8>,
    /// The match must end where the path ends.
    pub(crate) anchored: bool,
    /// The octets that count for precedence: all of the normalised pattern's, `*` and `$` included.
    pub(crate) octets: u32,
}

/// Stands for a wildcard in a normalised pattern, where no octet below `!` can stand for itself.
pub(crate) const STAR: u8 = 0;

impl Pattern {
    pub(crate) fn new(written: &[u8]) -> Self {
        let (body, anchored) = match written.strip_suffix(b"$") {
            Some(body) => (body, true),
            None => (written, false),
        };
        let mut text = Vec::with_capacity(body.len());
        let mut rest = body;
        while let Some((piece, after)) = path::next(rest) {
            match piece {
                Piece::Octet(b'*') => text.push(STAR),
                Piece::Octet(octet) | Piece::Literal(octet) => text.push(octet),
                Piece::Escaped(octet) => path::push_escaped(octet, &mut text),
            }
            rest = after;
        }
        let octets = u32::try_from(text.len())
            .unwrap_or(u32::MAX)
            .saturating_add(anchored.into());
        Self { text, anchored, octets }
    }

    /// Whether the normalised `path` matches. Linear: between stars are only literals, so the leftmost place is enough.
    pub(crate) fn matches(&self, path: &[u8]) -> bool {
        let mut pieces = self.text.split(|&octet| octet == STAR).peekable();
        let first = pieces.next().unwrap_or_default();
        let Some(mut rest) = path.strip_prefix(first) else {
            return false;
        };
        if pieces.peek().is_none() {
            return !self.anchored || rest.is_empty();
        }
        while let Some(piece) = pieces.next() {
            if self.anchored && pieces.peek().is_none() {
                return rest.ends_with(piece);
            }
            match memchr::memmem::find(rest, piece) {
                Some(at) => rest = &rest[at + piece.len()..],
                None => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matching<'a>(pattern: &str, paths: &[&'a str]) -> Vec<&'a str> {
        let pattern = Pattern::new(pattern.as_bytes());
        paths
            .iter()
            .copied()
            .filter(|path| pattern.matches(path.as_bytes()))
            .collect()
    }

    #[test]
    fn rfc_patterns_are_prefixes_with_stars_and_an_anchor() {
        let paths = [
            "/",
            "/fish",
            "/fish.html",
            "/fish/salmon",
            "/Fish",
            "/catfish",
            "/a.php",
            "/a.php?x",
            "/a.php/b",
        ];
        assert_eq!(matching("/fish", &paths), ["/fish", "/fish.html", "/fish/salmon"]);
        assert_eq!(matching("/fish*", &paths), ["/fish", "/fish.html", "/fish/salmon"]);
        assert_eq!(matching("/fish/", &paths), ["/fish/salmon"]);
        assert_eq!(matching("/fish$", &paths), ["/fish"]);
        assert_eq!(matching("/*.php", &paths), ["/a.php", "/a.php?x", "/a.php/b"]);
        assert_eq!(matching("/*.php$", &paths), ["/a.php"]);
        assert_eq!(
            matching("*fish", &paths),
            ["/fish", "/fish.html", "/fish/salmon", "/catfish"]
        );
        assert_eq!(matching("/f*h*l", &paths), ["/fish.html", "/fish/salmon"]);
        assert_eq!(matching("*", &paths), paths);
        assert_eq!(matching("/$", &paths), ["/"]);
        assert_eq!(matching("$", &paths), [""; 0]);
        assert_eq!(matching("fish", &paths), [""; 0]);
    }

    #[test]
    fn a_dollar_is_special_at_the_end_only() {
        let paths = ["/a", "/a$", "/a$b", "/a$b$"];
        assert_eq!(matching("/a$b", &paths), ["/a$b", "/a$b$"]);
        assert_eq!(matching("/a$$", &paths), ["/a$"]);
        assert_eq!(matching("/a%24", &paths), ["/a$", "/a$b", "/a$b$"]);
    }

    #[test]
    fn rfc_escaped_specials_are_literals() {
        let paths = ["/file-with-a-*.html", "/file-with-a-b.html"];
        assert_eq!(matching("/file-with-a-%2A.html", &paths), ["/file-with-a-*.html"]);
        assert_eq!(matching("/file-with-a-*.html", &paths), paths);
    }

    #[test]
    fn anchored_literals_may_not_overlap() {
        assert_eq!(matching("/a*aa$", &["/aa", "/aaa", "/abaa"]), ["/aaa", "/abaa"]);
        assert_eq!(matching("/ab*b$", &["/ab", "/abb"]), ["/abb"]);
    }
}
