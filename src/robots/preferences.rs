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
use std::borrow::Cow;
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
struct Unwelcome {
    /// Where the value of the first line with this path begins.
    path: u32,
    /// The same of the line that says it.
    line: u32,
    purpose: Purpose,
}

/// A preference that says no.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UsageRefusal {
    unwelcome: u32,
    /// Where the line's value begins.
    pub(crate) offset: u32,
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
                // A line without a path is about everything.
                let pattern = if read.pattern.is_empty() { b"/" } else { &value[read.pattern] };
                let path = *firsts.entry(normal(pattern, options).into_owned()).or_insert_with(|| {
                    rules.add(pattern, line.start, RuleKind::Allow);
                    line.start
                });
                let no = read.welcome.into_iter().filter(|(_, is_welcome)| !is_welcome);
                for (purpose, _) in no {
                    // `ai-train=no, use=reference` says it twice.
                    let mut said = unwelcome.iter().rev().take_while(|said: &&Unwelcome| said.line == line.start);
                    if !said.any(|said| said.purpose == purpose) {
                        unwelcome.push(Unwelcome { path, line: line.start, purpose });
                    }
                }
            }
            if !firsts.is_empty() {
                paths.push(Matcher::new(rules));
            }
        }
        unwelcome.sort_by_key(|said| (said.path, said.line));
        let lines: Vec<_> = lines.iter().map(|(_, line)| *line).collect();
        (!lines.is_empty()).then_some(Self { lines, paths, unwelcome })
    }

    /// The preference that says no to one of the purposes for a normalised path.
    pub(crate) fn refusal(&self, path: &[u8], byte_set: ByteSet, purposes: &[Purpose]) -> Option<UsageRefusal> {
        self.paths.iter().find_map(|paths| {
            let path = paths.offset(paths.best(path, byte_set)?);
            let begin = self.unwelcome.partition_point(|said| said.path < path);
            let said = self.unwelcome[begin..].iter().take_while(|said| said.path == path);
            let mut said = (begin..).zip(said).filter(|(_, said)| purposes.contains(&said.purpose));
            said.next()
                .map(|(at, said)| UsageRefusal { unwelcome: u32::try_from(at).unwrap_or(u32::MAX), offset: said.line })
        })
    }

    /// All that say no for a normalised path, whatever the purpose.
    pub(crate) fn refusals(&self, path: &[u8], byte_set: ByteSet) -> Vec<UsageRefusal> {
        let paths = self.paths.iter().filter_map(|paths| Some(paths.offset(paths.best(path, byte_set)?)));
        let all = paths.flat_map(|path| (0..).zip(&self.unwelcome).filter(move |(_, said)| said.path == path));
        all.map(|(unwelcome, said)| UsageRefusal { unwelcome, offset: said.line }).collect()
    }

    pub(crate) fn purpose(&self, refusal: UsageRefusal) -> &str {
        self.unwelcome.get(refusal.unwelcome as usize).map_or("", |said| said.purpose.as_str())
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

/// As paths are compared.
fn normal<'a>(pattern: &'a [u8], options: &ParseOptions) -> Cow<'a, [u8]> {
    match options.percent_encoding {
        PercentEncoding::Normalised => {
            path::normalise(pattern).into()
        }
        PercentEncoding::AsWritten => pattern.into(),
    }
}

#[cfg(test)]
mod tests {
    use crate::robots::RobotsTxt;

    #[test]
    fn what_a_line_says_twice_is_one_preference() {
        let file = RobotsTxt::parse(b"User-agent: *\nContent-Signal: search=yes, ai-train=no, use=immediate\n");
        let everybody: [&str; 0] = [];
        let rules = file.rules_for(&everybody);
        let said: Vec<_> = rules.preferences_for(b"/").into_iter().map(|it| it.purpose().to_owned()).collect();
        assert_eq!(said, ["ai-train", "search"]);
    }
}
