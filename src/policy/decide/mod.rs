//! Decides whether a request may be sent, by the configuration and the known state of its site. All such decisions are made here. A
//! decision contains its evidence, which `explain`, refusals and logs render. Pure: time is an argument.
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
//! let Ruling::Refuse(why) = decision.ruling else { panic!("the request is allowed") };
//! let evidence = "line 2, `Disallow: /private/`, which matches `/private/x`";
//! assert!(why.to_string().starts_with(&format!("https://example.com/robots.txt disallows this URL for FooBot: {evidence}")));
//! assert_eq!(decision.crawl_delay, Some(Duration::from_secs(2)));
//! # Ok(())
//! # }
//! ```
//!
//! The steps in order; the first with a ruling decides:
//!
//! 1. The operator's `deny`. If `allow` matches, no step below refuses; robots.txt is still fetched first, for its delay.
//! 2. `robots: ignore` allows.
//! 3. A GET or HEAD of `/robots.txt` itself is allowed.
//! 4. Without a usable copy of robots.txt: fetch it, or refuse while it is unreachable.
//! 5. The rules of robots.txt, for the path as it is sent and for each form that servers make of it.
//! 6. For each declared purpose, the usage preferences of robots.txt and its groups that name the purpose; then `Visit-time`.
//! 7. tdmrep.json, then the licence file, if the request is still allowed.
//!
//! `mode: report` and `robots: report` turn refusals into reports. The pace applies in any case.

mod by_file;
mod decision;

pub use decision::{Allowance, Decision, Known, Ruling};

use std::borrow::Cow;
use std::time::SystemTime;

use super::entry::Entry;
use super::freshness::CopyState;
use super::host_rules::HostRules;
use super::operator_rules::OwnVerdict;
use super::site_file::SiteFile;
use super::usage::entries::refused_by_entries;
use super::{Authority, Refusal, Request, RobotsOverride};
use by_file::Case;

/// Decides on a request by the known state of its site. tdmrep.json and the licence file decide only if robots.txt allows the request, or
/// if its refusal is reported for this host only (`robots: report`).
pub fn decide<'a>(known: impl Into<Known<'a>>, rules: &HostRules, request: &Request<'_>, now: SystemTime) -> Decision {
    let Known { robots, tdmrep, license } = known.into();
    let mut case = Case::new(rules, request, now);
    let mut decision = case.by_robots(robots);
    if let Some(tdmrep) = tdmrep
        && case.is_open(&decision.ruling)
    {
        decision = case.by_entries(decision, robots, SiteFile::TdmRep, tdmrep);
    }
    // Requests both missing files at once, not one after the other.
    if (case.is_open(&decision.ruling) || decision.ruling == Ruling::Fetch(SiteFile::TdmRep))
        && let Some((license, url)) = license.zip(robots.license_url())
    {
        decision = case.by_entries(decision, robots, SiteFile::license(url), license);
    }
    decision
}

/// Whether a file of the site other than robots.txt may be fetched: judged like a page, as only robots.txt is exempt (RFC 9309 §2.2.2).
/// Usage preferences do not matter, as the file is read only to obey it.
pub fn judge_file(robots: &Entry, rules: &HostRules, request: &Request<'_>, now: SystemTime) -> Ruling {
    match Case::new(rules, request, now).by_robots(robots).ruling {
        Ruling::Refuse(why) if matches!(*why, Refusal::UsageDisallowed { .. }) => Ruling::Allow(Allowance::NoRule),
        ruling => ruling,
    }
}

/// Whether the site's tdmrep.json or licence file may be fetched. Returns true for a licence file on another host: the robots.txt of that
/// host decides before the fetch.
pub fn may_fetch(file: SiteFile, robots: &Entry, rules: &HostRules, request: &Request<'_>, now: SystemTime) -> bool {
    let Some((at, target)) = place(file, robots, request.authority) else { return false };
    let request = Request { target: target.as_bytes(), ..*request };
    at != *request.authority || !matches!(judge_file(robots, rules, &request, now), Ruling::Refuse(_))
}

/// Decides on a page by the licence file that the page's answer has linked to.
pub fn judge_linked(
    robots: &Entry,
    license: &Entry,
    rules: &HostRules,
    request: &Request<'_>,
    now: SystemTime,
) -> Decision {
    let decision = Decision { ruling: Ruling::Allow(Allowance::NoRule), crawl_delay: None, refresh: Vec::new() };
    match robots.license_url() {
        Some(url) => Case::new(rules, request, now).by_entries(decision, robots, SiteFile::license(url), license),
        None => decision,
    }
}

/// Authority and target of a file of the site. `None`: the site has no such file.
fn place<'a>(file: SiteFile, robots: &'a Entry, authority: &Authority) -> Option<(Authority, Cow<'a, str>)> {
    match file {
        SiteFile::Robots | SiteFile::TdmRep => Some((authority.clone(), file.path().into())),
        SiteFile::License(_) => Authority::and_target(robots.license_url()?).ok(),
    }
}

impl Case<'_> {
    fn by_robots(&mut self, entry: &Entry) -> Decision {
        let rules = self.rules;
        // The operator's rules are judged first, as judging robots.txt may spend the budget of steps.
        let own = rules.own_rules.as_ref().map(|own| own.judge_within(&mut self.path));
        let robots = entry.robots_txt().filter(|_| rules.robots != RobotsOverride::Ignore);
        let file = robots.map(|robots| robots.rules_within(&self.tokens, &mut self.path.budget));
        // Reporting a refusal does not lift the pace.
        let crawl_delay = rules.crawl_delay.or_else(|| file.as_ref()?.crawl_delay());
        let (ruling, refresh) = match own {
            Some(OwnVerdict::Deny(why)) => (self.refusing(why.into(), RobotsOverride::Enforce), false),
            _ if rules.robots == RobotsOverride::Ignore => (Ruling::Allow(Allowance::Ignored), false),
            own => match (self.by_entry(entry, robots.zip(file.as_ref())), own) {
                ((Ruling::Allow(_) | Ruling::Refuse(_), refresh), Some(OwnVerdict::Allow)) => {
                    (Ruling::Allow(Allowance::Operator), refresh)
                }
                ((Ruling::Refuse(why), refresh), _) => (self.refusing(why, rules.robots), refresh),
                (said, _) => said,
            },
        };
        Decision { ruling, crawl_delay, refresh: refresh.then_some(SiteFile::Robots).into_iter().collect() }
    }

    /// Whether tdmrep.json or the licence file can still change this ruling.
    fn is_open(&self, ruling: &Ruling) -> bool {
        match ruling {
            Ruling::Allow(Allowance::RobotsTxt | Allowance::Operator) | Ruling::Fetch(_) | Ruling::Refuse(_) => false,
            Ruling::Allow(_) => true,
            Ruling::Report(_) => !self.rules.options.report_only,
        }
    }

    /// Adds the ruling of the site's tdmrep.json or licence file to the decision. `known`: the state of that file.
    #[cold]
    fn by_entries(&mut self, mut decision: Decision, robots: &Entry, file: SiteFile, known: &Entry) -> Decision {
        let Self { rules, request, now, .. } = *self;
        let Some((at, target)) = place(file, robots, request.authority) else { return decision };
        // A file cannot reserve itself, as nobody could then read it.
        if at == *request.authority && target.as_bytes() == request.target {
            return decision;
        }
        let mode = if file == SiteFile::TdmRep { rules.usage.tdmrep } else { rules.usage.license };
        let may_fetch = || known.may_fetch(now) && may_fetch(file, robots, rules, request, now);
        let is_beside = matches!(decision.ruling, Ruling::Fetch(_));
        let Some((answer, state)) = known.usable(now) else {
            // A request does not wait for a licence file whose refusals are only reported.
            let is_optional = matches!(file, SiteFile::License(_)) && self.is_reported(mode);
            // A page waits for the file only once. Otherwise no page of a site that always answers the file with Retry-After would be
            // fetched.
            let is_awaited = known.trouble.is_none() && !is_optional && !is_beside;
            match is_awaited {
                _ if !may_fetch() => {}
                true => decision.ruling = Ruling::Fetch(file),
                false => decision.refresh.push(file),
            }
            return decision;
        };
        if is_beside {
            return decision;
        }
        if let Some(why) = refused_by_entries(robots, &answer.access, rules, request, &mut self.path)
            && !(self.is_reported(mode) && matches!(decision.ruling, Ruling::Report(_)))
        {
            decision.ruling = self.refusing(why.into(), mode);
        }
        if state == CopyState::Refresh && may_fetch() {
            decision.refresh.push(file);
        }
        decision
    }

    /// The ruling for a refusal: reported or enforced, by the mode of the source that refuses.
    fn refusing(&self, why: Box<Refusal>, mode: RobotsOverride) -> Ruling {
        if self.is_reported(mode) { Ruling::Report(why) } else { Ruling::Refuse(why) }
    }

    /// Whether the refusals of a source with this mode are only reported.
    fn is_reported(&self, mode: RobotsOverride) -> bool {
        self.rules.options.report_only || mode == RobotsOverride::Report
    }
}

#[cfg(test)]
mod tests;
