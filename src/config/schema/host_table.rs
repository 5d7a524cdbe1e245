//! `hosts`: overrides for some hosts, as written, by name or pattern.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::manners::{self, WrittenAdaptive, WrittenBreaker, WrittenBudget};
use super::origin_tls::{self, CertificatePair, Pin, TlsVersions};
use super::text;
use super::values::PathPattern;
use crate::policy::{HostPattern, RobotsOverride, UsageModes};
use crate::robots::{ProductToken, Purpose};

/// The overrides for some hosts. `None`: the same as for all hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Override {
    pub robots: Option<RobotsOverride>,
    pub crawl_delay: Option<Duration>,
    pub adaptive: Option<WrittenAdaptive>,
    pub breaker: Option<WrittenBreaker>,
    pub budget: Option<WrittenBudget>,
    pub min_revisit: Option<Duration>,
    pub intercept: Option<InterceptMode>,
    pub product_tokens: Option<Vec<ProductToken>>,
    pub purpose: Option<Vec<Purpose>>,
    pub usage: UsageModes<Option<RobotsOverride>>,
    /// The operator's rules, which override those of robots.txt.
    pub allow: Option<Vec<PathPattern>>,
    pub deny: Option<Vec<PathPattern>>,
    /// Pinned keys; the origin's certificate must have one of them.
    #[serde(deserialize_with = "origin_tls::some_pins")]
    pub pin: Option<Vec<Pin>>,
    /// The client certificate for the origin.
    pub client_certificate: Option<CertificatePair>,
    /// Whether to verify the origin's certificate.
    #[serde(deserialize_with = "text::some")]
    pub verify: Option<bool>,
    /// The allowed versions of TLS.
    pub tls: Option<TlsVersions>,
}

impl Override {
    pub(in crate::config) fn sets_tls(&self) -> bool {
        self.pin.is_some() || self.client_certificate.is_some() || self.verify.is_some() || self.tls.is_some()
    }

    pub(in crate::config) fn manners(&self) -> manners::WrittenManners {
        let Self { adaptive, breaker, budget, min_revisit, .. } = *self;
        manners::WrittenManners { adaptive, breaker, budget, min_revisit }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum InterceptMode {
    /// Terminates TLS, and enforces robots.txt for each request.
    #[default]
    Intercept,
    /// Passes bytes unread: robots.txt cannot be enforced, and the pace applies to connections.
    Tunnel,
    Deny,
}

/// Entries by host or pattern.
pub(in crate::config) type HostMap<V> = BTreeMap<HostPattern, V>;
