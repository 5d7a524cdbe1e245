//! One finding and its place. Pure.

use std::borrow::Cow;
use std::ops::Range;

use super::outline::{MOST_WARNINGS, Outline, OutlineEntry};
use crate::robots::warning::{Severity, TextPlace, WarningCode};

/// What is wrong or surprising, where, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    pub place: TextPlace,
    pub severity: Severity,
    /// The stable name, such as `misspelt-key`.
    pub code: &'static str,
    pub message: Cow<'static, str>,
    pub hint: Cow<'static, str>,
    pub related: Option<Related>,
}

/// Another line that the finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Related {
    pub place: TextPlace,
    pub message: &'static str,
}

/// Collects findings, up to a limit.
pub(super) struct Findings<'a> {
    outline: &'a Outline<'a>,
    list: Vec<Finding>,
    /// Whether findings beyond the limit were dropped.
    cut: bool,
}

impl<'a> Findings<'a> {
    pub(super) fn new(outline: &'a Outline<'a>) -> Self {
        Self { outline, list: Vec::new(), cut: false }
    }

    pub(super) fn push(&mut self, finding: Finding) {
        if self.is_full() {
            self.cut = true;
        } else {
            self.list.push(finding);
        }
    }

    /// Adds a warning about a piece of a line. `related` may name another line.
    pub(super) fn warn(
        &mut self,
        code: &'static str,
        (entry, at): (&OutlineEntry, &Range<usize>),
        message: impl Into<Cow<'static, str>>,
        hint: impl Into<Cow<'static, str>>,
        related: Option<(&OutlineEntry, &Range<usize>, &'static str)>,
    ) {
        if self.is_full() {
            self.cut = true;
            return;
        }
        let place = self.outline.place(entry, at);
        let related = related.map(|(entry, at, message)| Related { place: self.outline.place(entry, at), message });
        let (message, hint) = (message.into(), hint.into());
        self.push(Finding { place, severity: Severity::Warning, code, message, hint, related });
    }

    pub(super) fn in_order(mut self) -> Vec<Finding> {
        // Findings about the whole file come first, at line 1; the sort is stable.
        self.list.sort_by_key(|finding| finding.place.line);
        if let Some(last) = self.list.last().filter(|_| self.cut) {
            let code = WarningCode::TooMany;
            let (message, hint) = (code.message().into(), code.hint().into());
            let (place, severity) = (last.place, Severity::Warning);
            self.list.push(Finding { place, severity, code: code.as_str(), message, hint, related: None });
        }
        self.list
    }

    fn is_full(&self) -> bool {
        self.list.len() >= MOST_WARNINGS
    }
}
