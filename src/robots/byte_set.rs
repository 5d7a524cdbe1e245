//! The set of the kinds of bytes in a path, computed in one pass before other work. The set shows whether the path must be normalised, and
//! which patterns cannot match it. Pure.

/// Bit set of the kinds of bytes in a text. Each byte that needs no normalising is a kind of its own, except that a capital and its small
/// letter share a kind. All other bytes share one kind.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ByteSet(u64);

impl ByteSet {
    #[inline]
    pub(crate) fn of(text: &[u8]) -> Self {
        static TABLE: [u64; 256] = BITS;
        let add = |kinds, byte: &u8| kinds | TABLE[usize::from(*byte)];
        let (words, rest) = text.as_chunks::<8>();
        let kinds = words.iter().fold(0, |kinds, word| word.iter().fold(kinds, add));
        Self(rest.iter().fold(kinds, add))
    }

    /// Whether a byte must be normalised or begins a fragment.
    #[inline]
    pub(crate) fn has_odd(self) -> bool {
        self.0 & ODD != 0
    }

    pub(crate) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether `self` has all kinds of bytes in `other`.
    #[inline]
    pub(crate) fn has_all(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    #[inline]
    pub(crate) fn has_dot(self) -> bool {
        self.0 & const { BITS[b'.' as usize] } != 0
    }

    #[inline]
    pub(crate) fn has_star(self) -> bool {
        self.0 & const { BITS[b'*' as usize] } != 0
    }
}

const ODD: u64 = 1 << 63;

const BITS: [u64; 256] = {
    let plain = *b"^|\\{}[]'~!$*();,@:+&=?zqjxkwv_yb9f8g7.6p5m4u3h2d0c1lnrosiaet-/";
    let mut bits = [ODD; 256];
    let mut kind = 0;
    while kind < plain.len() {
        bits[plain[kind] as usize] = 1 << kind;
        bits[plain[kind].to_ascii_uppercase() as usize] = 1 << kind;
        kind += 1;
    }
    bits
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_to_normalise_are_found_at_every_position() {
        for len in 1..40 {
            let plain = "a-Z0_~!$&'()*+,;=:@/?[]{}|\\^.".chars().cycle().take(len).collect::<String>();
            assert!(!ByteSet::of(plain.as_bytes()).has_odd(), "{plain}");
            for at in 0..len {
                for odd in ["%", "\"", "#", "<", ">", "`", " ", "\u{7f}", "\0", "\u{fc}"] {
                    let text = format!("{}{odd}{}", &plain[..at], &plain[at..]);
                    assert!(ByteSet::of(text.as_bytes()).has_odd(), "{text}");
                }
            }
        }
    }

    #[test]
    fn byte_classes_ignore_case() {
        let byte_set = ByteSet::of(b"/Ab?c=1");
        let has = |byte: &u8| byte_set.has_all(ByteSet::of(&[*byte]));
        assert!(b"/abc?=1ABC".iter().all(has));
        assert!(!b"d.&-02_".iter().any(has));
        assert!(byte_set.has_all(ByteSet::of(b"/a").with(ByteSet::of(b"C="))));
        assert!(!byte_set.has_all(ByteSet::of(b"/a").with(ByteSet::of(b"d"))));
    }
}
