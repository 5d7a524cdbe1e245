//! The usage preferences of a file, compiled for each group on first use. Pure.

use super::budget::{StepBudget, StepsSpent};
use super::parse::source::FileSource;
use super::parse::span::Span;
use super::path::ComparedPath;
use super::patterns::pattern::Shape;
use super::patterns::{Patterns, PatternsBuilder};
use super::steps;
use super::usage::{self, Purpose, Vocabulary};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The preference lines of one vocabulary, in the file's order.
#[derive(Debug)]
pub(crate) struct Preferences {
    vocabulary: Vocabulary,
    lines: Vec<Span>,
    owners: Vec<PreferenceOwner>,
}

/// A group or section, identified by its number, and its lines, which are consecutive.
#[derive(Debug)]
struct PreferenceOwner {
    number: u32,
    lines: Range<usize>,
    compiled: OnceLock<PreferenceRules>,
}

/// The compiled lines of one owner. As with rules, the line with the longest matching path decides; lines with the same path count as one
/// line (draft-ietf-aipref-attach, "Content-Usage Rule Semantics"). If several matching paths of different lines have the greatest length,
/// each of these lines counts.
#[derive(Debug)]
struct PreferenceRules {
    /// The paths, grouped by the set of uses that they refuse. It does not matter which of several equally long matching paths of such a
    /// group is found.
    paths: Vec<Patterns<PreferencePath>>,
    /// The refused uses, sorted by the number of the path, then in the file's order.
    unwelcome: Vec<Unwelcome>,
}

/// Precedence of a matching path. The greatest decides: the longest path, or among equally long paths the first in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PreferencePath {
    bytes: usize,
    number: Reverse<u32>,
}

/// A use that a line refuses.
#[derive(Debug)]
pub(crate) struct Unwelcome {
    path: u32,
    pub(crate) vocabulary: Vocabulary,
    pub(crate) line: Span,
    /// The path that the line begins with; empty if the line is about all paths.
    pub(crate) pattern: Span,
    pub(crate) purpose: Purpose,
}

/// The uses that are refused for one path, as slices of the lines' refused uses.
type FoundPreferences<'a> = SmallVec<[&'a [Unwelcome]; 2]>;

impl Preferences {
    pub(crate) fn new(vocabulary: Vocabulary) -> Self {
        Self { vocabulary, lines: Vec::new(), owners: Vec::new() }
    }

    /// Adds the value of a line that belongs to the group or section `number`. Numbers must not decrease.
    pub(crate) fn add(&mut self, number: u32, value: Span) {
        self.lines.push(value);
        let end = self.lines.len();
        match self.owners.last_mut() {
            Some(last) if last.number == number => last.lines.end = end,
            _ => self.owners.push(PreferenceOwner { number, lines: end - 1..end, compiled: OnceLock::new() }),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The values of the lines of these owners.
    pub(crate) fn lines(&self, owners: &[u32]) -> impl Iterator<Item = Span> {
        self.of(owners).flat_map(|owner| &self.lines[owner.lines.clone()]).copied()
    }

    /// Whether some line cannot be understood.
    pub(crate) fn has_fault(&self, source: &FileSource) -> bool {
        let read = |line: &Span| usage::parse(self.vocabulary, source.slice(*line), source.options.lenient_usage);
        self.lines.iter().any(|line| read(line).fault.is_some())
    }

    /// The uses that the lines of these owners refuse for a path, by the longest matching paths.
    pub(crate) fn unwelcome(
        &self,
        owners: &[u32],
        path: ComparedPath<'_>,
        source: &FileSource,
        budget: &mut StepBudget,
    ) -> Result<FoundPreferences<'_>, StepsSpent> {
        let (mut longest, mut found) = (0, FoundPreferences::new());
        budget.spend(owners.len() * (self.owners.len() + 1).ilog2() as usize)?;
        for owner in self.of(owners) {
            let rules = self.compiled(owner, source);
            for paths in &rules.paths {
                let Some(best) = paths.best(path, budget)? else { continue };
                if best.bytes > longest {
                    (longest, found) = (best.bytes, FoundPreferences::new());
                }
                if best.bytes == longest {
                    found.push(rules.said(best.number.0));
                }
            }
        }
        Ok(found)
    }

    pub(crate) fn compile_all(&self, source: &FileSource) {
        self.owners.iter().for_each(|owner| _ = self.compiled(owner, source));
    }

    fn compiled<'a>(&self, owner: &'a PreferenceOwner, source: &FileSource) -> &'a PreferenceRules {
        let lines = &self.lines[owner.lines.clone()];
        owner.compiled.get_or_init(|| PreferenceRules::new(self.vocabulary, lines, source))
    }

    pub(crate) fn heap_size(&self) -> usize {
        let compiled = self.owners.iter().filter_map(|owner| owner.compiled.get());
        self.lines.capacity() * size_of::<Span>()
            + self.owners.capacity() * size_of::<PreferenceOwner>()
            + compiled.map(PreferenceRules::heap_size).sum::<usize>()
    }

    fn of<'a>(&'a self, owners: &[u32]) -> impl Iterator<Item = &'a PreferenceOwner> {
        let at = move |number: &u32| self.owners.binary_search_by_key(number, |owner| owner.number).ok();
        owners.iter().filter_map(at).map(|at| &self.owners[at])
    }
}

impl PreferenceRules {
    fn new(vocabulary: Vocabulary, lines: &[Span], source: &FileSource) -> Self {
        let mut numbers: HashMap<Shape, u32> = HashMap::new();
        let (mut patterns, mut unwelcome) = (Vec::new(), Vec::new());
        for &line in lines {
            let value = source.slice(line);
            steps::count(value.len());
            let read = usage::parse(vocabulary, value, source.options.lenient_usage);
            let begin = line.start as usize;
            let written = Span::new(begin + read.pattern.start..begin + read.pattern.end);
            // A line without a path is about all paths.
            let pattern = if read.pattern.is_empty() { b"/" } else { source.slice(written) };
            let path = *numbers.entry(Shape::new(pattern)).or_insert_with(|| {
                patterns.push(pattern);
                patterns.len() as u32 - 1
            });
            // `ai-train=no, use=reference` refuses the same use twice.
            let mut said = HashSet::new();
            let no = read.welcome.into_iter().filter(|(_, is_welcome)| !is_welcome);
            let no = no.map(|(purpose, _)| purpose).filter(|purpose| said.insert(purpose.clone()));
            unwelcome.extend(no.map(|purpose| Unwelcome { path, vocabulary, line, pattern: written, purpose }));
        }
        unwelcome.shrink_to_fit();
        unwelcome.sort_by_key(|said: &Unwelcome| said.path);
        let mut by_uses: BTreeMap<BTreeSet<&Purpose>, PatternsBuilder<PreferencePath>> = BTreeMap::new();
        let mut rest = &unwelcome[..];
        for (number, pattern) in (0..).zip(patterns) {
            let (own, others) = rest.split_at(rest.partition_point(|said| said.path == number));
            rest = others;
            let paths = by_uses.entry(own.iter().map(|said| &said.purpose).collect());
            let paths = paths.or_insert_with(|| PatternsBuilder::new(Arc::from([]), 0));
            paths.add(pattern, |bytes| PreferencePath { bytes, number: Reverse(number) });
        }
        let paths = by_uses.into_values().map(PatternsBuilder::finish).collect();
        Self { paths, unwelcome }
    }

    fn said(&self, path: u32) -> &[Unwelcome] {
        let begin = self.unwelcome.partition_point(|said| said.path < path);
        let rest = &self.unwelcome[begin..];
        &rest[..rest.partition_point(|said| said.path == path)]
    }

    fn heap_size(&self) -> usize {
        let purposes: usize = self.unwelcome.iter().map(|said| said.purpose.as_str().len() + ALLOCATION).sum();
        let paths: usize = self.paths.iter().map(Patterns::heap_size).sum();
        paths + size_of_val(&*self.paths) + size_of_val(&*self.unwelcome) + purposes
    }
}

/// Bytes that the allocator needs in addition to a text of a few bytes.
const ALLOCATION: usize = 16;

#[cfg(test)]
mod tests {
    use crate::robots::{ParseOptions, RobotsTxt};

    #[test]
    fn repeated_purpose_in_a_line_is_one_preference() {
        let file = RobotsTxt::parse(b"User-agent: *\nContent-Signal: search=yes, ai-train=no, use=immediate\n");
        let everybody: [&str; 0] = [];
        let rules = file.rules_for(&everybody);
        let said: Vec<_> = rules.preferences_for(b"/").into_iter().map(|it| it.purpose().to_owned()).collect();
        assert_eq!(said, ["ai-train", "search"]);
    }

    #[test]
    fn escaped_star_or_dollar_differs_from_a_wildcard_or_anchor() {
        for (escaped, pattern, target) in [("/x%2A", "/x*", "/xyz"), ("/x%2Ay", "/x*y", "/xzy"), ("/x%24", "/x$", "/x")]
        {
            let lines = format!("Content-Usage: {escaped} train-ai=y\nContent-Usage: {pattern} train-ai=n\n");
            let file = RobotsTxt::parse(format!("User-agent: *\n{lines}").as_bytes());
            let everybody: [&str; 0] = [];
            let rules = file.rules_for(&everybody);
            let said: Vec<_> = rules.preferences_for(target.as_bytes()).into_iter().map(|it| it.path()).collect();
            assert_eq!(said, [pattern], "{target}");
        }
    }

    #[test]
    fn lines_of_one_path_are_merged_in_any_escaping() {
        let lines = "Content-Usage: /~x*$ train-ai=n\nContent-Usage: /%7Ex*$ search=n\n";
        let file = RobotsTxt::parse(format!("User-agent: *\n{lines}").as_bytes());
        let everybody: [&str; 0] = [];
        let rules = file.rules_for(&everybody);
        let said: Vec<_> = rules.preferences_for(b"/~xy").into_iter().map(|it| it.purpose().to_owned()).collect();
        assert_eq!(said, ["ai-train", "search"]);
    }

    #[test]
    fn refusals_count_among_paths_of_equal_length_in_any_order() {
        for (lines, target, expected) in [
            (["/*.pd train-ai=y", "/a.pd train-ai=n"], "/a.pdf", "ai-train"),
            (["/*.pd train-ai=n", "/a.pd search=n"], "/a.pdf", "ai-train search"),
            (["/a* train-ai=y", "/ab train-ai=n"], "/abc", "ai-train"),
            (["/a* train-ai=n", "/a$ train-ai=y"], "/a", "ai-train"),
            (["/*.pdf train-ai=y", "/a.pd train-ai=n"], "/a.pdf", ""),
        ] {
            for lines in [lines, [lines[1], lines[0]]] {
                let [signals, usages] = ["Content-Signal", "Content-Usage"].map(|key| {
                    let written = lines.map(|line| format!("{key}: {line}\n")).concat();
                    let written = if key == "Content-Usage" { written } else { as_signals(&written) };
                    let file = RobotsTxt::parse(format!("User-agent: *\n{written}").as_bytes());
                    let everybody: [&str; 0] = [];
                    let rules = file.rules_for(&everybody);
                    let said = rules.preferences_for(target.as_bytes());
                    let mut said: Vec<_> = said.into_iter().map(|it| it.purpose().to_owned()).collect();
                    said.sort_unstable();
                    said.join(" ")
                });
                assert_eq!([&*signals, &*usages], [expected; 2], "{lines:?}");
            }
        }
    }

    /// Translates Content-Usage lines into the words of Content-Signal.
    fn as_signals(usages: &str) -> String {
        usages.replace("train-ai", "ai-train").replace("=y", "=yes").replace("=n", "=no")
    }

    #[test]
    fn preference_applies_to_the_path_at_the_start_of_its_line() {
        for (line, lenient, path) in [
            ("Content-Usage: /a[/\ttrain-ai=n", false, "/a[/"),
            ("Content-Usage: train-ai=n", false, ""),
            ("Content-Usage: *.pdf=n", false, ""),
            ("Content-Usage: *.pdf ai-train=no", true, "*.pdf"),
        ] {
            let options = ParseOptions { lenient_usage: lenient, ..ParseOptions::default() };
            let file = RobotsTxt::parse_with(format!("User-agent: *\n{line}\n").as_bytes(), &options);
            let everybody: [&str; 0] = [];
            let rules = file.rules_for(&everybody);
            let said: Vec<_> = rules.preferences_for(b"/a[/x.pdf").into_iter().map(|it| it.path()).collect();
            assert_eq!(said, [path], "{line}");
        }
    }
}
