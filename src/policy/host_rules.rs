//! The operator's settings by which requests to a host are decided. Pure; read by `config`.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use super::operator_rules::OwnRules;
use super::{Entry, Manners, Paths, Request, RobotsOverride, UsageModes};
use crate::robots::{ProductToken, Purpose};

/// The settings that apply to one host, with all overrides resolved.
#[derive(Debug, Clone)]
pub struct HostRules {
    pub robots: RobotsOverride,
    /// In place of what robots.txt says.
    pub crawl_delay: Option<Duration>,
    /// In place of `Options::product_tokens`; empty: taken from the request's `User-Agent`.
    pub product_tokens: Option<Arc<[ProductToken]>>,
    /// In place of `Options::purposes`.
    pub purposes: Option<Arc<[Purpose]>>,
    /// How answers that say no to a purpose are handled.
    pub usage: UsageModes,
    /// Limits beyond what the site asks for.
    pub manners: Manners,
    /// The operator's own rules, which override those of robots.txt.
    pub own_rules: Option<OwnRules>,
    pub options: Arc<PolicyOptions>,
}

/// The settings that apply to every host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyOptions {
    /// `mode: report`: what would be refused goes all the same, and is reported.
    pub report_only: bool,
    /// For whom robots.txt is read. Empty: for whom the request's `User-Agent` names.
    pub product_tokens: Vec<ProductToken>,
    /// What goes out as `User-Agent`, in place of the request's.
    pub user_agent: Option<String>,
    /// What for: a preference that says no to one of them disallows. None: preferences disallow nothing.
    pub purposes: Vec<Purpose>,
    /// By which names robots.txt disallows for a purpose.
    pub policy_tokens: Vec<PolicyToken>,
    /// How answers that say no to one of them are handled.
    pub usage: UsageModes,
    /// What is kept beyond what sites ask for.
    pub manners: Manners,
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

/// A purpose and a name for it in User-agent lines of robots.txt.
pub type PolicyToken = (Purpose, ProductToken);

impl HostRules {
    /// Where nothing is said of any host.
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

    /// With what is given in place of what is configured; what is empty is not given.
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

    /// For whom it is asked: a group matches if it names any of them. The host's configured ones, the client's, everybody's,
    /// or what the User-Agent says. None: the rules for everyone.
    pub fn product_tokens<'a>(&'a self, request: &Request<'a>) -> Cow<'a, [ProductToken]> {
        let clients = Some(request.product_tokens).filter(|tokens| !tokens.is_empty());
        let configured = self.product_tokens.as_deref().or(clients).unwrap_or(&self.options.product_tokens);
        if configured.is_empty() {
            // What goes out is what is judged.
            return match &self.options.user_agent {
                Some(agent) => Cow::Owned(ProductToken::from_user_agent(agent.as_bytes())),
                None => Cow::Borrowed(request.agent_tokens),
            };
        }
        Cow::Borrowed(configured)
    }

    /// What for: the host's configured ones, or everybody's.
    pub fn purposes(&self) -> &[Purpose] {
        self.purposes.as_deref().unwrap_or(&self.options.purposes)
    }

    /// The one of them that tdmrep.json concerns. `None`: it need not be known.
    pub fn mining_purpose(&self) -> Option<&Purpose> {
        let purposes = Some(self.purposes()).filter(|_| self.usage.tdmrep != RobotsOverride::Ignore)?;
        purposes.iter().find(|purpose| purpose.is_mining())
    }

    /// Those that a licence file concerns. None: it need not be known.
    pub fn licensed_purposes(&self) -> &[Purpose] {
        if self.usage.license == RobotsOverride::Ignore { &[] } else { self.purposes() }
    }

    /// The crawl-delay for requests like this one, of robots.txt or the operator, as far as it is known.
    pub fn crawl_delay(&self, entry: &Entry, request: &Request<'_>) -> Option<Duration> {
        let by_file = || entry.robots_txt()?.rules_for(&self.product_tokens(request)).crawl_delay();
        self.crawl_delay.or_else(by_file)
    }
}

impl PolicyOptions {
    /// Whether a missing file allows everything, by the status that said so.
    pub fn allows_missing(&self, status: u16) -> bool {
        let disallows = if matches!(status, 401 | 403) { self.disallow_auth_error } else { self.disallow_unavailable };
        !disallows
    }
}
