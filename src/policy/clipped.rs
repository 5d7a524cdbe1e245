//! What others have written, as much of it as people read. Pure.

use std::borrow::Cow;

/// At most 1,000 bytes of it, and `…` for the rest.
pub fn clipped(text: &str) -> Cow<'_, str> {
    if text.len() <= MOST {
        return text.into();
    }
    format!("{}…", &text[..text.floor_char_boundary(MOST)]).into()
}

/// Whether a character hides text, or has it shown elsewhere than where it stands: of Unicode's general categories Cc, Zl, Zp and, of
/// Cf, those that join, hide or turn around.
pub fn is_unseen(c: char) -> bool {
    let is_mark = matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}');
    c.is_control()
        || is_mark
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
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
