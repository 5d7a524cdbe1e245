//! What is decided about a request by what is known: the operator's own rules, and robots.txt.

use super::{Ask, Gate};
use crate::config::{Fallback, HostPolicy, Mode, OnVisitTime, RobotsOverride, Settings};
use crate::policy::explain::Explanation;
use crate::policy::{Access, Allowed, Asked, Decision, Entry, Options, OwnVerdict, Refusal, decide};
use crate::robots::ProductToken;
use std::borrow::Cow;
use std::time::{Duration, SystemTime};

/// What is said of a request before its turn.
pub(super) enum Verdict {
    /// Nothing can be said before robots.txt is fetched.
    Fetch,
    Known {
        refused: Option<Refusal>,
        /// The gap that holds, whatever is said of this request.
        crawl_delay: Option<Duration>,
        /// robots.txt should be fetched anew, without anybody waiting for it.
        refresh: bool,
    },
}

impl Gate {
    /// By what is known now: the operator's own rules for the host go first, then its robots.txt.
    pub(super) fn verdict(&self, entry: &Entry, ask: &Ask<'_>, host: &HostPolicy, settings: &Settings) -> Verdict {
        let own = host.own_rules.as_ref().map(|rules| rules.judge(ask.target, settings.robots.paths));
        let tokens = tokens(host, settings, ask);
        // Lifting a verdict does not lift the pace.
        let crawl_delay = || host.crawl_delay.or_else(|| crawl_delay(entry, &tokens));
        if let Some(OwnVerdict::Deny(why)) = own {
            return Verdict::Known { refused: Some(why), crawl_delay: crawl_delay(), refresh: false };
        }
        if host.robots == RobotsOverride::Ignore {
            return Verdict::Known { refused: None, crawl_delay: host.crawl_delay, refresh: false };
        }
        let (authority, target, purposes) = (ask.authority, ask.target, &settings.identity.purpose);
        let asked = Asked { authority, target, product_tokens: &tokens, purposes };
        match decide(Some(entry), &asked, options(settings), SystemTime::now()) {
            Decision::Fetch => Verdict::Fetch,
            // It is allowed without a look at the rules.
            Decision::Allow(Allowed { refresh, .. }) if ask.target == b"/robots.txt" => {
                Verdict::Known { refused: None, crawl_delay: crawl_delay(), refresh }
            }
            Decision::Allow(Allowed { crawl_delay, refresh }) => {
                Verdict::Known { refused: None, crawl_delay: host.crawl_delay.or(crawl_delay), refresh }
            }
            Decision::Refuse { why, refresh } => {
                let refused = (own != Some(OwnVerdict::Allow)).then_some(why);
                Verdict::Known { refused, crawl_delay: crawl_delay(), refresh }
            }
        }
    }

    /// The gap that holds for this request, as far as it is known.
    pub(super) fn crawl_delay(&self, entry: &Entry, ask: &Ask<'_>, settings: &Settings) -> Option<Duration> {
        let host = ask.policy(settings);
        host.crawl_delay.or_else(|| crawl_delay(entry, &tokens(host, settings, ask)))
    }
}

fn crawl_delay(entry: &Entry, tokens: &[ProductToken]) -> Option<Duration> {
    match &entry.answer.as_ref()?.access {
        Access::Rules(robots) => robots.rules_kept_for(tokens).crawl_delay(),
        Access::Missing => None,
    }
}

/// For whom it is asked: the host's configured tokens, the client's, everybody's, or what the User-Agent says.
fn tokens<'a>(host: &'a HostPolicy, settings: &'a Settings, ask: &Ask<'a>) -> Cow<'a, [ProductToken]> {
    let clients = Some(ask.product_tokens).filter(|tokens| !tokens.is_empty());
    let configured = host.product_tokens.as_deref().or(clients).unwrap_or(&settings.identity.product_tokens);
    if configured.is_empty() {
        // What goes out is what is judged.
        let agent = settings.identity.user_agent.as_deref().map(str::as_bytes).or(ask.user_agent);
        return Cow::Owned(ProductToken::from_user_agent(agent.unwrap_or_default()));
    }
    Cow::Borrowed(configured)
}

pub(super) fn options(settings: &Settings) -> Options {
    let robots = &settings.robots;
    Options {
        allow_long_unreachable: robots.on_long_unreachable == Fallback::Allow,
        enforce_visit_time: robots.visit_time == OnVisitTime::Enforce,
        disallow_unavailable: robots.on_unavailable == Fallback::Disallow,
        disallow_auth_error: robots.on_auth_error == Fallback::Disallow,
        paths: robots.paths,
    }
}

/// What robots.txt says, and over it what is configured for the host.
pub(super) fn overridden<T>(mut said: Explanation, asked: &Asked<'_, T>, settings: &Settings) -> Explanation {
    let host = settings.hosts.get(asked.authority.host());
    let by_configuration = |said: &mut Explanation, allowed, reason, detail| {
        *said = Explanation { allowed, reason, detail, rule: None, preference: None, ..said.clone() };
    };
    said.crawl_delay = host.crawl_delay.or(said.crawl_delay);
    match (host.own_rules.as_ref().map(|rules| rules.judge(asked.target, settings.robots.paths)), host.robots) {
        (Some(OwnVerdict::Deny(why)), _) => by_configuration(&mut said, false, why.slug(), why.to_string()),
        (_, RobotsOverride::Ignore) => {
            let detail = "robots.txt is ignored for this host, as configured".to_owned();
            by_configuration(&mut said, true, "robots-ignored", detail);
        }
        (Some(OwnVerdict::Allow), _) => {
            let detail = "an `allow` of this host's in the configuration allows it".to_owned();
            by_configuration(&mut said, true, "allowed-by-operator", detail);
        }
        (None | Some(OwnVerdict::Silent), RobotsOverride::Report) if !said.allowed => {
            said.allowed = true;
            said.detail = format!("let through, as configured; else: {}", said.detail);
        }
        (None | Some(OwnVerdict::Silent), RobotsOverride::Report | RobotsOverride::Enforce) => {}
    }
    said
}

/// Whether a refusal is only told of.
pub(super) fn reports(host: &HostPolicy, settings: &Settings) -> bool {
    settings.mode == Mode::Report || host.robots == RobotsOverride::Report
}
