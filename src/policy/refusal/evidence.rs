//! The evidence for a refusal, as written in its source: a rule or preference in robots.txt, an entry of tdmrep.json, a field of an answer.
//! Pure.

use std::fmt::{self, Write};

use crate::policy::UsageField;
use crate::robots::{PreferenceRef, RuleKind, RuleRef};

/// The line of robots.txt that decided: a rule, or a usage preference.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LineEvidence {
    /// Line number, from 1.
    pub line: u32,
    /// `Allow` or `Disallow`; for a preference `Content-Signal` or `Content-Usage`, or `Disallow` in the group of a policy token.
    pub key: &'static str,
    /// The path pattern as written; for a preference the line's value, such as `/ train-ai=n`.
    pub value: Box<str>,
    /// The form of the path that the line matches, if this is not the path as sent but a form that servers make of it.
    pub matched_path: Option<Box<str>>,
}

impl LineEvidence {
    pub(in crate::policy) fn of_rule(rule: RuleRef<'_>, matched_path: Option<Box<str>>) -> Self {
        let key = if rule.kind() == RuleKind::Allow { "Allow" } else { "Disallow" };
        Self { line: rule.line(), key, value: rule.pattern().into(), matched_path }
    }

    pub(in crate::policy) fn of_preference(preference: PreferenceRef<'_>, matched_path: Option<Box<str>>) -> Self {
        Self { line: preference.line(), key: preference.key(), value: preference.value().into(), matched_path }
    }

    /// Writes the evidence without the slower formatter, as a client may be refused thousands of times.
    pub(super) fn write(&self, f: &mut impl Write) -> fmt::Result {
        f.write_str("line ")?;
        f.write_str(itoa::Buffer::new().format(self.line))?;
        for piece in [", `", self.key, ": ", &self.value, "`"] {
            f.write_str(piece)?;
        }
        served_as(f, &self.matched_path)
    }
}

impl fmt::Display for LineEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f)
    }
}

pub(super) fn served_as(f: &mut impl Write, matched_path: &Option<Box<str>>) -> fmt::Result {
    match matched_path {
        Some(path) => write!(f, ", which matches `{path}`: servers may serve that path for this URL"),
        None => Ok(()),
    }
}

/// The entry of a site's tdmrep.json or licence file that says no to a declared purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntryEvidence {
    /// URL of the file.
    pub url: Box<str>,
    pub purpose: Box<str>,
    /// Position in the file, from 1.
    pub entry: u32,
    /// The path pattern as written; in a licence file the `url` of a `content`.
    pub location: Box<str>,
    /// The statement that decided in a licence file: `prohibits: ai-train`, or the whole `permits` list, such as `permits: search`,
    /// if the purpose is not in it. `None`: the file is a tdmrep.json.
    pub term: Option<Box<str>>,
    /// URL of the terms under which the page may be mined after all, from a tdmrep.json.
    pub policy: Option<Box<str>>,
    /// The form of the path that the entry matches, if this is not the path as sent but a form that servers make of it.
    pub matched_path: Option<Box<str>>,
}

impl fmt::Display for EntryEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, purpose, entry, location, term, policy, matched_path } = self;
        match term {
            None => write!(
                f,
                "{url} does not allow the purpose `{purpose}` for this URL: entry {entry}, `\"location\": \"{location}\"`"
            ),
            Some(term) => write!(
                f,
                "{url} does not license this URL for the purpose `{purpose}`: content {entry}, `url=\"{location}\"`, `{term}`"
            ),
        }?;
        served_as(f, matched_path)?;
        policy.iter().try_for_each(|policy| write!(f, "; its terms are at {policy}"))
    }
}

/// A field of an answer that says no to a purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reservation {
    pub field: UsageField,
    /// The field line, as received.
    pub value: Box<str>,
    pub purpose: Box<str>,
}
