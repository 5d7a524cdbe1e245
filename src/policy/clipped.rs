//! What others have written, as much of it as people read. Pure.

use std::borrow::Cow;

/// At most 1,000 bytes of it, and `…` for the rest.
pub fn clipped(text: &str) -> Cow<'_, str> {
    if text.len() <= MOST {
        return text.into();
    }
    format!("{}…", &text[..text.floor_char_boundary(MOST)]).into()
}

const MOST: usize = 1000;

#[cfg(test)]
mod tests {
    use super::clipped;

    #[test]
    fn what_is_long_is_cut_between_characters() {
        assert_eq!(clipped("a\u{e9}"), "a\u{e9}");
        let long = format!("a{}", "\u{e9}".repeat(100_000));
        assert_eq!(clipped(&long), format!("a{}…", "\u{e9}".repeat(499)));
    }
}
