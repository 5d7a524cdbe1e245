//! A file as its records and groups, each with its place: what `parse` reads, kept for looking at. Pure.

use std::ops::Range;

use crate::robots::parse::key::RecordKey;
use crate::robots::parse::line::{self, Columns, LineContent, Record, SourceLine, SourceLines, TextPlace};

/// The records of a file that were understood.
pub(super) struct Outline<'a> {
    pub(super) text: &'a [u8],
    pub(super) records: Vec<OutlineEntry>,
}

/// One record.
#[derive(Debug)]
pub(super) struct OutlineEntry {
    pub(super) line: SourceLine,
    /// Characters of the line before this piece of it.
    before: u32,
    pub(super) key: RecordKey,
    pub(super) name: Range<usize>,
    pub(super) value: Range<usize>,
}

impl<'a> Outline<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        let lines = SourceLines::new(text, line::byte_order_mark(text));
        let mut columns = Columns::default();
        let records = lines.filter_map(|line| match line::read(text, &line) {
            LineContent::Record(Record { key, value, .. }) => {
                let spelt = RecordKey::recognise(&text[key.clone()])?;
                let before = columns.before(text, &line);
                Some(OutlineEntry { line, before, key: spelt.key, name: key, value })
            }
            LineContent::Text(_) | LineContent::Empty => None,
        });
        Self { text, records: records.collect() }
    }

    /// The groups: user agents with all that stands before the next user agent after a rule. What stands before any user
    /// agent is in none.
    pub(super) fn groups(&self) -> Vec<&[OutlineEntry]> {
        let mut groups = Vec::new();
        let first =
            self.records.iter().position(|entry| entry.key == RecordKey::UserAgent).unwrap_or(self.records.len());
        let (mut start, mut ended) = (first, false);
        for (at, entry) in self.records.iter().enumerate().skip(first) {
            match entry.key {
                RecordKey::UserAgent if ended => {
                    groups.push(&self.records[start..at]);
                    (start, ended) = (at, false);
                }
                // draft-ietf-aipref-attach-05: `rule =/ content-usage`.
                RecordKey::Allow | RecordKey::Disallow | RecordKey::ContentUsage => ended = true,
                RecordKey::UserAgent
                | RecordKey::CrawlDelay
                | RecordKey::RequestRate
                | RecordKey::VisitTime
                | RecordKey::Sitemap
                | RecordKey::Host
                | RecordKey::CleanParam
                | RecordKey::ContentSignal
                | RecordKey::License => {}
            }
        }
        groups.extend((start < self.records.len()).then(|| &self.records[start..]));
        groups
    }

    /// Where a piece of an entry's line is.
    pub(super) fn place(&self, entry: &OutlineEntry, at: &Range<usize>) -> TextPlace {
        TextPlace::of(self.text, &entry.line, entry.before, at.clone())
    }

    pub(super) fn value(&self, entry: &OutlineEntry) -> &'a [u8] {
        &self.text[entry.value.clone()]
    }

    /// The value for messages, cut where it is long.
    pub(super) fn shown(&self, range: &Range<usize>) -> String {
        let text = String::from_utf8_lossy(&self.text[range.clone()]);
        match text.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text.into_owned(),
        }
    }
}

const SHOWN: usize = 60;
