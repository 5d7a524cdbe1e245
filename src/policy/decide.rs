//! May this request go, by what is known of its authority's robots.txt? (SEMANTICS §3 and §4.) Pure. Called by `gate`,
//! which fetches on [`Decision::Fetch`] and asks again.

use std::time::{Duration, SystemTime};

use super::entry::{Access, Answer, Entry, Trouble};
use super::freshness::{LAST_GOOD_USE, State};
use super::served_paths::{Paths, first_refused};
use super::{Authority, PreferenceEvidence, Refusal, RuleEvidence};
use crate::robots::{PreferenceRef, Purpose, RobotsTxt, RuleSet, Verdict, VisitTime};

/// The part of a request that robots.txt can speak of.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a, T> {
    pub authority: &'a Authority,
    /// Path and query as sent.
    pub target: &'a [u8],
    /// For whom: a group matches if any of them does. None: the rules for everyone.
    pub product_tokens: &'a [T],
    /// What for: a preference that says no to one of them disallows. None: preferences disallow nothing.
    pub purposes: &'a [Purpose],
}

/// What the operator has settled for cases that the standard leaves open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// `on_long_unreachable: allow`: after 30 days without an answer and without a copy everything is allowed.
    pub allow_long_unreachable: bool,
    /// `visit_time: enforce`.
    pub enforce_visit_time: bool,
    /// `on_unavailable: disallow`: where there is no file, nothing is allowed.
    pub disallow_unavailable: bool,
    /// `on_auth_error: disallow`: the same where it takes credentials to see (401 and 403).
    pub disallow_auth_error: bool,
    /// `robots.paths`.
    pub paths: Paths,
}

impl Options {
    /// Whether a missing file allows everything, by the status that said so.
    pub fn allows_missing(&self, status: u16) -> bool {
        let disallows = if matches!(status, 401 | 403) { self.disallow_auth_error } else { self.disallow_unavailable };
        !disallows
    }
}

/// What to do with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It may go, in its turn.
    Allow(Allowed),
    /// Nothing can be said before robots.txt is fetched.
    Fetch,
    /// It may not.
    Refuse { why: Refusal, refresh: bool },
}

/// With what it may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allowed {
    /// What robots.txt asks for between two starts.
    pub crawl_delay: Option<Duration>,
    /// robots.txt should be fetched anew, without anybody waiting for it.
    pub refresh: bool,
}

/// Decides by the entry as it is; `None` is an authority not heard of.
pub fn decide<T: AsRef<str>>(
    entry: Option<&Entry>,
    asked: &Asked<'_, T>,
    options: Options,
    now: SystemTime,
) -> Decision {
    // RFC 9309 §2.2.2: implicitly allowed, even where nothing is known or everything disallowed.
    if asked.target == b"/robots.txt" {
        return Decision::Allow(Allowed::default());
    }
    let Some(entry) = entry else { return Decision::Fetch };
    if let Some((answer, state)) = entry.usable(now) {
        let refresh = match state {
            State::Refresh => entry.may_fetch(now),
            State::Fresh | State::Unusable => false,
        };
        return judge(answer, asked, options, now).with_refresh(refresh);
    }
    match &entry.trouble {
        None => Decision::Fetch,
        Some(trouble) => unreachable(trouble, asked, options, now),
    }
}

impl Decision {
    fn with_refresh(mut self, due: bool) -> Self {
        match &mut self {
            Self::Allow(Allowed { refresh, .. }) | Self::Refuse { refresh, .. } => *refresh = due,
            Self::Fetch => {}
        }
        self
    }

    fn refuse(why: Refusal) -> Self {
        Self::Refuse { why, refresh: false }
    }
}

fn judge<T: AsRef<str>>(answer: &Answer, asked: &Asked<'_, T>, options: Options, now: SystemTime) -> Decision {
    match &answer.access {
        Access::Rules(robots) => judge_by_rules(robots, asked, options, now),
        Access::Missing if options.allows_missing(answer.status) => Decision::Allow(Allowed::default()),
        Access::Missing => Decision::refuse(disallowed(asked, None)),
    }
}

fn judge_by_rules<T: AsRef<str>>(
    robots: &RobotsTxt,
    asked: &Asked<'_, T>,
    options: Options,
    now: SystemTime,
) -> Decision {
    let rules = robots.rules_kept_for(asked.product_tokens);
    let (verdict, matched_path) = verdict(&rules, asked, options);
    if let Some(preference) = verdict.preference() {
        return Decision::refuse(unwelcome(asked, preference, matched_path));
    }
    if !verdict.is_allowed() {
        let rule = verdict.rule().map(|rule| RuleEvidence::new(rule, matched_path));
        return Decision::refuse(disallowed(asked, rule));
    }
    if options.enforce_visit_time
        && let Some(retry_after) = rules.visit_time().and_then(|window| opens_in(window, now))
    {
        // As for a turn that comes too late: the site is open again then.
        return Decision::refuse(Refusal::CrawlDelay { retry_after });
    }
    Decision::Allow(Allowed { crawl_delay: rules.crawl_delay(), refresh: false })
}

/// What the rules say of the path as it is sent, or else of the first form that servers make of it which they disallow, with
/// that form.
pub(super) fn verdict<'r, T>(
    rules: &'r RuleSet,
    asked: &Asked<'_, T>,
    options: Options,
) -> (Verdict<'r>, Option<Box<str>>) {
    let check = |path: &[u8]| rules.check_octets_for(path, asked.purposes);
    let verdict = check(asked.target);
    if !verdict.is_allowed() {
        return (verdict, None);
    }
    let refuses = |form: &[u8]| Some(check(form)).filter(|verdict| !verdict.is_allowed());
    match first_refused(asked.target, options.paths, refuses) {
        Some((refused, form)) => (refused, Some(form)),
        None => (verdict, None),
    }
}

/// RFC 9309 §2.3.1.4: complete disallow; after reasonably long a time it may be taken for unavailable.
fn unreachable<T>(trouble: &Trouble, asked: &Asked<'_, T>, options: Options, now: SystemTime) -> Decision {
    let left_alone = trouble.left_alone_for(now);
    let long = now.duration_since(trouble.since).is_ok_and(|lasted| lasted >= LAST_GOOD_USE);
    if long && options.allow_long_unreachable {
        return Decision::Allow(Allowed { crawl_delay: None, refresh: left_alone.is_none() });
    }
    match left_alone {
        None => Decision::Fetch,
        Some(retry_after) => Decision::refuse(Refusal::RobotsUnreachable {
            retry_after,
            robots_url: asked.authority.robots_url().into(),
            why: trouble.why.clone(),
        }),
    }
}

fn disallowed<T: AsRef<str>>(asked: &Asked<'_, T>, rule: Option<RuleEvidence>) -> Refusal {
    Refusal::Disallowed { robots_url: asked.authority.robots_url().into(), product_tokens: names(asked), rule }
}

fn unwelcome<T: AsRef<str>>(
    asked: &Asked<'_, T>,
    preference: PreferenceRef<'_>,
    matched_path: Option<Box<str>>,
) -> Refusal {
    Refusal::UsageDisallowed {
        robots_url: asked.authority.robots_url().into(),
        product_tokens: names(asked),
        purpose: preference.purpose().into(),
        preference: PreferenceEvidence::new(preference, matched_path),
    }
}

fn names<T: AsRef<str>>(asked: &Asked<'_, T>) -> Box<[Box<str>]> {
    asked.product_tokens.iter().map(|token| token.as_ref().into()).collect()
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
