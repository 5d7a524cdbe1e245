//! Overrides for some hosts: `hosts` and `intercept.hosts`, by name or pattern. Looked up once per request by
//! `gate` and `proxy`; built by `load`.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::policy::{Budget, Host, HostPattern, HostRules, Manners, PolicyOptions};
use crate::robots::Purpose;

use super::host_policy::HostPolicy;
use super::read::sections::Sections;
use super::schema::host_table::{HostMap, InterceptMode, Override};
use super::schema::origin_tls::OriginTls;
use super::steps::step;

/// The policies of all hosts, for everybody or for one user.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    everybodys: Arc<PolicyTable>,
    own: Option<OwnTable>,
}

/// Everybody's policies. An entry's policy already includes the less specific entries that match its hosts.
#[derive(Clone, Debug, PartialEq)]
struct PolicyTable {
    by_end: Ends,
    /// The first policy is for hosts that match no entry. Many entries may share one policy.
    policies: Vec<HostPolicy>,
}

/// A user's entries. Each overrides everybody's entries, even more specific ones.
#[derive(Clone, Debug)]
struct OwnTable {
    by_end: Ends,
    entries: Vec<(HostPattern, Override)>,
    /// Hash table of everybody's policies overridden by these entries, keyed by the two indices. A policy is built when a host first needs
    /// it, as there may be many; the policies of one row form a linked list.
    made: Vec<OnceLock<Box<MadePolicy>>>,
}

#[derive(Clone, Debug)]
struct MadePolicy {
    of: (usize, usize),
    policy: HostPolicy,
    next: OnceLock<Box<Self>>,
}

/// Indices of policies or entries, by the end of the names that an entry matches: `www.example.com` for a host, `.example.com` for
/// `*.example.com`.
type Ends = HashMap<Box<str>, usize>;

impl Hosts {
    /// The policy of the most specific entry that names this host, in constant time.
    pub fn get(&self, host: &Host) -> &HostPolicy {
        match host {
            // Fast path, as each request needs a policy and most configurations have no entries.
            _ if self.own.is_none() && self.everybodys.by_end.is_empty() => &self.everybodys.policies[0],
            Host::Name(name) => self.policy_for_end(name),
            Host::Ip(_) => self.policy_for_end(&host.to_string()),
        }
    }

    /// Merges the entries `all`, the less specific ones first; if two set the same key, the more specific one counts.
    pub(super) fn build(
        options: PolicyOptions,
        default: InterceptMode,
        mut all: HostMap<Override>,
        intercept: &HostMap<InterceptMode>,
        check: &mut Sections<'_>,
    ) -> Self {
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
        let mut table = PolicyTable::default();
        (table.policies[0].rules, table.policies[0].intercept) = (HostRules::new(Arc::new(options)), default);
        let mut same = HashMap::new();
        for (pattern, own) in &all {
            let key = intercept.contains_key(pattern).then(|| format!("intercept.hosts.{pattern}"));
            table.lay(pattern, own, key.map(Arc::from), &mut same);
        }
        Self { everybodys: table.into(), own: None }
    }

    /// These policies, overridden by `entries`. An entry of `entries` overrides every entry here, even a more specific one.
    pub(super) fn overlaid(&self, entries: HostMap<Override>) -> Self {
        let entries: Vec<_> = entries.into_iter().collect();
        let by_end = entries.iter().enumerate().map(|(place, (pattern, _))| (end(&pattern.to_string()).into(), place));
        let rows = entries.len() + self.everybodys.policies.len().min(MOST_ROWS);
        let made = (0..rows).map(|_| OnceLock::new()).collect();
        Self { everybodys: self.everybodys.clone(), own: Some(OwnTable { by_end: by_end.collect(), entries, made }) }
    }

    /// The policy of hosts that match no entry.
    pub fn any(&self) -> &HostPolicy {
        self.policy_for_end("")
    }

    /// The longest delay that an entry sets for everybody.
    pub fn longest_delay(&self) -> Duration {
        self.everybodys.policies.iter().filter_map(|policy| policy.rules.crawl_delay).max().unwrap_or_default()
    }

    /// Every declared purpose: for all hosts, and in entries.
    pub fn purposes(&self) -> impl Iterator<Item = &Purpose> {
        let own = self.own.iter().flat_map(|own| &own.entries).flat_map(|(_, entry)| &entry.purpose);
        self.everybodys.policies.iter().flat_map(|policy| policy.rules.purposes()).chain(own.flatten())
    }

    /// Every budget: for all hosts, and in entries.
    pub fn budgets(&self) -> impl Iterator<Item = Budget> {
        let own = self.own.iter().flat_map(|own| &own.entries);
        let own = own.map(|(_, entry)| entry.manners().over(&Manners::default()));
        let all = self.everybodys.policies.iter().map(|policy| policy.rules.manners).chain(own);
        all.filter_map(|manners| manners.budget)
    }

    /// The TLS terms of all hosts that have their own.
    pub fn tls(&self) -> impl Iterator<Item = &Arc<OriginTls>> {
        let own = self.own_tls().into_iter().flat_map(|_| self.ends_with_tls()).map(|end| self.policy_for_end(end));
        self.everybodys.policies.iter().chain(own).filter_map(|policy| policy.tls.as_ref())
    }

    /// Whether a user's entry sets TLS terms.
    pub fn has_own_tls(&self) -> bool {
        self.own_tls().is_some()
    }

    /// A user's entries, if one of them sets TLS terms.
    fn own_tls(&self) -> Option<&OwnTable> {
        self.own.as_ref().filter(|own| own.entries.iter().any(|(_, entry)| entry.sets_tls()))
    }

    /// All ends that may have TLS terms: the ends of everybody's entries, and of a user's entries if one of these sets TLS terms.
    fn ends_with_tls(&self) -> impl Iterator<Item = &str> {
        let own = self.own_tls().map(|own| &own.by_end);
        [&self.everybodys.by_end].into_iter().chain(own).flat_map(Ends::keys).map(Box::as_ref)
    }

    /// The hosts with TLS verification off, sorted.
    pub fn unverified(&self) -> Vec<String> {
        // `verify: off` is refused for patterns.
        let is =
            |end: &str| !end.starts_with('.') && self.policy_for_end(end).tls.as_ref().is_some_and(|tls| !tls.verify);
        let mut all: Vec<_> = self.ends_with_tls().filter(|end| is(end)).map(str::to_owned).collect();
        all.sort();
        all.dedup();
        all
    }

    /// The policy of the most specific entry for the names with this end.
    fn policy_for_end(&self, end: &str) -> &HostPolicy {
        let base = find(&self.everybodys.by_end, end).unwrap_or_default();
        match self.own.as_ref().and_then(|own| Some((own, find(&own.by_end, end)?))) {
            Some((own, place)) => own.policy(&self.everybodys, base, place),
            None => &self.everybodys.policies[base],
        }
    }
}

/// Compares everybody's policies and the user's entries, but not `made`, which follows from both.
impl PartialEq for Hosts {
    fn eq(&self, other: &Self) -> bool {
        let [own, others] = [self, other].map(|hosts| hosts.own.as_ref().map(|own| &own.entries));
        self.everybodys == other.everybodys && own == others
    }
}

impl Default for PolicyTable {
    fn default() -> Self {
        Self { by_end: Ends::new(), policies: vec![HostPolicy::default()] }
    }
}

impl PolicyTable {
    /// Adds an entry, which overrides the less specific ones. `key`: the key in `intercept.hosts` that sets `intercept`, if there is one.
    /// `same`: indices of policies by the less specific policy and the entry's content. Equal entries share a policy, unless the policy
    /// contains the entry's name.
    fn lay<'a>(
        &mut self,
        pattern: &HostPattern,
        own: &'a Override,
        key: Option<Arc<str>>,
        same: &mut HashMap<(usize, &'a Override), usize>,
    ) {
        let name = pattern.to_string();
        let below = find(&self.by_end, end(&name)).unwrap_or_default();
        if end(&name).is_empty() {
            return self.policies[0] = self.policies[below].overlaid(pattern, own, key);
        }
        let is_named = own.intercept.is_some() || own.allow.is_some() || own.deny.is_some();
        let next = self.policies.len();
        let place = if is_named { next } else { *same.entry((below, own)).or_insert(next) };
        if place == next {
            self.policies.push(self.policies[below].overlaid(pattern, own, key));
        }
        self.by_end.insert(end(&name).into(), place);
    }
}

impl OwnTable {
    fn policy(&self, everybodys: &PolicyTable, base: usize, place: usize) -> &HostPolicy {
        let lay = |policy: HostPolicy, (pattern, entry): &(_, _)| policy.overlaid(pattern, entry, None);
        let make = || {
            let chain: Vec<_> = self.chain(place).collect();
            let policy = chain.into_iter().rev().fold(everybodys.policies[base].clone(), lay);
            MadePolicy { of: (base, place), policy, next: OnceLock::new() }.into()
        };
        let mut row = &self.made[(base + place) % self.made.len()];
        loop {
            let made = row.get_or_init(make);
            if made.of == (base, place) {
                return &made.policy;
            }
            row = &made.next;
        }
    }

    /// This entry, and the less specific entries that match all of its hosts.
    fn chain(&self, place: usize) -> impl Iterator<Item = &(HostPattern, Override)> {
        let name = self.entries[place].0.to_string();
        let ends: Vec<_> = wider(end(&name)).filter_map(|end| self.by_end.get(end)).collect();
        [place].into_iter().chain(ends.into_iter().copied()).map(|place| &self.entries[place])
    }
}

/// Index of the most specific entry that matches all names with this end.
fn find(by_end: &Ends, end: &str) -> Option<usize> {
    let ends = [end].into_iter().chain(wider(end)).inspect(|_| step());
    ends.filter_map(|end| by_end.get(end)).next().copied()
}

const MOST_ROWS: usize = 1000;

/// The end of all names that a pattern matches: the text after its star, or the whole host if there is no star.
pub(super) fn end(pattern: &str) -> &str {
    pattern.strip_prefix('*').unwrap_or(pattern)
}

/// The ends of the patterns that match all names with this end and other names, the most specific first.
pub(super) fn wider(end: &str) -> impl Iterator<Item = &str> {
    let name = end.strip_prefix('.').unwrap_or(end);
    name.match_indices('.').map(|(dot, _)| &name[dot..]).chain(Some("").filter(|_| !end.is_empty()))
}
