//! The settings for one host, and how an entry of `hosts` overrides them.

use std::sync::Arc;

use crate::policy::operator_rules::OwnRules;
use crate::policy::{HostPattern, HostRules, Refusal};

use super::schema::host_table::{InterceptMode, Override};
use super::schema::origin_tls::{OriginTls, TlsVersions};
use super::schema::values::PathPattern;
use super::steps::step;

/// The complete settings for one host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostPolicy {
    /// The rules for deciding requests.
    pub rules: HostRules,
    pub intercept: InterceptMode,
    /// The key that sets `intercept`.
    pub intercept_key: Arc<str>,
    /// `None`: the same as for all origins.
    pub tls: Option<Arc<OriginTls>>,
}

impl Default for HostPolicy {
    fn default() -> Self {
        let (rules, intercept) = (HostRules::new(Arc::default()), InterceptMode::default());
        Self { rules, intercept, intercept_key: "intercept.default".into(), tls: None }
    }
}

impl HostPolicy {
    /// The refusal of https to a host with `intercept: deny`.
    pub fn https_denied(&self) -> Refusal {
        Refusal::InterceptDenied { key: (*self.intercept_key).into() }
    }

    /// The policy, overridden by the entry for `pattern`. `key`: the key in `intercept.hosts` that sets `intercept`, if there is one.
    pub(super) fn overlaid(&self, pattern: &HostPattern, own: &Override, key: Option<Arc<str>>) -> Self {
        step();
        let before = &self.rules;
        let rules = HostRules {
            robots: own.robots.unwrap_or(before.robots),
            crawl_delay: own.crawl_delay.or(before.crawl_delay),
            product_tokens: own.product_tokens.as_deref().map(Arc::from).or_else(|| before.product_tokens.clone()),
            purposes: own.purpose.as_deref().map(Arc::from).or_else(|| before.purposes.clone()),
            usage: own.usage.over(before.usage),
            manners: own.manners().over(&before.manners),
            own_rules: rules_overlaid(before.own_rules.as_ref(), pattern, own),
            options: Arc::clone(&before.options),
        };
        Self {
            rules,
            intercept: own.intercept.unwrap_or(self.intercept),
            intercept_key: match own.intercept {
                Some(_) => key.unwrap_or_else(|| format!("hosts.{pattern}.intercept").into()),
                None => Arc::clone(&self.intercept_key),
            },
            tls: tls_overlaid(self.tls.as_ref(), own),
        }
    }
}

/// The operator's rules of a less specific entry, overridden by the entry `own`: its `allow` and `deny` each replace the earlier list.
fn rules_overlaid(before: Option<&OwnRules>, pattern: &HostPattern, own: &Override) -> Option<OwnRules> {
    if own.allow.is_none() && own.deny.is_none() {
        return before.cloned();
    }
    let (allow, deny) = before.map_or((&[][..], &[][..]), OwnRules::written);
    let list = |own: &Option<Vec<PathPattern>>, before: &[Box<str>]| match own {
        Some(own) => own.iter().map(|pattern| pattern.as_ref().into()).collect(),
        None => before.to_vec(),
    };
    Some(OwnRules::new(&pattern.to_string(), &list(&own.allow, allow), &list(&own.deny, deny)))
}

/// The TLS terms of a less specific entry, overridden by the entry `own`. `None`: the same as for all origins.
fn tls_overlaid(before: Option<&Arc<OriginTls>>, own: &Override) -> Option<Arc<OriginTls>> {
    if !own.sets_tls() {
        return before.cloned();
    }
    let before = before.map(|tls| OriginTls::clone(tls)).unwrap_or_default();
    let tls = OriginTls {
        pins: own.pin.clone().unwrap_or(before.pins),
        client_certificate: own.client_certificate.clone().or(before.client_certificate),
        verify: own.verify.unwrap_or(before.verify),
        legacy: own.tls.map_or(before.legacy, |versions| versions == TlsVersions::Legacy),
    };
    (tls != OriginTls::default()).then(|| Arc::new(tls))
}
