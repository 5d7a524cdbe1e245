//! RFC 9309 §2.2: reads a robots.txt, whatever it holds. Pure. Called by `gate` on each file that was fetched.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::delay::{self, RequestRate, VisitTime};
use super::group::Groups;
use super::key::Key;
use super::line::{self, Line, Lines, Record};
use super::memo::Memo;
use super::options::ParseOptions;
use super::rank::RuleKind;
use super::ruleset::{Pace, RuleSet, RuleSpan};
use super::source::{Source, Span};
use super::warnings::{Warning, WarningCode};

/// A robots.txt that was read. Immutable; a clone is one reference more.
#[derive(Debug, Clone)]
pub struct RobotsTxt(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: ParseOptions,
    source: Arc<Source>,
    groups: Groups,
    file: FileRecords,
    warnings: Vec<Warning>,
    memo: Memo,
}

/// What belongs to the whole file.
#[derive(Debug, Default)]
struct FileRecords {
    sitemaps: Vec<Span>,
    hosts: Vec<Span>,
    clean_params: Vec<Span>,
    licenses: Vec<Span>,
    crawl_delay: Option<Duration>,
    /// Rules before any user agent.
    orphans: Vec<RuleSpan>,
}

impl RobotsTxt {
    /// Reads a file by RFC 9309 and its customary extensions. Never fails: what cannot be understood is ignored, with a
    /// warning.
    pub fn parse(bytes: &[u8]) -> Self {
        Self::parse_with(bytes, &ParseOptions::default())
    }

    /// Reads a file in the dialect that `options` describe.
    pub fn parse_with(bytes: &[u8], options: &ParseOptions) -> Self {
        let mut parser = Parser::new(bytes, options);
        parser.read();
        parser.finish()
    }

    /// The rules for a crawler, by the names that it goes by: those of all groups that name it, else those for `*`.
    /// Compiled at the first call for these groups, then only looked up, without a lock.
    pub fn rules_for<T: AsRef<str>>(&self, tokens: &[T]) -> RuleSet {
        let Inner { options, source, groups, memo, .. } = &*self.0;
        let sections = groups.select(tokens, source, options);
        memo.get_or_make(&sections, || {
            let orphaned = groups.is_empty() && options.rules_without_agent;
            let rules = if orphaned { self.0.file.orphans.clone() } else { groups.rules_of(&sections) };
            RuleSet::compile(Arc::clone(source), &rules, self.pace(&sections), options)
        })
    }

    /// The values of the `Sitemap` lines, wherever they stand (RFC 9309 §2.2.4).
    pub fn sitemaps(&self) -> impl Iterator<Item = &str> {
        self.texts(&self.0.file.sitemaps)
    }

    /// The values of the `Host` lines: the name that the site prefers (Yandex).
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.texts(&self.0.file.hosts)
    }

    /// The values of the `Clean-param` lines: parameters that do not change a page, and where (Yandex).
    pub fn clean_params(&self) -> impl Iterator<Item = &str> {
        self.texts(&self.0.file.clean_params)
    }

    /// The values of the `License` lines: where the terms of use are (RSL).
    pub fn licenses(&self) -> impl Iterator<Item = &str> {
        self.texts(&self.0.file.licenses)
    }

    /// What is odd about the file, in its order.
    pub fn warnings(&self) -> impl Iterator<Item = &Warning> {
        self.0.warnings.iter()
    }

    /// The octets that were read.
    pub fn source(&self) -> &[u8] {
        self.0.source.text()
    }

    /// How many clones of it there are, this one among them.
    pub fn holders(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Octets on the heap, with the rule sets compiled so far.
    pub fn heap_size(&self) -> usize {
        let Inner { source, groups, file, warnings, memo, .. } = &*self.0;
        let FileRecords { sitemaps, hosts, clean_params, licenses, orphans, .. } = file;
        let spans = [sitemaps, hosts, clean_params, licenses].map(Vec::capacity).iter().sum::<usize>();
        size_of::<Inner>()
            + size_of::<Source>()
            + source.heap_size()
            + groups.heap_size()
            + spans * size_of::<Span>()
            + orphans.capacity() * size_of::<RuleSpan>()
            + warnings.capacity() * size_of::<Warning>()
            + memo.heap_size()
    }

    fn texts<'a>(&'a self, spans: &'a [Span]) -> impl Iterator<Item = &'a str> {
        spans.iter().map(|&span| self.0.source.str_at(span))
    }

    fn pace(&self, sections: &[u32]) -> Pace {
        let Inner { groups, file, .. } = &*self.0;
        let mut pace = Pace::default();
        for section in sections.iter().map(|&section| groups.section(section)) {
            pace.crawl_delay = pace.crawl_delay.max(section.crawl_delay);
            pace.request_rate = slower(pace.request_rate, section.request_rate);
            pace.visit_time = pace.visit_time.or(section.visit_time);
        }
        pace.crawl_delay = pace.crawl_delay.or(file.crawl_delay);
        pace
    }
}

/// One reading of one file.
struct Parser<'a> {
    text: &'a [u8],
    options: &'a ParseOptions,
    groups: Groups,
    file: FileRecords,
    warnings: Vec<Warning>,
    repaired: BTreeMap<u32, Box<str>>,
    /// The line being read.
    line: u32,
    /// Where that line begins, past the NULs in it.
    line_start: usize,
    is_ascii: bool,
}

impl<'a> Parser<'a> {
    fn new(bytes: &'a [u8], options: &'a ParseOptions) -> Self {
        let limit = options.max_size.clamp(ParseOptions::MIN_SIZE, MAX_SIZE);
        let text = if bytes.len() > limit { &bytes[..last_whole_line(bytes, limit)] } else { bytes };
        let mut parser = Self {
            text,
            options,
            groups: Groups::default(),
            file: FileRecords::default(),
            warnings: Vec::new(),
            repaired: BTreeMap::new(),
            line: 1,
            line_start: 0,
            is_ascii: text.is_ascii(),
        };
        if text.len() < bytes.len() {
            parser.warn(WarningCode::TooLarge, 0..0);
        }
        if looks_like_html(text) {
            parser.warn(WarningCode::Html, 0..0);
        }
        parser
    }

    fn read(&mut self) {
        let text = self.text;
        let bom = byte_order_mark(text);
        for line in Lines::new(text, bom) {
            let end = line.end;
            self.record(line);
            match (text.get(end), text.get(end + 1)) {
                (Some(b'\r'), Some(b'\n')) | (None, _) => {}
                (Some(0), _) => self.warn(WarningCode::Nul, end..end + 1),
                (Some(_), _) => {
                    self.line = self.line.saturating_add(1);
                    self.line_start = end + 1;
                }
            }
        }
    }

    fn finish(mut self) -> RobotsTxt {
        self.groups.finish(self.text);
        let memo = Memo::new(self.groups.len());
        RobotsTxt(Arc::new(Inner {
            options: self.options.clone(),
            source: Arc::new(Source::new(self.text.into(), self.repaired)),
            groups: self.groups,
            file: self.file,
            warnings: self.warnings,
            memo,
        }))
    }

    fn record(&mut self, line: Range<usize>) {
        if line.len() > line::MAX_LINE {
            self.warn(WarningCode::LongLine, line.start + line::MAX_LINE..line.start + line::MAX_LINE + 1);
        }
        let start = line.start;
        let Record { key: name, value, colon } = match line::read(self.text, line) {
            Line::Empty => return,
            Line::Text(text) => return self.warn(WarningCode::NotARecord, text),
            Line::Record(record) => record,
        };
        let Some(spelt) = Key::recognise(&self.text[name.clone()], self.options) else {
            let code = if colon { WarningCode::UnknownKey } else { WarningCode::NotARecord };
            return self.warn(code, name);
        };
        if !colon {
            self.warn(WarningCode::MissingColon, name.end..name.end + 1);
            if !self.options.missing_colon {
                return;
            }
        }
        if !spelt.rightly {
            self.warn(WarningCode::MisspeltKey, name.clone());
        }
        if name.start > start {
            self.warn(WarningCode::LeadingSpace, start..name.start);
        }
        self.keep_text(&value);
        self.apply(spelt.key, name, value);
    }

    fn apply(&mut self, key: Key, name: Range<usize>, value: Range<usize>) {
        let octets = &self.text[value.clone()];
        let span = Span::new(value.clone());
        match key {
            Key::UserAgent => self.user_agent(name, value),
            Key::Allow => self.rule(RuleKind::Allow, name, value),
            Key::Disallow => self.rule(RuleKind::Disallow, name, value),
            Key::CrawlDelay => self.crawl_delay(name, value),
            Key::RequestRate => match RequestRate::parse(octets) {
                Some(rate) => {
                    self.pace(name, |section| section.request_rate = slower(section.request_rate, Some(rate)))
                }
                None => self.warn(WarningCode::BadRate, value),
            },
            Key::VisitTime => match VisitTime::parse(octets) {
                Some(time) => self.pace(name, |section| section.visit_time = section.visit_time.or(Some(time))),
                None => self.warn(WarningCode::BadVisitTime, value),
            },
            Key::Sitemap => self.file.sitemaps.push(span),
            Key::Host => self.file.hosts.push(span),
            Key::CleanParam => self.file.clean_params.push(span),
            Key::License => self.file.licenses.push(span),
            Key::ContentSignal | Key::ContentUsage => {}
        }
    }

    fn user_agent(&mut self, name: Range<usize>, value: Range<usize>) {
        let text = &self.text[value.clone()];
        if text.is_empty() {
            self.warn(WarningCode::EmptyAgent, name);
        } else if text != b"*" && !text.iter().copied().all(super::product_token::is_token_octet) {
            self.warn(WarningCode::AgentNotAToken, value.clone());
        }
        self.groups.add_agent(Span::new(value), text);
    }

    fn rule(&mut self, kind: RuleKind, name: Range<usize>, value: Range<usize>) {
        let pattern = &self.text[value.clone()];
        if !pattern.is_empty() && !matches!(pattern[0], b'/' | b'*') {
            self.warn(WarningCode::NoLeadingSlash, value.start..value.start + 1);
        }
        if let Some(at) = bad_escape(pattern) {
            self.warn(WarningCode::BadEscape, value.start + at..(value.start + at + 3).min(value.end));
        }
        let rule = (!value.is_empty()).then(|| RuleSpan { value: Span::new(value), kind });
        if !self.groups.add_rule(rule) {
            self.warn(WarningCode::RuleWithoutAgent, name);
            self.file.orphans.extend(rule.filter(|_| self.options.rules_without_agent));
        }
    }

    fn crawl_delay(&mut self, name: Range<usize>, value: Range<usize>) {
        let Some(delay) = delay::crawl_delay(&self.text[value.clone()]) else {
            return self.warn(WarningCode::BadDelay, value);
        };
        if let Some(section) = self.groups.current() {
            section.crawl_delay = section.crawl_delay.max(Some(delay));
        } else if self.options.leading_crawl_delay {
            self.file.crawl_delay = self.file.crawl_delay.max(Some(delay));
        } else {
            self.warn(WarningCode::RuleWithoutAgent, name);
        }
    }

    fn pace(&mut self, name: Range<usize>, set: impl FnOnce(&mut super::group::Section)) {
        match self.groups.current() {
            Some(section) => set(section),
            None => self.warn(WarningCode::RuleWithoutAgent, name),
        }
    }

    /// Keeps a readable form of a value that is not UTF-8.
    fn keep_text(&mut self, value: &Range<usize>) {
        if self.is_ascii {
            return;
        }
        let octets = &self.text[value.clone()];
        if str::from_utf8(octets).is_err() {
            self.warn(WarningCode::NotUtf8, value.clone());
            let start = u32::try_from(value.start).expect("a file is cut at 1 GiB");
            self.repaired.insert(start, String::from_utf8_lossy(octets).into());
        }
    }

    fn warn(&mut self, code: WarningCode, at: Range<usize>) {
        let room = self.options.max_warnings.saturating_sub(self.warnings.len());
        let code = match room {
            0 => return,
            1 => WarningCode::TooMany,
            _ => code,
        };
        let chars = |range: Range<usize>| {
            let octets = self.text.get(range).unwrap_or_default();
            u32::try_from(octets.iter().filter(|&octet| octet & 0xC0 != 0x80).count()).unwrap_or(u32::MAX - 1)
        };
        let column = chars(self.line_start..at.start.max(self.line_start)) + 1;
        self.warnings.push(Warning { line: self.line, column, len: chars(at).max(1), code });
    }
}

/// Offsets fit 31 bits beside one for the kind of a rule, and patterns thrice as long 32 bits.
const MAX_SIZE: usize = 1 << 30;

/// The octets up to the end of the last line that fits into `limit`.
fn last_whole_line(bytes: &[u8], limit: usize) -> usize {
    if matches!(bytes[limit], b'\n' | b'\r') {
        return limit;
    }
    memchr::memrchr2(b'\n', b'\r', &bytes[..limit]).map_or(0, |end| end + 1)
}

/// Octets to skip at the start. A mark that was cut short is skipped too, as Google does.
fn byte_order_mark(text: &[u8]) -> usize {
    b"\xEF\xBB\xBF".iter().zip(text).take_while(|(mark, octet)| mark == octet).count()
}

fn looks_like_html(text: &[u8]) -> bool {
    let start = text[byte_order_mark(text)..].trim_ascii_start();
    let begins = |tag: &[u8]| start.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag));
    [b"<!doctype".as_slice(), b"<html", b"<head", b"<?xml"].into_iter().any(begins)
}

fn bad_escape(pattern: &[u8]) -> Option<usize> {
    memchr::memchr_iter(b'%', pattern)
        .find(|at| !pattern.get(at + 1..at + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)))
}

fn slower(a: Option<RequestRate>, b: Option<RequestRate>) -> Option<RequestRate> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.gap() > a.gap() { b } else { a }),
        (a, b) => a.or(b),
    }
}
