//! The state of an authority at a past time, as the records show it.

use super::own_fetch::{FileFetch, InForce};
use super::{Found, Group};
use crate::evidence::reader::{Decision, Kind, SiteCopy, Verified, stored_file, verify_each};
use crate::evidence::record::{Hash, digits};
use crate::policy::freshness::Freshness;
use crate::policy::{Access, Authority, Entry, SiteAnswer, SiteFile, Trouble};
use crate::robots::{ParseOptions, RobotsTxt, TdmRep};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The state at a past time. Each part comes from the last record up to that time that has the part; otherwise from the first later
/// record whose file had been fetched by that time.
#[derive(Debug)]
pub struct Past {
    /// The record that the configuration comes from; the crawler and the use, too, unless the URL has a record of its own.
    pub known: Found,
    /// Requests for the URL up to that time, except those of clients that may not use the proxy: totals, and (`last`) the last few in
    /// order.
    pub asked: Group,
    pub last: Vec<Found>,
    /// The last few fetches of the URL by the proxy itself, if it is one of the site's files, in order.
    pub fetches: Vec<FileFetch>,
    /// The last request for which the page itself reserved the use, whether refused or only reported.
    pub by_page: Option<Found>,
    /// When the page was last fetched and reserved the use. Later refusals rely on that answer.
    pub page_read: Option<SystemTime>,
    /// `None`: the file is not on record. The same holds for `tdmrep` and `license_file`.
    pub robots: Option<PastCopy>,
    pub tdmrep: Option<PastCopy>,
    /// The licence file. Only named, as its content is not judged again.
    pub license_file: Option<SiteCopy>,
    /// The last terms in an answer: the URL of a licence, and (`price`) a price.
    pub license: Option<String>,
    pub price: Option<String>,
    /// The configuration at that time, without secrets. `None`: it is no longer stored.
    pub config: Option<String>,
}

/// A site's file at that time, and the record that names it.
#[derive(Debug)]
pub struct PastCopy {
    pub found: Found,
    pub copy: SiteCopy,
    pub file: PastFile,
}

/// The content of a site's file at that time.
#[derive(Debug)]
pub enum PastFile {
    Body(Vec<u8>),
    /// The site had no such file; with the status of the answer.
    Missing(u16),
    /// The file could not be fetched; with the reason.
    Unreachable(String),
}

/// Finds the state at a time, and verifies the chain. `url`: the URL as in records. `None`: no decision about this authority by then.
///
/// # Errors
/// A segment cannot be read, or a file on which records are based is missing or was changed.
pub fn find(
    directory: &Path,
    authority: &Authority,
    url: &str,
    at: SystemTime,
) -> Result<(Option<Past>, Verified), Box<dyn std::error::Error>> {
    let name = authority.to_string();
    let (mut known, mut by_page, mut asked, mut last) = (None::<Found>, None::<Found>, Group::default(), Vec::new());
    let [mut robots, mut tdmrep, mut license_file] = [const { None::<Nearest> }; 3];
    let (mut license, mut price) = (None::<(SystemTime, String)>, None::<(SystemTime, String)>);
    let mut page_read = None;
    let (mut in_force, mut fetches) = (InForce::default(), BTreeMap::new());
    let file = [SiteFile::Robots, SiteFile::TdmRep].into_iter().find(|file| authority.url(file.path()) == url);
    let verified = verify_each(directory, &[], |segment, number, line| {
        in_force.see(line);
        let Kind::Decision(decision) = &line.kind else { return };
        let (Some(of), Some(method)) = (&decision.url, &decision.method) else { return };
        let is_of = |url: &str| Authority::and_target(url).is_ok_and(|(found, _)| found == *authority);
        if method == "CONNECT" || !of.contains(&name) || !is_of(of) {
            return;
        }
        let seen = decision.seen(line.time);
        let found = || Found { segment, line: number, came: line.time, decision: (**decision).clone() };
        let is_later = |than: &Option<Found>| than.as_ref().is_none_or(|than| than.at() <= seen);
        if seen <= at && is_later(&known) {
            known = Some(found());
        }
        if seen <= at && of == url && decision.reason.as_deref() != Some("client-denied") {
            asked.add(decision, seen);
            if decision.is_by_page() && is_later(&by_page) {
                let use_of = |it: &Decision| (it.rule.clone(), it.purpose.clone(), it.product_tokens.clone());
                let is_same = by_page.as_ref().is_some_and(|before| use_of(&before.decision) == use_of(decision));
                let is_read = decision.origin_ms.is_some();
                page_read = if is_read { Some(seen) } else { page_read.filter(|_| is_same) };
                by_page = Some(found());
            }
            let place = last.partition_point(|before: &Found| before.at() <= seen);
            if place > 0 || last.len() < MOST_LAST {
                last.insert(place, found());
                last.drain(..last.len().saturating_sub(MOST_LAST));
            }
        }
        for (last, said) in [(&mut license, &decision.license), (&mut price, &decision.price)] {
            let is_later = last.as_ref().is_none_or(|(than, _)| *than <= seen);
            if let Some(said) = said.as_ref().filter(|_| seen <= at && is_later) {
                *last = Some((seen, said.clone()));
            }
        }
        let copy = match file {
            Some(SiteFile::Robots) => &decision.robots,
            Some(_) => &decision.tdmrep,
            None => &decision.license_file,
        };
        for fetch in copy.iter().flat_map(|copy| FileFetch::of(copy, at, (segment, number))) {
            fetches.entry(fetch.at).or_insert(fetch);
            if fetches.len() > MOST_LAST {
                fetches.pop_first();
            }
        }
        see(&mut robots, decision.robots.as_ref(), seen, at, found);
        see(&mut tdmrep, decision.tdmrep.as_ref(), seen, at, found);
        see(&mut license_file, decision.license_file.as_ref(), seen, at, found);
    })?;
    let past =
        |nearest: Option<Nearest>| nearest.map(|(_, found, copy)| PastCopy::new(found, copy, directory)).transpose();
    let (robots, tdmrep) = (past(robots)?, past(tdmrep)?);
    let Some(known) = known.or_else(|| Some(robots.as_ref()?.found.clone())) else { return Ok((None, verified)) };
    let config = known.decision.config.and_then(|hash| stored_file(directory, Some(known.segment), &hash).ok());
    let config = config.and_then(|config| String::from_utf8(config).ok());
    let is_named = |past: &PastCopy| match &past.file {
        PastFile::Body(body) => RobotsTxt::parse(body).license_url() == Some(url),
        _ => false,
    };
    let is_file = file.is_some() || robots.as_ref().is_some_and(is_named);
    let mut fetches: Vec<_> = if is_file { fetches.into_values().collect() } else { Vec::new() };
    for fetch in &mut fetches {
        fetch.agent = in_force
            .at(fetch.at)
            .and_then(|fetcher| fetcher.agent(&stored_file(directory, None, &fetcher.config).ok()?));
    }
    let [license, price] = [license, price].map(|last| last.map(|(_, said)| said));
    let license_file = license_file.map(|(.., copy)| copy);
    let past =
        Past { known, asked, last, fetches, by_page, page_read, robots, tdmrep, license_file, license, price, config };
    Ok((Some(past), verified))
}

/// Maximum number of records of the URL that are shown.
const MOST_LAST: usize = 5;

/// The best record about a file so far: its rank, the record, and the copy that the record names. The rank says whether the record is no
/// later than the wanted time, whether its copy had been fetched by then, and the record's time.
type Nearest = ((bool, bool, SystemTime), Found, SiteCopy);

fn see(
    best: &mut Option<Nearest>,
    copy: Option<&SiteCopy>,
    time: SystemTime,
    at: SystemTime,
    found: impl Fn() -> Found,
) {
    // The copy is empty if the request did not wait for the file.
    let Some(copy) = copy.filter(|copy| **copy != SiteCopy::default()) else { return };
    // A held request may be decided by a copy that was fetched after the request arrived.
    let (is_before, was_there) = (time <= at, copy.fetched.is_some_and(|fetched| fetched <= at));
    let rank = (is_before, was_there || copy.fetched.is_none(), time);
    // Of the records after `at`, takes only the first, and only as long as no record up to `at` is found.
    if (is_before || was_there) && best.as_ref().is_none_or(|(before, ..)| is_before && *before <= rank) {
        *best = Some((rank, found(), copy.clone()));
    }
}

impl PastCopy {
    fn new(found: Found, copy: SiteCopy, directory: &Path) -> Result<Self, String> {
        let reason = found.decision.reason.as_deref();
        let is_unreachable = matches!(reason, Some("robots-unreachable" | "long-unreachable"));
        let read = |hash: &Hash| {
            let read = stored_file(directory, Some(found.segment), hash);
            read.map_err(|error| format!("the stored file {}: {error}", digits(hash)))
        };
        let file = match (&copy, &copy.failure) {
            (_, Some(why)) if is_unreachable => PastFile::Unreachable(why.clone()),
            (SiteCopy { sha256: Some(hash), .. }, _) => PastFile::Body(read(hash)?),
            (SiteCopy { status: Some(status), .. }, _) => PastFile::Missing(*status),
            (_, why) => PastFile::Unreachable(why.clone().unwrap_or_default()),
        };
        Ok(PastCopy { found, copy, file })
    }

    fn entry(&self, read: impl FnOnce(&[u8]) -> Access, at: SystemTime) -> Entry {
        let answered = |access, status| {
            // Counts the copy as just fetched, however old it is, as no later copy is known.
            Entry::answered(SiteAnswer::new(access, status, Freshness::new(at, Duration::from_secs(60), 0.0)))
        };
        match &self.file {
            PastFile::Body(body) => answered(read(body), self.copy.status.unwrap_or(200)),
            PastFile::Missing(status) => answered(Access::Missing, *status),
            PastFile::Unreachable(why) => {
                let retry_at = at + Duration::from_secs(60);
                let since = self.copy.failing_since.unwrap_or(self.found.at()).min(at);
                let trouble = Trouble { since, failures: 1, retry_at, why: why.as_str().into() };
                Entry { trouble: Some(Box::new(trouble)), ..Entry::default() }
            }
        }
    }
}

impl Past {
    /// The entry for robots.txt as it was at `at`, to judge again by it.
    pub fn robots(&self, options: &ParseOptions, at: SystemTime) -> Entry {
        let read = |body: &[u8]| Access::Rules(RobotsTxt::parse_again(body, options));
        self.robots.as_ref().map_or_else(Entry::default, |past| past.entry(read, at))
    }

    /// The entry for tdmrep.json as it was at `at`, to judge again by it.
    pub fn tdmrep(&self, at: SystemTime) -> Entry {
        let read = |body: &[u8]| Access::Reservations(TdmRep::parse(body).into());
        self.tdmrep.as_ref().map_or_else(Entry::default, |past| past.entry(read, at))
    }
}
