//! RFC 9309 §2.2.2: the rules that one crawler obeys, and what they say of a path. Pure. Called by `policy::decide`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::delay::{RequestRate, VisitTime};
use super::kinds::Kinds;
use super::line;
use super::matcher::Matcher;
use super::options::ParseOptions;
use super::path;
use super::rank::{Rank, RuleKind};
use super::source::{Source, Span};

/// The rules of one file for one crawler, compiled. Immutable; a clone is one reference more.
#[derive(Clone)]
pub struct RuleSet(Arc<Compiled>);

struct Compiled {
    source: Arc<Source>,
    rules: Matcher,
    len: usize,
    robots_txt_allowed: bool,
    pace: Pace,
}

/// What a file says about pace, for one crawler.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) crawl_delay: Option<Duration>,
    pub(crate) request_rate: Option<RequestRate>,
    pub(crate) visit_time: Option<VisitTime>,
}

impl RuleSet {
    pub(crate) fn compile(source: Arc<Source>, rules: &[RuleSpan], pace: Pace, options: &ParseOptions) -> Self {
        let compiled = Matcher::new(&source, rules, options);
        let robots_txt_allowed = options.robots_txt_allowed;
        Self(Arc::new(Compiled { source, rules: compiled, len: rules.len(), robots_txt_allowed, pace }))
    }

    /// Whether a URL may be fetched. `target` is a path with query, as in a request, or an absolute URL; a fragment is
    /// ignored. Where the path has dot segments, what they lead to is judged too, and either can disallow.
    pub fn check(&self, target: &str) -> Verdict<'_> {
        self.check_octets(target.as_bytes())
    }

    /// As [`check`](Self::check), for a target that may not be UTF-8.
    pub fn check_octets(&self, target: &[u8]) -> Verdict<'_> {
        let kinds = Kinds::of(target);
        if target.first() != Some(&b'/') || kinds.has_odd() {
            self.check_closely(target, kinds)
        } else if kinds.has_dot() {
            self.check_dots(target, kinds)
        } else {
            self.judge(target, kinds)
        }
    }

    /// As [`check`](Self::check), for a plain path with a dot.
    #[inline(never)]
    fn check_dots(&self, path: &[u8], kinds: Kinds) -> Verdict<'_> {
        if path::may_have_dot_segment(path) { self.check_resolved(path) } else { self.judge(path, kinds) }
    }

    /// As [`check`](Self::check), for a target that may be more than a path, or need to be normalised or resolved.
    #[inline(never)]
    fn check_closely(&self, target: &[u8], kinds: Kinds) -> Verdict<'_> {
        let path = path::path_and_query(target);
        if kinds.has_odd() {
            let mut normal = Vec::with_capacity(path.len() + 16);
            path::normalise(&path, &mut normal);
            self.check_resolved(&normal)
        } else {
            self.check_resolved(&path)
        }
    }

    /// Judges a normalised path, and what its dot segments lead to; either can disallow.
    fn check_resolved(&self, path: &[u8]) -> Verdict<'_> {
        let verdict = self.judge(path, Kinds::of(path));
        if !verdict.is_allowed() || !path::may_have_dot_segment(path) {
            return verdict;
        }
        let Some(resolved) = path::without_dot_segments(path) else {
            return verdict;
        };
        let resolved = self.judge(&resolved, Kinds::of(&resolved));
        if resolved.is_allowed() { verdict } else { resolved }
    }

    /// Time from one request's start to the next: the larger of `Crawl-delay` and what `Request-rate` comes to. `None`
    /// where the file gives neither (not RFC 9309; Bing, Yandex).
    pub fn crawl_delay(&self) -> Option<Duration> {
        let Pace { crawl_delay, request_rate, .. } = self.0.pace;
        crawl_delay.max(request_rate.map(|rate| rate.gap()))
    }

    /// `Request-rate`, the slowest given.
    pub fn request_rate(&self) -> Option<RequestRate> {
        self.0.pace.request_rate
    }

    /// `Visit-time`, the first given.
    pub fn visit_time(&self) -> Option<VisitTime> {
        self.0.pace.visit_time
    }

    /// How many rules there are, without those that have no path.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether everything is allowed for want of rules.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Octets on the heap, without the file's text, which all rule sets of the file share.
    pub fn heap_size(&self) -> usize {
        size_of::<Compiled>() + self.0.rules.heap_size()
    }

    #[inline(never)]
    fn judge(&self, path: &[u8], kinds: Kinds) -> Verdict<'_> {
        if self.0.robots_txt_allowed && path == b"/robots.txt" {
            return Verdict { rules: self, outcome: Outcome::RobotsTxt };
        }
        Verdict { rules: self, outcome: self.0.rules.best(path, kinds).map_or(Outcome::NoRule, Outcome::Rule) }
    }
}

impl fmt::Debug for RuleSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleSet").field("len", &self.len()).field("pace", &self.0.pace).finish_non_exhaustive()
    }
}

/// What the rules say of one URL, with the evidence.
#[derive(Debug, Clone, Copy)]
pub struct Verdict<'a> {
    rules: &'a RuleSet,
    outcome: Outcome,
}

#[derive(Debug, Clone, Copy)]
enum Outcome {
    NoRule,
    RobotsTxt,
    Rule(Rank),
}

impl<'a> Verdict<'a> {
    pub fn is_allowed(&self) -> bool {
        match self.reason() {
            Reason::NoRule | Reason::RobotsTxt | Reason::Allowed => true,
            Reason::Disallowed => false,
        }
    }

    pub fn reason(&self) -> Reason {
        match self.outcome {
            Outcome::NoRule => Reason::NoRule,
            Outcome::RobotsTxt => Reason::RobotsTxt,
            Outcome::Rule(rank) => match self.rules.0.rules.kind(rank) {
                RuleKind::Allow => Reason::Allowed,
                RuleKind::Disallow => Reason::Disallowed,
            },
        }
    }

    /// The rule that decided; `None` if none matches.
    pub fn rule(&self) -> Option<RuleRef<'a>> {
        let Outcome::Rule(rank) = self.outcome else { return None };
        let Compiled { source, rules, .. } = &*self.rules.0;
        Some(RuleRef { source, offset: rules.offset(rank) as usize, kind: rules.kind(rank) })
    }
}

/// Why a URL is allowed or disallowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No rule matches: allowed (RFC 9309 §2.2.2).
    NoRule,
    /// `/robots.txt` itself is always allowed (RFC 9309 §2.2.2).
    RobotsTxt,
    /// The decisive rule allows.
    Allowed,
    /// The decisive rule disallows.
    Disallowed,
}

/// One rule of a file.
#[derive(Clone, Copy)]
pub struct RuleRef<'a> {
    source: &'a Source,
    offset: usize,
    kind: RuleKind,
}

impl<'a> RuleRef<'a> {
    /// The line of the file, from 1.
    pub fn line(&self) -> u32 {
        self.source.line_of(self.offset)
    }

    pub fn kind(&self) -> RuleKind {
        self.kind
    }

    /// The path pattern as it is written; what is not UTF-8 in it is replaced by U+FFFD.
    pub fn pattern(&self) -> &'a str {
        self.source.str_at(line::value_at(self.source.text(), self.offset))
    }
}

impl fmt::Debug for RuleRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} @{}", self.kind.as_str(), self.pattern(), self.line())
    }
}

/// A rule as it stands in the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RuleSpan {
    pub(crate) value: Span,
    pub(crate) kind: RuleKind,
}
