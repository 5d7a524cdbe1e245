//! The operator's settings for decisions on requests to a host. Built by `config`. Pure.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use super::operator_rules::OwnRules;
use super::{Entry, Manners, Paths, Request, RobotsOverride, UsageModes};
use crate::robots::{ProductToken, Purpose};

/// The settings that apply to one host, with all overrides resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct HostRules {
    pub robots: RobotsOverride,
    /// Overrides the crawl delay of robots.txt.
    pub crawl_delay: Option<Duration>,
    /// Overrides `PolicyOptions::product_tokens`; empty: taken from the request's `User-Agent`.
    pub product_tokens: Option<Arc<[ProductToken]>>,
    /// Overrides `PolicyOptions::purposes`.
    pub purposes: Option<Arc<[Purpose]>>,
    /// How to treat refusals of a declared purpose.
    pub usage: UsageModes,
    /// Limits beyond what the site asks for.
    pub manners: Manners,
    /// The operator's rules, which override those of robots.txt.
    pub own_rules: Option<OwnRules>,
    pub options: Arc<PolicyOptions>,
}

/// The settings that apply to every host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyOptions {
    /// `mode: report`: requests that would be refused are sent, and the refusals are reported.
    pub report_only: bool,
    /// The crawler's names in robots.txt. Empty: taken from the request's `User-Agent`.
    pub product_tokens: Vec<ProductToken>,
    /// Replaces the request's `User-Agent`.
    pub user_agent: Option<String>,
    /// Declared purposes: a preference against any of them disallows the URL. Empty: preferences disallow nothing.
    pub purposes: Vec<Purpose>,
    /// The names by which robots.txt disallows a purpose.
    pub policy_tokens: Vec<PolicyToken>,
    /// How to treat refusals of a declared purpose.
    pub usage: UsageModes,
    /// Limits beyond what sites ask for.
    pub manners: Manners,
    /// `on_long_unreachable: allow`: everything is allowed after 30 days without an answer and without a copy.
    pub allow_long_unreachable: bool,
    /// `visit_time: enforce`.
    pub enforce_visit_time: bool,
    /// `on_unavailable: disallow`: if there is no robots.txt, nothing is allowed.
    pub disallow_unavailable: bool,
    /// `on_auth_error: disallow`: nothing is allowed if robots.txt requires credentials (401 and 403).
    pub disallow_auth_error: bool,
    /// `robots.paths`.
    pub paths: Paths,
}

/// A purpose and a name for it in User-agent lines of robots.txt.
pub type PolicyToken = (Purpose, ProductToken);

impl HostRules {
    /// The rules of a host without overrides.
    pub fn new(options: Arc<PolicyOptions>) -> Self {
        HostRules {
            robots: RobotsOverride::default(),
            crawl_delay: None,
            product_tokens: None,
            purposes: None,
            usage: options.usage,
            manners: options.manners,
            own_rules: None,
            options,
        }
    }

    /// Replaces the configured tokens and purposes; an empty argument keeps the configured ones.
    #[must_use]
    pub fn asked_for(mut self, product_tokens: &[ProductToken], purposes: &[Purpose]) -> Self {
        if !product_tokens.is_empty() {
            self.product_tokens = Some(product_tokens.into());
        }
        if !purposes.is_empty() {
            self.purposes = Some(purposes.into());
        }
        self
    }

    /// The product tokens for which to read robots.txt: a group matches if it names any of them. The tokens are configured for the host,
    /// else for the client, else for everybody, else taken from the User-Agent. Empty: the rules for `*` apply.
    pub fn product_tokens<'a>(&'a self, request: &Request<'a>) -> Cow<'a, [ProductToken]> {
        let clients = Some(request.product_tokens).filter(|tokens| !tokens.is_empty());
        let configured = self.product_tokens.as_deref().or(clients).unwrap_or(&self.options.product_tokens);
        if configured.is_empty() {
            // Reads the User-Agent that the site receives.
            return match &self.options.user_agent {
                Some(agent) => Cow::Owned(ProductToken::from_user_agent(agent.as_bytes())),
                None => Cow::Borrowed(request.agent_tokens),
            };
        }
        Cow::Borrowed(configured)
    }

    /// The declared purposes for this host, or else for every host.
    pub fn purposes(&self) -> &[Purpose] {
        self.purposes.as_deref().unwrap_or(&self.options.purposes)
    }

    /// The declared purpose to which tdmrep.json applies. `None`: the file is not needed.
    pub fn mining_purpose(&self) -> Option<&Purpose> {
        let purposes = Some(self.purposes()).filter(|_| self.usage.tdmrep != RobotsOverride::Ignore)?;
        purposes.iter().find(|purpose| purpose.is_mining())
    }

    /// The declared purposes to which a licence file applies. Empty: the file is not needed.
    pub fn licensed_purposes(&self) -> &[Purpose] {
        if self.usage.license == RobotsOverride::Ignore { &[] } else { self.purposes() }
    }

    /// The crawl-delay for requests like this one: the operator's delay, or else the delay in robots.txt. `None`: no delay is known.
    pub fn crawl_delay(&self, entry: &Entry, request: &Request<'_>) -> Option<Duration> {
        let by_file = || entry.robots_txt()?.rules_for(&self.product_tokens(request)).crawl_delay();
        self.crawl_delay.or_else(by_file)
    }
}

impl PolicyOptions {
    /// Whether a missing file allows everything, given the status of the answer.
    pub fn allows_missing(&self, status: u16) -> bool {
        let disallows = if matches!(status, 401 | 403) { self.disallow_auth_error } else { self.disallow_unavailable };
        !disallows
    }
}
