//! May this request go, by what is configured and what is known of its site? The only place that decides. A decision carries its
//! evidence, which `explain`, the refusal and the logs render. Pure: time is an argument.
//!
//! One decision: what is known of the site, what is configured, and what is asked.
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
//! The steps, in their order; the first that says something decides:
//!
//! 1. The operator's own `deny`. Where `allow` matches, nothing after it refuses, save that robots.txt cannot be read.
//! 2. `robots: ignore` allows.
//! 3. `/robots.txt` itself is allowed.
//! 4. Without a usable copy of robots.txt: fetch it, or refuse while it is unreachable.
//! 5. Its rules, for the path as it is sent and for each form that servers make of it.
//! 6. Its usage preferences, and its groups for a purpose, for the declared purposes; then `Visit-time`.
//! 7. tdmrep.json, of what is still allowed.
//!
//! `mode: report` and `robots: report` turn a refusal into a report. Nothing lifts the pace.

mod by_file;
mod decision;

pub use decision::{Allowance, Decision, Known, Ruling};

use std::time::SystemTime;

use super::entry::Entry;
use super::freshness::CopyState;
use super::host_rules::HostRules;
use super::operator_rules::OwnVerdict;
use super::site_file::SiteFile;
use super::usage::tdmrep::reserved_by_tdmrep;
use super::{Refusal, Request, RobotsOverride};
use crate::robots::path_forms::JudgedPath;
use by_file::Case;

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
        if !may_fetch() {
            return decision;
        }
        // A page waits for it once: a site that answers it with Retry-After each time would have no page fetched.
        return match tdmrep.trouble {
            None => Decision { ruling: Ruling::Fetch(SiteFile::TdmRep), ..decision },
            Some(_) => Decision { refresh: decision.refresh.or(Some(SiteFile::TdmRep)), ..decision },
        };
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
    let (said, refresh) = case.by_entry(entry, robots.zip(file.as_ref()), path);
    let ruling = match (said, own) {
        (Ruling::Allow(_) | Ruling::Refuse(_), Some(OwnVerdict::Allow)) => Ruling::Allow(Allowance::Operator),
        (Ruling::Refuse(why), _) if rules.options.report_only || rules.robots == RobotsOverride::Report => {
            Ruling::Report(why)
        }
        (said, _) => said,
    };
    Decision { ruling, crawl_delay, refresh: refresh.then_some(SiteFile::Robots) }
}

#[cfg(test)]
mod tests;
