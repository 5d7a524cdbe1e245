//! What content may be used for: Content-Signal (contentsignals.org) and Content-Usage (IETF AIPREF drafts). Pure.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// A use of content, such as `search`, `ai-input` or `ai-train`. The names of the two vocabularies for the same use are one:
/// `train-ai` is `ai-train`, `ai-use` is `ai-input`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Purpose(Box<str>);

impl Purpose {
    /// Reads a name: letters, digits, `-`, `_`, `.` and `*`, as keys of structured fields (RFC 9651 §3.2).
    pub fn parse(raw: &str) -> Result<Self, PurposeError> {
        let name = raw.trim().to_ascii_lowercase();
        let is_key = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'*');
        if name.is_empty() || !name.bytes().all(is_key) {
            return Err(PurposeError);
        }
        Ok(Self(match name.as_str() {
            "train-ai" => "ai-train".into(),
            "ai-use" | "ai-output" => "ai-input".into(),
            _ => name.into(),
        }))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for Purpose {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl FromStr for Purpose {
    type Err = PurposeError;

    fn from_str(raw: &str) -> Result<Self, PurposeError> {
        Self::parse(raw)
    }
}

/// Why a string names no purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a purpose has letters, digits, `-` and `_` only, such as `ai-train`")]
pub struct PurposeError;

/// What a line says about the paths that its pattern matches.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Preferences {
    /// Where the pattern is in the value; empty where the line has none and means everything.
    pub(crate) pattern: Range<usize>,
    /// For each purpose, whether the use is welcome.
    pub(crate) welcome: Vec<(Purpose, bool)>,
}

/// Reads `[path] purpose=y, purpose=n`; what cannot be read is left out.
pub(crate) fn parse(value: &[u8]) -> Preferences {
    let blank = value.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(value.len());
    let pattern = match value.first() {
        Some(b'/' | b'*') => 0..blank,
        Some(_) | None => 0..0,
    };
    let members = str::from_utf8(&value[pattern.end..]).unwrap_or_default().split(',');
    Preferences { pattern, welcome: members.filter_map(member).collect() }
}

fn member(text: &str) -> Option<(Purpose, bool)> {
    let (name, value) = text.split_once('=')?;
    // Parameters say how a preference was meant, which nothing here could act on.
    let value = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let welcome = match value.as_str() {
        "y" | "yes" | "?1" => true,
        "n" | "no" | "?0" => false,
        _ => return None,
    };
    Some((Purpose::parse(name).ok()?, welcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(value: &str) -> String {
        let Preferences { pattern, welcome } = parse(value.as_bytes());
        let welcome =
            welcome.iter().map(|(purpose, welcome)| format!(" {purpose}={}", if *welcome { 'y' } else { 'n' }));
        format!("[{}]{}", &value[pattern], welcome.collect::<String>())
    }

    #[test]
    fn both_vocabularies_are_read() {
        for (value, expected) in [
            ("search=yes, ai-input=no, ai-train=no", "[] search=y ai-input=n ai-train=n"),
            ("search=yes,ai-train=no", "[] search=y ai-train=n"),
            ("/ train-ai=n", "[/] ai-train=n"),
            ("/ai-ok/\ttrain-ai=y, search=n;x=1", "[/ai-ok/] ai-train=y search=n"),
            ("*.pdf ai-use=N", "[*.pdf] ai-input=n"),
            ("AI-Train = No", "[] ai-train=n"),
            ("bots=?0", "[] bots=n"),
        ] {
            assert_eq!(show(value), expected, "{value}");
        }
    }

    #[test]
    fn what_is_no_preference_is_left_out() {
        for value in ["", "no", "ai-train", "ai-train=", "ai-train=maybe", "=n", "ai train=n", "\u{fc}=n"] {
            assert_eq!(show(value), "[]", "{value}");
        }
        assert_eq!(show("/x"), "[/x]");
        assert_eq!(show("ai-train=perhaps, search=n,,"), "[] search=n");
    }

    #[test]
    fn purposes_are_checked() {
        assert_eq!(Purpose::parse(" Train-AI "), Purpose::parse("ai-train"));
        for raw in ["", " ", "a b", "a=b", "\u{fc}"] {
            assert_eq!(Purpose::parse(raw), Err(PurposeError), "{raw}");
        }
    }
}
