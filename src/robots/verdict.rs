//! The verdict on a URL, with the evidence. Pure.

use std::fmt;

use super::parse::RobotsFile;
use super::parse::source::FileSource;
use super::preferences::Unwelcome;
use super::rule::RuleKind;

/// The verdict of the rules on one URL, with the evidence.
#[derive(Debug, Clone, Copy)]
pub struct Verdict<'a>(pub(super) VerdictGround<'a>);

#[derive(Debug, Clone, Copy)]
pub(super) enum VerdictGround<'a> {
    NoRule,
    RobotsTxt,
    Rule(RuleRef<'a>, RuleKind),
    Usage(PreferenceRef<'a>),
    TooComplex,
}

impl<'a> Verdict<'a> {
    #[inline]
    pub fn is_allowed(&self) -> bool {
        match self.0 {
            VerdictGround::NoRule | VerdictGround::RobotsTxt => true,
            VerdictGround::Rule(_, kind) => kind == RuleKind::Allow,
            VerdictGround::Usage(_) | VerdictGround::TooComplex => false,
        }
    }

    pub fn reason(&self) -> Reason {
        match self.0 {
            VerdictGround::NoRule => Reason::NoRule,
            VerdictGround::RobotsTxt => Reason::RobotsTxt,
            VerdictGround::Rule(_, RuleKind::Allow) => Reason::Allowed,
            VerdictGround::Rule(_, RuleKind::Disallow) => Reason::Disallowed,
            VerdictGround::Usage(_) => Reason::Usage,
            VerdictGround::TooComplex => Reason::TooComplex,
        }
    }

    /// The rule that decided. `None`: no rule matches, or something else decided.
    pub fn rule(&self) -> Option<RuleRef<'a>> {
        let VerdictGround::Rule(rule, _) = self.0 else { return None };
        Some(rule)
    }

    /// The usage preference that decided, if the reason is a preference.
    pub fn preference(&self) -> Option<PreferenceRef<'a>> {
        let VerdictGround::Usage(preference) = self.0 else { return None };
        Some(preference)
    }
}

/// Why a URL is allowed or disallowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// No rule matches: allowed (RFC 9309 §2.2.2).
    NoRule,
    /// `/robots.txt` itself is always allowed (RFC 9309 §2.2.2).
    RobotsTxt,
    /// The decisive rule allows.
    Allowed,
    /// The decisive rule disallows.
    Disallowed,
    /// The URL may be fetched, but a usage preference says no to a declared purpose.
    Usage,
    /// Comparing the rules with this URL takes more steps than one decision may: disallowed.
    TooComplex,
}

/// One rule of a file.
#[derive(Clone, Copy)]
pub struct RuleRef<'a> {
    pub(super) file: &'a RobotsFile,
    pub(super) place: u32,
}

impl<'a> RuleRef<'a> {
    /// The number of the line, from 1.
    pub fn line(&self) -> u32 {
        self.file.source.line_of(self.offset())
    }

    /// Index among the file's rules.
    pub(crate) fn place(&self) -> u32 {
        self.place
    }

    /// Offset of the rule's value in the file.
    pub(super) fn offset(&self) -> usize {
        self.file.groups.rule(self.place).start as usize
    }

    pub fn kind(&self) -> RuleKind {
        self.file.groups.rule(self.place).kind
    }

    /// The path pattern as written; U+FFFD replaces ill-formed UTF-8.
    pub fn pattern(&self) -> &'a str {
        self.file.source.str_at(self.file.groups.rule(self.place).value())
    }
}

impl fmt::Debug for RuleRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} @{}", self.kind().as_str(), self.pattern(), self.line())
    }
}

/// One usage preference of a file.
#[derive(Clone, Copy)]
pub struct PreferenceRef<'a> {
    pub(super) source: &'a FileSource,
    pub(super) said: &'a Unwelcome,
}

impl<'a> PreferenceRef<'a> {
    /// The number of the line, from 1.
    pub fn line(&self) -> u32 {
        self.source.line_of(self.said.line.start as usize)
    }

    /// The line's key: `Content-Usage` or `Content-Signal`.
    pub fn key(&self) -> &'static str {
        self.said.vocabulary.key()
    }

    /// The purpose that the site refuses, such as `ai-train`.
    pub fn purpose(&self) -> &'a str {
        self.said.purpose.as_str()
    }

    /// The line's value as it is written, such as `/ train-ai=n`.
    pub fn value(&self) -> &'a str {
        self.source.str_at(self.said.line)
    }

    /// The path pattern that the value begins with, as written; empty if the line is about all paths.
    pub fn path(&self) -> &'a str {
        self.source.str_at(self.said.pattern)
    }
}

impl fmt::Debug for PreferenceRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {} @{}", self.purpose(), self.value(), self.line())
    }
}
