//! The usage preferences of one crawler's groups, compiled. Pure.

use super::byte_set::ByteSet;
use super::matcher::Matcher;
use super::matcher::builder::Rules;
use super::options::ParseOptions;
use super::parse::source::{Source, Span};
use super::priority::RuleKind;
use super::usage::{self, Purpose};

/// Preferences by purpose.
#[derive(Debug)]
pub(crate) struct Preferences {
    lines: Vec<Span>,
    purposes: Vec<(Purpose, Matcher)>,
}

/// A preference that says no.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refusal {
    purpose: u32,
    /// Where the line's value begins.
    pub(crate) offset: u32,
}

/// Of preferences of the same length, the one that says no wins: so it is ordered as rules that allow are.
const NO: RuleKind = RuleKind::Allow;
const YES: RuleKind = RuleKind::Disallow;

impl Preferences {
    /// `None` if there are no preferences.
    pub(crate) fn new(source: &Source, lines: Vec<Span>, options: &ParseOptions) -> Option<Self> {
        let mut said: Vec<(Purpose, Span, RuleKind, u32)> = Vec::new();
        for &line in &lines {
            let usage::Preferences { pattern, welcome } = usage::parse(source.slice(line));
            let pattern = Span { start: line.start, len: u16::try_from(pattern.len()).unwrap_or(u16::MAX) };
            said.extend(
                welcome.into_iter().map(|(purpose, yes)| (purpose, pattern, if yes { YES } else { NO }, line.start)),
            );
        }
        said.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        let purposes = said.chunk_by(|(a, ..), (b, ..)| a == b).map(|preferences| {
            let mut rules = Rules::new(options, preferences.len(), 0);
            for &(_, pattern, kind, offset) in preferences {
                // A line without a path is about everything.
                rules.add(if pattern.len == 0 { b"/" } else { source.slice(pattern) }, offset, kind);
            }
            (preferences[0].0.clone(), Matcher::new(rules))
        });
        let purposes: Vec<_> = purposes.collect();
        (!lines.is_empty()).then_some(Self { lines, purposes })
    }

    /// The preference that says no to one of the purposes for a normalised path.
    pub(crate) fn refusal(&self, path: &[u8], byte_set: ByteSet, purposes: &[Purpose]) -> Option<Refusal> {
        let mut wanted = (0..).zip(&self.purposes).filter(|(_, (purpose, _))| purposes.contains(purpose));
        wanted.find_map(|(purpose, (_, preferences))| {
            let priority = preferences.best(path, byte_set).filter(|&priority| preferences.kind(priority) == NO)?;
            Some(Refusal { purpose, offset: preferences.offset(priority) })
        })
    }

    pub(crate) fn purpose(&self, refusal: Refusal) -> &str {
        self.purposes.get(refusal.purpose as usize).map_or("", |(purpose, _)| purpose.as_str())
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = Span> {
        self.lines.iter().copied()
    }

    pub(crate) fn heap_size(&self) -> usize {
        let purposes = self.purposes.iter().map(|(purpose, matcher)| purpose.as_str().len() + matcher.heap_size());
        size_of::<Self>() + size_of_val(&*self.lines) + size_of_val(&*self.purposes) + purposes.sum::<usize>()
    }
}
