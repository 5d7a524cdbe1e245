//! Usage preferences: Content-Signal (contentsignals.org) and Content-Usage (draft-ietf-aipref-vocab-08 and
//! draft-ietf-aipref-attach-05), each read by its own grammar. Pure.

use super::warning::WarningCode;
use sfv::{Dictionary, ListEntry, Parser, TokenRef};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// A use of content, such as `search`, `ai-input` or `ai-train`. The two vocabularies' names for the same use are unified: `train-ai`
/// is `ai-train`, `ai-use` is `ai-input`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Purpose(Box<str>);

impl Purpose {
    /// Parses a name of letters, digits, `-`, `_`, `.` and `*`, like keys of structured fields (RFC 9651 §3.2).
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

    /// The purposes that a supported vocabulary or field defines, as [`as_str`](Self::as_str) returns them. Sites may use other names.
    pub const KNOWN: [&str; 4] = ["search", "ai-input", "ai-train", "tdm"];

    /// Whether the purpose is text and data mining, to which TDMRep applies.
    pub fn is_mining(&self) -> bool {
        matches!(self.as_str(), "ai-train" | "tdm")
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

/// Why a string is not a purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a purpose has letters, digits, `-`, `_`, `.` and `*` only, such as `ai-train`")]
pub struct PurposeError;

/// The vocabulary of a usage line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Vocabulary {
    /// `Content-Signal: search=yes, ai-train=no, use=reference` (contentsignals.org, Cloudflare).
    Signal,
    /// `Content-Usage: /path train-ai=n` (draft-ietf-aipref-attach, draft-ietf-aipref-vocab).
    Usage,
}

impl Vocabulary {
    /// The key of the vocabulary's lines in robots.txt.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Signal => "Content-Signal",
            Self::Usage => "Content-Usage",
        }
    }
}

/// The preferences of one line, for the paths that its pattern matches.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct UsageLine {
    /// Range of the pattern in the value; empty if the line has no pattern and so is about all paths.
    pub(crate) pattern: Range<usize>,
    /// For each purpose that the line names, whether the use is welcome.
    pub(crate) welcome: Vec<(Purpose, bool)>,
    /// The first fault of the line, if any.
    pub(crate) fault: Option<WarningCode>,
}

/// Parses the value of a line. `lenient`: also accepts patterns that begin with `*`, and the names and values of both vocabularies, in
/// capitals too.
pub(crate) fn parse(vocabulary: Vocabulary, value: &[u8], lenient: bool) -> UsageLine {
    let blank = value.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(value.len());
    let pattern = match value.first() {
        Some(b'/') => 0..blank,
        Some(b'*') if lenient => 0..blank,
        Some(_) | None => 0..0,
    };
    let stated = &value[pattern.end..];
    let read = match (lenient, vocabulary) {
        (true, _) => read_lenient(stated),
        (false, Vocabulary::Signal) => read_signal(stated),
        (false, Vocabulary::Usage) => read_usage(stated),
    };
    UsageLine { pattern, ..read }
}

/// Parses an RFC 9651 dictionary whose values are the tokens `y` and `n`. The last value of a repeated key counts, parameters are ignored,
/// and a malformed dictionary leaves everything unknown (draft-ietf-aipref-vocab, "Processing Algorithm").
pub(crate) fn read_usage(stated: &[u8]) -> UsageLine {
    let mut read = UsageLine::default();
    let members = Parser::new(stated.trim_ascii()).parse::<Dictionary>().unwrap_or_default();
    for (label, member) in &members {
        let purpose = match label.as_str() {
            "ai-train" | "ai-input" | "ai-output" => {
                read.fault.get_or_insert(WarningCode::UsageName);
                continue;
            }
            label => Purpose::parse(label),
        };
        let token = match member {
            ListEntry::Item(item) => item.bare_item.as_token().map(TokenRef::as_str),
            ListEntry::InnerList(_) => None,
        };
        match (purpose, token) {
            (Ok(purpose), Some("y")) => read.welcome.push((purpose, true)),
            (Ok(purpose), Some("n")) => read.welcome.push((purpose, false)),
            _ => _ = read.fault.get_or_insert(WarningCode::UsageValue),
        }
    }
    if members.is_empty() {
        read.fault = Some(WarningCode::BadUsage);
    }
    read
}

/// Parses `name=yes`, `name=no`, and `use=`, which names the furthest permitted use: `immediate` keeps nothing, `reference` indexes and
/// links back, `full` reproduces.
pub(crate) fn read_signal(stated: &[u8]) -> UsageLine {
    let mut read = UsageLine::default();
    let mut members = members(stated).peekable();
    if members.peek().is_none() {
        read.fault = Some(WarningCode::BadUsage);
    }
    for member in members {
        let Some((name, value)) = member else {
            read.fault.get_or_insert(WarningCode::BadUsage);
            continue;
        };
        let is = |word: &str| value.eq_ignore_ascii_case(word);
        match name.to_ascii_lowercase().as_str() {
            "train-ai" | "ai-use" => _ = read.fault.get_or_insert(WarningCode::UsageName),
            "use" if is("full") => {}
            "use" if is("reference") || is("immediate") => {
                read.welcome.push((Purpose("ai-train".into()), false));
                if is("immediate") {
                    read.welcome.push((Purpose("search".into()), false));
                }
            }
            name => match (Purpose::parse(name), is("yes"), is("no")) {
                (Ok(purpose), true, _) => read.welcome.push((purpose, true)),
                (Ok(purpose), _, true) => read.welcome.push((purpose, false)),
                (Ok(_), ..) => _ = read.fault.get_or_insert(WarningCode::UsageValue),
                (Err(_), ..) => _ = read.fault.get_or_insert(WarningCode::BadUsage),
            },
        }
    }
    read
}

fn read_lenient(stated: &[u8]) -> UsageLine {
    let mut read = UsageLine::default();
    for (name, value) in members(stated).flatten() {
        let value = value.split(';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
        let welcome = match value.as_str() {
            "y" | "yes" | "?1" => true,
            "n" | "no" | "?0" => false,
            _ => continue,
        };
        read.welcome.extend(Purpose::parse(name).map(|purpose| (purpose, welcome)));
    }
    read.fault = read.welcome.is_empty().then_some(WarningCode::BadUsage);
    read
}

/// Splits a comma-separated list of `name=value`. `None`: the item has another form.
fn members(stated: &[u8]) -> impl Iterator<Item = Option<(&str, &str)>> {
    let members = stated.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty());
    members.map(|member| {
        let (name, value) = str::from_utf8(member).ok()?.split_once('=')?;
        Some((name.trim_ascii_end(), value.trim_ascii_start()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Vocabulary::{Signal, Usage};

    fn show(vocabulary: Vocabulary, lenient: bool, value: &str) -> String {
        let UsageLine { pattern, welcome, fault } = parse(vocabulary, value.as_bytes(), lenient);
        let welcome =
            welcome.iter().map(|(purpose, welcome)| format!(" {purpose}={}", if *welcome { 'y' } else { 'n' }));
        let fault = fault.map(|fault| format!(" {fault:?}")).unwrap_or_default();
        format!("[{}]{}{fault}", &value[pattern], welcome.collect::<String>())
    }

    /// draft-ietf-aipref-vocab, "Processing Algorithm" to "Preference Parameters".
    #[test]
    fn aipref_is_a_dictionary_of_tokens() {
        for (value, expected) in [
            ("train-ai=y, search=n", "[] ai-train=y search=n"),
            ("train-ai=n;x=1;y", "[] ai-train=n"),
            ("train-ai;allow=n, train-ai=y", "[] ai-train=y"),
            ("train-ai=y, train-ai=n", "[] ai-train=n"),
            ("train-ai=y, train-ai, search=n, search=\"n\"", "[] UsageValue"),
            ("train-ai;has;parameters=\"?\";", "[] BadUsage"),
            ("train-ai;has;parameters=\"?\"", "[] UsageValue"),
            ("train-ai=?0, ai-use=n", "[] ai-input=n UsageValue"),
            ("train-ai=(n), search=n", "[] search=n UsageValue"),
            ("train-ai=N", "[] UsageValue"),
            ("train-ai=no", "[] UsageValue"),
            ("bots=n", "[] bots=n"),
            ("Train-AI=n", "[] BadUsage"),
            ("train-ai = n", "[] BadUsage"),
            ("train-ai=n,", "[] BadUsage"),
            ("train-ai=n search=n", "[] BadUsage"),
            ("train-ai=n, \u{fc}=n", "[] BadUsage"),
            ("ai-train=n", "[] UsageName"),
            ("none", "[] UsageValue"),
            ("", "[] BadUsage"),
        ] {
            assert_eq!(show(Usage, false, value), expected, "{value}");
        }
    }

    /// draft-ietf-aipref-attach, "Processing Content-Usage Rules".
    #[test]
    fn path_of_a_usage_line_begins_with_a_slash() {
        for (value, expected) in [
            ("/ train-ai=n", "[/] ai-train=n"),
            ("/ai-ok/\ttrain-ai=y, search=n;x=1", "[/ai-ok/] ai-train=y search=n"),
            ("/a  \t train-ai=n", "[/a] ai-train=n"),
            ("/a", "[/a] BadUsage"),
            ("*.pdf train-ai=n", "[] BadUsage"),
            ("*.pdf=n", "[] *.pdf=n"),
        ] {
            assert_eq!(show(Usage, false, value), expected, "{value}");
        }
    }

    #[test]
    fn content_signals_are_yes_and_no() {
        for (value, expected) in [
            ("search=yes, ai-input=no, ai-train=no", "[] search=y ai-input=n ai-train=n"),
            ("Search=Yes,AI-Train = No", "[] search=y ai-train=n"),
            ("/blog ai-train=no", "[/blog] ai-train=n"),
            ("search=yes,ai-train=no,use=reference", "[] search=y ai-train=n ai-train=n"),
            ("use=immediate", "[] ai-train=n search=n"),
            ("use=full", "[]"),
            ("use=sometimes", "[] UsageValue"),
            ("ai-train=n", "[] UsageValue"),
            ("train-ai=no, search=no", "[] search=n UsageName"),
            ("ai-train=perhaps, search=no,,", "[] search=n UsageValue"),
            ("ai-train", "[] BadUsage"),
            ("=no", "[] BadUsage"),
            ("", "[] BadUsage"),
        ] {
            assert_eq!(show(Signal, false, value), expected, "{value}");
        }
    }

    #[test]
    fn lenient_mode_reads_common_mistakes() {
        for vocabulary in [Signal, Usage] {
            for (value, expected) in [
                ("*.pdf ai-use=N", "[*.pdf] ai-input=n"),
                ("AI-Train = No", "[] ai-train=n"),
                ("train-ai=n, search=yes;x=1, bots=?0", "[] ai-train=n search=y bots=n"),
                ("/x", "[/x] BadUsage"),
                ("no", "[] BadUsage"),
            ] {
                assert_eq!(show(vocabulary, true, value), expected, "{value}");
            }
        }
    }

    #[test]
    fn purposes_are_checked() {
        assert_eq!(Purpose::parse(" Train-AI "), Purpose::parse("ai-train"));
        for raw in ["", " ", "a b", "a=b", "\u{fc}"] {
            assert_eq!(Purpose::parse(raw), Err(PurposeError), "{raw}");
        }
    }
}
