//! The proxy's own fetches of a site's files. They have no records of their own, but records based on a file say when it was fetched. The
//! User-Agent follows from the version and the configuration at that time.

use crate::config::Settings;
use crate::evidence::reader::{Kind, Line, SiteCopy};
use crate::evidence::record::Hash;
use std::time::SystemTime;

/// The fetcher of a file: a version of this program, and its configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fetcher {
    /// `None`: the line of its start was removed.
    pub version: Option<String>,
    pub config: Hash,
}

impl Fetcher {
    /// The User-Agent of this fetcher's requests. `config`: the stored configuration. `None`: the configuration cannot
    /// be read.
    pub fn agent(&self, config: &[u8]) -> Option<String> {
        let settings = Settings::of_shown("the configuration of that time", str::from_utf8(config).ok()?).ok()?;
        Some(settings.own_user_agent(self.version.as_deref().unwrap_or("…")))
    }
}

/// The versions and configurations in force, each with its start, according to the chain.
#[derive(Debug, Clone, Default)]
pub struct InForce(Vec<(SystemTime, Fetcher)>);

impl InForce {
    pub fn see(&mut self, line: &Line) {
        let before = self.at(line.time);
        let fetcher = match &line.kind {
            Kind::Start { version, config: Some(config), .. } => Fetcher { version: version.clone(), config: *config },
            // A reload has changed the configuration.
            Kind::Decision(decision) => match decision.config {
                Some(config) if before.is_none_or(|before| before.config != config) => {
                    Fetcher { version: before.and_then(|before| before.version.clone()), config }
                }
                _ => return,
            },
            _ => return,
        };
        if before != Some(&fetcher) {
            let place = self.0.partition_point(|(since, _)| *since <= line.time);
            self.0.insert(place, (line.time, fetcher));
        }
    }

    pub fn at(&self, at: SystemTime) -> Option<&Fetcher> {
        let place = self.0.partition_point(|(since, _)| *since <= at);
        Some(&self.0[place.checked_sub(1)?].1)
    }
}

/// A successful fetch of a file, or the first of several failed ones.
#[derive(Debug, Clone)]
pub struct FileFetch {
    pub at: SystemTime,
    /// The fetched file, or why the fetch failed.
    pub found: Result<SiteCopy, String>,
    /// The User-Agent. `None`: the configuration at that time is not on record.
    pub agent: Option<String>,
    /// Place of the first record that is based on this fetch.
    pub segment: u64,
    pub line: u64,
}

impl FileFetch {
    /// The fetches up to `at`, according to the copy in a record.
    pub fn of(copy: &SiteCopy, at: SystemTime, (segment, line): (u64, u64)) -> impl Iterator<Item = Self> {
        let fetched = copy.fetched.map(|at| (at, Ok(copy.clone())));
        let failed = copy.failing_since.zip(copy.failure.clone()).map(|(since, why)| (since, Err(why)));
        let of = move |(at, found)| Self { at, found, agent: None, segment, line };
        fetched.into_iter().chain(failed).filter(move |(time, _)| *time <= at).map(of)
    }
}
