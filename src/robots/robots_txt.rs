//! A robots.txt that was read: the rules for each crawler, and what the file says to all. Pure.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::options::ParseOptions;
use super::parse;
use super::parse::delay::StatedPace;
use super::parse::group::Groups;
use super::parse::key::RecordKey;
use super::parse::source::FileSource;
use super::parse::span::{RuleSpan, Span};
use super::parse::warnings::Warning;
use super::rule_set_cache::RuleSetCache;
use super::ruleset::RuleSet;
use super::verdict::RuleRef;

/// A robots.txt that was read. Immutable; a clone is one reference more.
#[derive(Debug, Clone)]
pub struct RobotsTxt(Arc<RobotsTxtInner>);

#[derive(Debug)]
struct RobotsTxtInner {
    options: ParseOptions,
    source: Arc<FileSource>,
    groups: Groups,
    file: FileRecords,
    warnings: Vec<Warning>,
    memo: RuleSetCache,
    digest: OnceLock<[u8; 32]>,
}

/// What belongs to the whole file.
#[derive(Debug, Default)]
pub(crate) struct FileRecords {
    /// The values of the lines with these keys that belong to no group, in the file's order.
    pub(crate) values: Vec<(RecordKey, Span)>,
    pub(crate) crawl_delay: Option<Duration>,
    /// Rules before any user agent, where the dialect has a use for them.
    pub(crate) orphans: Vec<RuleSpan>,
}

impl RobotsTxt {
    /// Reads a file by RFC 9309 and its customary extensions. Never fails: what cannot be understood is ignored, with a
    /// warning.
    pub fn parse(bytes: &[u8]) -> Self {
        Self::parse_with(bytes, &ParseOptions::default())
    }

    /// Reads a file in the dialect that `options` describe.
    pub fn parse_with(bytes: &[u8], options: &ParseOptions) -> Self {
        let parse::Parsed { source, groups, file, warnings } = parse::parse(bytes, options);
        let memo = RuleSetCache::new(groups.len());
        let (source, digest) = (Arc::new(source), OnceLock::new());
        Self(Arc::new(RobotsTxtInner { options: options.clone(), source, groups, file, warnings, memo, digest }))
    }

    /// The rules for a crawler, by its names: those of all groups that name it, else those for `*`.
    /// Compiled at the first call for these groups, then only looked up, without a lock.
    pub fn rules_for<T: AsRef<str>>(&self, tokens: &[T]) -> RuleSet {
        self.rules_kept_for(tokens).into_owned()
    }

    /// The same, lent where they are kept.
    pub(crate) fn rules_kept_for<T: AsRef<str>>(&self, tokens: &[T]) -> Cow<'_, RuleSet> {
        let RobotsTxtInner { options, source, groups, memo, .. } = &*self.0;
        let sections = groups.select(tokens, source, options);
        memo.get_or_make(&sections, || {
            let orphaned = groups.is_empty() && options.rules_without_agent;
            let rules = if orphaned { (&self.0.file.orphans).into() } else { groups.rules_of(&sections) };
            let usages = groups.usages_of(&sections);
            RuleSet::compile(Arc::clone(source), &rules, &usages, self.pace(&sections), options)
        })
    }

    /// The `Allow` rule that a verdict by this file named.
    pub(crate) fn allow_at(&self, offset: usize) -> RuleRef<'_> {
        RuleRef::allow_at(&self.0.source, offset)
    }

    /// The values of the `Sitemap` lines, wherever they stand (RFC 9309 §2.2.4).
    pub fn sitemaps(&self) -> impl Iterator<Item = &str> {
        self.texts(RecordKey::Sitemap)
    }

    /// The values of the `Host` lines: the name that the site prefers (Yandex).
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.texts(RecordKey::Host)
    }

    /// The values of the `Clean-param` lines: parameters that do not change a page, and where (Yandex).
    pub fn clean_params(&self) -> impl Iterator<Item = &str> {
        self.texts(RecordKey::CleanParam)
    }

    /// The values of the `License` lines: where the terms of use are (RSL).
    pub fn licenses(&self) -> impl Iterator<Item = &str> {
        self.texts(RecordKey::License)
    }

    /// What is odd about the file, in its order.
    pub fn warnings(&self) -> impl Iterator<Item = &Warning> {
        self.0.warnings.iter()
    }

    /// How it was read.
    pub fn options(&self) -> &ParseOptions {
        &self.0.options
    }

    /// The bytes that were read.
    pub fn source(&self) -> &[u8] {
        self.0.source.text()
    }

    /// By which it is known to others: made by `digest` of the source when it is first asked for.
    pub fn digest_by(&self, digest: impl FnOnce(&[u8]) -> [u8; 32]) -> &[u8; 32] {
        self.0.digest.get_or_init(|| digest(self.source()))
    }

    /// How many clones of it there are, this one among them.
    pub fn holders(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Bytes on the heap, with the rule sets compiled so far.
    pub fn heap_size(&self) -> usize {
        let RobotsTxtInner { source, groups, file, warnings, memo, .. } = &*self.0;
        size_of::<RobotsTxtInner>()
            + size_of::<FileSource>()
            + source.heap_size()
            + groups.heap_size()
            + file.values.capacity() * size_of::<(RecordKey, Span)>()
            + file.orphans.capacity() * size_of::<RuleSpan>()
            + warnings.capacity() * size_of::<Warning>()
            + memo.heap_size()
    }

    fn texts(&self, wanted: RecordKey) -> impl Iterator<Item = &str> {
        let values = self.0.file.values.iter().filter(move |(key, _)| *key == wanted);
        values.map(|&(_, value)| self.0.source.str_at(value))
    }

    fn pace(&self, sections: &[u32]) -> StatedPace {
        let RobotsTxtInner { groups, file, .. } = &*self.0;
        let mut pace =
            sections.iter().map(|&section| groups.pace_of(section)).fold(StatedPace::default(), StatedPace::slower);
        pace.crawl_delay = pace.crawl_delay.or(file.crawl_delay);
        pace
    }
}
