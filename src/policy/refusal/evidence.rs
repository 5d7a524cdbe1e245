//! What a refusal is based on, as written in its source: a rule or a preference of robots.txt, an entry of tdmrep.json, a field of an answer.
//! Pure.

use std::fmt::{self, Write};

use crate::policy::UsageField;
use crate::policy::{Authority, SiteFile};
use crate::robots::{PreferenceRef, RuleKind, RuleRef};

/// The rule of robots.txt that decided, as written there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleEvidence {
    /// From 1.
    pub line: u32,
    /// `Allow:` or `Disallow:`.
    pub allow: bool,
    /// The path pattern as written.
    pub pattern: Box<str>,
    /// What it matches, where that is not the path as sent but one that servers take it for.
    pub matched_path: Option<Box<str>>,
}

impl RuleEvidence {
    pub(in crate::policy) fn new(rule: RuleRef<'_>, matched_path: Option<Box<str>>) -> Self {
        let allow = rule.kind() == RuleKind::Allow;
        Self { line: rule.line(), allow, pattern: rule.pattern().into(), matched_path }
    }

    /// The key of its line.
    pub fn key(&self) -> &'static str {
        if self.allow { "Allow" } else { "Disallow" }
    }

    pub(super) fn write(&self, f: &mut impl Write) -> fmt::Result {
        f.write_str("line ")?;
        f.write_str(itoa::Buffer::new().format(self.line))?;
        f.write_str(", `")?;
        f.write_str(self.key())?;
        f.write_str(": ")?;
        f.write_str(&self.pattern)?;
        f.write_str("`")?;
        served_as(f, &self.matched_path)
    }
}

impl fmt::Display for RuleEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f)
    }
}

pub(super) fn served_as(f: &mut impl Write, matched_path: &Option<Box<str>>) -> fmt::Result {
    match matched_path {
        Some(path) => write!(f, ", which matches `{path}`: servers may take this URL's path for that"),
        None => Ok(()),
    }
}

/// The usage preference of robots.txt that decided, as written there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PreferenceEvidence {
    /// From 1.
    pub line: u32,
    /// `Content-Signal` or `Content-Usage`; `Disallow` in the group of a policy token.
    pub key: Box<str>,
    /// `/ train-ai=n`, or the path pattern.
    pub value: Box<str>,
    /// What it is about, where that is not the path as sent but one that servers take it for.
    pub matched_path: Option<Box<str>>,
}

impl PreferenceEvidence {
    pub(in crate::policy) fn new(preference: PreferenceRef<'_>, matched_path: Option<Box<str>>) -> Self {
        Self { line: preference.line(), key: preference.key().into(), value: preference.value().into(), matched_path }
    }

    /// A rule for those who fetch for a purpose.
    pub(in crate::policy) fn of_rule(rule: RuleRef<'_>, matched_path: Option<Box<str>>) -> Self {
        let RuleEvidence { line, pattern, matched_path, .. } = RuleEvidence::new(rule, matched_path);
        Self { line, key: "Disallow".into(), value: pattern, matched_path }
    }
}

impl fmt::Display for PreferenceEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, `{}: {}`", self.line, self.key, self.value)?;
        served_as(f, &self.matched_path)
    }
}

/// The entry of a tdmrep.json that reserves a page from a declared purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MiningEvidence {
    pub authority: Authority,
    pub purpose: Box<str>,
    /// Its place in the file, from 1.
    pub entry: u32,
    /// Its path pattern as written.
    pub location: Box<str>,
    /// Where the terms are on which the page may be mined all the same.
    pub policy: Option<Box<str>>,
    /// What it matches, where that is not the path as sent but one that servers take it for.
    pub matched_path: Option<Box<str>>,
}

impl MiningEvidence {
    /// Where the file is.
    pub fn url(&self) -> String {
        self.authority.url(SiteFile::TdmRep.path())
    }
}

impl fmt::Display for MiningEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { purpose, entry, location, .. } = self;
        let file = self.url();
        write!(
            f,
            "{file} reserves this URL from the purpose `{purpose}`: entry {entry}, `\"location\": \"{location}\"`"
        )?;
        served_as(f, &self.matched_path)?;
        self.policy.iter().try_for_each(|policy| write!(f, "; its terms are at {policy}"))
    }
}

/// What a licence file says of a page that is not licensed for a declared purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LicenseEvidence {
    /// Where the file is.
    pub url: Box<str>,
    pub purpose: Box<str>,
    /// The place of the `content` in the file, from 1.
    pub content: u32,
    /// Its `url` as written.
    pub location: Box<str>,
    /// `prohibits: ai-train`, or `permits: search`, which does not list it.
    pub term: Box<str>,
    /// What it matches, where that is not the path as sent but one that servers take it for.
    pub matched_path: Option<Box<str>>,
}

impl fmt::Display for LicenseEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, purpose, content, location, term, matched_path } = self;
        write!(
            f,
            "{url} does not license this URL for the purpose `{purpose}`: content {content}, `url=\"{location}\"`, `{term}`"
        )?;
        served_as(f, matched_path)
    }
}

/// A field that says no to a purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reservation {
    pub field: UsageField,
    /// Its line, as it came.
    pub value: Box<str>,
    pub purpose: Box<str>,
}
