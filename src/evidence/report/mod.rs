//! Reports: totals of records by host, domain, user or rule; the files and configurations on which the records are based (`basis`); and the
//! state of a site at a past time (`past`).

mod basis;
mod own_fetch;
mod past;
mod selection;

pub use basis::{Basis, ConfigUse, CopyUse, Instance, MOST_NAMES, SiteBasis};
pub use own_fetch::FileFetch;
pub use past::{Past, PastCopy, PastFile, find};
pub use selection::{Selection, when};

use crate::evidence::reader::{Decision, Figure, Kind, ReadError, Verified, verify_each};
use crate::policy::{Authority, clipped};
use basis::bounded;
use selection::{authority, user_of};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::SystemTime;

/// The key by which records are grouped.
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

/// Totals of the selected records.
#[derive(Debug, Clone, Default)]
pub struct Report {
    pub total: Group,
    /// The groups, those with the most requests first.
    pub groups: Vec<Group>,
    /// Totals of the same records by user.
    pub users: Vec<Group>,
    /// Requests of clients that may not use the proxy, by client: their credentials were missing, wrong or insufficient. They
    /// are in no other total, as they concern no site.
    pub turned_away: Vec<Group>,
    pub basis: Basis,
    pub verified: Verified,
    /// Records of the period that could not be written; their host, user and use are unknown.
    pub lost: u64,
}

/// Totals of the requests of one host, domain, user or rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Group {
    /// The host, domain, user or rule; empty: none.
    pub name: String,
    pub requests: u64,
    /// Requests whose answer from the site was delivered, and tunnels.
    pub forwarded: u64,
    /// Forwarded requests that the site answered with a status from 400 to 499, such as 404.
    pub status_4xx: u64,
    /// Forwarded requests that the site answered with a status from 500.
    pub status_5xx: u64,
    /// Requests that the proxy itself answered, such as with robots.txt.
    pub answered: u64,
    /// Requests that the proxy refused, before they were sent or after the site's answer.
    pub refused: u64,
    /// Refused requests that the site had answered; the answer was not delivered.
    pub refused_after_answer: u64,
    /// Requests that were only reported, as configured, although they would have been refused or held.
    pub reported: u64,
    /// `reported`, and requests that were let through without regard to robots.txt.
    pub let_through: u64,
    /// Requests of `let_through` whose answer reserved a use, or whose declared use was reserved.
    pub let_through_reserved: u64,
    pub failed: u64,
    pub bytes_in: u64,
    /// Bytes of sites' answers and of tunnels that clients received.
    pub bytes_out: u64,
    /// Number of completely delivered answers with content (2xx answers and tunnels), and (`content_bytes`) their bytes.
    pub content: u64,
    pub content_bytes: u64,
    /// Requests that the site answered with 304: the page has not changed since an earlier fetch.
    pub not_modified: u64,
    /// Milliseconds for which requests were held.
    pub held_ms: u64,
    #[serde(skip)]
    pub times: Option<(SystemTime, SystemTime)>,
    /// Requests by reason. A request with several reasons counts once for each.
    pub reasons: BTreeMap<String, u64>,
    /// Refused requests, each counted once under its deciding reason.
    pub refused_by: BTreeMap<String, u64>,
    /// Refused requests by rule, named as for [`By::Rule`]. Rules after the first [`MOST_NAMES`] are counted under their reason.
    pub refused_rules: BTreeMap<String, u64>,
    /// The first few User-Agents that sites have seen. An empty text stands for a request without one.
    pub agents: BTreeSet<String>,
    /// The crawlers for which robots.txt was applied.
    pub product_tokens: BTreeSet<String>,
    /// Requests by declared use. A request that declares several is counted for each.
    pub purposes: BTreeMap<String, u64>,
    /// Requests without a declared use.
    pub undeclared: u64,
}

/// A record and its place in the chain.
#[derive(Debug, Clone)]
pub struct Found {
    pub segment: u64,
    pub line: u64,
    /// When the request arrived: the record's `time`.
    pub came: SystemTime,
    pub decision: Decision,
}

impl Found {
    /// When the site could see the request.
    pub fn at(&self) -> SystemTime {
        self.decision.seen(self.came)
    }
}

/// Verifies the chain, and passes each record that a report counts to `see`, in the chain's order.
///
/// # Errors
/// A segment cannot be read.
pub fn report_each(
    directory: &Path,
    selection: &Selection,
    mut see: impl FnMut(&Found),
) -> Result<Verified, ReadError> {
    verify_each(directory, &[], |segment, number, line| match &line.kind {
        Kind::Decision(decision) if selection.counts(decision, line.seen()) => {
            see(&Found { segment, line: number, came: line.time, decision: (**decision).clone() });
        }
        _ => {}
    })
}

/// Adds up the selected records of a chain, and verifies it.
///
/// # Errors
/// A segment cannot be read.
pub fn report(directory: &Path, by: By, selection: &Selection) -> Result<Report, ReadError> {
    let (mut report, [mut groups, mut users, mut turned_away]) = <(Report, [TotalsByName; 3])>::default();
    report.verified = verify_each(directory, &[], |_, _, line| {
        report.basis.in_force.see(line);
        let at = line.seen();
        match &line.kind {
            Kind::Decision(decision) if !selection.counts(decision, at) => {}
            Kind::Decision(decision) if decision.figure() == Figure::TurnedAway => {
                turned_away.add(decision.client.clone(), decision, at);
            }
            Kind::Decision(decision) => {
                let site = authority(decision).map(|site| (site.to_string(), domain(&site)));
                report.basis.add(decision, site, at);
                report.total.add(decision, at);
                users.add(user_of(decision).to_owned(), decision, at);
                groups.add(name(decision, by), decision, at);
            }
            Kind::Lost { count, from, to, .. } if selection.overlaps(*from, *to) => report.lost += count,
            Kind::Start { instance: Some(name), version, .. } => {
                report.basis.start(name.clone(), version.clone(), line.time);
            }
            Kind::Segment { instance: Some(name), .. } => report.basis.start(name.clone(), None, line.time),
            _ => {}
        }
    })?;
    report.basis.between(selection.since, selection.until);
    [report.groups, report.users, report.turned_away] = [groups, users, turned_away].map(TotalsByName::sorted);
    Ok(report)
}

/// Totals by name, at most [`MOST_GROUPS`].
#[derive(Default)]
struct TotalsByName(BTreeMap<String, Group>);

impl TotalsByName {
    fn add(&mut self, name: String, decision: &Decision, at: SystemTime) {
        let is_full = self.0.len() >= MOST_GROUPS && !self.0.contains_key(&name);
        let name = if is_full { "(others)".to_owned() } else { name };
        self.0.entry(name).or_default().add(decision, at);
    }

    /// The groups, those with the most requests first.
    fn sorted(self) -> Vec<Group> {
        let mut all: Vec<_> = self.0.into_iter().map(|(name, group)| Group { name, ..group }).collect();
        all.sort_by_key(|group| Reverse(group.requests));
        all
    }
}

impl Group {
    /// Requests that the site answered without an error status.
    pub fn delivered(&self) -> u64 {
        self.forwarded - self.status_4xx - self.status_5xx
    }

    pub fn add(&mut self, decision: &Decision, at: SystemTime) {
        self.requests += 1;
        let verdict = decision.verdict.as_deref();
        let figure = decision.figure();
        match figure {
            Figure::Refused | Figure::TurnedAway => self.refused += 1,
            Figure::Answered => self.answered += 1,
            Figure::Failed => self.failed += 1,
            Figure::Delivered | Figure::Status4xx | Figure::Status5xx => self.forwarded += 1,
        }
        self.status_4xx += u64::from(figure == Figure::Status4xx);
        self.status_5xx += u64::from(figure == Figure::Status5xx);
        let bytes = decision.site_bytes().unwrap_or_default();
        self.bytes_out += bytes;
        if decision.is_content() {
            self.content += 1;
            self.content_bytes += bytes;
        }
        self.not_modified += u64::from(decision.site_status() == Some(304));
        self.reported += u64::from(verdict == Some("reported"));
        self.bytes_in += decision.bytes_in;
        self.held_ms += decision.held_ms;
        let (first, last) = self.times.unwrap_or((at, at));
        self.times = Some((first.min(at), last.max(at)));
        for reason in decision.all_reasons() {
            *self.reasons.entry(reason.clone()).or_default() += 1;
        }
        if decision.outcome == "refused" {
            let reason = decision.reason.as_deref().unwrap_or_default();
            *self.refused_by.entry(reason.to_owned()).or_default() += 1;
            let rule = clipped(&name(decision, By::Rule)).into_owned();
            let is_full = self.refused_rules.len() >= MOST_NAMES && !self.refused_rules.contains_key(&rule);
            *self.refused_rules.entry(if is_full { reason.to_owned() } else { rule }).or_default() += 1;
            self.refused_after_answer += u64::from(decision.is_refused_after_answer());
        }
        if decision.is_let_through() {
            self.let_through += 1;
            let is_reserved = decision.signals.is_some() || decision.all_reasons().any(|it| it == "usage-disallowed");
            self.let_through_reserved += u64::from(is_reserved);
        }
        if decision.sent_ms.is_some() {
            bounded(&mut self.agents, &clipped(decision.agent.as_deref().unwrap_or_default()));
        }
        decision.product_tokens.iter().for_each(|token| bounded(&mut self.product_tokens, token));
        for purpose in &decision.purpose {
            *self.purposes.entry(purpose.clone()).or_default() += 1;
        }
        self.undeclared += u64::from(decision.purpose.is_empty());
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
            match (decision.named_rule(), decision.line, host()) {
                (Some(rule), Some(line), Some(host)) => format!("{host}/robots.txt:{line}: {rule}"),
                (Some(rule), _, Some(host)) => format!("{host}: {rule}"),
                _ => reason.to_owned(),
            }
        }
    }
}

/// The registrable domain, or the host if it has none.
fn domain(authority: &Authority) -> String {
    let host = authority.host();
    host.domain().map_or_else(|| host.to_string(), str::to_owned)
}

/// Maximum number of groups. All others are added up in one group.
const MOST_GROUPS: usize = 100_000;
