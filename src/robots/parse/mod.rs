//! RFC 9309 §2.2: reads a robots.txt, whatever it holds. Pure.

mod agent;
pub(crate) mod delay;
pub(crate) mod group;
pub(crate) mod key;
pub(crate) mod line;
pub(crate) mod source;
pub(crate) mod span;
mod utf16;
pub(crate) mod warnings;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;
use std::time::Duration;

use crate::robots::byte_set::ByteSet;
use crate::robots::options::ParseOptions;
use crate::robots::product_token::is_token_byte;
use crate::robots::rule::RuleKind;
use crate::robots::usage::{self, Vocabulary};
use delay::{RequestRate, StatedPace, VisitTime};
use group::{Chosen, Groups};
use key::RecordKey;
use line::{LineContent, Record, SourceLine, SourceLines};
use source::{FileSource, Marks};
use span::{RuleSpan, Span};
use warnings::{Warning, WarningCode, Warnings};

/// What was read.
#[derive(Debug)]
pub(crate) struct RobotsFile {
    pub(crate) options: ParseOptions,
    pub(crate) source: FileSource,
    pub(crate) groups: Groups,
    /// The values of the lines with these keys that belong to no group, in the file's order.
    pub(crate) values: Vec<(RecordKey, Span)>,
    /// One that stands before any user agent.
    crawl_delay: Option<Duration>,
    pub(crate) warnings: Vec<Warning>,
    /// Content digest, computed on first use.
    pub(crate) digest: OnceLock<[u8; 32]>,
}

impl RobotsFile {
    /// What is said of the pace of a crawler that obeys these groups.
    pub(crate) fn pace(&self, chosen: &Chosen) -> StatedPace {
        let paces = chosen.sections.iter().map(|&section| self.groups.pace_of(section));
        let pace = paces.fold(StatedPace::default(), StatedPace::slower);
        StatedPace { crawl_delay: pace.crawl_delay.or(self.crawl_delay), ..pace }
    }
}

/// Reads a file in the dialect that `options` describe, of its bytes no more than `limit`.
pub(crate) fn parse(bytes: &[u8], options: &ParseOptions, limit: usize) -> RobotsFile {
    let limit = limit.clamp(ParseOptions::MIN_SIZE, MAX_SIZE);
    let is_cut = bytes.len() > limit;
    let decoded = utf16::decode(&bytes[..bytes.len().min(limit)]);
    let is_utf16 = decoded.is_some();
    // What was cut off is missing at the end of what was decoded, which may be longer.
    let (read, limit) = decoded.as_deref().map_or((bytes, limit), |text| (text, text.len()));
    let text = if is_cut { &read[..last_whole_line(read, limit)] } else { read };
    let mut parser = Parser {
        text,
        options,
        groups: Groups::for_text(text),
        values: Vec::new(),
        crawl_delay: None,
        warnings: Warnings::new(text),
        repaired: BTreeMap::new(),
        is_ascii: text.is_ascii(),
    };
    if is_cut {
        parser.warnings.of_file(WarningCode::TooLarge);
    }
    if looks_like_html(text) {
        parser.warnings.of_file(WarningCode::Html);
    }
    if is_utf16 {
        parser.warnings.of_file(WarningCode::Utf16);
    }
    if text.starts_with(b"\x1f\x8b") {
        parser.warnings.of_file(WarningCode::Compressed);
    }
    let mut marks = Marks::for_text(text);
    let mut nul_in = 0;
    for line in SourceLines::new(text, line::byte_order_mark(text)) {
        marks.line(line.number, line.next);
        // What follows a NUL has the number of its line again.
        let follows_nul = line.number == nul_in;
        parser.line(&line);
        if text.get(line.end) == Some(&0) && !follows_nul {
            nul_in = line.number;
            parser.warnings.add(WarningCode::Nul, &line, line.end..line.end + 1);
        }
    }
    parser.groups.finish(text, options);
    let source = FileSource::new(text.into(), marks, parser.repaired);
    let Parser { groups, values, crawl_delay, warnings, .. } = parser;
    let (options, digest) = (options.clone(), OnceLock::new());
    RobotsFile { options, source, groups, values, crawl_delay, warnings: warnings.into(), digest }
}

struct Parser<'a> {
    text: &'a [u8],
    options: &'a ParseOptions,
    groups: Groups,
    values: Vec<(RecordKey, Span)>,
    crawl_delay: Option<Duration>,
    warnings: Warnings<'a>,
    repaired: BTreeMap<u32, Box<str>>,
    is_ascii: bool,
}

impl Parser<'_> {
    fn line(&mut self, line: &SourceLine) {
        if let Some((kind, record)) = line::read_rule(self.text, line)
            && self.is_ascii
        {
            return self.rule(kind, line, &record);
        }
        if line.end - line.start > line::MAX_LINE {
            let cut = line.start + line::MAX_LINE;
            self.warnings.add(WarningCode::LongLine, line, cut..cut + 1);
        }
        let record = match line::read(self.text, line) {
            LineContent::Empty => return,
            LineContent::Text(text) => return self.warnings.add(WarningCode::NotARecord, line, text),
            LineContent::Record(record) => record,
        };
        let name = &record.key;
        let Some(spelt) = RecordKey::recognise(&self.text[name.clone()]) else {
            let code = if record.colon { WarningCode::UnknownKey } else { WarningCode::NotARecord };
            return self.warnings.add(code, line, name.clone());
        };
        if !record.colon {
            self.warnings.add(WarningCode::MissingColon, line, name.end..name.end + 1);
        }
        if !spelt.rightly {
            self.warnings.add(WarningCode::MisspeltKey, line, name.clone());
        }
        if name.start > line.start {
            self.warnings.add(WarningCode::LeadingSpace, line, line.start..name.start);
        }
        if !self.is_ascii {
            self.keep_text(line, &record.value);
        }
        self.apply(spelt.key, line, record);
    }

    fn apply(&mut self, key: RecordKey, line: &SourceLine, record: Record) {
        let bytes = &self.text[record.value.clone()];
        match key {
            RecordKey::Allow => self.rule(RuleKind::Allow, line, &record),
            RecordKey::Disallow => self.rule(RuleKind::Disallow, line, &record),
            RecordKey::UserAgent => self.user_agent(line, record),
            RecordKey::CrawlDelay => {
                let crawl_delay = delay::crawl_delay(bytes);
                if self.groups.is_empty() && self.options.leading_crawl_delay && crawl_delay.is_some() {
                    self.crawl_delay = self.crawl_delay.max(crawl_delay);
                } else {
                    let pace = crawl_delay.map(|_| StatedPace { crawl_delay, ..StatedPace::default() });
                    self.pace(pace, WarningCode::BadDelay, line, record);
                }
            }
            RecordKey::RequestRate => {
                let request_rate = RequestRate::parse(bytes);
                let pace = request_rate.map(|_| StatedPace { request_rate, ..StatedPace::default() });
                self.pace(pace, WarningCode::BadRate, line, record);
            }
            RecordKey::VisitTime => {
                let visit_time = VisitTime::parse(bytes);
                let pace = visit_time.map(|_| StatedPace { visit_time, ..StatedPace::default() });
                self.pace(pace, WarningCode::BadVisitTime, line, record);
            }
            RecordKey::Sitemap | RecordKey::Host | RecordKey::CleanParam | RecordKey::License => {
                self.values.push((key, Span::new(record.value)));
            }
            RecordKey::ContentSignal => self.usage(Vocabulary::Signal, line, record),
            RecordKey::ContentUsage => self.usage(Vocabulary::Usage, line, record),
        }
    }

    #[inline]
    fn rule(&mut self, kind: RuleKind, line: &SourceLine, Record { key: name, value, .. }: &Record) {
        let pattern = &self.text[value.clone()];
        let byte_set = ByteSet::of(pattern);
        if byte_set.has_odd() {
            self.check_escapes(line, value);
        }
        if !matches!(pattern.first(), Some(b'/' | b'*') | None) {
            self.warnings.add(WarningCode::NoLeadingSlash, line, value.start..value.start + 1);
        }
        let plain = !byte_set.has_odd() && !byte_set.has_star() && pattern.last() != Some(&b'$');
        let Span { start, len } = Span::new(value.clone());
        let rule = (len > 0).then_some(RuleSpan { start, len, kind, plain });
        if !self.groups.add_rule(rule) {
            self.warnings.add(WarningCode::RuleWithoutAgent, line, name.clone());
        }
    }

    #[cold]
    fn check_escapes(&mut self, line: &SourceLine, value: &Range<usize>) {
        let pattern = &self.text[value.clone()];
        for at in memchr::memchr_iter(b'%', pattern) {
            let digits = pattern[at + 1..].iter().take(2).take_while(|byte| byte.is_ascii_hexdigit()).count();
            let code = match pattern.len() - at {
                _ if digits == 2 => continue,
                1 | 2 => WarningCode::CutEscape,
                _ => WarningCode::BadEscape,
            };
            let at = value.start + at;
            return self.warnings.add(code, line, at..(at + 3).min(value.end));
        }
    }

    fn user_agent(&mut self, line: &SourceLine, Record { key: name, value, .. }: Record) {
        let agent = &self.text[value.clone()];
        if agent.is_empty() {
            self.warnings.add(WarningCode::EmptyAgent, line, name);
        } else if agent != b"*" && !agent.iter().copied().all(is_token_byte) {
            self.warnings.add(WarningCode::AgentNotAToken, line, value.clone());
        }
        self.groups.add_agent(Span::new(value), agent);
    }

    /// `fault`: of a value that cannot be read.
    fn pace(&mut self, pace: Option<StatedPace>, fault: WarningCode, line: &SourceLine, record: Record) {
        match pace {
            Some(pace) if self.groups.add_pace(pace) => {}
            Some(_) => self.warnings.add(WarningCode::RuleWithoutAgent, line, record.key),
            None => self.warnings.add(fault, line, record.shown()),
        }
    }

    /// One that cannot be understood counts all the same: for its path the preferences are unknown.
    fn usage(&mut self, vocabulary: Vocabulary, line: &SourceLine, record: Record) {
        let read = usage::parse(vocabulary, &self.text[record.value.clone()], self.options.lenient_usage);
        if !self.groups.add_usage(vocabulary, Span::new(record.value.clone())) {
            return self.warnings.add(WarningCode::RuleWithoutAgent, line, record.key);
        }
        if let Some(fault) = read.fault {
            self.warnings.add(fault, line, record.shown());
        }
    }

    /// Keeps a readable form of a value that is not UTF-8.
    fn keep_text(&mut self, line: &SourceLine, value: &Range<usize>) {
        let bytes = &self.text[value.clone()];
        if str::from_utf8(bytes).is_err() {
            self.warnings.add(WarningCode::NotUtf8, line, value.clone());
            let start = Span::new(value.clone()).start;
            self.repaired.insert(start, String::from_utf8_lossy(bytes).into());
        }
    }
}

/// An offset fits into 31 bits, next to one bit for the kind of rule, in UTF-8 that is half as long again as the UTF-16 that it was
/// made of; a pattern three times as long as that fits into 32 bits.
const MAX_SIZE: usize = (1 << 30) / 3 * 2;

/// The bytes up to the end of the last line that fits into `limit`, of a text that was cut.
fn last_whole_line(bytes: &[u8], limit: usize) -> usize {
    if bytes.get(limit).is_some_and(|next| matches!(next, b'\n' | b'\r')) {
        return limit;
    }
    let read = &bytes[..bytes.len().min(limit)];
    memchr::memrchr2(b'\n', b'\r', read).map_or(0, |end| end + 1)
}

fn looks_like_html(text: &[u8]) -> bool {
    let start = text[line::byte_order_mark(text)..].trim_ascii_start();
    let begins = |tag: &[u8]| start.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag));
    [b"<!doctype".as_slice(), b"<html", b"<head", b"<?xml"].into_iter().any(begins)
}

#[cfg(test)]
mod tests {
    use crate::robots::{ParseOptions, RobotsTxt, WarningCode};

    /// In UTF-16, nine characters of ten of which take three bytes in UTF-8.
    fn utf16(characters: usize, end: &str) -> Vec<u8> {
        let line = format!("#{}\n", "\u{4e2d}".repeat(98));
        let text: String = "\u{feff}User-agent: *\n".chars().chain(line.chars().cycle()).take(characters).collect();
        format!("{text}\n{end}").encode_utf16().flat_map(u16::to_le_bytes).collect()
    }

    fn is_allowed(robots: &RobotsTxt) -> bool {
        robots.rules_for(&["ExampleBot"]).check("/last").is_allowed()
    }

    /// The limit counts the bytes of the file as it comes, as its sender does.
    #[test]
    fn a_file_in_utf16_that_is_short_enough_is_read_to_its_end_however_long_it_is_in_utf8() {
        let file = utf16(255_900, "Disallow: /last");
        assert!(file.len() <= ParseOptions::MIN_SIZE);
        let read = RobotsTxt::parse(&file);
        assert!(read.source().len() > 700_000);
        assert!(!is_allowed(&read));
        assert!(read.warnings().all(|warning| warning.code() != WarningCode::TooLarge));
        let again = RobotsTxt::parse_again(read.source(), &ParseOptions::default());
        assert!(!is_allowed(&again) && again.source() == read.source());
    }

    #[test]
    fn a_file_in_utf16_that_is_too_long_is_cut_at_a_line_end() {
        let file = utf16(256_200, "Disallow: /last");
        let read = RobotsTxt::parse(&file);
        assert!(is_allowed(&read));
        assert!(read.warnings().any(|warning| warning.code() == WarningCode::TooLarge));
        assert!(read.source().ends_with(b"\n"));
    }
}
