//! May this request go, by what is configured and what is known of its authority's robots.txt? The
//! only place that decides; a decision carries its evidence, which `explain`, the refusal and the logs render. Pure.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::entry::{Entry, Trouble};
use super::freshness::CopyState;
use super::host_rules::HostRules;
use super::operator_rules::OwnVerdict;
use super::site_file::SiteFile;
use super::usage::tdmrep::reserved_by_tdmrep;
use super::{Authority, PreferenceEvidence, Refusal, Request, RobotsOverride, RuleEvidence};
use crate::robots::path_forms::{AskedPath, JudgedPath};
use crate::robots::{PreferenceRef, ProductToken, Reason, RuleSet, Verdict, VisitTime};

/// What to do with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub ruling: Ruling,
    /// The gap that holds between two starts, whatever is said of this request, as far as it is known.
    pub crawl_delay: Option<Duration>,
    /// The file that should be fetched again, without anybody waiting for it.
    pub refresh: Option<SiteFile>,
}

/// Whether it may go.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ruling {
    /// Nothing can be said before this file is fetched.
    Fetch(SiteFile),
    /// It may, in its turn.
    Allow(Allowance),
    /// It would not, but that is only reported: `report` is configured.
    Report(Box<Refusal>),
    Refuse(Box<Refusal>),
}

/// Why it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Allowance {
    /// robots.txt itself is implicitly allowed (RFC 9309 §2.2.2).
    RobotsTxt,
    /// An `allow` of the operator's.
    Operator,
    /// `robots: ignore`.
    Ignored,
    /// A rule; its place among those of the file.
    Rule {
        place: u32,
    },
    NoRule,
    /// There is no robots.txt.
    Missing,
    /// robots.txt has not been readable for 30 days, and `on_long_unreachable: allow`.
    LongUnreachable,
}

/// What a site has said of all its pages.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    pub robots: &'a Entry,
    /// `None`: it does not matter ([`HostRules::mining_purpose`]).
    pub tdmrep: Option<&'a Entry>,
}

impl<'a> From<&'a Entry> for Known<'a> {
    fn from(robots: &'a Entry) -> Self {
        Known { robots, tdmrep: None }
    }
}

/// Decides by what is known. tdmrep.json is asked of what robots.txt lets go, be it for a report alone.
pub fn decide<'a>(known: impl Into<Known<'a>>, rules: &HostRules, request: &Request<'_>, now: SystemTime) -> Decision {
    let Known { robots, tdmrep } = known.into();
    let mut path = JudgedPath::new(request.target, rules.options.paths);
    let decision = by_robots(robots, rules, request, now, &mut path);
    match (&decision.ruling, tdmrep) {
        (Ruling::Allow(Allowance::RobotsTxt | Allowance::Operator), _) => decision,
        (Ruling::Report(_), _) if rules.options.report_only => decision,
        (Ruling::Allow(_) | Ruling::Report(_), Some(tdmrep)) => {
            by_tdmrep(decision, (robots, tdmrep), rules, request, now, &mut path)
        }
        _ => decision,
    }
}

/// Whether a file of the site other than robots.txt may be fetched: as a page may, for robots.txt alone is exempt (RFC 9309
/// §2.2.2). What is said of its use does not matter: it is read to be obeyed.
pub fn judge_file(robots: &Entry, rules: &HostRules, request: &Request<'_>, now: SystemTime) -> Ruling {
    let mut path = JudgedPath::new(request.target, rules.options.paths);
    match by_robots(robots, rules, request, now, &mut path).ruling {
        Ruling::Refuse(why) if matches!(*why, Refusal::UsageDisallowed { .. }) => Ruling::Allow(Allowance::NoRule),
        ruling => ruling,
    }
}

/// The same of its tdmrep.json.
pub fn may_fetch_tdmrep(robots: &Entry, rules: &HostRules, request: &Request<'_>, now: SystemTime) -> bool {
    let request = Request { target: SiteFile::TdmRep.path().as_bytes(), ..*request };
    !matches!(judge_file(robots, rules, &request, now), Ruling::Refuse(_))
}

#[cold]
fn by_tdmrep(
    decision: Decision,
    (robots, tdmrep): (&Entry, &Entry),
    rules: &HostRules,
    request: &Request<'_>,
    now: SystemTime,
    path: &mut JudgedPath<'_>,
) -> Decision {
    // Or nobody could read it.
    if request.target == SiteFile::TdmRep.path().as_bytes() {
        return decision;
    }
    let may_fetch = || tdmrep.may_fetch(now) && may_fetch_tdmrep(robots, rules, request, now);
    let Some((_, state)) = tdmrep.usable(now) else {
        let ruling = if may_fetch() { Ruling::Fetch(SiteFile::TdmRep) } else { decision.ruling };
        return Decision { ruling, ..decision };
    };
    let is_reported = rules.options.report_only || rules.usage.tdmrep == RobotsOverride::Report;
    let ruling = match reserved_by_tdmrep(tdmrep, rules, request, path) {
        Some(_) if is_reported && matches!(decision.ruling, Ruling::Report(_)) => decision.ruling,
        Some(why) if is_reported => Ruling::Report(why.into()),
        Some(why) => Ruling::Refuse(why.into()),
        None => decision.ruling,
    };
    // One at a time: the next request has the other renewed.
    let refresh = decision.refresh.or_else(|| (state == CopyState::Refresh && may_fetch()).then_some(SiteFile::TdmRep));
    Decision { ruling, refresh, ..decision }
}

fn by_robots(
    entry: &Entry,
    rules: &HostRules,
    request: &Request<'_>,
    now: SystemTime,
    path: &mut JudgedPath<'_>,
) -> Decision {
    let case = Case { rules, request, tokens: &rules.product_tokens(request), now };
    // Before the file, which may spend the budget.
    let own = rules.own_rules.as_ref().map(|own| own.judge_within(path));
    let robots = entry.robots_txt().filter(|_| rules.robots != RobotsOverride::Ignore);
    let file = robots.map(|robots| robots.rules_within(case.tokens, &mut path.budget));
    // Lifting a verdict does not lift the pace.
    let crawl_delay = rules.crawl_delay.or_else(|| file.as_ref()?.crawl_delay());
    if let Some(OwnVerdict::Deny(why)) = own {
        let ruling = match rules.options.report_only {
            true => Ruling::Report(why.into()),
            false => Ruling::Refuse(why.into()),
        };
        return Decision { ruling, crawl_delay, refresh: None };
    }
    if rules.robots == RobotsOverride::Ignore {
        let ruling = Ruling::Allow(Allowance::Ignored);
        return Decision { ruling, crawl_delay: rules.crawl_delay, refresh: None };
    }
    let (said, refresh) = case.by_entry(entry, file.as_ref(), path);
    let ruling = match (said, own) {
        (Ruling::Allow(_) | Ruling::Refuse(_), Some(OwnVerdict::Allow)) => Ruling::Allow(Allowance::Operator),
        (Ruling::Refuse(why), _) if rules.options.report_only || rules.robots == RobotsOverride::Report => {
            Ruling::Report(why)
        }
        (said, _) => said,
    };
    Decision { ruling, crawl_delay, refresh: refresh.then_some(SiteFile::Robots) }
}

/// What all steps of a decision depend on.
#[derive(Clone, Copy)]
struct Case<'a> {
    rules: &'a HostRules,
    request: &'a Request<'a>,
    tokens: &'a [ProductToken],
    now: SystemTime,
}

impl Case<'_> {
    /// What robots.txt says, and whether it should be fetched again. `file`: the rules that hold, if there is a file.
    fn by_entry(self, entry: &Entry, file: Option<&RuleSet>, path: &mut JudgedPath<'_>) -> (Ruling, bool) {
        // RFC 9309 §2.2.2: implicitly allowed, even where nothing is known or everything disallowed.
        if self.request.target == b"/robots.txt" {
            return (Ruling::Allow(Allowance::RobotsTxt), false);
        }
        if let Some((answer, state)) = entry.usable(self.now) {
            let refresh = match state {
                CopyState::Refresh => entry.may_fetch(self.now),
                CopyState::Fresh | CopyState::Unusable => false,
            };
            let ruling = match file {
                Some(file) => self.by_rules(file, path),
                None if self.rules.options.allows_missing(answer.status) => Ruling::Allow(Allowance::Missing),
                None => Ruling::Refuse(self.disallowed(None).into()),
            };
            return (ruling, refresh);
        }
        match &entry.trouble {
            None => (Ruling::Fetch(SiteFile::Robots), false),
            Some(trouble) => self.unreachable(trouble),
        }
    }

    fn by_rules(self, file: &RuleSet, path: &mut JudgedPath<'_>) -> Ruling {
        let (verdict, matched_path) = self.verdict(file, path);
        if let Some(preference) = verdict.preference() {
            return Ruling::Refuse(self.unwelcome(preference, matched_path).into());
        }
        if verdict.reason() == Reason::TooComplex {
            return Ruling::Refuse(
                Refusal::RulesTooComplex { rules: self.request.authority.robots_url().into() }.into(),
            );
        }
        if !verdict.is_allowed() {
            let rule = verdict.rule().map(|rule| RuleEvidence::new(rule, matched_path));
            return Ruling::Refuse(self.disallowed(rule).into());
        }
        if self.rules.options.enforce_visit_time
            && let Some(hours) = file.visit_time()
            && let Some(retry_after) = opens_in(hours, self.now)
        {
            return Ruling::Refuse(Refusal::Closed { retry_after, authority: self.authority(), hours }.into());
        }
        Ruling::Allow(match verdict.rule() {
            Some(rule) => Allowance::Rule { place: rule.place() },
            None if verdict.reason() == Reason::RobotsTxt => Allowance::RobotsTxt,
            None => Allowance::NoRule,
        })
    }

    /// What the rules say of the path as it is sent, or else of the first form that servers make of it which they disallow,
    /// with that form.
    fn verdict<'f>(self, file: &'f RuleSet, path: &mut JudgedPath<'_>) -> (Verdict<'f>, Option<Box<str>>) {
        let as_sent = file.check_within(AskedPath::AsSent(path.target), self.rules.purposes(), &mut path.budget);
        let refused = path.first_refused(|asked, budget| {
            let verdict = match asked {
                AskedPath::AsSent(_) => as_sent,
                AskedPath::AsServed(_) => file.check_within(asked, self.rules.purposes(), budget),
            };
            (!verdict.is_allowed()).then_some(verdict)
        });
        refused.unwrap_or((as_sent, None))
    }

    /// RFC 9309 §2.3.1.4: complete disallow; after reasonably long a time it may be taken for unavailable.
    fn unreachable(self, trouble: &Trouble) -> (Ruling, bool) {
        let left_alone = trouble.left_alone_for(self.now);
        if trouble.is_long(self.now) && self.rules.options.allow_long_unreachable {
            return (Ruling::Allow(Allowance::LongUnreachable), left_alone.is_none());
        }
        let Some(retry_after) = left_alone else { return (Ruling::Fetch(SiteFile::Robots), false) };
        let why = Refusal::RobotsUnreachable { retry_after, authority: self.authority(), why: trouble.why.clone() };
        (Ruling::Refuse(why.into()), false)
    }

    fn disallowed(self, rule: Option<RuleEvidence>) -> Refusal {
        Refusal::Disallowed { authority: self.authority(), product_tokens: self.names(), rule }
    }

    fn unwelcome(self, preference: PreferenceRef<'_>, matched_path: Option<Box<str>>) -> Refusal {
        Refusal::UsageDisallowed {
            authority: self.authority(),
            product_tokens: self.names(),
            purpose: preference.purpose().into(),
            preference: PreferenceEvidence::new(preference, matched_path),
        }
    }

    fn authority(self) -> Authority {
        self.request.authority.clone()
    }

    fn names(self) -> Arc<str> {
        match self.tokens {
            [] => Arc::default(),
            [token] => token.shared(),
            tokens => tokens.iter().map(ProductToken::as_str).collect::<Vec<_>>().join(", ").into(),
        }
    }
}

/// The time until a site that is closed now opens; `None` if it is open.
fn opens_in(window: VisitTime, now: SystemTime) -> Option<Duration> {
    const DAY: u64 = 24 * 3600;
    let since_epoch = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let second = since_epoch.as_secs() % DAY;
    let minute = u16::try_from(second / 60).expect("a day has 1440 minutes");
    if window.contains(minute) {
        return None;
    }
    let opens = u64::from(window.from) * 60;
    Some(Duration::from_secs((opens + DAY - second) % DAY))
}

#[cfg(test)]
mod tests;
