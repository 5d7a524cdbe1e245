//! politely's own fetches of a site's files: no record is of one, but the records that rest on the file say when it was fetched. The
//! User-Agent follows from the version and the configuration in force then.

use crate::config::Settings;
use crate::evidence::reader::{Kind, Line, SiteCopy};
use crate::evidence::record::Hash;
use std::time::SystemTime;

/// Who fetches: a version of politely, and its configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fetcher {
    /// `None`: the line of its start was removed.
    pub version: Option<String>,
    pub config: Hash,
}

impl Fetcher {
    /// The User-Agent of its fetches. `config`: the configuration as it is stored. `None`: it cannot be read.
    pub fn agent(&self, config: &[u8]) -> Option<String> {
        let settings = Settings::of_shown("the configuration of that time", str::from_utf8(config).ok()?).ok()?;
        Some(settings.own_user_agent(self.version.as_deref().unwrap_or("…")))
    }
}

/// Since when which version and configuration were in force, as lines of the chain say.
#[derive(Debug, Clone, Default)]
pub struct InForce(Vec<(SystemTime, Fetcher)>);

impl InForce {
    pub fn see(&mut self, line: &Line) {
        let before = self.at(line.time);
        let fetcher = match &line.kind {
            Kind::Start { version, config: Some(config), .. } => Fetcher { version: version.clone(), config: *config },
            // After a reload.
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

/// One fetch of a file, or since when none succeeded.
#[derive(Debug, Clone)]
pub struct FileFetch {
    pub at: SystemTime,
    /// The file that came of it, or why there is none.
    pub found: Result<SiteCopy, String>,
    /// `None`: what was configured then is not on record.
    pub agent: Option<String>,
    /// Of the first record that rests on it.
    pub segment: u64,
    pub line: u64,
}

impl FileFetch {
    /// Those up to `at` that a copy tells of.
    pub fn of(copy: &SiteCopy, at: SystemTime, (segment, line): (u64, u64)) -> impl Iterator<Item = Self> {
        let fetched = copy.fetched.map(|at| (at, Ok(copy.clone())));
        let failed = copy.failing_since.zip(copy.failure.clone()).map(|(since, why)| (since, Err(why)));
        let of = move |(at, found)| Self { at, found, agent: None, segment, line };
        fetched.into_iter().chain(failed).filter(move |(time, _)| *time <= at).map(of)
    }
}
