//! Text of a client that nobody knows, for the log and the record: who has no password must not fill a disk.

use std::borrow::Cow;

/// The text or, if it is long, its first bytes, and how many it has.
pub fn shortened(text: &str) -> Cow<'_, str> {
    match text.len() {
        ..=MOST => text.into(),
        length => format!("{}… ({length} bytes)", &text[..text.floor_char_boundary(MOST)]).into(),
    }
}

const MOST: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters_and_its_length_told() {
        assert_eq!(shortened(&"x".repeat(256)), "x".repeat(256));
        assert_eq!(shortened(&"é".repeat(200)), format!("{}… (400 bytes)", "é".repeat(128)));
        assert_eq!(shortened(&format!("x{}", "é".repeat(200))), format!("x{}… (401 bytes)", "é".repeat(127)));
    }
}
