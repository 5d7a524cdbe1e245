//! Lists what is wrong or surprising about a robots.txt, line by line: lines that cannot be read as meant, and valid lines that are
//! probably mistakes. Reads the file a second time, as the parser keeps no columns. Pure.

mod delays;
mod finding;
mod findings;
mod groups;
mod outline;
mod rules;
mod urls;

pub use super::warning::{Severity, TextPlace};
use super::{ProductToken, RobotsTxt};
pub use finding::{Finding, Related};
use findings::Findings;
use outline::Outline;

/// The findings for one file, in the file's order.
///
/// ```
/// use politely::robots::{RobotsTxt, lint};
///
/// let robots = RobotsTxt::parse(b"User-agent: *\nDissallow: /a\nDisallow: /a\n");
/// let report = lint::LintReport::new(&robots, None);
/// let found: Vec<_> = report.findings().iter().map(|found| (found.place.line, found.code)).collect();
/// assert_eq!(found, [(2, "misspelt-key"), (3, "same-rule-twice")]);
/// ```
#[derive(Debug, Clone)]
pub struct LintReport {
    findings: Vec<Finding>,
    text: Box<[u8]>,
    /// Offset of each line's first byte.
    lines: Vec<usize>,
}

impl LintReport {
    /// Checks a file. `host`: the host that serves the file, if known; sitemaps on other hosts are not checked against the rules of the
    /// file.
    pub fn new(robots: &RobotsTxt, host: Option<&str>) -> Self {
        Self::with_policy_tokens(robots, host, &[])
    }

    /// Like [`new`](Self::new), but in User-agent lines the names in `policy_tokens` stand for purposes, not for crawlers.
    pub fn with_policy_tokens(robots: &RobotsTxt, host: Option<&str>, policy_tokens: &[ProductToken]) -> Self {
        let outline = Outline::new(robots);
        let mut findings = Findings::new(&outline);
        groups::find(&outline, policy_tokens, &mut findings);
        rules::find(&outline, robots.options(), &mut findings);
        delays::find(&outline, &mut findings);
        urls::find(robots, host, &outline, &mut findings);
        Self { findings: findings.in_order(), text: robots.source().into(), lines: outline.lines }
    }

    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// A line as text, without its line ending; `number` counts from 1. Each ill-formed UTF-8 sequence becomes one U+FFFD and counts as
    /// one column. Empty if there is no such line.
    pub fn line(&self, number: u32) -> String {
        let start = (number as usize).checked_sub(1).and_then(|index| self.lines.get(index));
        let rest = start.map_or(&[][..], |&start| &self.text[start..]);
        let end = memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
        String::from_utf8_lossy(&rest[..end]).into_owned()
    }
}

impl RobotsTxt {
    /// The findings about single lines and the encoding, in the file's order. Reads the file again.
    pub fn warnings(&self) -> impl Iterator<Item = Finding> {
        finding::in_order(Outline::new(self).warnings).into_iter()
    }
}

#[cfg(test)]
mod tests;
