//! What is otherwise for some hosts: `hosts` and `intercept.hosts`, by name or pattern. Looked up once per request by
//! `gate` and `proxy`; built by `settings`.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, Visitor};

use crate::policy::own_rules::OwnRules;
use crate::policy::{Host, HostPattern};
use crate::robots::ProductToken;

use super::error::Complaint;
use super::file::{InterceptMode, Override, RobotsOverride};
use super::validate::Check;
use super::values::{PathPattern, from_text};

/// What holds for one host, with nothing left open.
#[derive(Clone, Debug)]
pub struct HostPolicy {
    pub robots: RobotsOverride,
    /// In place of what robots.txt says.
    pub crawl_delay: Option<Duration>,
    pub intercept: InterceptMode,
    /// In place of `identity.product_tokens`; empty: taken from the request's `User-Agent`.
    pub product_tokens: Option<Arc<[ProductToken]>>,
    /// The operator's own rules, which go before those of robots.txt.
    pub own_rules: Option<OwnRules>,
    /// What they were made of.
    allow: Arc<[PathPattern]>,
    deny: Arc<[PathPattern]>,
}

/// The policies of all hosts. Each entry is already laid over the less specific ones that match it too.
#[derive(Clone, Debug, PartialEq)]
pub struct Hosts {
    hosts: HashMap<Host, HostPolicy>,
    below: HashMap<Arc<str>, HostPolicy>,
    any: HostPolicy,
}

impl Hosts {
    /// The policy of the most specific entry that names this host: constant time, no allocation.
    pub fn get(&self, host: &Host) -> &HostPolicy {
        self.hosts.get(host).unwrap_or_else(|| self.covering(host.name().unwrap_or_default()))
    }

    /// From the less specific to the more specific; of two that set the same key, the more specific one counts.
    pub(super) fn build(
        default: InterceptMode,
        entries: Table<Override>,
        intercept: Table<InterceptMode>,
        check: &mut Check<'_>,
    ) -> Self {
        let mut all: HashMap<HostPattern, Override> = entries.0.into_iter().collect();
        for (pattern, mode) in intercept.0 {
            let name = pattern.to_string();
            let entry = all.entry(pattern).or_default();
            if entry.intercept.is_some_and(|other| other != mode) {
                let hint = "say it in one of the two places";
                check.fault(&["intercept", "hosts", &name], "`hosts` says otherwise for this host", hint);
            }
            entry.intercept = Some(mode);
        }
        let mut all: Vec<(HostPattern, Override)> = all.into_iter().collect();
        all.sort_by_key(|(pattern, _)| pattern.rank());
        let any = HostPolicy {
            robots: RobotsOverride::Enforce,
            crawl_delay: None,
            intercept: default,
            product_tokens: None,
            own_rules: None,
            allow: Arc::default(),
            deny: Arc::default(),
        };
        let mut built = Self { hosts: HashMap::new(), below: HashMap::new(), any };
        for (pattern, own) in all {
            match &pattern {
                HostPattern::Any => built.any = built.any.overlaid(&pattern, own),
                HostPattern::Below(name) => {
                    let policy = built.covering(name).overlaid(&pattern, own);
                    built.below.insert(Arc::clone(name), policy);
                }
                HostPattern::Host(host) => {
                    let policy = built.covering(host.name().unwrap_or_default()).overlaid(&pattern, own);
                    built.hosts.insert(host.clone(), policy);
                }
            }
        }
        built
    }

    /// The policy of the longest pattern that this name is below.
    fn covering(&self, name: &str) -> &HostPolicy {
        if self.below.is_empty() {
            return &self.any;
        }
        let above = name.match_indices('.').map(|(dot, _)| &name[dot + 1..]);
        above.into_iter().find_map(|parent| self.below.get(parent)).unwrap_or(&self.any)
    }
}

impl PartialEq for HostPolicy {
    fn eq(&self, other: &Self) -> bool {
        let parts = |policy: &Self| (policy.robots, policy.crawl_delay, policy.intercept);
        // `own_rules` follow from `allow` and `deny`.
        parts(self) == parts(other)
            && self.product_tokens == other.product_tokens
            && (&self.allow, &self.deny) == (&other.allow, &other.deny)
    }
}

impl HostPolicy {
    /// With what the entry for `pattern` says.
    fn overlaid(&self, pattern: &HostPattern, own: Override) -> Self {
        let rules = own.allow.is_some() || own.deny.is_some();
        let allow = own.allow.map_or_else(|| Arc::clone(&self.allow), Into::into);
        let deny = own.deny.map_or_else(|| Arc::clone(&self.deny), Into::into);
        let own_rules = match rules {
            true => Some(OwnRules::new(&pattern.to_string(), &allow, &deny)),
            false => self.own_rules.clone(),
        };
        Self {
            robots: own.robots.unwrap_or(self.robots),
            crawl_delay: own.crawl_delay.or(self.crawl_delay),
            intercept: own.intercept.unwrap_or(self.intercept),
            product_tokens: own.product_tokens.map(|tokens| tokens.into()).or_else(|| self.product_tokens.clone()),
            own_rules,
            allow,
            deny,
        }
    }
}

/// A map whose keys are patterns, each once however it is spelt.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Table<V>(Vec<(HostPattern, V)>);

impl<V> Default for Table<V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Table<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<V>(std::marker::PhantomData<V>);

        impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
            type Value = Table<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", Complaint::new("hosts", "write `\"*.example.com\": …` for each, or `{}` for none"))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Table<V>, A::Error> {
                let known = RefCell::new(HashSet::new());
                let mut entries = Vec::new();
                while let Some(pattern) = access.next_key_seed(OnlyOnce(&known))? {
                    entries.push((pattern, access.next_value()?));
                }
                Ok(Table(entries))
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
        from_text(deserializer, "a host", HOST_FORMS, |text| {
            let pattern = parse_pattern(text)?;
            if self.0.borrow_mut().insert(pattern.clone()) {
                Ok(pattern)
            } else {
                Err(Complaint::new(format!("the host `{pattern}` is there twice"), "make one entry of the two"))
            }
        })
    }
}

/// A host or a pattern of hosts as the configuration writes it.
pub(super) fn parse_pattern(text: &str) -> Result<HostPattern, Complaint> {
    let fault = |_| Complaint::new(format!("`{text}` is not a host or a pattern of hosts"), HOST_FORMS);
    HostPattern::parse(text).map_err(fault)
}

const HOST_FORMS: &str =
    "write `www.example.com`, `*.example.com` for all below it, `192.0.2.1`, or `*`; no scheme, no port";
