//! The findings of a file, with their places. Pure.

use std::borrow::Cow;
use std::ops::Range;

use super::finding::{Finding, MOST_WARNINGS, Related};
use super::outline::{Outline, OutlineEntry};
use crate::robots::warning::{Severity, WarningCode};

/// Collects findings, up to a limit.
pub(super) struct Findings<'a> {
    outline: &'a Outline<'a>,
    list: Vec<Finding>,
    /// Whether findings beyond the limit were dropped.
    cut: bool,
}

impl<'a> Findings<'a> {
    /// Begins with the findings about single lines.
    pub(super) fn new(outline: &'a Outline<'a>) -> Self {
        Self { outline, list: outline.warnings.clone(), cut: false }
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
        if self.list.len() >= MOST_WARNINGS {
            self.cut = true;
            return;
        }
        let place = self.outline.place(entry, at);
        let related = related.map(|(entry, at, message)| Related { place: self.outline.place(entry, at), message });
        let (message, hint) = (message.into(), hint.into());
        self.list.push(Finding { place, severity: Severity::Warning, code, message, hint, related });
    }

    pub(super) fn in_order(mut self) -> Vec<Finding> {
        // Findings about the whole file come first, at line 1; the sort is stable.
        self.list.sort_by_key(|finding| finding.place.line);
        if let Some(last) = self.list.last().filter(|_| self.cut) {
            self.list.push(Finding::of(WarningCode::TooMany, last.place));
        }
        self.list
    }
}
