//! The faults of a configuration, each with its place and a hint, shown as a compiler shows errors.

use std::fmt;
use std::sync::Arc;

use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Renderer, Snippet};

/// A fault of one value: what is wrong, and what to write instead. serde passes it on as text.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Complaint {
    pub what: String,
    /// What to write instead. May be empty.
    pub hint: String,
}

impl Complaint {
    pub fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { what: what.into(), hint: hint.into() }
    }

    /// Parses the text of a complaint that has passed through serde, or converts serde's own error.
    pub(in crate::config) fn from_display(text: &dyn fmt::Display) -> Self {
        let text = text.to_string();
        let (what, hint) = text.split_once(HINT).unwrap_or((&text, ""));
        Self::new(what, hint)
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, "{HINT}{}", self.hint) }
    }
}

impl std::error::Error for Complaint {}

/// The place of a fault.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigPlace {
    /// A file as a whole: 0 for the first file, or the number of the included file.
    File(usize),
    /// A line and a column, both from 1, the column in characters. `file`: as for `File`.
    Line { file: usize, line: usize, column: usize },
    /// An environment variable or an argument, by its name in errors.
    Variable(Arc<str>),
    /// No place: the value was left at its default.
    Unwritten,
}

impl ConfigPlace {
    /// The place as shown to people, without the column.
    pub(in crate::config) fn line(&self, sources: &[ConfigText]) -> String {
        match self {
            Self::Line { file, line, .. } => format!("{}:{line}", sources[*file].name),
            other => other.shown(sources).unwrap_or_default(),
        }
    }

    /// The place as shown to people in a message about another place in the same file; empty if the place has no line and no name.
    pub(in crate::config) fn beside(&self) -> String {
        match self {
            Self::Line { line, .. } => format!("line {line}"),
            Self::Variable(name) => name.to_string(),
            Self::File(_) | Self::Unwritten => String::new(),
        }
    }

    /// The place as shown to people. `None`: there is no place to show.
    pub(in crate::config) fn shown(&self, sources: &[ConfigText]) -> Option<String> {
        match self {
            Self::Line { file, line, column } => Some(format!("{}:{line}:{column}", sources[*file].name)),
            Self::File(file) => Some(sources[*file].name.clone()),
            Self::Variable(name) => Some(name.to_string()),
            Self::Unwritten => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigFault {
    pub place: ConfigPlace,
    pub complaint: Complaint,
}

/// The first fifty faults, without duplicates. More faults would not help, and reading must stay fast however many there are.
#[derive(Debug, Default)]
pub(in crate::config) struct Faults(Vec<ConfigFault>);

impl Faults {
    pub fn push(&mut self, place: &ConfigPlace, complaint: Complaint) {
        let fault = ConfigFault { place: place.clone(), complaint };
        if !self.is_full() && !self.0.contains(&fault) {
            self.0.push(fault);
        }
    }

    pub fn is_full(&self) -> bool {
        self.0.len() >= MOST_FAULTS
    }
}

/// A file's name, as it was given, and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) struct ConfigText {
    pub name: String,
    pub text: String,
}

/// The faults of a configuration: of whole files, then of lines, then of variables and arguments. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    /// The file and its included files. Never empty.
    sources: Vec<ConfigText>,
    faults: Vec<ConfigFault>,
}

impl ConfigErrors {
    /// The errors. `None`: there are no faults.
    pub(in crate::config) fn new(sources: Vec<ConfigText>, Faults(mut faults): Faults) -> Option<Self> {
        faults.sort_by(|a, b| a.place.cmp(&b.place));
        (!faults.is_empty()).then_some(Self { sources, faults })
    }

    pub fn faults(&self) -> &[ConfigFault] {
        &self.faults
    }

    /// Each fault with its place as shown to people: `file:line:column`.
    pub fn with_places(&self) -> impl Iterator<Item = (Option<String>, &Complaint)> {
        self.faults.iter().map(|fault| (fault.place.shown(&self.sources), &fault.complaint))
    }

    /// All faults as text, in colour for a terminal.
    pub fn render(&self, color: bool) -> String {
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        let shown: Vec<String> = self.faults.iter().map(|fault| self.render_one(fault, &renderer)).collect();
        shown.join("\n\n")
    }

    fn render_one(&self, fault: &ConfigFault, renderer: &Renderer) -> String {
        let Complaint { what, hint } = &fault.complaint;
        let title = Level::ERROR.primary_title(what);
        let excerpt = match &fault.place {
            ConfigPlace::Line { file, line, column } => self.sources[*file].excerpt(*line, *column),
            ConfigPlace::File(_) | ConfigPlace::Variable(_) | ConfigPlace::Unwritten => None,
        };
        let mut shown = match (excerpt, fault.place.shown(&self.sources)) {
            (Some(excerpt), _) => renderer.render(&[title.element(excerpt)]),
            (None, None) => renderer.render(&[Group::with_title(title)]),
            (None, Some(place)) => renderer.render(&[Group::with_title(title)]) + "\n  --> " + &place,
        };
        if !hint.is_empty() {
            let hint = Group::with_title(Level::HELP.with_name("hint").secondary_title(hint));
            shown = shown + "\n" + &renderer.render(&[hint]);
        }
        shown
    }
}

impl ConfigText {
    /// The line with the value underlined. `None` where the line may hold a secret.
    fn excerpt(&self, line: usize, column: usize) -> Option<Snippet<'_, Annotation<'_>>> {
        let start = self.text.split_inclusive('\n').take(line - 1).map(str::len).sum::<usize>();
        let content = self.text[start..].lines().next().unwrap_or_default();
        let before = self.text[..start].lines().next_back().unwrap_or_default();
        if holds_secret(content) || before.trim_end().ends_with(':') && holds_secret(before) {
            return None;
        }
        let from = content.char_indices().nth(column - 1).map_or(content.len(), |(index, _)| index);
        // If the place is after the last line, shows the end of the last line.
        let (first, begin) = match start == self.text.len() && line > 1 {
            true => (line - 1, start - self.text.split_inclusive('\n').next_back().map_or(0, str::len)),
            false => (line, start),
        };
        let span = start - begin + from..start - begin + from + written_length(&content[from..]);
        let shown = Snippet::source(&self.text[begin..start + content.len()]).line_start(first).path(&self.name);
        Some(shown.annotation(AnnotationKind::Primary.span(span)))
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for ConfigErrors {}

/// A hint with the most similar known word.
pub(in crate::config) fn did_you_mean(word: &str, known: &[&str]) -> Option<String> {
    nearest(word, known).map(|nearest| format!("did you mean `{nearest}`?"))
}

/// The most similar known word, if it is similar enough to be what the author meant.
pub(in crate::config) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = word.to_ascii_lowercase().replace('-', "_");
    let distance = |known: &str| strsim::damerau_levenshtein(&word, &known.replace('-', "_"));
    let nearest = known.iter().copied().min_by_key(|known| distance(known))?;
    (distance(nearest) <= (word.chars().count() / 3).max(1)).then_some(nearest)
}

/// Whether a line may hold a secret, even under a misspelt key such as `Password` or `pasword`.
fn holds_secret(line: &str) -> bool {
    let value = line.split_once(": ").map_or(line, |(_, value)| value);
    let ends = ["@", "%40"].iter().filter_map(|at| value.split_once(at));
    let credentials = ends.map(|(user, _)| user).any(|user| user.contains(':'));
    let is_password = |word: &str| {
        let word = word.to_ascii_lowercase();
        word.contains("pass") || ["pwd", "secret", "token"].contains(&&*word) || nearest(&word, &["password"]).is_some()
    };
    credentials || line.contains("$argon2") || line.split(|c: char| !c.is_alphanumeric()).any(is_password)
}

/// Estimates the length of the key or value that `rest` begins with.
fn written_length(rest: &str) -> usize {
    let end = match rest.chars().next() {
        Some(quote @ ('"' | '\'')) => rest[1..].find(quote).map(|index| index + 2),
        Some('[' | '{') => None,
        Some(_) => [": ", " #", ", ", "]", "}"].iter().filter_map(|end| rest.find(end)).min(),
        None => None,
    };
    let part = rest[..end.unwrap_or(rest.len())].trim_end();
    part.strip_suffix(':').unwrap_or(part).len()
}

const MOST_FAULTS: usize = 50;
const HINT: &str = "\nhint: ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_similar_words_are_suggested() {
        let known = ["crawl_delay", "max_wait", "min_delay"];
        assert_eq!(did_you_mean("crawl_dely", &known).as_deref(), Some("did you mean `crawl_delay`?"));
        assert_eq!(did_you_mean("Crawl-Delay", &known).as_deref(), Some("did you mean `crawl_delay`?"));
        assert_eq!(did_you_mean("maxwait", &known).as_deref(), Some("did you mean `max_wait`?"));
        assert_eq!(did_you_mean("timeout", &known), None);
        assert_eq!(did_you_mean("x", &[]), None);
    }

    #[test]
    fn lines_that_may_contain_secrets_are_recognised() {
        for line in [
            "upstream_proxy: user:hunter2@proxy.example:3128",
            "  - user:hunter2@proxy.example",
            "{ url: 'http://:hunter2@proxy.example' }",
            "upstream_proxy: http://bob:hunter2%40proxy.example",
            "users: [{ name: a, pwd: hunter2 }]",
            "pasword: hunter2",
            "auth_token: hunter2",
        ] {
            assert!(holds_secret(line), "{line}");
        }
        for line in ["contact: me@example.org", "product_tokens: [a]", "max_wait: 10", "url: http://proxy.example:3128"]
        {
            assert!(!holds_secret(line), "{line}");
        }
    }

    #[test]
    fn end_of_a_yaml_value_is_found() {
        for (rest, value) in [
            ("10  # ten", "10"),
            ("max_wait: 10s", "max_wait"),
            ("pace:", "pace"),
            ("a: 1, b: 2 }", "a"),
            ("443, 80]", "443"),
            ("\"a # b\" # c", "\"a # b\""),
            ("[1, 2] ", "[1, 2]"),
            ("http://a.example:80/", "http://a.example:80/"),
            ("", ""),
        ] {
            assert_eq!(&rest[..written_length(rest)], value, "{rest}");
        }
    }
}
