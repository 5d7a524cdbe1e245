//! Decides by a site's robots.txt, or without one if it is missing or unreachable. Pure.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

use super::decision::{Allowance, Ruling};
use crate::policy::entry::{Entry, Trouble};
use crate::policy::freshness::CopyState;
use crate::policy::usage::policy_tokens::disallowed_for_purpose;
use crate::policy::{Authority, HostRules, LineEvidence, Refusal, Request, SiteFile};
use crate::robots::path_forms::JudgedPath;
use crate::robots::{PreferenceRef, ProductToken, Reason, RobotsTxt, RuleSet};

/// The inputs of all steps of a decision.
pub(super) struct Case<'a> {
    pub rules: &'a HostRules,
    pub request: &'a Request<'a>,
    pub tokens: Cow<'a, [ProductToken]>,
    pub now: SystemTime,
    pub path: JudgedPath<'a>,
}

impl<'a> Case<'a> {
    pub fn new(rules: &'a HostRules, request: &'a Request<'a>, now: SystemTime) -> Self {
        let path = JudgedPath::new(request.target, rules.options.paths);
        Case { rules, request, tokens: rules.product_tokens(request), now, path }
    }

    /// The ruling by robots.txt, and whether to fetch the file again. `file`: the file and the rules that apply, if there is a file.
    pub fn by_entry(&mut self, entry: &Entry, file: Option<(&RobotsTxt, &RuleSet)>) -> (Ruling, bool) {
        // RFC 9309 §2.2.2: robots.txt itself is implicitly allowed, even if its content is unknown or disallows everything.
        if self.request.reads_robots {
            return (Ruling::Allow(Allowance::RobotsTxt), false);
        }
        if let Some((answer, state)) = entry.usable(self.now) {
            let refresh = match state {
                CopyState::Refresh => entry.may_fetch(self.now),
                CopyState::Fresh | CopyState::Unusable => false,
            };
            let ruling = match file {
                Some(file) => self.by_rules(file),
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

    fn by_rules(&mut self, (robots, file): (&RobotsTxt, &RuleSet)) -> Ruling {
        let (verdict, matched_path) = file.check_within(&mut self.path, self.rules.purposes());
        if let Some(preference) = verdict.preference() {
            return Ruling::Refuse(self.unwelcome(preference, matched_path).into());
        }
        if verdict.reason() == Reason::TooComplex {
            return Ruling::Refuse(
                Refusal::RulesTooComplex { rules: self.request.authority.robots_url().into() }.into(),
            );
        }
        if !verdict.is_allowed() {
            let rule = verdict.rule().map(|rule| LineEvidence::of_rule(rule, matched_path));
            return Ruling::Refuse(self.disallowed(rule).into());
        }
        if !self.rules.options.policy_tokens.is_empty()
            && let Some(why) = disallowed_for_purpose(robots, self.rules, self.request, &mut self.path)
        {
            return Ruling::Refuse(why.into());
        }
        if self.rules.options.enforce_visit_time
            && let Some(hours) = file.visit_time()
            && let Some(retry_after) = hours.opens_in(self.now)
        {
            return Ruling::Refuse(Refusal::Closed { retry_after, authority: self.authority(), hours }.into());
        }
        Ruling::Allow(match verdict.rule() {
            Some(rule) => Allowance::Rule { place: rule.place() },
            None if verdict.reason() == Reason::RobotsTxt => Allowance::RobotsTxt,
            None => Allowance::NoRule,
        })
    }

    /// The ruling while robots.txt is unreachable. RFC 9309 §2.3.1.4: complete disallow; after a reasonably long time the file may be
    /// treated as unavailable.
    fn unreachable(&self, trouble: &Trouble) -> (Ruling, bool) {
        let left_alone = trouble.left_alone_for(self.now);
        if trouble.is_long(self.now) && self.rules.options.allow_long_unreachable {
            return (Ruling::Allow(Allowance::LongUnreachable), left_alone.is_none());
        }
        let Some(retry_after) = left_alone else { return (Ruling::Fetch(SiteFile::Robots), false) };
        let why = Refusal::RobotsUnreachable { retry_after, authority: self.authority(), why: trouble.why.clone() };
        (Ruling::Refuse(why.into()), false)
    }

    fn disallowed(&self, rule: Option<LineEvidence>) -> Refusal {
        Refusal::Disallowed { authority: self.authority(), product_tokens: self.names(), rule }
    }

    fn unwelcome(&self, preference: PreferenceRef<'_>, matched_path: Option<Box<str>>) -> Refusal {
        Refusal::UsageDisallowed {
            authority: self.authority(),
            product_tokens: self.names(),
            purpose: preference.purpose().into(),
            preference: LineEvidence::of_preference(preference, matched_path),
        }
    }

    fn authority(&self) -> Authority {
        self.request.authority.clone()
    }

    fn names(&self) -> Arc<str> {
        match &*self.tokens {
            [] => Arc::default(),
            [token] => token.shared(),
            tokens => tokens.iter().map(ProductToken::as_str).collect::<Vec<_>>().join(", ").into(),
        }
    }
}
