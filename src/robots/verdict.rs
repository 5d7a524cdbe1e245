//! What rules say of a URL, with the evidence. Pure.

use std::fmt;

use super::parse::source::FileSource;
use super::preferences::Unwelcome;
use super::priority::{Priority, RuleKind};
use super::ruleset::Compiled;

/// What the rules say of one URL, with the evidence.
#[derive(Clone, Copy)]
pub struct Verdict<'a> {
    rules: &'a Compiled,
    outcome: VerdictGround,
}

#[derive(Clone, Copy)]
pub(crate) enum VerdictGround {
    NoRule,
    RobotsTxt,
    Rule(Priority),
    Usage(usize),
}

impl<'a> Verdict<'a> {
    #[inline]
    pub(crate) fn new(rules: &'a Compiled, outcome: VerdictGround) -> Self {
        Self { rules, outcome }
    }

    #[inline]
    pub fn is_allowed(&self) -> bool {
        match self.outcome {
            VerdictGround::NoRule | VerdictGround::RobotsTxt => true,
            VerdictGround::Rule(priority) => self.rules.rules.kind(priority) == RuleKind::Allow,
            VerdictGround::Usage(_) => false,
        }
    }

    /// Whether a usage preference can still say no. robots.txt itself has to be read to know of any.
    pub(crate) fn may_be_unwelcome(&self) -> bool {
        self.is_allowed() && !matches!(self.outcome, VerdictGround::RobotsTxt)
    }

    pub fn reason(&self) -> Reason {
        match self.outcome {
            VerdictGround::NoRule => Reason::NoRule,
            VerdictGround::RobotsTxt => Reason::RobotsTxt,
            VerdictGround::Rule(priority) => match self.rules.rules.kind(priority) {
                RuleKind::Allow => Reason::Allowed,
                RuleKind::Disallow => Reason::Disallowed,
            },
            VerdictGround::Usage(_) => Reason::Usage,
        }
    }

    /// The rule that decided; `None` if none matches, or something else than a rule decided.
    pub fn rule(&self) -> Option<RuleRef<'a>> {
        let VerdictGround::Rule(priority) = self.outcome else { return None };
        let rules = &self.rules.rules;
        Some(RuleRef {
            source: &self.rules.source,
            offset: rules.offset(priority) as usize,
            kind: rules.kind(priority),
        })
    }

    /// The usage preference that decided.
    pub fn preference(&self) -> Option<PreferenceRef<'a>> {
        let VerdictGround::Usage(at) = self.outcome else { return None };
        Some(PreferenceRef { source: &self.rules.source, said: self.rules.usages.as_ref()?.said(at) })
    }
}

impl fmt::Debug for Verdict<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Verdict");
        debug
            .field("reason", &self.reason())
            .field("rule", &self.rule())
            .field("preference", &self.preference())
            .finish()
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
}

/// One rule of a file.
#[derive(Clone, Copy)]
pub struct RuleRef<'a> {
    source: &'a FileSource,
    offset: usize,
    kind: RuleKind,
}

impl<'a> RuleRef<'a> {
    /// The `Allow` rule whose value begins there.
    pub(crate) fn allow_at(source: &'a FileSource, offset: usize) -> Self {
        RuleRef { source, offset, kind: RuleKind::Allow }
    }

    /// The line of the file, from 1.
    pub fn line(&self) -> u32 {
        self.source.line_of(self.offset)
    }

    /// Where its value begins in the file.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    pub fn kind(&self) -> RuleKind {
        self.kind
    }

    /// The path pattern as it is written; what is not UTF-8 in it is replaced by U+FFFD.
    pub fn pattern(&self) -> &'a str {
        self.source.value_at(self.offset)
    }
}

impl fmt::Debug for RuleRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} @{}", self.kind.as_str(), self.pattern(), self.line())
    }
}

/// One usage preference of a file.
#[derive(Clone, Copy)]
pub struct PreferenceRef<'a> {
    pub(super) source: &'a FileSource,
    pub(super) said: &'a Unwelcome,
}

impl<'a> PreferenceRef<'a> {
    /// The line of the file, from 1.
    pub fn line(&self) -> u32 {
        self.source.line_of(self.said.line() as usize)
    }

    /// The line's key as it is written, such as `Content-Usage`.
    pub fn key(&self) -> &'a str {
        self.source.key_of(self.said.line() as usize)
    }

    /// The purpose that the content is not meant for, such as `ai-train`.
    pub fn purpose(&self) -> &'a str {
        self.said.purpose.as_str()
    }

    /// The line's value as it is written, such as `/ train-ai=n`.
    pub fn value(&self) -> &'a str {
        self.source.value_at(self.said.line() as usize)
    }

    /// The path pattern that the value begins with, as it is written; empty where the line is about everything.
    pub fn path(&self) -> &'a str {
        self.source.str_at(self.said.pattern)
    }
}

impl fmt::Debug for PreferenceRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {} @{}", self.purpose(), self.value(), self.line())
    }
}
