//! The usage preferences of one crawler's groups, compiled. Pure.

use super::byte_set::ByteSet;
use super::matcher::Matcher;
use super::matcher::builder::Rules;
use super::matcher::path;
use super::options::{ParseOptions, PercentEncoding};
use super::parse::source::FileSource;
use super::parse::span::Span;
use super::priority::RuleKind;
use super::usage::{self, Purpose, Vocabulary};
use std::collections::HashMap;

/// For each vocabulary the line with the longest path that matches decides, as rules do, and lines of the same path are one
/// (draft-ietf-aipref-attach, "Content-Usage Rule Semantics").
#[derive(Debug)]
pub(crate) struct UsageRules {
    lines: Vec<Span>,
    paths: Vec<Matcher>,
    /// By the path's first line, then as in the file.
    unwelcome: Vec<Unwelcome>,
}

/// A use that a line says no to.
#[derive(Debug)]
pub(crate) struct Unwelcome {
    /// Where the value of the first line with this path begins.
    path: u32,
    /// What the line that says it begins with: its path, empty where it is about everything.
    pub(crate) pattern: Span,
    pub(crate) purpose: Purpose,
}

impl Unwelcome {
    /// Where the value of the line begins.
    pub(crate) fn line(&self) -> u32 {
        self.pattern.start
    }
}

impl UsageRules {
    /// `None` if there are no preferences.
    pub(crate) fn new(source: &FileSource, lines: &[(Vocabulary, Span)], options: &ParseOptions) -> Option<Self> {
        let (mut paths, mut unwelcome) = (Vec::new(), Vec::new());
        for vocabulary in [Vocabulary::Signal, Vocabulary::Usage] {
            let mut rules = Rules::new(options, 0, 0);
            let mut firsts: HashMap<Vec<u8>, u32> = HashMap::new();
            for &(_, line) in lines.iter().filter(|(of, _)| *of == vocabulary) {
                let value = source.slice(line);
                let read = usage::parse(vocabulary, value, options.lenient_usage);
                let begin = line.start as usize;
                let written = Span::new(begin + read.pattern.start..begin + read.pattern.end);
                // A line without a path is about everything.
                let pattern = if read.pattern.is_empty() { b"/" } else { source.slice(written) };
                let compared = match options.percent_encoding {
                    PercentEncoding::Normalised => path::normalise(pattern),
                    PercentEncoding::AsWritten => pattern.into(),
                };
                let path = *firsts.entry(compared).or_insert_with(|| {
                    rules.add(pattern, line.start, RuleKind::Allow);
                    line.start
                });
                let no = read.welcome.into_iter().filter(|(_, is_welcome)| !is_welcome);
                for (purpose, _) in no {
                    // `ai-train=no, use=reference` says it twice.
                    let mut said = unwelcome.iter().rev().take_while(|said: &&Unwelcome| said.line() == line.start);
                    if !said.any(|said| said.purpose == purpose) {
                        unwelcome.push(Unwelcome { path, pattern: written, purpose });
                    }
                }
            }
            if !firsts.is_empty() {
                paths.push(Matcher::new(rules));
            }
        }
        unwelcome.sort_by_key(|said| (said.path, said.line()));
        let lines: Vec<_> = lines.iter().map(|(_, line)| *line).collect();
        (!lines.is_empty()).then_some(Self { lines, paths, unwelcome })
    }

    /// What says no to one of the purposes for a normalised path, for [`said`](Self::said).
    pub(crate) fn refusal(&self, path: &[u8], byte_set: ByteSet, purposes: &[Purpose]) -> Option<usize> {
        self.refusals(path, byte_set).find(|at| purposes.contains(&self.unwelcome[*at].purpose))
    }

    /// All that says no for a normalised path, whatever the purpose.
    pub(crate) fn refusals(&self, path: &[u8], byte_set: ByteSet) -> impl Iterator<Item = usize> {
        let paths = self.paths.iter().filter_map(move |paths| Some(paths.offset(paths.best(path, byte_set)?)));
        paths.flat_map(move |path| {
            let begin = self.unwelcome.partition_point(|said| said.path < path);
            (begin..self.unwelcome.len()).take_while(move |at| self.unwelcome[*at].path == path)
        })
    }

    pub(crate) fn said(&self, at: usize) -> &Unwelcome {
        &self.unwelcome[at]
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = Span> {
        self.lines.iter().copied()
    }

    pub(crate) fn heap_size(&self) -> usize {
        let paths: usize = self.paths.iter().map(Matcher::heap_size).sum();
        let purposes: usize = self.unwelcome.iter().map(|said| said.purpose.as_str().len()).sum();
        size_of::<Self>()
            + size_of_val(&*self.lines)
            + size_of_val(&*self.paths)
            + size_of_val(&*self.unwelcome)
            + paths
            + purposes
    }
}

#[cfg(test)]
mod tests {
    use crate::robots::{ParseOptions, RobotsTxt};

    #[test]
    fn what_a_line_says_twice_is_one_preference() {
        let file = RobotsTxt::parse(b"User-agent: *\nContent-Signal: search=yes, ai-train=no, use=immediate\n");
        let everybody: [&str; 0] = [];
        let rules = file.rules_for(&everybody);
        let said: Vec<_> = rules.preferences_for(b"/").into_iter().map(|it| it.purpose().to_owned()).collect();
        assert_eq!(said, ["ai-train", "search"]);
    }

    #[test]
    fn a_preference_has_the_path_that_its_line_begins_with() {
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
