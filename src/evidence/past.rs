//! What was known of an authority at a time, by the records of then.

use super::bodies::{Bodies, BodyError};
use super::chain::Hash;
use super::read::{Decision, Kind, Lines, ReadError, SiteCopy, parse};
use super::segment::Stored;
use crate::policy::freshness::Freshness;
use crate::policy::{Access, Answer, Authority, Entry, Trouble, Validators};
use crate::robots::{ParseOptions, RobotsTxt, TdmRep};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// A record, and where it is.
#[derive(Debug, Clone)]
pub struct Found {
    pub segment: u64,
    pub line: u64,
    pub time: SystemTime,
    pub decision: Decision,
}

/// The last record before that time that says what is known of the authority; else the first after it whose robots.txt had been
/// fetched by then.
#[derive(Debug)]
pub struct Past {
    pub known: Found,
    /// The last record of that very URL up to then.
    pub same: Option<Found>,
    pub robots: PastFile,
    /// `None`: it did not matter.
    pub tdmrep: Option<PastFile>,
    /// What was configured then, as it is shown, without secrets. `None`: it is not there any more.
    pub config: Option<String>,
}

/// A site's file of then.
#[derive(Debug)]
pub enum PastFile {
    Body(Vec<u8>),
    /// There was none.
    Missing(u16),
    /// It could not be fetched.
    Unreachable(String),
}

/// Looks for it. `url`: as records have it. `None`: nothing was decided about this authority by then.
///
/// # Errors
/// A segment cannot be read, or the file that it rests on is not there as it was.
pub fn find(
    directory: &Path,
    authority: &Authority,
    url: &str,
    at: SystemTime,
) -> Result<Option<Past>, Box<dyn std::error::Error>> {
    let name = serde_json::to_string(&authority.to_string())?;
    // Whatever follows it in a URL.
    let name = memchr::memmem::Finder::new(&name.as_bytes()[1..name.len() - 1]).into_owned();
    let (mut before, mut after, mut same) = (None::<((bool, SystemTime), Found)>, None::<Found>, None::<Found>);
    let all = Stored::all(directory)?;
    if all.is_empty() {
        return Err(ReadError::Empty.into());
    }
    for stored in all {
        let (mut lines, mut number) = (Lines::of(&stored)?, 0);
        while let Some(line) = lines.next() {
            number += 1;
            let line = match line {
                Ok((line, _)) => line,
                // It is being written.
                Err(ReadError::Torn) => break,
                Err(error) => return Err(format!("segment {}, line {number}: {error}", stored.number).into()),
            };
            if name.find(line).is_none() {
                continue;
            }
            let parsed = parse(line).map_err(|error| format!("segment {}, line {number}: {error}", stored.number))?;
            let Kind::Decision(decision) = parsed.kind else { continue };
            let (Some(robots), Some(asked)) = (&decision.robots, &decision.url) else { continue };
            if Authority::and_target(asked).ok().is_none_or(|(found, _)| found != *authority) {
                continue;
            }
            let found =
                || Found { segment: stored.number, line: number, time: parsed.time, decision: *decision.clone() };
            if parsed.time <= at {
                if asked == url && same.as_ref().is_none_or(|same| same.time <= parsed.time) {
                    same = Some(found());
                }
                // One that was held may rest on a file that came after it.
                let rank = (robots.fetched.is_none_or(|fetched| fetched <= at), parsed.time);
                if before.as_ref().is_none_or(|(best, _)| *best <= rank) {
                    before = Some((rank, found()));
                }
            } else if robots.fetched.is_some_and(|fetched| fetched <= at) && after.is_none() {
                after = Some(found());
            }
        }
    }
    let Some(known) = before.map(|(_, found)| found).or(after) else { return Ok(None) };
    let bodies = Bodies::new(directory);
    let state = |copy: &SiteCopy| state(copy, &known.decision, &bodies);
    let robots = state(&known.decision.robots.clone().unwrap_or_default())?;
    let tdmrep = known.decision.tdmrep.as_ref().map(state).transpose()?;
    let config = known.decision.config.and_then(|hash| bodies.read(&hash).ok());
    let config = config.and_then(|config| String::from_utf8(config).ok());
    Ok(Some(Past { known, same, robots, tdmrep, config }))
}

fn state(copy: &SiteCopy, decision: &Decision, bodies: &Bodies) -> Result<PastFile, String> {
    let is_unreachable = decision.reason.as_deref() == Some("robots-unreachable");
    let read = |hash: &Hash| {
        bodies.read(hash).map_err(|error: BodyError| {
            let hash = super::hex(hash);
            format!("the file of then, {}: {error}", String::from_utf8_lossy(&hash))
        })
    };
    Ok(match (copy, &copy.failure) {
        (_, Some(why)) if is_unreachable => PastFile::Unreachable(why.clone()),
        (SiteCopy { sha256: Some(hash), .. }, _) => PastFile::Body(read(hash)?),
        (SiteCopy { status: Some(status), .. }, _) => PastFile::Missing(*status),
        (_, why) => PastFile::Unreachable(why.clone().unwrap_or_default()),
    })
}

impl Past {
    /// What was known of robots.txt at `at`, to decide by.
    pub fn robots(&self, options: &ParseOptions, at: SystemTime) -> Entry {
        let read = |body: &[u8]| Access::Rules(RobotsTxt::parse_with(body, options));
        self.entry(&self.robots, self.known.decision.robots.as_ref(), read, at)
    }

    /// The same of tdmrep.json.
    pub fn tdmrep(&self, at: SystemTime) -> Option<Entry> {
        let read = |body: &[u8]| Access::Reservations(TdmRep::parse(body));
        Some(self.entry(self.tdmrep.as_ref()?, self.known.decision.tdmrep.as_ref(), read, at))
    }

    fn entry(
        &self,
        file: &PastFile,
        copy: Option<&SiteCopy>,
        read: impl FnOnce(&[u8]) -> Access,
        at: SystemTime,
    ) -> Entry {
        let answered = |access, status| {
            Entry::answered(Answer {
                access,
                status,
                asked_again: None,
                generation: 1,
                // However long ago it was fetched, nothing that came after it is known.
                freshness: Freshness::new(at, Duration::from_secs(60), 0.0),
                validators: Validators::default(),
            })
        };
        match file {
            PastFile::Body(body) => answered(read(body), copy.and_then(|copy| copy.status).unwrap_or(200)),
            PastFile::Missing(status) => answered(Access::Missing, *status),
            PastFile::Unreachable(why) => {
                let retry_at = at + Duration::from_secs(60);
                let trouble =
                    Trouble { since: self.known.time.min(at), failures: 1, retry_at, why: why.as_str().into() };
                Entry { answer: None, trouble: Some(Box::new(trouble)) }
            }
        }
    }
}
