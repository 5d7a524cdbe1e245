//! The basis of a report's records: the instances that wrote them, the configurations in force, and the files of the sites.

use super::own_fetch::{Fetcher, InForce};
use crate::evidence::reader::{Decision, ReadError, SiteCopy, stored_files};
use crate::evidence::record::Hash;
use crate::robots::{ProductToken, RobotsTxt, RslFile, TdmRep, TdmReservation};
use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::time::SystemTime;

/// The basis of a report, collected record by record. [`read_files`](Self::read_files) adds the content of files.
#[derive(Debug, Clone, Default)]
pub struct Basis {
    /// The instances, in the order in which they began to write.
    pub instances: Vec<Instance>,
    pub configs: HashMap<Hash, ConfigUse>,
    /// The basis of each site, by origin, such as `https://example.com`.
    pub sites: BTreeMap<String, SiteBasis>,
    pub in_force: InForce,
    /// The fetchers of the files on which records are based, with their User-Agents.
    fetchers: BTreeMap<Fetcher, Option<String>>,
}

/// An instance that wrote to the chain from `since` on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    pub name: String,
    /// `None`: unknown, because the line of the instance's start was removed, and only a segment names the instance.
    pub version: Option<String>,
    pub since: SystemTime,
}

/// A configuration that was in force.
#[derive(Debug, Clone)]
pub struct ConfigUse {
    pub requests: u64,
    /// Times of the first and the last record made under this configuration.
    pub times: (SystemTime, SystemTime),
    /// The configuration as JSON, without secrets. `None`: it is not stored.
    pub text: Option<String>,
}

/// The basis of the records about one site.
#[derive(Debug, Clone, Default)]
pub struct SiteBasis {
    pub requests: u64,
    /// The registrable domain.
    pub domain: String,
    pub robots: Vec<CopyUse>,
    pub tdmrep: Vec<CopyUse>,
    pub licenses: Vec<CopyUse>,
    /// Fields of answers that reserve a use.
    pub signals: BTreeSet<String>,
    product_tokens: BTreeSet<String>,
}

/// A copy of a site's file on which records are based.
#[derive(Debug, Clone)]
pub struct CopyUse {
    pub requests: u64,
    /// The copy, with the latest time at which it was fetched or confirmed.
    pub copy: SiteCopy,
    /// When the copy was first fetched.
    pub first: Option<SystemTime>,
    /// The reservations and licences in the copy: the line or entry, and its text.
    pub reservations: Vec<(String, String)>,
}

impl Basis {
    /// Adds an instance that began to write, or began a segment. Restarts of the same version count as one.
    pub fn start(&mut self, name: String, version: Option<String>, since: SystemTime) {
        match self.instances.last_mut() {
            Some(last)
                if last.name == name && (last.version == version || last.version.is_none() || version.is_none()) =>
            {
                last.version = last.version.take().or(version);
            }
            _ => self.instances.push(Instance { name, version, since }),
        }
    }

    /// Keeps only the instances that wrote in a period.
    pub fn between(&mut self, since: Option<SystemTime>, until: Option<SystemTime>) {
        let ends: Vec<_> = self.instances.iter().skip(1).map(|next| Some(next.since)).chain([None]).collect();
        let mut ends = ends.into_iter();
        self.instances.retain(|instance| {
            let end = ends.next().flatten();
            until.is_none_or(|until| instance.since < until)
                && since.is_none_or(|since| end.is_none_or(|end| end > since))
        });
    }

    /// Adds a selected record. `site`: its origin, and the registrable domain.
    pub fn add(&mut self, decision: &Decision, site: Option<(String, String)>, at: SystemTime) {
        if let Some(config) = decision.config {
            let used = self.configs.entry(config).or_insert(ConfigUse { requests: 0, times: (at, at), text: None });
            used.requests += 1;
            used.times = (used.times.0.min(at), used.times.1.max(at));
        }
        let Some((origin, domain)) = site else { return };
        if self.sites.len() >= MOST_SITES && !self.sites.contains_key(&origin) {
            return;
        }
        let site = self.sites.entry(origin).or_insert_with(|| SiteBasis { domain, ..SiteBasis::default() });
        site.requests += 1;
        let copies = [
            (&mut site.robots, &decision.robots),
            (&mut site.tdmrep, &decision.tdmrep),
            (&mut site.licenses, &decision.license_file),
        ];
        for (all, copy) in copies {
            let fetched = copy.as_ref().and_then(|copy| copy.fetched);
            if let Some(fetcher) = fetched.and_then(|at| self.in_force.at(at)) {
                self.fetchers.entry(fetcher.clone()).or_default();
            }
            copy.iter().filter(|copy| **copy != SiteCopy::default()).for_each(|copy| see(all, copy));
        }
        decision.signals.iter().for_each(|fields| bounded(&mut site.signals, fields));
        decision.product_tokens.iter().for_each(|token| bounded(&mut site.product_tokens, token));
    }

    /// The User-Agents of the proxy's own fetches, derived from the configurations.
    pub fn own_agents(&self) -> BTreeSet<&str> {
        self.fetchers.values().flatten().map(String::as_str).collect()
    }

    /// Reads the stored files that the added records name.
    ///
    /// # Errors
    /// A segment cannot be read.
    pub fn read_files(&mut self, directory: &Path) -> Result<(), ReadError> {
        let configs = self.configs.keys().chain(self.fetchers.keys().map(|fetcher| &fetcher.config));
        let mut wanted: HashMap<Hash, Vec<String>> = configs.map(|hash| (*hash, Vec::new())).collect();
        for (origin, site) in &self.sites {
            for hash in site.robots.iter().chain(&site.tdmrep).chain(&site.licenses).filter_map(|used| used.copy.sha256)
            {
                wanted.entry(hash).or_default().push(origin.clone());
            }
        }
        stored_files(directory, None, wanted.keys().copied().collect(), |hash, file| {
            if let Ok(bytes) = file {
                self.fill(hash, &wanted[hash], &bytes);
            }
        })?;
        Ok(())
    }

    fn fill(&mut self, hash: &Hash, origins: &[String], bytes: &[u8]) {
        if let Some(config) = self.configs.get_mut(hash) {
            config.text = str::from_utf8(bytes).ok().map(str::to_owned);
        }
        for (fetcher, agent) in self.fetchers.iter_mut().filter(|(fetcher, _)| fetcher.config == *hash) {
            *agent = fetcher.agent(bytes);
        }
        let (robots, tdmrep) = (LazyCell::new(|| RobotsTxt::parse(bytes)), LazyCell::new(|| TdmRep::parse(bytes)));
        for origin in origins {
            let Some(site) = self.sites.get_mut(origin) else { continue };
            let tokens: Vec<_> =
                site.product_tokens.iter().filter_map(|token| ProductToken::parse(token).ok()).collect();
            let is_this = |used: &&mut CopyUse| used.copy.sha256 == Some(*hash);
            site.robots.iter_mut().filter(is_this).for_each(|used| used.reservations = of_robots(&robots, &tokens));
            site.tdmrep.iter_mut().filter(is_this).for_each(|used| used.reservations = of_tdmrep(&tdmrep));
            site.licenses.iter_mut().filter(is_this).for_each(|used| used.reservations = of_licenses(bytes));
        }
    }
}

/// Counts a copy; adds it if it is new.
fn see(all: &mut Vec<CopyUse>, copy: &SiteCopy) {
    let is_same = |used: &&mut CopyUse| {
        let (one, other) = (&used.copy, copy);
        (one.status, one.sha256, &one.failure) == (other.status, other.sha256, &other.failure)
    };
    if let Some(used) = all.iter_mut().find(is_same) {
        used.requests += 1;
        used.first = used.first.min(copy.fetched).or(copy.fetched);
        used.copy.fetched = used.copy.fetched.max(copy.fetched);
    } else if all.len() < MOST_COPIES {
        all.push(CopyUse { requests: 1, copy: copy.clone(), first: copy.fetched, reservations: Vec::new() });
    }
}

/// The usage preferences for these crawlers, and the licences.
fn of_robots(robots: &RobotsTxt, tokens: &[ProductToken]) -> Vec<(String, String)> {
    let rules = robots.rules_for(tokens);
    let preferences = rules.usage_preferences().map(|(line, text)| (format!("line {line}"), text.to_owned()));
    let licenses = robots.licenses().map(|license| ("License".to_owned(), license.to_owned()));
    some(preferences.chain(licenses))
}

fn of_tdmrep(tdmrep: &TdmRep) -> Vec<(String, String)> {
    let text = |it: TdmReservation<'_>| match it.policy {
        Some(policy) => format!("{} is reserved; policy: {policy}", it.location),
        None => format!("{} is reserved", it.location),
    };
    some(tdmrep.reservations().map(|it| (format!("entry {}", it.entry), text(it))))
}

fn of_licenses(bytes: &[u8]) -> Vec<(String, String)> {
    let file = RslFile::parse(bytes);
    some(
        file.terms()
            .map(|it| (format!("content {}", it.content), format!("{} {}: {}", it.location, it.element, it.uses))),
    )
}

/// Returns the first [`MOST_NAMES`] items; if there are more, a last item says so.
fn some(mut all: impl Iterator<Item = (String, String)>) -> Vec<(String, String)> {
    let mut some: Vec<_> = all.by_ref().take(MOST_NAMES).collect();
    some.extend(all.next().map(|_| ("…".to_owned(), "there are more, in the stored file".to_owned())));
    some
}

/// Adds a name, unless there are [`MOST_NAMES`] already.
pub fn bounded(all: &mut BTreeSet<String>, name: &str) {
    if all.len() < MOST_NAMES && !all.contains(name) {
        all.insert(name.to_owned());
    }
}

/// Maximum number of sites with a basis; further sites have totals only.
const MOST_SITES: usize = 10_000;
/// Maximum number of copies of a site's file; further ones are not listed.
const MOST_COPIES: usize = 100;
/// Maximum number of names listed of each kind.
pub const MOST_NAMES: usize = 20;
