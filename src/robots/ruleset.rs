//! RFC 9309 §2.2.2: the rules that one crawler obeys, and their verdict on a path. Pure.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::budget::{StepBudget, StepsSpent};
use super::parse::RobotsFile;
use super::parse::delay::{RequestRate, VisitTime};
use super::parse::selection::GroupSelection;
use super::parse::span::Span;
use super::path::ComparedPath;
use super::path_forms::{JudgedPath, Paths};
use super::usage::Purpose;
use super::verdict::{PreferenceRef, RuleRef, Verdict, VerdictGround};

/// The rules of one file for one crawler. Immutable; a clone shares the file.
#[derive(Clone)]
pub struct RuleSet {
    file: Arc<RobotsFile>,
    selection: GroupSelection,
}

impl RuleSet {
    pub(super) fn new(file: Arc<RobotsFile>, selection: GroupSelection) -> Self {
        Self { file, selection }
    }

    /// Decides whether a URL may be fetched. `target` is a path with query, as in a request, or an absolute URL; a fragment is ignored. It
    /// need not be UTF-8. A path with dot segments is judged with and without them: the URL is disallowed if either path is disallowed.
    ///
    /// Takes bounded time for any file and URL: if the budget is spent, the URL is disallowed with
    /// [`Reason::TooComplex`](super::Reason).
    #[inline]
    pub fn check(&self, target: impl AsRef<[u8]>) -> Verdict<'_> {
        self.check_bytes(target.as_ref(), &[])
    }

    /// Like [`check`](Self::check), for a crawler that declares the purposes of its use: a URL that may be fetched is disallowed if the
    /// most specific preference for one of the purposes says no.
    pub fn check_for(&self, target: impl AsRef<[u8]>, purposes: &[Purpose]) -> Verdict<'_> {
        self.check_bytes(target.as_ref(), purposes)
    }

    fn check_bytes(&self, target: &[u8], purposes: &[Purpose]) -> Verdict<'_> {
        self.check_within(&mut JudgedPath::new(target, Paths::AsSent), purposes).0
    }

    /// Judges all forms of a path within its budget. Returns the verdict on the first form that a rule disallows, or else that a preference
    /// refuses, and this form if it is one that servers make. If no form is refused, returns the verdict on the path as sent.
    #[inline]
    pub(crate) fn check_within(
        &self,
        path: &mut JudgedPath<'_>,
        purposes: &[Purpose],
    ) -> (Verdict<'_>, Option<Box<str>>) {
        self.first_disallowed(path, purposes).unwrap_or((Verdict(VerdictGround::TooComplex), None))
    }

    #[inline]
    fn first_disallowed(
        &self,
        path: &mut JudgedPath<'_>,
        purposes: &[Purpose],
    ) -> Result<(Verdict<'_>, Option<Box<str>>), StepsSpent> {
        if self.selection.is_cut {
            return Err(StepsSpent);
        }
        let mut as_sent = None;
        let mut disallowed = path.first_refused(|path, budget| {
            let verdict = Verdict(self.judge(path, budget)?);
            as_sent.get_or_insert(verdict);
            Ok((!verdict.is_allowed()).then_some(verdict))
        })?;
        if disallowed.is_none() && !purposes.is_empty() {
            disallowed = path.first_refused(|path, budget| self.unwelcome_for(path, purposes, budget))?;
        }
        Ok(disallowed.unwrap_or_else(|| (as_sent.unwrap_or(Verdict(VerdictGround::NoRule)), None)))
    }

    /// The preferences that refuse any use of the target, declared or not.
    pub fn preferences_for(&self, target: &[u8]) -> Vec<PreferenceRef<'_>> {
        let mut all = Vec::new();
        // An error may be ignored: a request that spends its budget has been refused already, so its preferences do not matter.
        _ = JudgedPath::new(target, Paths::AsSent).first_refused(|path, budget| {
            self.unwelcome(path, USE, budget, |preference| {
                all.push(*preference);
                false
            })
        });
        all
    }

    /// Time from one request's start to the next: the larger of `Crawl-delay` and the gap that `Request-rate` implies. `None` if the file
    /// has neither. Both are extensions (Bing, Yandex), not RFC 9309.
    pub fn crawl_delay(&self) -> Option<Duration> {
        self.file.pace(&self.selection).gap()
    }

    /// The slowest `Request-rate` given.
    pub fn request_rate(&self) -> Option<RequestRate> {
        self.file.pace(&self.selection).request_rate
    }

    /// The first `Visit-time` given.
    pub fn visit_time(&self) -> Option<VisitTime> {
        self.file.pace(&self.selection).visit_time
    }

    /// The values of the `Content-Signal` and `Content-Usage` lines for this crawler, with their line numbers.
    pub fn usage_preferences(&self) -> impl Iterator<Item = (u32, &str)> {
        let RobotsFile { source, groups, .. } = &*self.file;
        let mut lines: Vec<Span> = groups.usages.lines(&self.selection.groups).collect();
        lines.extend(groups.signals.lines(&self.selection.sections));
        lines.sort_unstable_by_key(|line| line.start);
        lines.into_iter().map(|line| (source.line_of(line.start as usize), source.str_at(line)))
    }

    /// Number of rules, except rules without a path.
    pub fn len(&self) -> usize {
        self.selection.groups.iter().map(|&group| self.file.groups.rules_of(group).len()).sum()
    }

    /// Whether everything is allowed because there are no rules.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes on the heap for the compiled rules, which all rule sets of the file share.
    pub fn heap_size(&self) -> usize {
        let RobotsFile { source, groups, .. } = &*self.file;
        self.selection.groups.iter().map(|&group| groups.patterns_of(group, source).heap_size()).sum()
    }

    /// Finds a preference against one of the purposes.
    fn unwelcome_for(
        &self,
        path: ComparedPath<'_>,
        purposes: &[Purpose],
        budget: &mut StepBudget,
    ) -> Result<Option<Verdict<'_>>, StepsSpent> {
        // robots.txt itself must be readable, as it contains the preferences.
        if path.bytes == ROBOTS_TXT {
            return Ok(None);
        }
        let unwelcome = self.unwelcome(path, USE * (1 + purposes.len()), budget, |preference| {
            purposes.contains(&preference.said.purpose)
        })?;
        Ok(unwelcome.map(|preference| Verdict(VerdictGround::Usage(preference))))
    }

    #[inline(never)]
    fn judge(&self, path: ComparedPath<'_>, budget: &mut StepBudget) -> Result<VerdictGround<'_>, StepsSpent> {
        let RobotsFile { source, groups, .. } = &*self.file;
        if path.bytes == ROBOTS_TXT {
            return Ok(VerdictGround::RobotsTxt);
        }
        let without_query = memchr::memchr(b'?', path.bytes).filter(|_| source.options.anchor_before_query);
        let mut best = None;
        for &group in &self.selection.groups {
            let patterns = groups.patterns_of(group, source);
            best = best.max(patterns.best(path, budget)?);
            if let Some(query) = without_query {
                // An unanchored pattern that matches the path without its query matches the whole target too.
                best = best.max(patterns.best(ComparedPath { bytes: &path.bytes[..query], ..path }, budget)?);
            }
        }
        let rule = |place| RuleRef { file: &self.file, place };
        Ok(best.map_or(VerdictGround::NoRule, |rank| VerdictGround::Rule(rule(rank.place()), rank.kind())))
    }

    /// The first preference that refuses some use of a path and that `is_meant` accepts. `steps`: the cost of one call of `is_meant`.
    fn unwelcome<'a>(
        &'a self,
        path: ComparedPath<'_>,
        steps: usize,
        budget: &mut StepBudget,
        mut is_meant: impl FnMut(&PreferenceRef<'a>) -> bool,
    ) -> Result<Option<PreferenceRef<'a>>, StepsSpent> {
        let RobotsFile { source, groups, .. } = &*self.file;
        if groups.usages.is_empty() && groups.signals.is_empty() {
            return Ok(None);
        }
        for (preferences, owners) in
            [(&groups.signals, &self.selection.sections), (&groups.usages, &self.selection.groups)]
        {
            for said in preferences.unwelcome(owners, path, source, budget)?.into_iter().flatten() {
                budget.spend(steps)?;
                let preference = PreferenceRef { source, said };
                if is_meant(&preference) {
                    return Ok(Some(preference));
                }
            }
        }
        Ok(None)
    }
}

const ROBOTS_TXT: &[u8] = b"/robots.txt";
/// Steps to compare a refused use with one purpose.
const USE: usize = 2;

impl fmt::Debug for RuleSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pace = self.file.pace(&self.selection);
        f.debug_struct("RuleSet").field("len", &self.len()).field("pace", &pace).finish_non_exhaustive()
    }
}
