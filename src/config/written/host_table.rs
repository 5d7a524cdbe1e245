//! `hosts`: overrides for some hosts, as written, by name or pattern.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};

use super::manners::{self, WrittenAdaptive, WrittenBreaker, WrittenBudget};
use super::origin_tls::{self, CertificatePair, Pin, TlsVersions};
use super::text::read_with;
use super::values::{HOST_FORMS, PathPattern, parse_pattern};
use crate::config::read::error::Complaint;
use crate::policy::{HostPattern, RobotsOverride, UsageModes};
use crate::robots::{ProductToken, Purpose};

/// What is otherwise for some hosts. `None`: as for all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
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
    pub usage: Usage,
    /// The operator's own rules, which override those of robots.txt.
    pub allow: Option<Vec<PathPattern>>,
    pub deny: Option<Vec<PathPattern>>,
    /// The keys of which the origin's certificate must hold one.
    #[serde(deserialize_with = "origin_tls::some_pins")]
    pub pin: Option<Vec<Pin>>,
    /// What the origin is shown.
    pub client_certificate: Option<CertificatePair>,
    /// Whether the origin's certificate is looked at.
    #[serde(deserialize_with = "origin_tls::some_switch")]
    pub verify: Option<bool>,
    /// Which versions of TLS it may speak.
    pub tls: Option<TlsVersions>,
}

impl Override {
    pub(in crate::config) fn manners(&self) -> manners::WrittenManners {
        let Self { adaptive, breaker, budget, min_revisit, .. } = *self;
        manners::WrittenManners { adaptive, breaker, budget, min_revisit }
    }
}

/// How a no to a declared purpose is handled: an answer's field, or the site's tdmrep.json. `None`: as for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Usage {
    pub content_usage: Option<RobotsOverride>,
    pub x_robots_tag: Option<RobotsOverride>,
    pub tdm_reservation: Option<RobotsOverride>,
    pub tdmrep: Option<RobotsOverride>,
}

impl Usage {
    pub fn over(self, before: UsageModes) -> UsageModes {
        UsageModes {
            content_usage: self.content_usage.unwrap_or(before.content_usage),
            x_robots_tag: self.x_robots_tag.unwrap_or(before.x_robots_tag),
            tdm_reservation: self.tdm_reservation.unwrap_or(before.tdm_reservation),
            tdmrep: self.tdmrep.unwrap_or(before.tdmrep),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum InterceptMode {
    /// TLS ends here; robots.txt is held to, request by request.
    #[default]
    Intercept,
    /// Bytes pass unread; robots.txt cannot be held to, paced per connection.
    Tunnel,
    Deny,
}

/// A map whose keys are patterns, each once however it is spelt.
#[derive(Clone, Debug, PartialEq)]
pub struct HostMap<V>(pub(in crate::config) Vec<(HostPattern, V)>);

impl<V> Default for HostMap<V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for HostMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<V>(std::marker::PhantomData<V>);

        impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
            type Value = HostMap<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", Complaint::new("hosts", "write `\"*.example.com\": …` for each, or `{}` for none"))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<HostMap<V>, A::Error> {
                let known = RefCell::new(HashSet::new());
                let mut entries = Vec::new();
                while let Some(pattern) = access.next_key_seed(OnlyOnce(&known))? {
                    entries.push((pattern, access.next_value()?));
                }
                Ok(HostMap(entries))
            }
        }

        deserializer.deserialize_map(Entries(std::marker::PhantomData))
    }
}

/// Reads a key and refuses it there, where its place is known, if it was read before.
struct OnlyOnce<'a>(&'a RefCell<HashSet<HostPattern>>);

impl<'de> DeserializeSeed<'de> for OnlyOnce<'_> {
    type Value = HostPattern;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<HostPattern, D::Error> {
        read_with(deserializer, "a host", HOST_FORMS, |text| {
            let pattern = parse_pattern(text)?;
            if self.0.borrow_mut().insert(pattern.clone()) {
                Ok(pattern)
            } else {
                Err(Complaint::new(format!("the host `{pattern}` appears twice"), "merge the two entries"))
            }
        })
    }
}
