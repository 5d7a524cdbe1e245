//! RFC 9309 §2.2: parses a robots.txt, with any content. Pure.

mod agent;
pub(crate) mod delay;
pub(crate) mod encoding;
pub(crate) mod group;
pub(crate) mod key;
pub(crate) mod line;
pub(crate) mod selection;
pub(crate) mod source;
pub(crate) mod span;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;
use std::time::Duration;

use crate::robots::byte_set::ByteSet;
use crate::robots::options::ParseOptions;
use crate::robots::rule::RuleKind;
use crate::robots::usage::Vocabulary;
use delay::StatedPace;
use encoding::Encoding;
use group::Groups;
use key::RecordKey;
use line::{LineContent, SourceLine, SourceLines};
use source::{FileSource, Marks};
use span::{RuleSpan, Span};

/// A parsed file.
#[derive(Debug)]
pub(crate) struct RobotsFile {
    /// Whether the encoding is unknown, so that the file may have rules that were not read.
    pub(crate) is_unreadable: bool,
    pub(crate) source: FileSource,
    pub(crate) groups: Groups,
    /// The values of the lines that belong to no group, with their keys, in the file's order.
    pub(crate) values: Vec<(RecordKey, Span)>,
    /// A `Crawl-delay` before any user agent.
    crawl_delay: Option<Duration>,
    /// Whether the file was longer than the limit.
    pub(crate) is_cut: bool,
    /// Whether the file was decoded from UTF-16 or UTF-32.
    pub(crate) is_wide: bool,
    /// Content digest, computed on first use.
    pub(crate) digest: OnceLock<[u8; 32]>,
    /// The faults of preferences and licences, computed on first use.
    pub(crate) faults: OnceLock<FileFaults>,
}

/// Facts about a file's preferences and licences that the proxy needs at each fetch. Computing these takes a pass over all lines of
/// preferences and licences.
#[derive(Debug)]
pub(crate) struct FileFaults {
    /// The first value of a `License` line that is a URL.
    pub(crate) license: Option<Span>,
    pub(crate) has_unclear_license: bool,
    pub(crate) has_unclear_usage: bool,
}

/// Parses at most `limit` bytes of a file in the dialect of `options`. Does not warn about faults, which `lint` finds.
pub(crate) fn parse(bytes: &[u8], options: &ParseOptions, limit: usize) -> RobotsFile {
    let limit = limit.clamp(ParseOptions::MIN_SIZE, MAX_SIZE);
    let is_cut = bytes.len() > limit;
    let encoding = encoding::detect(&bytes[..bytes.len().min(limit)], is_cut);
    // The limit counts the encoded bytes, so the decoded text is read completely, even if it is longer.
    let (read, limit) = match &encoding {
        Encoding::Wide(text) => (&text[..], text.len()),
        Encoding::Bytes | Encoding::Unknown => (bytes, limit),
    };
    let text = if is_cut { &read[..last_whole_line(read, limit)] } else { read };
    let mut parser = Parser {
        text,
        options,
        groups: Groups::for_text(text),
        values: Vec::new(),
        crawl_delay: None,
        repaired: BTreeMap::new(),
        is_ascii: text.is_ascii(),
    };
    let mut marks = Marks::for_text(text);
    for line in SourceLines::new(text) {
        marks.line(line.number, line.next);
        parser.line(&line);
    }
    let Parser { mut groups, values, crawl_delay, repaired, .. } = parser;
    let source = FileSource::new(text, options, marks, repaired);
    groups.finish(&source);
    let (is_wide, is_unreadable) = (matches!(encoding, Encoding::Wide(_)), encoding == Encoding::Unknown);
    let (digest, faults) = (OnceLock::new(), OnceLock::new());
    RobotsFile { source, groups, values, crawl_delay, is_cut, is_wide, is_unreadable, digest, faults }
}

struct Parser<'a> {
    text: &'a [u8],
    options: &'a ParseOptions,
    groups: Groups,
    values: Vec<(RecordKey, Span)>,
    crawl_delay: Option<Duration>,
    repaired: BTreeMap<u32, Box<str>>,
    is_ascii: bool,
}

impl Parser<'_> {
    fn line(&mut self, line: &SourceLine) {
        if let Some((kind, record)) = line::read_rule(self.text, line)
            && self.is_ascii
        {
            return self.rule(kind, record.value);
        }
        let LineContent::Record(record) = line::read(self.text, line) else { return };
        let Some(spelt) = RecordKey::recognise(&self.text[record.key]) else { return };
        let bytes = &self.text[record.value.clone()];
        if !self.is_ascii && str::from_utf8(bytes).is_err() {
            let start = Span::new(record.value.clone()).start;
            self.repaired.insert(start, String::from_utf8_lossy(bytes).into());
        }
        match spelt.key {
            RecordKey::Allow => self.rule(RuleKind::Allow, record.value),
            RecordKey::Disallow => self.rule(RuleKind::Disallow, record.value),
            RecordKey::UserAgent => self.groups.add_agent(Span::new(record.value), bytes),
            RecordKey::CrawlDelay | RecordKey::RequestRate | RecordKey::VisitTime => {
                let Some(pace) = StatedPace::parse(spelt.key, bytes) else { return };
                if self.groups.is_empty() && self.options.leading_crawl_delay {
                    self.crawl_delay = self.crawl_delay.max(pace.crawl_delay);
                }
                self.groups.add_pace(pace);
            }
            RecordKey::Sitemap | RecordKey::License => self.values.push((spelt.key, Span::new(record.value))),
            // Keys of Yandex, which do not affect a crawler.
            RecordKey::Host | RecordKey::CleanParam => {}
            RecordKey::ContentSignal => self.groups.add_usage(Vocabulary::Signal, Span::new(record.value)),
            RecordKey::ContentUsage => self.groups.add_usage(Vocabulary::Usage, Span::new(record.value)),
        }
    }

    #[inline]
    fn rule(&mut self, kind: RuleKind, value: Range<usize>) {
        let pattern = &self.text[value.clone()];
        let byte_set = ByteSet::of(pattern);
        let plain = !byte_set.has_odd() && !byte_set.has_star() && pattern.last() != Some(&b'$');
        let Span { start, len } = Span::new(value);
        self.groups.add_rule((len > 0).then_some(RuleSpan { start, len, kind, plain }));
    }
}

/// Maximum size of a text as received, in bytes. UTF-8 can be 1.5 times as long as the UTF-16 that it was decoded from. An offset in the
/// decoded text must fit into 31 bits, as one bit holds the kind of a rule. A normalised pattern can be three times as long as the decoded
/// text, and must fit into 32 bits.
const MAX_SIZE: usize = (1 << 30) / 3 * 2;

/// Length of a truncated text up to the end of the last line that fits into `limit`.
fn last_whole_line(bytes: &[u8], limit: usize) -> usize {
    if bytes.get(limit).is_some_and(|next| matches!(next, b'\n' | b'\r' | 0)) {
        return limit;
    }
    let read = &bytes[..bytes.len().min(limit)];
    memchr::memrchr3(b'\n', b'\r', 0, read).map_or(0, |end| end + 1)
}

#[cfg(test)]
mod tests {
    use crate::robots::{ParseOptions, RobotsTxt, WarningCode};

    /// UTF-16 text of which nearly all characters take three bytes in UTF-8.
    fn utf16(characters: usize, end: &str) -> Vec<u8> {
        let line = format!("#{}\n", "\u{4e2d}".repeat(98));
        let text: String = "\u{feff}User-agent: *\n".chars().chain(line.chars().cycle()).take(characters).collect();
        format!("{text}\n{end}").encode_utf16().flat_map(u16::to_le_bytes).collect()
    }

    fn is_allowed(robots: &RobotsTxt) -> bool {
        robots.rules_for(&["ExampleBot"]).check("/last").is_allowed()
    }

    /// A line that ends before the limit is read, whether LF, CR or NUL ends it.
    #[test]
    fn overlong_file_is_read_up_to_its_last_complete_line() {
        for end in [&b"\n"[..], b"\r", b"\0", b"\r\n"] {
            let lines = [b"User-agent: *\nDisallow: /last", end].concat();
            let comment = [&lines[..], &[b'#'; ParseOptions::MIN_SIZE]].concat();
            assert!(!is_allowed(&RobotsTxt::parse(&comment)), "{}", end.escape_ascii());
            let rest = ParseOptions::MIN_SIZE - (lines.len() - end.len());
            let at_the_limit = [&vec![b'\n'; rest], &lines[..], b"#"].concat();
            assert!(!is_allowed(&RobotsTxt::parse(&at_the_limit)), "{}", end.escape_ascii());
        }
    }

    /// The limit counts the bytes as sent.
    #[test]
    fn size_limit_of_a_utf16_file_counts_bytes_as_sent() {
        let file = utf16(255_900, "Disallow: /last");
        assert!(file.len() <= ParseOptions::MIN_SIZE);
        let read = RobotsTxt::parse(&file);
        assert!(read.source().len() > 700_000);
        assert!(!is_allowed(&read));
        assert!(read.warnings().all(|found| found.code != WarningCode::TooLarge.as_str()));
        let again = RobotsTxt::parse_again(read.source(), &ParseOptions::default());
        assert!(!is_allowed(&again) && again.source() == read.source());
    }

    #[test]
    fn overlong_utf16_file_is_cut_at_a_line_end() {
        let file = utf16(256_200, "Disallow: /last");
        let read = RobotsTxt::parse(&file);
        assert!(is_allowed(&read));
        assert!(read.warnings().any(|found| found.code == WarningCode::TooLarge.as_str()));
        assert!(read.source().ends_with(b"\n"));
    }
}
