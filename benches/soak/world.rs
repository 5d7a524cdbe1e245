//! The sites, and the judge of every verdict and every gap: another parser (the crate `texting_robots`), which shares
//! nothing with the proxy, in a process of its own. (`robotstxt` 0.3, a port of Google's, does not find `/b*ab` in `/ba/ab`.)
//!
//! The files keep to what the standard leaves no doubt about: paths of unreserved characters, patterns with `*` and `$`,
//! a crawl-delay only behind a rule.

use fastrand::Rng;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use texting_robots::Robot;

/// For so long a copy is fresh (`max_ttl`), and a second in hand.
const FRESH: Duration = Duration::from_secs(4);
/// The same where a process was killed, Redis was lost or a clock set a moment ago: a copy before the last may come back.
const FRESH_DISTURBED: Duration = Duration::from_secs(40);
/// Within this a copy is renewed behind a request.
const RENEWED: Duration = Duration::from_secs(3);
/// For how long a disturbance counts.
const DISTURBED: Duration = Duration::from_secs(15);

/// From when Redis is back until all are one fleet again.
const REJOINED: Duration = Duration::from_secs(4);

/// What is asked of the origin; the first letter of its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Steady,
    /// Another robots.txt every five seconds.
    Changing,
    /// Its robots.txt fails in every way.
    Broken,
    /// Its pages do.
    Faulty,
    /// With a crawl-delay.
    Paced,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Host {
    pub kind: Kind,
    pub number: u64,
}

/// A text of robots.txt by its number; `None` is 404, which allows everything.
pub type Version = Option<u64>;

impl Host {
    pub fn parse(name: &str) -> Option<Self> {
        let label = name.split('.').next()?;
        let kind = match label.as_bytes().first()? {
            b's' => Kind::Steady,
            b'c' => Kind::Changing,
            b'b' => Kind::Broken,
            b'f' => Kind::Faulty,
            b'p' => Kind::Paced,
            _ => return None,
        };
        Some(Self { kind, number: label[1..].parse().ok()? })
    }

    pub fn name(self) -> String {
        let letter = match self.kind {
            Kind::Steady => 's',
            Kind::Changing => 'c',
            Kind::Broken => 'b',
            Kind::Faulty => 'f',
            Kind::Paced => 'p',
        };
        format!("{letter}{}.soak.localhost", self.number)
    }

    pub fn delay(self) -> Duration {
        Duration::from_millis([200, 300, 500, 1000, 1500][self.number as usize % 5])
    }

    /// Its robots.txt.
    pub fn text(self, version: Version) -> String {
        let Some(version) = version else { return String::new() };
        let mut rng = Rng::with_seed(self.number * 7919 + self.kind as u64 * 104_729 + version * 15_485_863);
        let mut text = String::from("# made by the soak\n");
        for agents in [&["*"][..], &["OtherBot"], &["SoakBot"], &["ThirdBot", "SoakBot"]] {
            if agents[0] != "*" && rng.u8(..3) > 0 {
                continue;
            }
            agents.iter().for_each(|agent| text += &format!("User-agent: {agent}\n"));
            // Of each length there is one rule or more: ties go to allow.
            for _ in 0..rng.usize(2..9) {
                let word = if rng.u8(..3) == 0 { "Allow" } else { "Disallow" };
                text += &format!("{word}: {}\n", pattern(&mut rng));
            }
            if self.kind == Kind::Paced {
                text += &format!("Crawl-delay: {}\n", self.delay().as_secs_f64());
            }
            text += "\n";
        }
        text
    }
}

/// A path that the patterns are likely to say something about.
pub fn path(rng: &mut Rng) -> String {
    let mut path = String::from("/");
    (0..rng.usize(1..4)).for_each(|_| path += [&*piece(rng), "/"].concat().as_str());
    path.truncate(path.len() - rng.usize(..2));
    path + ["", ".pdf", ".html", "?q=1", "?a=b&c=d"][rng.usize(..5)]
}

fn pattern(rng: &mut Rng) -> String {
    let mut pattern = String::from("/");
    (0..rng.usize(1..4)).for_each(|_| pattern += &[&*piece(rng), ["/", "*", ""][rng.usize(..3)]].concat());
    pattern
        + ["", "", ".pdf$", "*.html", "$", "*?q="][rng.usize(..6)].trim_start_matches(if rng.bool() {
            '*'
        } else {
            ' '
        })
}

fn piece(rng: &mut Rng) -> String {
    ["a", "b", "ab", "ba", "c"][rng.usize(..5)].to_owned()
}

#[derive(Default)]
struct Served {
    /// When each copy had been sent.
    sent: Vec<(Version, Instant)>,
    under_way: Vec<Version>,
    /// When each of its pages came, if it is a paced host, and how.
    pages: Vec<(SystemTime, String)>,
    /// A proxy gave up waiting for it.
    disturbed: Option<Instant>,
    /// When each proxy was asked for a page, as far back as matters.
    asked: HashMap<String, Vec<Instant>>,
}

/// All origins, what they sent, and what is found.
pub struct World {
    served: Mutex<HashMap<String, Served>>,
    disturbed: Mutex<Vec<Instant>>,
    clock: Mutex<Option<Instant>>,
    fleet_lost: Mutex<Vec<(SystemTime, bool)>>,
    compiled: Mutex<HashMap<(String, Version), Arc<Robot>>>,
    counts: Mutex<BTreeMap<String, u64>>,
    violations: Mutex<Vec<String>>,
    pub start: Instant,
}

impl World {
    pub fn new() -> Self {
        Self {
            served: Mutex::default(),
            disturbed: Mutex::default(),
            clock: Mutex::default(),
            fleet_lost: Mutex::default(),
            compiled: Mutex::default(),
            counts: Mutex::default(),
            violations: Mutex::default(),
            start: Instant::now(),
        }
    }

    pub fn count(&self, what: &str) {
        *self.counts.lock().expect("no panic").entry(what.to_owned()).or_default() += 1;
    }

    pub fn counted(&self, what: &str) -> u64 {
        self.counts.lock().expect("no panic").get(what).copied().unwrap_or_default()
    }

    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.counts.lock().expect("no panic").clone()
    }

    /// What must not be: counted under `what`, and the first ones are shown.
    pub fn violation(&self, what: &str, detail: &str) {
        self.count(&format!("VIOLATION: {what}"));
        let mut all = self.violations.lock().expect("no panic");
        if all.len() < 40 {
            println!("{:>6.1} s VIOLATION: {what}: {detail}", self.start.elapsed().as_secs_f64());
        }
        all.push(format!("{what}: {detail}"));
    }

    pub fn violations(&self) -> usize {
        self.violations.lock().expect("no panic").len()
    }

    /// A process was killed, Redis lost, a clock set.
    pub fn disturb(&self) {
        self.disturbed.lock().expect("no panic").push(Instant::now());
    }

    /// The proxy says that it gave up waiting for this host's robots.txt: what is sent meanwhile comes too late.
    pub fn disturb_host(&self, host: &str) {
        self.with(host, |served| served.disturbed = Some(Instant::now()));
    }

    /// The clock was not right at some time since.
    pub fn is_clock_wrong(&self, since: Instant) -> bool {
        self.clock.lock().expect("no panic").is_some_and(|until| until > since)
    }

    /// For so long the proxies' clock is not that of clients and origins.
    pub fn set_clock(&self, length: Duration) {
        *self.clock.lock().expect("no panic") = Some(Instant::now() + length);
    }

    pub fn is_disturbed(&self, since: Instant) -> bool {
        self.disturbed.lock().expect("no panic").last().is_some_and(|at| *at + DISTURBED > since)
    }

    /// This version is being sent; to be called before its first byte is.
    pub fn sending(&self, host: &str, version: Version) {
        self.with(host, |served| served.under_way.push(version));
    }

    /// It was, or broke off: the other side may have had all of it.
    pub fn sent(&self, host: &str, version: Version) {
        self.with(host, |served| {
            if let Some(at) = served.under_way.iter().position(|one| *one == version) {
                served.under_way.swap_remove(at);
            }
            served.sent.push((version, Instant::now()));
        });
    }

    /// Judges a verdict of the proxy's about a request that was sent at `asked`, and is known now.
    pub fn verdict(&self, proxy: &str, host: Host, path: &str, asked: Instant, is_allowed: bool) {
        let name = host.name();
        let disturbed = self.is_disturbed(asked);
        let possible: Vec<Version> = self.with(&name, |served| {
            // A copy that is no longer fresh decides once more, and is renewed behind that request. So what was sent before
            // the last request of this host that this proxy had, and that is some seconds old, is known to it.
            let seen = served.asked.entry(proxy.to_owned()).or_default();
            let known = seen.iter().copied().rfind(|at| *at + RENEWED < asked);
            seen.retain(|at| Some(*at) >= known);
            seen.push(asked);
            // Whose fetch failed asks again after a minute or more, and goes by the last copy it had until then.
            let is_lenient = host.kind == Kind::Broken || served.disturbed.is_some();
            let back = if disturbed { FRESH_DISTURBED } else { FRESH };
            let horizon = known.filter(|_| !is_lenient).and_then(|known| known.checked_sub(back));
            let old = |(_, at): &(Version, Instant)| horizon.is_some_and(|horizon| *at < horizon);
            let first = served.sent.iter().rposition(old).unwrap_or(0);
            let sent = served.sent[first..].iter().map(|(version, _)| *version);
            let mut possible: Vec<_> = sent.chain(served.under_way.iter().copied()).collect();
            possible.sort_unstable();
            possible.dedup();
            possible
        });
        self.count(if possible.len() == 1 {
            "verdicts with one right answer"
        } else {
            "verdicts while a file changed"
        });
        self.count(if is_allowed { "verdicts: allowed" } else { "verdicts: disallowed" });
        let url = format!("http://{name}{path}");
        if !possible.iter().any(|version| self.compiled(host, *version).allowed(&url) == is_allowed) {
            let word = if is_allowed { "allowed" } else { "disallowed" };
            let texts: Vec<_> = possible.iter().map(|version| host.text(*version)).collect();
            let ages = self.with(&name, |served| {
                let age = |(version, at): &(Version, Instant)| format!("{version:?} {:.1?} ago", at.elapsed());
                served.sent.iter().rev().take(8).map(age).collect::<Vec<_>>().join(", ")
            });
            self.violation(
                "wrong verdict",
                &format!("{proxy}: {name}{path} was {word} by {texts:?}, versions {possible:?}; sent: {ages}"),
            );
        }
    }

    fn compiled(&self, host: Host, version: Version) -> Arc<Robot> {
        let key = (host.name(), version);
        let known = self.compiled.lock().expect("no panic").get(&key).cloned();
        known.unwrap_or_else(|| {
            let robot = Arc::new(compile(host, version));
            let mut all = self.compiled.lock().expect("no panic");
            // Hosts and versions come and go.
            if all.len() > 5000 {
                all.clear();
            }
            all.insert(key, robot.clone());
            robot
        })
    }

    /// Redis does not answer from now on; or it does again, and all may be a fleet again a moment later.
    pub fn fleet_is_lost(&self, is_lost: bool) {
        let mut lost = self.fleet_lost.lock().expect("no panic");
        lost.push((SystemTime::now() + if is_lost { Duration::ZERO } else { REJOINED }, is_lost));
    }

    fn was_fleet_lost(&self, from: SystemTime, to: SystemTime) -> bool {
        let lost = self.fleet_lost.lock().expect("no panic");
        let before = lost.iter().rev().find(|(at, _)| *at <= from).is_some_and(|(_, is_lost)| *is_lost);
        before || lost.iter().any(|(at, _)| *at > from && *at <= to)
    }

    /// A page of a paced host's was asked for, which the kernel had at `at`, if that is known: the gaps beside one of which it
    /// is not are not judged.
    pub fn page_came(&self, host: Host, at: Option<SystemTime>, how: String) {
        let Some(at) = at else { return self.count("pages of which it is not known when they came") };
        self.with(&host.name(), |served| served.pages.push((at, how)));
    }

    /// Judges the gaps between all pages that came, in the order in which the kernel had them.
    pub fn judge_gaps(&self) {
        let served = std::mem::take(&mut *self.served.lock().expect("no panic"));
        for (name, mut served) in served {
            let Some(host) = Host::parse(&name) else { continue };
            served.pages.sort_unstable();
            for (number, (at, how)) in served.pages.iter().enumerate() {
                let before = |count: usize| Some(&served.pages[number.checked_sub(count)?]);
                let Some(last) = before(1) else { continue };
                // Without Redis each of two keeps twice the gap by itself: of any three pages the first and the last are apart.
                let (from, what) = match before(2) {
                    _ if !self.was_fleet_lost(last.0, *at) => (last, "gaps judged"),
                    Some(before) => (before, "gaps judged without Redis, over two"),
                    None => continue,
                };
                self.count(what);
                let gap = at.duration_since(from.0).unwrap_or_default();
                if gap < host.delay() {
                    let (first, wanted, since) = (&from.1, host.delay(), SystemTime::now().duration_since(*at));
                    let ran = self.start.elapsed().saturating_sub(since.unwrap_or_default());
                    let page = number + 1;
                    self.violation(
                        "broken gap",
                        &format!(
                            "{name}: {gap:?} of {wanted:?} at {ran:.2?}, its page {page} ({what}); {first}; {how}"
                        ),
                    );
                }
            }
        }
    }

    fn with<T>(&self, host: &str, change: impl FnOnce(&mut Served) -> T) -> T {
        let mut served = self.served.lock().expect("no panic");
        if !served.contains_key(host) {
            served.insert(host.to_owned(), Served::default());
        }
        change(served.get_mut(host).expect("just put there"))
    }
}

/// What the other parser made of a file.
fn compile(host: Host, version: Version) -> Robot {
    Robot::new("SoakBot", host.text(version).as_bytes()).expect("a file that leaves no doubt")
}
