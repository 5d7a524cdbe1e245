//! The sites: their robots.txt as it changes, and the judge of every page that is asked for.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

pub const HOSTS: usize = 2000;
/// Of 16 sections, each version disallows those whose bit it has.
pub const SECTIONS: u32 = 16;
/// From when a copy was sent until every request that is new is decided by it.
const TAKEN_UP: Duration = Duration::from_secs(5);
/// No client waits for longer, so no request that is older is on its way.
const LONGEST: Duration = Duration::from_secs(70);
/// Within this time a copy is in the store. It is written behind, so that a kill may take what came just before.
const WRITTEN: Duration = Duration::from_secs(1);
const NEVER: Duration = Duration::from_secs(24 * 3600);

pub const VIOLATION: &str = "VIOLATIONS: disallowed, and yet it came";
pub const BAD_MESSAGE: &str = "VIOLATIONS: a message that strict servers refuse";
pub const LONG_WAIT: &str = "VIOLATIONS: told to wait for more than an hour";
/// Most are those that hung.
pub const GIVEN_UP: &str = "given up for want of a complete answer";
pub const NO_ANSWER: &str = "VIOLATIONS: no answer in 70 s";

/// All authorities.
pub struct Site {
    hosts: Vec<Mutex<Host>>,
    pub tally: Tally,
    start: Instant,
}

impl Site {
    pub fn new() -> Self {
        Self { hosts: (0..HOSTS).map(|_| Mutex::default()).collect(), tally: Tally::default(), start: Instant::now() }
    }

    /// The proxy is killed.
    pub fn kill(&self, now: Instant) {
        self.hosts.iter().for_each(|host| host.lock().expect("held briefly").lose(now));
    }

    /// The proxy says that it has waited for this host's robots.txt for as long as it may: what is being sent comes too
    /// late, and the last good copy holds.
    pub fn given_up(&self, host: usize, now: Instant) {
        self.tally.add(GIVEN_UP);
        self.host(host).lose(now);
    }

    /// The target by which a client asks for a page of this section now.
    pub fn target(&self, section: u32) -> String {
        format!("/s{section}/{}", self.start.elapsed().as_millis())
    }

    /// A page of this target has come.
    pub fn page(&self, host: usize, target: &str) {
        let (section, asked) = target[2..].split_once('/').expect("a target of ours");
        let section = section.parse().expect("a number");
        let asked = self.start + Duration::from_millis(asked.parse().expect("milliseconds"));
        self.tally.add("pages that came");
        if self.host(host).forbids(section, asked) {
            self.tally.add(VIOLATION);
            let (under_way, ago) = (asked.elapsed(), self.host(host).ages());
            println!("h{host} {target}, on its way for {under_way:.1?}: {ago}");
        }
    }

    /// This version is being sent; to be said before its first byte is.
    pub fn sending(&self, host: usize, version: Version) {
        self.host(host).under_way.push(version);
    }

    /// It was, or broke off: the other side may have had all of it.
    pub fn sent(&self, host: usize, version: Version, began: Instant) {
        self.host(host).sent(version, began);
    }

    /// What a client was told: without a verdict, or with one.
    pub fn told(&self, host: usize, verdict: bool) {
        self.host(host).told(verdict, Instant::now());
    }

    /// Of all sites, the longest time for which clients had no verdict though they asked, and how long that site had
    /// not been failing by its end.
    pub fn longest_without_verdict(&self) -> Duration {
        (0..HOSTS).map(|host| self.host(host).longest).max().unwrap_or_default()
    }

    /// This host's robots.txt fails now.
    pub fn failed(&self, host: usize) {
        self.host(host).failed = Some(Instant::now());
    }

    fn host(&self, host: usize) -> std::sync::MutexGuard<'_, Host> {
        self.hosts[host].lock().expect("held briefly")
    }
}

/// The sections that a robots.txt disallows; `None` allows all.
pub type Version = Option<u32>;

/// One authority: its robots.txt, and which of its versions may be in force with the proxy.
#[derive(Default)]
struct Host {
    /// Of the last ones sent, what they disallow, with the time when each was sent.
    sent: Vec<(Version, Instant)>,
    /// Being sent.
    under_way: Vec<Version>,
    /// When the proxy was killed, or gave up waiting for it.
    lost: Option<Instant>,
    /// When its robots.txt failed last.
    failed: Option<Instant>,
    /// The longest time after its last failure at which a client was told that there is no verdict.
    longest: Duration,
}

impl Host {
    /// What the proxy has got just now may not be in its store yet, or have come too late, and the copy before it be in
    /// force.
    fn lose(&mut self, now: Instant) {
        self.lost = Some(now);
        for (_, at) in self.sent.iter_mut().filter(|(_, at)| now.duration_since(*at) < WRITTEN) {
            *at = now + NEVER;
        }
    }

    fn sent(&mut self, version: Version, began: Instant) {
        let at = self.under_way.iter().position(|under_way| *under_way == version).expect("it was under way");
        self.under_way.remove(at);
        // Or to one that was gone already: what a busy origin answers a moment after may have been asked for before.
        let lost = self.lost.is_some_and(|lost| lost + WRITTEN >= began);
        self.sent.push((version, Instant::now() + if lost { NEVER } else { Duration::ZERO }));
    }

    fn told(&mut self, verdict: bool, now: Instant) {
        if let Some(failed) = self.failed.filter(|_| !verdict) {
            self.longest = self.longest.max(now.duration_since(failed));
        }
    }

    /// Whether no copy that could be in force for a request of this time allows it.
    fn forbids(&mut self, section: u32, asked: Instant) -> bool {
        // A copy is out of force once its successor has been there for a while.
        let last = |before: Duration, asked: Instant| {
            let old = |(_, at): &(Version, Instant)| asked.saturating_duration_since(*at) > before;
            self.sent.iter().rposition(old).unwrap_or(0)
        };
        let (gone, first) = (last(LONGEST + TAKEN_UP, Instant::now()), last(TAKEN_UP, asked));
        let allows = |version: &Version| version.is_none_or(|bits| bits >> section & 1 == 0);
        let allowed =
            self.sent[first..].iter().any(|(version, _)| allows(version)) || self.under_way.iter().any(allows);
        self.sent.drain(..gone);
        !allowed
    }

    /// The last copies, for people.
    fn ages(&self) -> String {
        let age = |(version, at): &(Version, Instant)| format!("{version:04x?} {:.1?} ago", at.elapsed());
        self.sent.iter().map(age).collect::<Vec<_>>().join(", ")
    }
}

/// What happened, counted.
#[derive(Default)]
pub struct Tally(Mutex<BTreeMap<String, u64>>);

impl Tally {
    pub fn add(&self, what: &str) {
        *self.0.lock().expect("held briefly").entry(what.to_owned()).or_default() += 1;
    }

    pub fn get(&self, what: &str) -> u64 {
        self.0.lock().expect("held briefly").get(what).copied().unwrap_or_default()
    }

    pub fn violations(&self) -> u64 {
        [VIOLATION, BAD_MESSAGE, LONG_WAIT, NO_ANSWER].iter().map(|what| self.get(what)).sum()
    }

    pub fn line(&self) -> String {
        let tally = self.0.lock().expect("held briefly");
        tally.iter().map(|(what, count)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
    }
}
