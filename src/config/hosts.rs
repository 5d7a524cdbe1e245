//! Overrides for some hosts: `hosts` and `intercept.hosts`, by name or pattern. Looked up once per request by
//! `gate` and `proxy`; built by `load`.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::policy::operator_rules::OwnRules;
use crate::policy::{Host, HostPattern, HostRules, PolicyOptions};

use super::read::sections::Sections;
use super::steps::step;
use super::written::host_table::{HostMap, InterceptMode, Override};
use super::written::origin_tls::{OriginTls, TlsVersions};
use super::written::values::PathPattern;

/// The settings for one host, complete.
#[derive(Clone, Debug)]
pub struct HostPolicy {
    /// The rules for deciding requests.
    pub rules: HostRules,
    pub intercept: InterceptMode,
    /// The key that sets `intercept`.
    pub intercept_key: Arc<str>,
    /// `None`: as for all origins.
    pub tls: Option<Arc<OriginTls>>,
    /// The source of `rules.own_rules`.
    allow: Arc<[PathPattern]>,
    deny: Arc<[PathPattern]>,
}

/// The policies of all hosts. Each entry is already merged with the less specific entries that match it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hosts {
    hosts: HashMap<Host, HostPolicy>,
    below: HashMap<Arc<str>, HostPolicy>,
    any: HostPolicy,
}

impl Hosts {
    /// The policy of the most specific entry that names this host: constant time, no allocation.
    pub fn get(&self, host: &Host) -> &HostPolicy {
        if self.hosts.is_empty() && self.below.is_empty() {
            return &self.any;
        }
        self.hosts.get(host).unwrap_or_else(|| self.covering(host.name().unwrap_or_default()))
    }

    /// Merges entries from less specific to more specific; of two that set the same key, the more specific one counts.
    pub(super) fn build(
        options: PolicyOptions,
        default: InterceptMode,
        entries: &HostMap<Override>,
        intercept: &HostMap<InterceptMode>,
        check: &mut Sections<'_>,
    ) -> Self {
        let mut all = entries.clone();
        for (pattern, mode) in intercept {
            let name = pattern.to_string();
            let entry = all.entry(pattern.clone()).or_default();
            if entry.intercept.is_some_and(|other| other != *mode) {
                let hint = "keep one of the two";
                check.fault(&["intercept", "hosts", &name], "`hosts` has another setting for this host", hint);
            }
            entry.intercept = Some(*mode);
        }
        let mut all: Vec<(HostPattern, Override)> = all.into_iter().collect();
        all.sort_by_key(|(pattern, _)| pattern.rank());
        let mut built = Self::default();
        (built.any.rules, built.any.intercept) = (HostRules::new(Arc::new(options)), default);
        for (pattern, own) in all {
            let key = intercept.contains_key(&pattern).then(|| format!("intercept.hosts.{pattern}"));
            built.lay(&pattern, &own, key.map(Arc::from));
        }
        built
    }

    /// These policies with `entries` laid over them: an entry overrides everything here, however specific.
    pub(super) fn overlaid(&self, entries: &HostMap<Override>) -> Self {
        let mut built = self.clone();
        // Each pattern gets a policy of its own, as it stands here.
        entries.keys().for_each(|pattern| built.lay(pattern, &Override::default(), None));
        let overlay = |policy: &mut HostPolicy, name: &str, own: HostPattern| {
            let above = name.rmatch_indices('.').map(|(dot, _)| HostPattern::Below(name[dot + 1..].into()));
            for pattern in [HostPattern::Any].into_iter().chain(above).chain([own]) {
                step();
                if let Some(entry) = entries.get(&pattern) {
                    *policy = policy.overlaid(&pattern, entry, None);
                }
            }
        };
        for (host, policy) in &mut built.hosts {
            overlay(policy, host.name().unwrap_or_default(), HostPattern::Host(host.clone()));
        }
        for (name, policy) in &mut built.below {
            overlay(policy, name, HostPattern::Below(Arc::clone(name)));
        }
        overlay(&mut built.any, "", HostPattern::Any);
        built
    }

    /// Every distinct policy.
    pub fn all(&self) -> impl Iterator<Item = &HostPolicy> {
        self.hosts.values().chain(self.below.values()).chain([&self.any])
    }

    /// The policy of hosts that match no entry.
    pub fn any(&self) -> &HostPolicy {
        &self.any
    }

    /// The hosts with TLS verification off, sorted.
    pub fn unverified(&self) -> Vec<String> {
        // Of patterns it is refused.
        let is = |policy: &HostPolicy| policy.tls.as_ref().is_some_and(|tls| !tls.verify);
        let mut all: Vec<_> =
            self.hosts.iter().filter(|(_, policy)| is(policy)).map(|(host, _)| host.to_string()).collect();
        all.sort();
        all
    }

    /// Resolves relative paths against `base`.
    pub(super) fn base(&mut self, base: &Path) {
        let policies = self.hosts.values_mut().chain(self.below.values_mut()).chain([&mut self.any]);
        for tls in policies.filter_map(|policy| policy.tls.as_mut()) {
            if let Some(pair) = &mut Arc::make_mut(tls).client_certificate {
                (pair.certificate, pair.key) = (base.join(&pair.certificate), base.join(&pair.key));
            }
        }
    }

    /// Lays one entry over the less specific ones. `key`: its key in `intercept`, if it is not in `hosts`.
    fn lay(&mut self, pattern: &HostPattern, own: &Override, key: Option<Arc<str>>) {
        match pattern {
            HostPattern::Any => self.any = self.any.overlaid(pattern, own, key),
            HostPattern::Below(name) => {
                let policy = self.below.get(name).unwrap_or_else(|| self.covering(name)).overlaid(pattern, own, key);
                self.below.insert(Arc::clone(name), policy);
            }
            HostPattern::Host(host) => {
                let policy = self.get(host).overlaid(pattern, own, key);
                self.hosts.insert(host.clone(), policy);
            }
        }
    }

    /// The policy of the longest pattern that matches this name.
    fn covering(&self, name: &str) -> &HostPolicy {
        if self.below.is_empty() {
            return &self.any;
        }
        let above = name.match_indices('.').map(|(dot, _)| &name[dot + 1..]);
        above.into_iter().inspect(|_| step()).find_map(|parent| self.below.get(parent)).unwrap_or(&self.any)
    }
}

impl Default for HostPolicy {
    fn default() -> Self {
        let (rules, paths) = (HostRules::new(Arc::default()), Arc::<[PathPattern]>::default());
        let (intercept, intercept_key) = (InterceptMode::default(), "intercept.default".into());
        Self { rules, intercept, intercept_key, tls: None, allow: Arc::clone(&paths), deny: paths }
    }
}

impl PartialEq for HostPolicy {
    fn eq(&self, other: &Self) -> bool {
        // `own_rules` follow from `allow` and `deny`, and `intercept_key` makes no difference.
        let HostRules { robots, crawl_delay, product_tokens, purposes, usage, manners, own_rules: _, options } =
            &self.rules;
        (*robots, *crawl_delay) == (other.rules.robots, other.rules.crawl_delay)
            && (product_tokens, options) == (&other.rules.product_tokens, &other.rules.options)
            && (purposes, *usage, manners) == (&other.rules.purposes, other.rules.usage, &other.rules.manners)
            && (self.intercept, &self.tls) == (other.intercept, &other.tls)
            && (&self.allow, &self.deny) == (&other.allow, &other.deny)
    }
}

impl HostPolicy {
    /// The policy with the entry for `pattern` applied. `key`: its key in `intercept`, if it is not in `hosts`.
    fn overlaid(&self, pattern: &HostPattern, own: &Override, key: Option<Arc<str>>) -> Self {
        step();
        let allow = own.allow.as_ref().map_or_else(|| Arc::clone(&self.allow), |allow| allow[..].into());
        let deny = own.deny.as_ref().map_or_else(|| Arc::clone(&self.deny), |deny| deny[..].into());
        let before = &self.rules;
        let rules = HostRules {
            robots: own.robots.unwrap_or(before.robots),
            crawl_delay: own.crawl_delay.or(before.crawl_delay),
            product_tokens: own.product_tokens.as_deref().map(Arc::from).or_else(|| before.product_tokens.clone()),
            purposes: own.purpose.as_deref().map(Arc::from).or_else(|| before.purposes.clone()),
            usage: own.usage.over(before.usage),
            manners: own.manners().over(&before.manners),
            own_rules: match own.allow.is_some() || own.deny.is_some() {
                true => Some(OwnRules::new(&pattern.to_string(), &allow, &deny)),
                false => before.own_rules.clone(),
            },
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
            allow,
            deny,
        }
    }
}

/// The TLS terms of a less specific entry with this one applied. `None`: as for all origins.
fn tls_overlaid(before: Option<&Arc<OriginTls>>, own: &Override) -> Option<Arc<OriginTls>> {
    if own.pin.is_none() && own.client_certificate.is_none() && own.verify.is_none() && own.tls.is_none() {
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
