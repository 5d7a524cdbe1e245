//! RFC 9309 §2.2.2: the rules that one crawler obeys, and what they say of a path. Pure.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::byte_set::ByteSet;
use super::matcher::Matcher;
use super::matcher::path;
use super::options::{ParseOptions, PercentEncoding};
use super::parse::delay::{RequestRate, StatedPace, VisitTime};
use super::parse::source::FileSource;
use super::parse::span::{RuleSpan, Span};
use super::preferences::UsageRules;
use super::usage::{Purpose, Vocabulary};
use super::verdict::{PreferenceRef, Verdict, VerdictGround};

/// The rules of one file for one crawler, compiled. Immutable; a clone is one reference more.
#[derive(Clone)]
pub struct RuleSet(Arc<Compiled>);

pub(crate) struct Compiled {
    pub(crate) source: Arc<FileSource>,
    pub(crate) rules: Matcher,
    pub(crate) usages: Option<Box<UsageRules>>,
    len: usize,
    robots_txt_allowed: bool,
    anchor_before_query: bool,
    percent_encoding: PercentEncoding,
    pace: StatedPace,
}

impl RuleSet {
    pub(crate) fn compile(
        source: Arc<FileSource>,
        rules: &[RuleSpan],
        usages: &[(Vocabulary, Span)],
        pace: StatedPace,
        options: &ParseOptions,
    ) -> Self {
        Self(Arc::new(Compiled {
            rules: Matcher::of_rules(&source, rules, options),
            usages: UsageRules::new(&source, usages, options).map(Box::new),
            len: rules.len(),
            robots_txt_allowed: options.robots_txt_allowed,
            anchor_before_query: options.anchor_before_query,
            percent_encoding: options.percent_encoding,
            pace,
            source,
        }))
    }

    /// Whether a URL may be fetched. `target` is a path with query, as in a request, or an absolute URL; a fragment is
    /// ignored. Where the path has dot segments, what they lead to is judged too, and either can disallow.
    #[inline]
    pub fn check(&self, target: &str) -> Verdict<'_> {
        self.check_bytes(target.as_bytes())
    }

    /// As [`check`](Self::check), for a target that may not be UTF-8.
    pub fn check_bytes(&self, target: &[u8]) -> Verdict<'_> {
        let byte_set = ByteSet::of(target);
        if target.first() != Some(&b'/') || byte_set.has_odd() || self.0.anchor_before_query {
            self.check_closely(target)
        } else if byte_set.has_dot() {
            self.check_dots(target, byte_set)
        } else {
            self.judge(target, byte_set)
        }
    }

    /// As [`check`](Self::check), for a crawler that declares what it will use the content for: a URL that may be fetched is
    /// disallowed if the most specific preference for one of the purposes says no.
    pub fn check_for(&self, target: &str, purposes: &[Purpose]) -> Verdict<'_> {
        self.check_bytes_for(target.as_bytes(), purposes)
    }

    /// As [`check_for`](Self::check_for), for a target that may not be UTF-8.
    pub fn check_bytes_for(&self, target: &[u8], purposes: &[Purpose]) -> Verdict<'_> {
        let verdict = self.check_bytes(target);
        match &self.0.usages {
            Some(usages) if !purposes.is_empty() && verdict.may_be_unwelcome() => {
                let mut refused = None;
                self.each_form(target, |path| {
                    refused = refused.or_else(|| usages.refusal(path, ByteSet::of(path), purposes));
                });
                refused.map_or(verdict, |refusal| Verdict::new(&self.0, VerdictGround::Usage(refusal)))
            }
            Some(_) | None => verdict,
        }
    }

    /// The preferences that say no to some use of what is there, whatever is declared.
    pub fn preferences_for(&self, target: &[u8]) -> Vec<PreferenceRef<'_>> {
        let Some(usages) = &self.0.usages else { return Vec::new() };
        let mut all = Vec::new();
        self.each_form(target, |path| {
            let said = usages.refusals(path, ByteSet::of(path));
            all.extend(said.map(|at| PreferenceRef { source: &self.0.source, said: usages.said(at) }));
        });
        all
    }

    /// Time from one request's start to the next: the larger of `Crawl-delay` and what `Request-rate` comes to. `None`
    /// where the file gives neither (not RFC 9309; Bing, Yandex).
    pub fn crawl_delay(&self) -> Option<Duration> {
        self.0.pace.gap()
    }

    /// `Request-rate`, the slowest given.
    pub fn request_rate(&self) -> Option<RequestRate> {
        self.0.pace.request_rate
    }

    /// `Visit-time`, the first given.
    pub fn visit_time(&self) -> Option<VisitTime> {
        self.0.pace.visit_time
    }

    /// The values of the `Content-Signal` and `Content-Usage` lines for this crawler, with their line numbers.
    pub fn usage_preferences(&self) -> impl Iterator<Item = (u32, &str)> {
        let lines = self.0.usages.iter().flat_map(|usages| usages.lines());
        lines.map(|value| (self.0.source.line_of(value.start as usize), self.0.source.str_at(value)))
    }

    /// How many rules there are, without those that have no path.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether everything is allowed because there are no rules.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Bytes on the heap, without the file's text, which all rule sets of the file share.
    pub fn heap_size(&self) -> usize {
        let usages = self.0.usages.as_ref().map_or(0, |usages| usages.heap_size());
        size_of::<Compiled>() + self.0.rules.heap_size() + usages
    }

    /// A plain path with a dot.
    #[inline(never)]
    fn check_dots(&self, path: &[u8], byte_set: ByteSet) -> Verdict<'_> {
        if path::may_have_dot_segment(path) { self.check_closely(path) } else { self.judge(path, byte_set) }
    }

    /// A target that may be more than a path, or need to be normalised or resolved.
    #[inline(never)]
    fn check_closely(&self, target: &[u8]) -> Verdict<'_> {
        let mut verdict: Option<Verdict<'_>> = None;
        self.each_form(target, |path| {
            if verdict.as_ref().is_none_or(Verdict::is_allowed) {
                let other = self.judge(path, ByteSet::of(path));
                verdict = Some(verdict.filter(|_| other.is_allowed()).unwrap_or(other));
            }
        });
        verdict.unwrap_or_else(|| Verdict::new(&self.0, VerdictGround::NoRule))
    }

    /// Calls `judge` with each form in which a target is compared.
    fn each_form(&self, target: &[u8], judge: impl FnMut(&[u8])) {
        path::each_form(target, self.0.percent_encoding, judge);
    }

    #[inline(never)]
    fn judge(&self, path: &[u8], byte_set: ByteSet) -> Verdict<'_> {
        if self.0.robots_txt_allowed && path == b"/robots.txt" {
            return Verdict::new(&self.0, VerdictGround::RobotsTxt);
        }
        let mut best = self.0.rules.best(path, byte_set);
        if self.0.anchor_before_query
            && let Some(query) = memchr::memchr(b'?', path)
        {
            // What matches the path without its query and has no anchor matches the whole too.
            best = best.max(self.0.rules.best(&path[..query], byte_set));
        }
        Verdict::new(&self.0, best.map_or(VerdictGround::NoRule, VerdictGround::Rule))
    }
}

impl fmt::Debug for RuleSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleSet").field("len", &self.len()).field("pace", &self.0.pace).finish_non_exhaustive()
    }
}
