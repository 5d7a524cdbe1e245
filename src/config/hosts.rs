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
#[derive(Clone, Debug, PartialEq)]
pub struct HostPolicy {
    /// The rules for deciding requests.
    pub rules: HostRules,
    pub intercept: InterceptMode,
    /// The key that sets `intercept`.
    pub intercept_key: Arc<str>,
    /// `None`: as for all origins.
    pub tls: Option<Arc<OriginTls>>,
}

/// The policies of all hosts. Each entry is already merged with the less specific entries that match it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hosts {
    /// By the end that the names of an entry have: `www.example.com` of a host, `.example.com` of `*.example.com`.
    by_end: HashMap<Box<str>, HostPolicy>,
    any: HostPolicy,
}

impl Hosts {
    /// The policy of the most specific entry that names this host, in constant time.
    pub fn get(&self, host: &Host) -> &HostPolicy {
        match host {
            _ if self.by_end.is_empty() => &self.any,
            Host::Name(name) => self.of_end(name),
            Host::Ip(_) => self.of_end(&host.to_string()),
        }
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
        let by_end: HashMap<_, _> = entries.iter().map(|entry| (end(&entry.0.to_string()).to_owned(), entry)).collect();
        let overlay = |policy: &mut HostPolicy, own: &str| {
            let ends: Vec<_> = [own].into_iter().chain(wider(own)).inspect(|_| step()).collect();
            for (pattern, entry) in ends.into_iter().rev().filter_map(|end| by_end.get(end)) {
                *policy = policy.overlaid(pattern, entry, None);
            }
        };
        built.by_end.iter_mut().for_each(|(end, policy)| overlay(policy, end));
        overlay(&mut built.any, "");
        built
    }

    /// Every distinct policy.
    pub fn all(&self) -> impl Iterator<Item = &HostPolicy> {
        self.by_end.values().chain([&self.any])
    }

    /// The policy of hosts that match no entry.
    pub fn any(&self) -> &HostPolicy {
        &self.any
    }

    /// The hosts with TLS verification off, sorted.
    pub fn unverified(&self) -> Vec<String> {
        // Of patterns it is refused.
        let is = |policy: &HostPolicy| policy.tls.as_ref().is_some_and(|tls| !tls.verify);
        let all = self.by_end.iter().filter(|(end, policy)| !end.starts_with('.') && is(policy));
        let mut all: Vec<_> = all.map(|(host, _)| host.to_string()).collect();
        all.sort();
        all
    }

    /// Resolves relative paths against `base`.
    pub(super) fn base(&mut self, base: &Path) {
        for tls in self.by_end.values_mut().chain([&mut self.any]).filter_map(|policy| policy.tls.as_mut()) {
            if let Some(pair) = &mut Arc::make_mut(tls).client_certificate {
                (pair.certificate, pair.key) = (base.join(&pair.certificate), base.join(&pair.key));
            }
        }
    }

    /// Lays one entry over the less specific ones. `key`: its key in `intercept`, if it is not in `hosts`.
    fn lay(&mut self, pattern: &HostPattern, own: &Override, key: Option<Arc<str>>) {
        let name = pattern.to_string();
        let policy = self.of_end(end(&name)).overlaid(pattern, own, key);
        match end(&name) {
            "" => self.any = policy,
            end => _ = self.by_end.insert(end.into(), policy),
        }
    }

    /// The most specific policy of the names with this end.
    fn of_end(&self, end: &str) -> &HostPolicy {
        let ends = [end].into_iter().chain(wider(end)).inspect(|_| step());
        ends.into_iter().find_map(|end| self.by_end.get(end)).unwrap_or(&self.any)
    }
}

/// Of a pattern what follows its star, and a host as it is: the end of all names that it matches.
pub(super) fn end(pattern: &str) -> &str {
    pattern.strip_prefix('*').unwrap_or(pattern)
}

/// The ends of the patterns that match all names with this end, and more; the most specific first.
pub(super) fn wider(end: &str) -> impl Iterator<Item = &str> {
    let name = end.strip_prefix('.').unwrap_or(end);
    name.match_indices('.').map(|(dot, _)| &name[dot..]).chain(Some("").filter(|_| !end.is_empty()))
}

impl Default for HostPolicy {
    fn default() -> Self {
        let (rules, intercept) = (HostRules::new(Arc::default()), InterceptMode::default());
        Self { rules, intercept, intercept_key: "intercept.default".into(), tls: None }
    }
}

impl HostPolicy {
    /// The policy with the entry for `pattern` applied. `key`: its key in `intercept`, if it is not in `hosts`.
    fn overlaid(&self, pattern: &HostPattern, own: &Override, key: Option<Arc<str>>) -> Self {
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

/// The operator's rules of a less specific entry with this one applied: `allow` and `deny` each replace the list before.
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
