//! Why a URL may or may not be fetched, with all that led to it. Pure. Called by `gate` and `cli::explain`.

use std::time::{Duration, SystemTime};

use super::decide::verdict;
use super::{
    Access, Answer, Asked, AskedAgain, Authority, Decision, Entry, Options, PreferenceEvidence, RuleEvidence, decide,
};
use crate::robots::Reason;

/// One URL's verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    pub url: String,
    pub authority: String,
    pub product_tokens: Vec<String>,
    /// What it was asked for.
    pub purposes: Vec<String>,
    pub allowed: bool,
    /// A refusal's slug, or why it is allowed.
    pub reason: &'static str,
    /// The same for people.
    pub detail: String,
    pub rule: Option<RuleEvidence>,
    /// The usage preference, if that decided.
    pub preference: Option<PreferenceEvidence>,
    pub robots: RobotsState,
    pub crawl_delay: Option<Duration>,
    pub sitemaps: Vec<String>,
}

/// What is known of the authority's robots.txt.
#[derive(Debug, Clone, PartialEq)]
pub struct RobotsState {
    pub url: String,
    /// HTTP status of the answer; `None`: no answer, or none over HTTP.
    pub status: Option<u16>,
    /// The first answer found fault with our message.
    pub asked_again: Option<AskedAgain>,
    pub access: &'static str,
    pub fetched_at: Option<SystemTime>,
    pub expires_at: Option<SystemTime>,
}

impl Explanation {
    /// What was disallowed, where that is not the path as sent but one that servers take it for.
    pub fn matched_path(&self) -> Option<&str> {
        let preference = self.preference.as_ref().and_then(|preference| preference.matched_path.as_deref());
        preference.or(self.rule.as_ref().and_then(|rule| rule.matched_path.as_deref()))
    }
}

/// Explains by the entry as it is.
pub fn explain<T: AsRef<str>>(entry: &Entry, asked: &Asked<'_, T>, options: Options, now: SystemTime) -> Explanation {
    let answer = entry.usable(now).map(|(answer, _)| answer);
    let rules = answer.and_then(|answer| match &answer.access {
        Access::Rules(robots) => Some((robots, robots.rules_for(asked.product_tokens))),
        Access::Missing => None,
    });
    let (verdict, matched_path) = rules.as_ref().map(|(_, rules)| verdict(rules, asked, options)).unzip();
    let matched_path = matched_path.flatten();
    let rule = verdict.as_ref().and_then(|verdict| verdict.rule());
    let rule = rule.map(|rule| RuleEvidence::new(rule, matched_path.clone()));
    let preference = verdict.as_ref().and_then(|verdict| verdict.preference());
    let preference = preference.map(|preference| PreferenceEvidence::new(preference, matched_path.clone()));
    let (allowed, reason, detail) = match decide(Some(entry), asked, options, now) {
        Decision::Allow(_) => {
            let reason = verdict.map(|verdict| verdict.reason());
            let (reason, detail) = why_allowed(asked.target, reason);
            (true, reason, detail.to_owned())
        }
        Decision::Refuse { why, .. } => (false, why.slug(), why.to_string()),
        Decision::Fetch => (false, UNKNOWN, "nothing is known of its robots.txt yet".to_owned()),
    };
    Explanation {
        url: format!("{}{}", asked.authority, String::from_utf8_lossy(asked.target)),
        authority: asked.authority.to_string(),
        product_tokens: asked.product_tokens.iter().map(|token| token.as_ref().to_owned()).collect(),
        purposes: asked.purposes.iter().map(|purpose| purpose.to_string()).collect(),
        allowed,
        reason,
        detail,
        rule,
        preference,
        robots: state(entry, asked.authority, options, now),
        crawl_delay: rules.as_ref().and_then(|(_, rules)| rules.crawl_delay()),
        sitemaps: rules.iter().flat_map(|(robots, _)| robots.sitemaps()).map(str::to_owned).collect(),
    }
}

/// What an answer says may be crawled, in a word.
pub fn access(answer: &Answer, options: Options) -> &'static str {
    match answer.access {
        Access::Rules(_) => "rules",
        Access::Missing if options.allows_missing(answer.status) => "allow-all",
        Access::Missing => "disallow-all",
    }
}

fn why_allowed(target: &[u8], reason: Option<Reason>) -> (&'static str, &'static str) {
    match reason {
        _ if target == b"/robots.txt" => ("robots-txt", "robots.txt itself may always be fetched"),
        Some(Reason::Allowed) => ("allowed-by-rule", "a rule allows it"),
        Some(Reason::NoRule | Reason::RobotsTxt | Reason::Disallowed | Reason::Usage) => {
            ("no-matching-rule", "no rule matches it")
        }
        None => ("no-robots-txt", "the host has no robots.txt, which allows everything"),
    }
}

fn state(entry: &Entry, authority: &Authority, options: Options, now: SystemTime) -> RobotsState {
    let answer = entry.usable(now).map(|(answer, _)| answer);
    RobotsState {
        url: authority.robots_url(),
        status: answer.map(|answer| answer.status),
        asked_again: answer.and_then(|answer| answer.asked_again),
        access: answer.map_or("disallow-all", |answer| access(answer, options)),
        fetched_at: answer.map(|answer| answer.freshness.validated_at()),
        expires_at: answer.map(|answer| answer.freshness.expires_at()),
    }
}

/// Nothing is known yet.
const UNKNOWN: &str = "robots-unknown";
