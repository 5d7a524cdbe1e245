//! Totals over records: by host, by user or by rule.

use super::line::{Decision, Kind, ReadError, parse};
use super::read::each_line;
use crate::policy::Authority;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::time::SystemTime;

/// What is added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    #[default]
    Host,
    /// By user, or by the client's address where there is no user
    User,
    /// By the rule of a robots.txt, or by the reason where no rule decided
    Rule,
}

/// All of it, from one time to another.
#[derive(Debug, Clone, Default)]
pub struct Report {
    pub total: Group,
    /// Those with the most requests first.
    pub groups: Vec<Group>,
    /// Records that there was no room for.
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

/// Adds up what came from `since` on.
///
/// # Errors
/// A segment cannot be read.
pub fn report(directory: &Path, by: By, since: Option<SystemTime>) -> Result<Report, ReadError> {
    let (mut report, mut groups) = (Report::default(), HashMap::<String, Group>::new());
    each_line(directory, |_, _, line| {
        let line = parse(line)?;
        if since.is_some_and(|since| line.time < since) {
            return Ok(());
        }
        match line.kind {
            // The requests inside have records of their own.
            Kind::Decision(decision) if decision.outcome == "intercepted" => {}
            Kind::Decision(decision) => {
                let mut name = name(&decision, by);
                if groups.len() >= MOST_GROUPS && !groups.contains_key(&name) {
                    name = "(others)".to_owned();
                }
                report.total.add(&decision, line.time);
                groups.entry(name).or_default().add(&decision, line.time);
            }
            Kind::Lost { count, .. } => report.lost += count,
            _ => {}
        }
        Ok(())
    })?;
    report.groups = groups.into_iter().map(|(name, group)| Group { name, ..group }).collect();
    report.groups.sort_by(|one, other| (other.requests, &one.name).cmp(&(one.requests, &other.name)));
    Ok(report)
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
    let host = || decision.url.as_deref().and_then(|url| Authority::from_url(url).ok()).map(|host| host.to_string());
    match by {
        By::Host => host().unwrap_or_default(),
        By::User => decision.user.clone().unwrap_or_else(|| decision.client.clone()),
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
