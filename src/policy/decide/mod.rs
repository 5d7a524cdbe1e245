//! Decides whether a request may be sent, from the configuration and what is known of its site. Nothing else decides. A decision
//! contains its evidence, which `explain`, refusals and logs render. Pure: time is an argument.
//!
//! An example of one decision:
//!
//! ```
//! use politely::policy::freshness::Freshness;
//! use politely::policy::{Access, Authority, Entry, HostRules, PolicyOptions, Request, Ruling, SiteAnswer, decide};
//! use politely::robots::{ProductToken, RobotsTxt};
//! use std::{sync::Arc, time::Duration, time::SystemTime};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (now, hour) = (SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000), Duration::from_secs(3600));
//! let robots = RobotsTxt::parse(b"User-agent: FooBot\nDisallow: /private/\nCrawl-delay: 2\n");
//! let known = Entry::answered(SiteAnswer::new(Access::Rules(robots), 200, Freshness::new(now, hour, 0.0)));
//! let options = PolicyOptions { product_tokens: vec![ProductToken::parse("FooBot")?], ..PolicyOptions::default() };
//! let rules = HostRules::new(Arc::new(options));
//! let authority = Authority::from_url("https://example.com")?;
//!
//! // No rule matches this path as it is sent, but nginx serves `/private/x` for it.
//! let decision = decide(&known, &rules, &Request::new(&authority, b"/a/..%2Fprivate/x"), now);
//! let Ruling::Refuse(why) = decision.ruling else { panic!("it is allowed") };
//! let evidence = "line 2, `Disallow: /private/`, which matches `/private/x`";
//! assert!(why.to_string().starts_with(&format!("https://example.com/robots.txt disallows this URL for FooBot: {evidence}")));
//! assert_eq!(decision.crawl_delay, Some(Duration::from_secs(2)));
//! # Ok(())
//! # }
//! ```
//!
//! The steps in order; the first with a ruling decides:
//!
//! 1. The operator's `deny`. What `allow` matches is refused by nothing below; robots.txt is still fetched first, for its delay.
//! 2. `robots: ignore` allows.
//! 3. `/robots.txt` itself is allowed.
//! 4. Without a usable copy of robots.txt: fetch it, or refuse while it is unreachable.
//! 5. Its rules, for the path as it is sent and for each form that servers make of it.
//! 6. Its usage preferences, and its groups for a purpose, for the declared purposes; then `Visit-time`.
//! 7. tdmrep.json, then the licence file, of what is still allowed.
//!
//! `mode: report` and `robots: report` turn refusals into reports. Nothing lifts the pace.

mod by_file;
mod decision;

pub use decision::{Allowance, Decision, Known, Ruling};

use std::time::SystemTime;

use super::entry::Entry;
use super::freshness::CopyState;
use super::host_rules::HostRules;
use super::operator_rules::OwnVerdict;
use super::site_file::SiteFile;
use super::usage::license::not_licensed;
use super::usage::tdmrep::reserved_by_tdmrep;
use super::{Authority, Refusal, Request, RobotsOverride};
use crate::robots::path_forms::JudgedPath;
use by_file::Case;

/// Decides by what is known. The other files are asked of what robots.txt lets go, be it for a report alone.
pub fn decide<'a>(known: impl Into<Known<'a>>, rules: &HostRules, request: &Request<'_>, now: SystemTime) -> Decision {
    let Known { robots, tdmrep, license } = known.into();
    let mut path = JudgedPath::new(request.target, rules.options.paths);
    let mut decision = by_robots(robots, rules, request, now, &mut path);
    if let Some(tdmrep) = tdmrep
        && is_open(&decision.ruling, rules)
    {
        decision = by_tdmrep(decision, (robots, tdmrep), rules, request, now, &mut path);
    }
    // Neither is waited for before the other is asked for.
    if let Some(license) = license
        && (is_open(&decision.ruling, rules) || decision.ruling == Ruling::Fetch(SiteFile::TdmRep))
    {
        decision = by_license(decision, (robots, license), rules, request, now, &mut path);
    }
    decision
}

/// Whether a further file may say something of it.
fn is_open(ruling: &Ruling, rules: &HostRules) -> bool {
    match ruling {
        Ruling::Allow(Allowance::RobotsTxt | Allowance::Operator) | Ruling::Fetch(_) | Ruling::Refuse(_) => false,
        Ruling::Allow(_) => true,
        Ruling::Report(_) => !rules.options.report_only,
    }
}

/// Whether a file of the site other than robots.txt may be fetched: judged like a page, as only robots.txt is exempt (RFC 9309 §2.2.2).
/// Usage preferences do not matter, as it is read only to be obeyed.
pub fn judge_file(robots: &Entry, rules: &HostRules, request: &Request<'_>, now: SystemTime) -> Ruling {
    let mut path = JudgedPath::new(request.target, rules.options.paths);
    match by_robots(robots, rules, request, now, &mut path).ruling {
        Ruling::Refuse(why) if matches!(*why, Refusal::UsageDisallowed { .. }) => Ruling::Allow(Allowance::NoRule),
        ruling => ruling,
    }
}

/// Whether the site's tdmrep.json may be fetched.
pub fn may_fetch_tdmrep(robots: &Entry, rules: &HostRules, request: &Request<'_>, now: SystemTime) -> bool {
    let request = Request { target: SiteFile::TdmRep.path().as_bytes(), ..*request };
    !matches!(judge_file(robots, rules, &request, now), Ruling::Refuse(_))
}

/// The same of its licence file, which may be on another host: there that one's robots.txt decides, before it is fetched.
pub fn may_fetch_license(robots: &Entry, rules: &HostRules, request: &Request<'_>, now: SystemTime) -> bool {
    let Some((at, target)) = robots.license_url().and_then(|url| Authority::and_target(url).ok()) else { return false };
    let request = Request { target: target.as_bytes(), ..*request };
    at != *request.authority || !matches!(judge_file(robots, rules, &request, now), Ruling::Refuse(_))
}

/// What the licence file says of a page whose answer has linked to it.
pub fn judge_linked(
    robots: &Entry,
    license: &Entry,
    rules: &HostRules,
    request: &Request<'_>,
    now: SystemTime,
) -> Decision {
    let decision = Decision { ruling: Ruling::Allow(Allowance::NoRule), crawl_delay: None, refresh: Vec::new() };
    let mut path = JudgedPath::new(request.target, rules.options.paths);
    by_license(decision, (robots, license), rules, request, now, &mut path)
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
    // tdmrep.json cannot reserve itself: nobody could read it then.
    if request.target == SiteFile::TdmRep.path().as_bytes() {
        return decision;
    }
    let may_fetch = || tdmrep.may_fetch(now) && may_fetch_tdmrep(robots, rules, request, now);
    let Some((_, state)) = tdmrep.usable(now) else {
        if !may_fetch() {
            return decision;
        }
        // A page waits for it once: a site that answers it with Retry-After each time would have no page fetched.
        return match tdmrep.trouble {
            None => Decision { ruling: Ruling::Fetch(SiteFile::TdmRep), ..decision },
            Some(_) => decision.renewing(Some(SiteFile::TdmRep)),
        };
    };
    let why = reserved_by_tdmrep(tdmrep, rules, request, path);
    let refresh = (state == CopyState::Refresh && may_fetch()).then_some(SiteFile::TdmRep);
    decision.with(why, rules.usage.tdmrep, rules, refresh)
}

#[cold]
fn by_license(
    decision: Decision,
    (robots, license): (&Entry, &Entry),
    rules: &HostRules,
    request: &Request<'_>,
    now: SystemTime,
    path: &mut JudgedPath<'_>,
) -> Decision {
    let Some(url) = robots.license_url() else { return decision };
    // Or nobody could read it.
    if Authority::and_target(url)
        .is_ok_and(|(at, target)| at == *request.authority && target.as_bytes() == request.target)
    {
        return decision;
    }
    let may_fetch = || license.may_fetch(now) && may_fetch_license(robots, rules, request, now);
    let is_beside = matches!(decision.ruling, Ruling::Fetch(_));
    let Some((_, state)) = license.usable(now) else {
        // Nobody waits for what is only reported.
        return match is_reported(rules.usage.license, rules) || is_beside {
            _ if !may_fetch() => decision,
            true => decision.renewing(Some(SiteFile::license(url))),
            false => Decision { ruling: Ruling::Fetch(SiteFile::license(url)), ..decision },
        };
    };
    if is_beside {
        return decision;
    }
    let why = not_licensed(license, url, rules, request, path);
    let refresh = (state == CopyState::Refresh && may_fetch()).then(|| SiteFile::license(url));
    decision.with(why, rules.usage.license, rules, refresh)
}

impl Decision {
    /// With what a further file says, which is handled so, and whether that has to be renewed.
    fn with(self, why: Option<Refusal>, mode: RobotsOverride, rules: &HostRules, refresh: Option<SiteFile>) -> Self {
        let is_reported = is_reported(mode, rules);
        let ruling = match why {
            Some(_) if is_reported && matches!(self.ruling, Ruling::Report(_)) => self.ruling,
            Some(why) if is_reported => Ruling::Report(why.into()),
            Some(why) => Ruling::Refuse(why.into()),
            None => self.ruling,
        };
        Self { ruling, ..self }.renewing(refresh)
    }

    fn renewing(mut self, file: Option<SiteFile>) -> Self {
        self.refresh.extend(file);
        self
    }
}

/// Whether what a file says, which is handled so, changes nothing.
fn is_reported(mode: RobotsOverride, rules: &HostRules) -> bool {
    rules.options.report_only || mode == RobotsOverride::Report
}

fn by_robots(
    entry: &Entry,
    rules: &HostRules,
    request: &Request<'_>,
    now: SystemTime,
    path: &mut JudgedPath<'_>,
) -> Decision {
    let case = Case { rules, request, tokens: &rules.product_tokens(request), now };
    // First, as judging the file may spend the budget.
    let own = rules.own_rules.as_ref().map(|own| own.judge_within(path));
    let robots = entry.robots_txt().filter(|_| rules.robots != RobotsOverride::Ignore);
    let file = robots.map(|robots| robots.rules_within(case.tokens, &mut path.budget));
    // Reporting a refusal does not lift the pace.
    let crawl_delay = rules.crawl_delay.or_else(|| file.as_ref()?.crawl_delay());
    if let Some(OwnVerdict::Deny(why)) = own {
        let ruling = match rules.options.report_only {
            true => Ruling::Report(why.into()),
            false => Ruling::Refuse(why.into()),
        };
        return Decision { ruling, crawl_delay, refresh: Vec::new() };
    }
    if rules.robots == RobotsOverride::Ignore {
        let ruling = Ruling::Allow(Allowance::Ignored);
        return Decision { ruling, crawl_delay: rules.crawl_delay, refresh: Vec::new() };
    }
    let (said, refresh) = case.by_entry(entry, robots.zip(file.as_ref()), path);
    let ruling = match (said, own) {
        (Ruling::Allow(_) | Ruling::Refuse(_), Some(OwnVerdict::Allow)) => Ruling::Allow(Allowance::Operator),
        (Ruling::Refuse(why), _) if rules.options.report_only || rules.robots == RobotsOverride::Report => {
            Ruling::Report(why)
        }
        (said, _) => said,
    };
    Decision { ruling, crawl_delay, refresh: Vec::new() }.renewing(refresh.then_some(SiteFile::Robots))
}

#[cfg(test)]
mod tests;
