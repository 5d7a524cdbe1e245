//! One finding and its place. Pure.

use std::borrow::Cow;
use std::fmt;

use crate::robots::warning::{Severity, TextPlace, WarningCode};

/// A finding of the lint: what is wrong or surprising, where, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    pub place: TextPlace,
    pub severity: Severity,
    /// The stable name of the kind of finding, such as `misspelt-key`.
    pub code: &'static str,
    pub message: Cow<'static, str>,
    pub hint: Cow<'static, str>,
    pub related: Option<Related>,
}

impl Finding {
    /// A finding with the standard message and hint of its code.
    pub(super) fn of(code: WarningCode, place: TextPlace) -> Self {
        let (message, hint) = (code.message().into(), code.hint().into());
        Self { place, severity: code.severity(), code: code.as_str(), message, hint, related: None }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.place.line, self.place.column, self.message)
    }
}

/// Another line that a finding refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Related {
    pub place: TextPlace,
    pub message: &'static str,
}

/// Sorts findings in the file's order. If there are more than the maximum, the last one says that others are not shown.
pub(super) fn in_order(mut findings: Vec<Finding>) -> Vec<Finding> {
    // Findings about the whole file come first, at line 1; the sort is stable.
    findings.sort_by_key(|finding| finding.place.line);
    if let Some(last) = findings.get_mut(MOST_WARNINGS) {
        *last = Finding::of(WarningCode::TooMany, last.place);
    }
    findings
}

/// Maximum number of warnings that are shown. A hostile file could cause a warning for every two bytes.
pub(super) const MOST_WARNINGS: usize = 1_000;
