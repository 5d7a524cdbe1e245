//! What is decided about a request by what is known: the operator's own rules, and robots.txt. Called by `Gate::admit`.

use super::rulebook::Slot;
use super::{Ask, Gate};
use crate::config::{Fallback, HostPolicy, Mode, OnVisitTime, RobotsOverride, Settings};
use crate::policy::explain::Explanation;
use crate::policy::{Allowed, Asked, Decision, Options, OwnVerdict, decide};
use crate::robots::ProductToken;
use std::borrow::Cow;
use std::time::SystemTime;

impl Gate {
    /// By what is known now: the operator's own rules for the host go first, then its robots.txt.
    pub(super) fn verdict(&self, slot: &Slot, ask: &Ask<'_>, host: &HostPolicy, settings: &Settings) -> Decision {
        let own = host.own_rules.as_ref().map(|rules| rules.judge(ask.target.as_bytes()));
        if let Some(OwnVerdict::Deny(why)) = own {
            return Decision::Refuse { why, refresh: false };
        }
        if host.robots == RobotsOverride::Ignore {
            return Decision::Allow(Allowed::default());
        }
        let tokens = tokens(host, settings, ask);
        let (authority, target, purposes) = (ask.authority, ask.target.as_bytes(), &settings.identity.purpose);
        let asked = Asked { authority, target, product_tokens: &tokens, purposes };
        match decide(Some(&slot.load()), &asked, options(settings), SystemTime::now()) {
            // Allowed whatever robots.txt says; its crawl-delay is kept all the same.
            Decision::Refuse { refresh, .. } if own == Some(OwnVerdict::Allow) => {
                Decision::Allow(Allowed { crawl_delay: None, refresh })
            }
            decision => decision,
        }
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
    Options {
        allow_long_unreachable: settings.robots.on_long_unreachable == Fallback::Allow,
        enforce_visit_time: settings.robots.visit_time == OnVisitTime::Enforce,
    }
}

/// What robots.txt says, and over it what is configured for the host.
pub(super) fn overridden<T>(mut said: Explanation, asked: &Asked<'_, T>, host: &HostPolicy) -> Explanation {
    let by_configuration = |said: &mut Explanation, allowed, reason, detail| {
        *said = Explanation { allowed, reason, detail, rule: None, preference: None, ..said.clone() };
    };
    said.crawl_delay = host.crawl_delay.or(said.crawl_delay);
    match (host.own_rules.as_ref().map(|rules| rules.judge(asked.target)), host.robots) {
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
