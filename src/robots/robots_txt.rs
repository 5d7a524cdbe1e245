//! A parsed robots.txt: the rules for each crawler, and the lines for all crawlers. Pure.

use std::sync::Arc;

use super::budget::StepBudget;
use super::license::is_license_url;
use super::options::ParseOptions;
use super::parse::key::RecordKey;
use super::parse::span::Span;
use super::parse::{self, FileFaults, RobotsFile, line};
use super::ruleset::RuleSet;
use super::verdict::RuleRef;

/// A parsed robots.txt. Immutable; a clone shares the file.
#[derive(Debug, Clone)]
pub struct RobotsTxt(Arc<RobotsFile>);

impl RobotsTxt {
    /// Parses a file by RFC 9309 and its customary extensions. Never fails: malformed lines are ignored, with a
    /// warning.
    pub fn parse(bytes: &[u8]) -> Self {
        Self::parse_with(bytes, &ParseOptions::default())
    }

    /// Parses a file in the dialect that `options` describe.
    pub fn parse_with(bytes: &[u8], options: &ParseOptions) -> Self {
        Self(Arc::new(parse::parse(bytes, options, options.max_size)))
    }

    /// Parses the [`source`](Self::source) of a parsed file again, without a size limit: the limit counts the bytes as received, which may
    /// be fewer than the decoded bytes (UTF-16).
    pub fn parse_again(source: &[u8], options: &ParseOptions) -> Self {
        Self(Arc::new(parse::parse(source, options, usize::MAX)))
    }

    /// Whether the encoding is unknown, for example because UTF-16 was appended to a text in UTF-8. Rules that could not be read may forbid
    /// anything.
    pub fn is_unreadable(&self) -> bool {
        self.0.is_unreadable
    }

    /// The rules for a crawler with these names: the rules of all groups that name the crawler, else the rules for `*`. A group's rules are
    /// compiled on first use.
    pub fn rules_for<T: AsRef<str>>(&self, tokens: &[T]) -> RuleSet {
        self.rules_within(tokens, &mut StepBudget::unlimited())
    }

    /// Like [`rules_for`](Self::rules_for), within the budget of a decision. If the budget is spent, the result has the pace of the groups
    /// found so far, and allows nothing.
    pub(crate) fn rules_within<T: AsRef<str>>(&self, tokens: &[T], budget: &mut StepBudget) -> RuleSet {
        RuleSet::new(Arc::clone(&self.0), self.0.select(tokens, budget))
    }

    /// The rules of the groups that name this token, without those of `*`, within the budget of a decision. `None`: no group names the
    /// token.
    pub(crate) fn rules_naming(&self, token: &str, budget: &mut StepBudget) -> Option<RuleSet> {
        let selection = self.0.select_named(token, budget)?;
        Some(RuleSet::new(Arc::clone(&self.0), selection))
    }

    /// Compiles the rules and preferences of all groups and reads all licences, which takes some tens of milliseconds for the longest
    /// files. Otherwise each of these is done on first use.
    pub fn compile(&self) {
        self.0.groups.compile_all(&self.0.source);
        self.faults();
    }

    /// The rule with this index among the file's rules.
    pub(crate) fn rule_at(&self, place: u32) -> RuleRef<'_> {
        RuleRef { file: &self.0, place }
    }

    /// The values of the `Sitemap` lines, wherever they stand (RFC 9309 §2.2.4).
    pub fn sitemaps(&self) -> impl Iterator<Item = &str> {
        self.texts(RecordKey::Sitemap)
    }

    /// The values of the `License` lines: URLs of the terms of use (RSL).
    pub fn licenses(&self) -> impl Iterator<Item = &str> {
        self.texts(RecordKey::License)
    }

    /// The first of the licences that is a valid URL.
    pub fn license_url(&self) -> Option<&str> {
        self.faults().license.map(|value| self.0.source.str_at(value))
    }

    /// Whether a `License` line is not a URL.
    pub fn has_unclear_license(&self) -> bool {
        self.faults().has_unclear_license
    }

    /// Whether the body is an HTML or XML page rather than a robots.txt.
    pub fn is_html(&self) -> bool {
        let start = self.source()[line::byte_order_mark(self.source())..].trim_ascii_start();
        let begins = |tag: &[u8]| start.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag));
        [b"<!doctype".as_slice(), b"<html", b"<head", b"<?xml"].into_iter().any(begins)
    }

    /// Whether a Content-Signal or Content-Usage line cannot be understood.
    pub fn has_unclear_usage(&self) -> bool {
        self.faults().has_unclear_usage
    }

    /// Whether the file was longer than the limit.
    pub fn is_cut(&self) -> bool {
        self.0.is_cut
    }

    /// Whether the file was decoded from UTF-16 or UTF-32.
    pub(super) fn is_wide(&self) -> bool {
        self.0.is_wide
    }

    /// The options that the file was parsed with.
    pub fn options(&self) -> &ParseOptions {
        &self.0.source.options
    }

    /// The text of the file up to the size limit, decoded if it was UTF-16 or UTF-32.
    pub fn source(&self) -> &[u8] {
        self.0.source.text()
    }

    /// The bytes of [`source`](Self::source), shared, without the rules.
    #[cfg(feature = "proxy")]
    pub(crate) fn shared_source(&self) -> Arc<[u8]> {
        self.0.source.shared()
    }

    /// Content digest, computed by `digest` on first use.
    pub fn digest_by(&self, digest: impl FnOnce(&[u8]) -> [u8; 32]) -> &[u8; 32] {
        self.0.digest.get_or_init(|| digest(self.source()))
    }

    /// Reference count.
    pub fn holders(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Bytes on the heap, including the rules compiled so far.
    pub fn heap_size(&self) -> usize {
        let RobotsFile { source, groups, values, .. } = &*self.0;
        size_of::<RobotsFile>()
            + source.heap_size()
            + groups.heap_size()
            + values.capacity() * size_of::<(RecordKey, Span)>()
    }

    #[cfg(test)]
    pub(crate) fn knows_faults(&self) -> bool {
        self.0.faults.get().is_some()
    }

    fn faults(&self) -> &FileFaults {
        let RobotsFile { source, groups, values, faults, .. } = &*self.0;
        faults.get_or_init(|| {
            let mut licenses = values.iter().filter(|(key, _)| *key == RecordKey::License).map(|(_, value)| *value);
            let is_url = |value: &Span| is_license_url(source.str_at(*value));
            FileFaults {
                license: licenses.clone().find(is_url),
                has_unclear_license: !licenses.all(|value| is_url(&value)),
                has_unclear_usage: groups.usages.has_fault(source) || groups.signals.has_fault(source),
            }
        })
    }

    fn texts(&self, wanted: RecordKey) -> impl Iterator<Item = &str> {
        let values = self.0.values.iter().filter(move |(key, _)| *key == wanted);
        values.map(|&(_, value)| self.0.source.str_at(value))
    }
}
