//! Prepares texts from outside for logs and answers: cuts long texts, and finds invisible characters. Pure.

use std::borrow::Cow;

/// Cuts a text to at most 1,000 bytes, with `…` for the rest.
pub fn clipped(text: &str) -> Cow<'_, str> {
    beginning(text, MOST).map_or(text.into(), |begin| format!("{begin}…").into())
}

/// Cuts a text from an unauthenticated client to at most 256 bytes, and appends its length: a client without a password must not fill a
/// disk.
pub fn shortened(text: &str) -> Cow<'_, str> {
    beginning(text, MOST_OF_STRANGERS).map_or(text.into(), |begin| format!("{begin}… ({} bytes)", text.len()).into())
}

/// The first `most` bytes of a longer text. `None`: all of the text fits.
fn beginning(text: &str, most: usize) -> Option<&str> {
    (text.len() > most).then(|| &text[..text.floor_char_boundary(most)])
}

/// Whether a character is invisible, or hides or moves other text: Unicode's general categories Cc, Zl and Zp, and its property
/// Default_Ignorable_Code_Point.
pub fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}')
        || matches!(c, '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}')
        || matches!(c, '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}')
        || matches!(c, '\u{e0000}'..='\u{e0fff}')
}

/// The escape of a character in a JSON string.
pub fn json_escape(c: char) -> String {
    c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
}

const MOST: usize = 1000;
const MOST_OF_STRANGERS: usize = 256;

#[cfg(test)]
mod tests {
    use super::{clipped, shortened};

    #[test]
    fn clipped_text_is_cut_between_characters() {
        assert_eq!(clipped("a\u{e9}"), "a\u{e9}");
        let long = format!("a{}", "\u{e9}".repeat(100_000));
        assert_eq!(clipped(&long), format!("a{}…", "\u{e9}".repeat(499)));
    }

    #[test]
    fn shortened_text_is_cut_between_characters_and_shows_its_length() {
        assert_eq!(shortened(&"x".repeat(256)), "x".repeat(256));
        assert_eq!(shortened(&"é".repeat(200)), format!("{}… (400 bytes)", "é".repeat(128)));
        assert_eq!(shortened(&format!("x{}", "é".repeat(200))), format!("x{}… (401 bytes)", "é".repeat(127)));
    }
}
