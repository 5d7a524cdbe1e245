//! Reads a file a second time, to find the places of its records and to warn about its lines. Pure.

use std::ops::Range;

use super::finding::{Finding, MOST_WARNINGS};
use crate::robots::parse::delay::StatedPace;
use crate::robots::parse::key::RecordKey;
use crate::robots::parse::line::{self, LineContent, Record, SourceLine, SourceLines};
use crate::robots::product_token::is_token_byte;
use crate::robots::steps;
use crate::robots::usage::{self, Vocabulary};
use crate::robots::warning::{TextPlace, WarningCode};
use crate::robots::{ParseOptions, RobotsTxt};

/// The lines of a file, the records that were understood, and the warnings.
pub(super) struct Outline<'a> {
    pub(super) text: &'a [u8],
    options: &'a ParseOptions,
    pub(super) records: Vec<OutlineEntry>,
    /// The warnings, at most one more than are shown.
    pub(super) warnings: Vec<Finding>,
    /// Offset of each line's first byte.
    pub(super) lines: Vec<usize>,
    has_agent: bool,
}

/// A record of the file, with its place.
#[derive(Debug)]
pub(super) struct OutlineEntry {
    pub(super) line: SourceLine,
    /// Characters of the line before this piece of it (NULs split lines into pieces).
    before: u32,
    pub(super) key: RecordKey,
    pub(super) name: Range<usize>,
    pub(super) value: Range<usize>,
}

impl OutlineEntry {
    /// The range at which to show a fault of the value: the key if there is no value.
    pub(super) fn value_or_name(&self) -> &Range<usize> {
        if self.value.is_empty() { &self.name } else { &self.value }
    }
}

impl<'a> Outline<'a> {
    pub(super) fn new(robots: &'a RobotsTxt) -> Self {
        let (text, options) = (robots.source(), robots.options());
        let (records, warnings, lines) = (Vec::new(), Vec::new(), Vec::new());
        let mut outline = Self { text, options, records, warnings, lines, has_agent: false };
        for (is_so, code) in [
            (robots.is_cut(), WarningCode::TooLarge),
            (robots.is_html(), WarningCode::Html),
            (robots.is_wide(), WarningCode::Utf16),
            (robots.is_unreadable(), WarningCode::UnknownEncoding),
            (text.starts_with(b"\x1f\x8b"), WarningCode::Compressed),
        ] {
            outline.warnings.extend(is_so.then(|| Finding::of(code, FILE)));
        }
        let (mut before, mut last) = (0_u32, 0);
        for line in SourceLines::new(text) {
            // A piece after a NUL continues the column count. Counting from the first byte for each piece would be slow, as each byte may
            // be a piece.
            let is_first = line.start == line.first;
            before = if is_first { 0 } else { before.saturating_add(chars(&text[last..line.start])) };
            last = line.start;
            outline.lines.extend(is_first.then_some(line.first));
            let (end, nul) = (line.end, is_first && text.get(line.end) == Some(&0));
            let nul = nul.then(|| line.clone());
            outline.read(line, before);
            if let Some(line) = nul {
                outline.warn(WarningCode::Nul, &line, before, end..end + 1);
            }
        }
        outline
    }

    fn read(&mut self, line: SourceLine, before: u32) {
        if line.end - line.start > line::MAX_LINE {
            let cut = line.start + line::MAX_LINE;
            self.warn(WarningCode::LongLine, &line, before, cut..cut + 1);
        }
        let Record { key: name, value, colon } = match line::read(self.text, &line) {
            LineContent::Empty => return,
            LineContent::Text(text) => return self.warn(WarningCode::NotARecord, &line, before, text),
            LineContent::Record(record) => record,
        };
        let Some(spelt) = RecordKey::recognise(&self.text[name.clone()]) else {
            let code = if colon { WarningCode::UnknownKey } else { WarningCode::NotARecord };
            return self.warn(code, &line, before, name);
        };
        let entry = OutlineEntry { line, before, key: spelt.key, name, value };
        let OutlineEntry { line, name, value, .. } = &entry;
        for (is_so, code, at) in [
            (!colon, WarningCode::MissingColon, name.end..name.end + 1),
            (!spelt.is_exact, WarningCode::MisspeltKey, name.clone()),
            (name.start > line.start, WarningCode::LeadingSpace, line.start..name.start),
            (str::from_utf8(self.value(&entry)).is_err(), WarningCode::NotUtf8, value.clone()),
        ] {
            if is_so {
                let mut found = Finding::of(code, place(self.text, line, before, at));
                if code == WarningCode::MisspeltKey {
                    found.message = format!("misspelt key `{}`", self.shown(name)).into();
                    found.hint = format!("write `{}`; few crawlers read it as meant", entry.key.as_str()).into();
                }
                self.push(found);
            }
        }
        self.check_value(&entry);
        self.records.push(entry);
    }

    fn check_value(&mut self, entry: &OutlineEntry) {
        let (value, OutlineEntry { name, value: at, .. }) = (self.value(entry), entry);
        let without_agent = (!self.has_agent).then(|| (WarningCode::RuleWithoutAgent, name.clone()));
        let unreadable = |code| Some((code, entry.value_or_name().clone()));
        let fault = match entry.key {
            RecordKey::Allow | RecordKey::Disallow => {
                if let Some((code, escape)) = bad_escape(value) {
                    self.warn(code, &entry.line, entry.before, at.start + escape.start..at.start + escape.end);
                }
                if !matches!(value.first(), Some(b'/' | b'*') | None) {
                    self.warn(WarningCode::NoLeadingSlash, &entry.line, entry.before, at.start..at.start + 1);
                }
                without_agent
            }
            RecordKey::UserAgent => {
                self.has_agent = true;
                let is_name = value == b"*" || value.iter().copied().all(is_token_byte);
                match value.is_empty() {
                    true => Some((WarningCode::EmptyAgent, name.clone())),
                    false => (!is_name).then(|| (WarningCode::AgentNotAToken, at.clone())),
                }
            }
            RecordKey::CrawlDelay if StatedPace::parse(entry.key, value).is_none() => unreadable(WarningCode::BadDelay),
            RecordKey::RequestRate if StatedPace::parse(entry.key, value).is_none() => unreadable(WarningCode::BadRate),
            RecordKey::VisitTime if StatedPace::parse(entry.key, value).is_none() => {
                unreadable(WarningCode::BadVisitTime)
            }
            RecordKey::CrawlDelay if self.options.leading_crawl_delay => None,
            RecordKey::CrawlDelay | RecordKey::RequestRate | RecordKey::VisitTime => without_agent,
            RecordKey::ContentSignal | RecordKey::ContentUsage => {
                let is_signal = entry.key == RecordKey::ContentSignal;
                let vocabulary = if is_signal { Vocabulary::Signal } else { Vocabulary::Usage };
                let read = || usage::parse(vocabulary, value, self.options.lenient_usage);
                without_agent.or_else(|| unreadable(read().fault?))
            }
            RecordKey::Sitemap | RecordKey::Host | RecordKey::CleanParam | RecordKey::License => None,
        };
        if let Some((code, at)) = fault {
            let mut found = Finding::of(code, self.place(entry, &at));
            if let Some(why) = why_no_delay(value).filter(|_| code == WarningCode::BadDelay) {
                found.message = why.into();
            }
            self.push(found);
        }
    }

    fn warn(&mut self, code: WarningCode, line: &SourceLine, before: u32, at: Range<usize>) {
        if self.warnings.len() <= MOST_WARNINGS {
            self.push(Finding::of(code, place(self.text, line, before, at)));
        }
    }

    fn push(&mut self, found: Finding) {
        if self.warnings.len() <= MOST_WARNINGS {
            self.warnings.push(found);
        }
    }

    /// The groups: user agents with everything up to the next user agent after a rule. Lines before the first user agent do not belong to a
    /// group.
    pub(super) fn groups(&self) -> Vec<&[OutlineEntry]> {
        let mut groups = Vec::new();
        let first =
            self.records.iter().position(|entry| entry.key == RecordKey::UserAgent).unwrap_or(self.records.len());
        let (mut start, mut ended) = (first, false);
        for (at, entry) in self.records.iter().enumerate().skip(first) {
            if entry.key == RecordKey::UserAgent && ended {
                groups.push(&self.records[start..at]);
                (start, ended) = (at, false);
            }
            // draft-ietf-aipref-attach-05: `rule =/ content-usage`.
            ended |= matches!(entry.key, RecordKey::Allow | RecordKey::Disallow | RecordKey::ContentUsage);
        }
        groups.extend((start < self.records.len()).then(|| &self.records[start..]));
        groups
    }

    /// The place of a piece of an entry's line.
    pub(super) fn place(&self, entry: &OutlineEntry, at: &Range<usize>) -> TextPlace {
        place(self.text, &entry.line, entry.before, at.clone())
    }

    pub(super) fn value(&self, entry: &OutlineEntry) -> &'a [u8] {
        &self.text[entry.value.clone()]
    }

    /// The text of a range for messages, shortened if it is long.
    pub(super) fn shown(&self, range: &Range<usize>) -> String {
        let text = String::from_utf8_lossy(&self.text[range.clone()]);
        match text.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text.into_owned(),
        }
    }
}

/// The place of a piece of a line. `before`: characters of the line before this piece.
fn place(text: &[u8], line: &SourceLine, before: u32, at: Range<usize>) -> TextPlace {
    let chars = |range| chars(text.get(range).unwrap_or_default());
    let column = before.saturating_add(chars(line.start..at.start)).saturating_add(1);
    TextPlace { line: line.number, column, len: chars(at).max(1) }
}

/// Number of characters. Each ill-formed UTF-8 sequence counts as one.
fn chars(bytes: &[u8]) -> u32 {
    steps::count(bytes.len());
    let count =
        bytes.utf8_chunks().map(|chunk| chunk.valid().chars().count() + usize::from(!chunk.invalid().is_empty()));
    u32::try_from(count.sum::<usize>()).unwrap_or(u32::MAX)
}

/// Why a delay is not a number of seconds.
fn why_no_delay(value: &[u8]) -> Option<&'static str> {
    let value = value.to_ascii_lowercase();
    let magnitude = value.strip_prefix(b"-").or(value.strip_prefix(b"+")).unwrap_or(&value);
    match magnitude.first() {
        None if value.is_empty() => Some("the delay has no value"),
        Some(b'0'..=b'9' | b'.') if value.starts_with(b"-") => Some("a negative delay"),
        Some(_) if magnitude.starts_with(b"nan") || magnitude.starts_with(b"inf") => Some("not a finite number"),
        Some(_) if has_other_unit(&value) => Some("a delay in a unit other than seconds"),
        Some(_) | None => None,
    }
}

/// Whether the number is followed by a unit other than seconds or by the rest of a time: `10 minutes`, `1:30`.
pub(super) fn has_other_unit(value: &[u8]) -> bool {
    let digits = value.iter().take_while(|byte| matches!(byte, b'0'..=b'9' | b'.')).count();
    let rest = value[digits..].trim_ascii_start().to_ascii_lowercase();
    digits > 0 && [&b":"[..], b"m", b"h", b"d"].iter().any(|unit| rest.starts_with(unit))
}

/// The first malformed escape, and its range.
fn bad_escape(pattern: &[u8]) -> Option<(WarningCode, Range<usize>)> {
    memchr::memchr_iter(b'%', pattern).find_map(|at| {
        let digits = pattern[at + 1..].iter().take(2).take_while(|byte| byte.is_ascii_hexdigit()).count();
        let is_cut = pattern.len() - at <= 2;
        let code = if is_cut { WarningCode::CutEscape } else { WarningCode::BadEscape };
        (digits < 2).then(|| (code, at..(at + 3).min(pattern.len())))
    })
}

/// The place of warnings about the file as a whole.
const FILE: TextPlace = TextPlace { line: 1, column: 1, len: 1 };
/// Maximum number of characters of a quoted text in a message.
const SHOWN: usize = 60;
