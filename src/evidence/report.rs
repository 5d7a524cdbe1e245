//! Totals over records: by host, domain, user or rule.

use super::line::{Decision, Kind, ReadError, parse};
use super::read::each_line;
use crate::policy::{Authority, HostPattern};
use crate::robots::Purpose;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::time::SystemTime;

/// What is added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    #[default]
    Host,
    /// By registrable domain, such as example.co.uk for www.example.co.uk
    Domain,
    /// By user, or by the client's address where there is no user
    User,
    /// By the rule of a robots.txt, or by the reason where no rule decided
    Rule,
}

/// Which records count. What is empty selects all.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    pub since: Option<SystemTime>,
    /// Exclusive.
    pub until: Option<SystemTime>,
    pub hosts: Vec<HostPattern>,
    /// A user, or the address of a client without one.
    pub user: Option<String>,
    /// A declared use.
    pub purpose: Option<Purpose>,
}

/// Totals of the records that were selected.
#[derive(Debug, Clone, Default)]
pub struct Report {
    pub total: Group,
    /// Those with the most requests first.
    pub groups: Vec<Group>,
    /// Records of the period that could not be written, of whatever host, user and use.
    pub lost: u64,
}

/// Requests of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Group {
    /// The host, user or rule; empty: none.
    pub name: String,
    pub requests: u64,
    /// Sent to the site.
    pub forwarded: u64,
    /// From here, such as robots.txt.
    pub answered: u64,
    /// Not sent, or its answer not delivered.
    pub refused: u64,
    /// Let through, though a rule says no: as configured.
    pub reported: u64,
    pub failed: u64,
    pub bytes_in: u64,
    /// Of sites' answers.
    pub bytes_out: u64,
    /// That requests waited for their turn.
    pub held_ms: u64,
    #[serde(skip)]
    pub times: Option<(SystemTime, SystemTime)>,
    /// Why, as records have it.
    pub reasons: BTreeMap<String, u64>,
    /// For whom robots.txt was read, and what for.
    pub product_tokens: BTreeSet<String>,
    pub purposes: BTreeSet<String>,
}

/// Adds up the selected records.
///
/// # Errors
/// A segment cannot be read.
pub fn report(directory: &Path, by: By, selection: &Selection) -> Result<Report, ReadError> {
    let (mut report, mut groups) = (Report::default(), HashMap::<String, Group>::new());
    each_line(directory, |_, _, line| {
        let line = parse(line)?;
        match line.kind {
            // The requests inside have records of their own.
            Kind::Decision(decision) if decision.outcome == "intercepted" => {}
            Kind::Decision(decision) if selection.has(&decision, line.time) => {
                let mut name = name(&decision, by);
                if groups.len() >= MOST_GROUPS && !groups.contains_key(&name) {
                    name = "(others)".to_owned();
                }
                report.total.add(&decision, line.time);
                groups.entry(name).or_default().add(&decision, line.time);
            }
            Kind::Lost { count, from, to, .. } if selection.overlaps(from, to) => report.lost += count,
            _ => {}
        }
        Ok(())
    })?;
    report.groups = groups.into_iter().map(|(name, group)| Group { name, ..group }).collect();
    report.groups.sort_by(|one, other| (other.requests, &one.name).cmp(&(one.requests, &other.name)));
    Ok(report)
}

impl Selection {
    fn has(&self, decision: &Decision, at: SystemTime) -> bool {
        let is_host = |host: &Authority| self.hosts.iter().any(|pattern| pattern.matches(host.host()));
        self.overlaps(at, at)
            && (self.hosts.is_empty() || authority(decision).is_some_and(|host| is_host(&host)))
            && self.user.as_deref().is_none_or(|user| user == user_of(decision))
            && self.purpose.as_ref().is_none_or(|purpose| decision.purpose.iter().any(|it| it == purpose.as_str()))
    }

    fn overlaps(&self, from: SystemTime, to: SystemTime) -> bool {
        self.since.is_none_or(|since| to >= since) && self.until.is_none_or(|until| from < until)
    }
}

impl Group {
    fn add(&mut self, decision: &Decision, at: SystemTime) {
        self.requests += 1;
        let verdict = decision.verdict.as_deref();
        match (decision.outcome.as_str(), verdict) {
            ("refused", _) => self.refused += 1,
            ("answered", _) => self.answered += 1,
            ("failed" | "cut" | "client-gone", _) => self.failed += 1,
            _ => self.forwarded += 1,
        }
        // What comes from here is not the site's.
        let is_sites = decision.origin_ms.is_some() && !matches!(decision.outcome.as_str(), "refused" | "failed");
        if is_sites || decision.outcome == "tunnelled" {
            self.bytes_out += decision.bytes_out;
        }
        self.reported += u64::from(verdict == Some("reported"));
        self.bytes_in += decision.bytes_in;
        self.held_ms += decision.held_ms;
        let (first, last) = self.times.unwrap_or((at, at));
        self.times = Some((first.min(at), last.max(at)));
        if let Some(reason) = &decision.reason {
            *self.reasons.entry(reason.clone()).or_default() += 1;
        }
        note(&mut self.product_tokens, &decision.product_tokens);
        note(&mut self.purposes, &decision.purpose);
    }
}

fn name(decision: &Decision, by: By) -> String {
    let host = || authority(decision).map(|host| host.to_string());
    match by {
        By::Host => host().unwrap_or_default(),
        By::Domain => authority(decision).map(|host| domain(&host)).unwrap_or_default(),
        By::User => user_of(decision).to_owned(),
        By::Rule => {
            let reason = decision.reason.as_deref().unwrap_or_default();
            match (&decision.rule, decision.line, host()) {
                (Some(rule), Some(line), Some(host)) => format!("{host}/robots.txt:{line}: {rule}"),
                (Some(rule), _, Some(host)) => format!("{host}: {rule}"),
                _ => reason.to_owned(),
            }
        }
    }
}

fn authority(decision: &Decision) -> Option<Authority> {
    Authority::from_url(decision.url.as_deref()?).ok()
}

/// The registrable domain; of a host that has none, the host.
fn domain(authority: &Authority) -> String {
    let host = authority.host();
    host.domain().map_or_else(|| host.to_string(), str::to_owned)
}

fn user_of(decision: &Decision) -> &str {
    decision.user.as_deref().unwrap_or(&decision.client)
}

fn note(all: &mut BTreeSet<String>, names: &[String]) {
    for name in names {
        if all.len() < MOST_NAMES && !all.contains(name) {
            all.insert(name.clone());
        }
    }
}

/// What does not fit is added up as one.
const MOST_GROUPS: usize = 100_000;
const MOST_NAMES: usize = 20;
