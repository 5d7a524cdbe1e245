//! What a run found, as Markdown, and what makes it fail.

use crate::client::LATE;
use crate::world::World;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Of the proxy that lives throughout.
pub struct Sample {
    pub at: Duration,
    /// Anonymous memory, KiB.
    pub memory: u64,
    pub descriptors: u64,
    /// Seconds of CPU since its start.
    pub processor: f64,
}

pub struct Outcome {
    pub world: Arc<World>,
    pub lasted: Duration,
    pub capacity: f64,
    /// Of the capacity.
    pub share: f64,
    pub rate: u64,
    pub is_optimised: bool,
    pub rounds: u64,
    pub idle: Option<(u64, u64, f64)>,
    pub left: Option<(u64, u64, f64)>,
    pub samples: Vec<Sample>,
    /// When each answer of the steady load came, and how long after it was due.
    pub latencies: Vec<(Duration, Duration)>,
    /// Faults that this machine did not allow.
    pub missing: Vec<&'static str>,
    /// The machine's load average at the end.
    pub load: String,
}

impl Outcome {
    /// Why the run failed; empty if it passed.
    pub fn failures(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.world.violations() > 0 {
            all.push(format!("{} violations", self.world.violations()));
        }
        // Within a round or two tables and pools still fill; each third holds other faults.
        let is_long = self.rounds >= 6;
        let [start, _, end] = self.thirds(|sample| sample.memory);
        if end > (start * 5 / 4 + 8 * 1024).max(if is_long { 0 } else { MEMORY }) {
            all.push(format!("memory grew from {start} to {end} KiB"));
        }
        let [start, _, end] = self.thirds(|sample| sample.descriptors);
        if end > (start * 5 / 4 + 60).max(if is_long { 0 } else { DESCRIPTORS }) {
            all.push(format!("descriptors grew from {start} to {end}"));
        }
        let [start, _, end] = self.quantiles(0.99);
        if is_long && self.is_optimised && !self.is_overloaded() && end > start * 2 + Duration::from_millis(50) {
            all.push(format!("p99 went from {start:?} to {end:?}"));
        }
        let late = self.world.counted(LATE);
        if late * 50 > self.world.counted("answers") {
            all.push(format!("the machine is too busy: {late} origins answered too late"));
        }
        for judged in ["verdicts: allowed", "verdicts: disallowed", "gaps judged", "answers cut off, as the origin's"] {
            if self.world.counted(judged) == 0 {
                all.push(format!("nothing was judged: {judged}"));
            }
        }
        all
    }

    pub fn markdown(&self, binary: &Path) -> String {
        let counts = self.world.counts();
        let mut text = format!(
            "# Endurance\n\nWritten by `cargo bench --bench soak -- [SECONDS] --report FILE`; no figure is by hand.\n\n\
             Two proxies share a Redis. One lives throughout, and is measured; the other is upgraded and killed. Clients load both at\n\
             {:.0} % of what the whole setup (proxies, origins, clients and judge on one machine) could do in a first round of faults. Hosts,\n\
             connections and robots.txt files come and go all the while. Another parser (the crate `texting_robots`), in the origins'\n\
             process, judges each verdict: what was refused had to be disallowed, and what was delivered allowed, by a robots.txt that was\n\
             in force. Each gap between two pages of a host with a crawl-delay is measured at the origin, by the kernel's receive time.\n\n",
            self.share * 100.0
        );
        text += "Of hosts whose robots.txt fails again and again any copy that they sent counts as in force. While Redis is away each proxy keeps\n\
                 twice the gap by itself, and of three pages the first and the last are judged.\n\n";
        if !self.is_optimised {
            text += "**An unoptimised build: its latencies are not judged.**\n\n";
        } else if self.is_overloaded() {
            text += "**The machine could not keep up with the load that was asked for: its latencies are not judged, and show the machine.**\n\n";
        }
        let failures = self.failures();
        let result = if failures.is_empty() { "passed".to_owned() } else { format!("failed: {}", failures.join("; ")) };
        let mut row = |name: &str, value: String| _ = writeln!(text, "| {name} | {value} |");
        row("run", String::new());
        row("---", "---".into());
        row("result", result);
        row("date", output("date", &["-u", "+%Y-%m-%d %H:%M UTC"]));
        row(
            "version",
            format!(
                "{}, {} build",
                output(binary.to_str().unwrap_or_default(), &["--version"]),
                if self.is_optimised { "optimised" } else { "unoptimised" }
            ),
        );
        row("machine", machine());
        row("load average at the end (1, 5, 15 minutes)", self.load.clone());
        row(
            "with",
            format!(
                "{}; faketime {}",
                output("redis-server", &["--version"]).chars().take(21).collect::<String>(),
                if self.missing.iter().any(|what| what.contains("clock")) { "not installed" } else { "installed" }
            ),
        );
        row("left out", if self.missing.is_empty() { "nothing".into() } else { self.missing.join(", ") });
        row("length", format!("{} s, {} rounds of faults", self.lasted.as_secs(), self.rounds));
        row("capacity found before", format!("{:.0} requests/s", self.capacity));
        row(
            "steady load",
            format!(
                "{} requests/s asked, {:.0} answered",
                self.rate,
                self.latencies.len() as f64 / self.lasted.as_secs_f64()
            ),
        );

        text += "\n| of the proxy that lives throughout | before load | start | middle | end | after load |\n|---|---|---|---|---|---|\n";
        let edge = |figures: Option<(u64, u64, f64)>, pick: fn((u64, u64, f64)) -> u64| {
            figures.map_or("–".into(), |all| pick(all).to_string())
        };
        let [start, middle, end] = self.thirds(|sample| sample.memory / 1024);
        let (idle, left) = (edge(self.idle, |all| all.0 / 1024), edge(self.left, |all| all.0 / 1024));
        _ = writeln!(text, "| memory (anonymous), MiB | {idle} | {start} | {middle} | {end} | {left} |");
        let [start, middle, end] = self.thirds(|sample| sample.descriptors);
        let (idle, left) = (edge(self.idle, |all| all.1), edge(self.left, |all| all.1));
        _ = writeln!(text, "| open descriptors | {idle} | {start} | {middle} | {end} | {left} |");
        let [start, middle, end] = self.processor().map(|share| format!("{:.0} %", share * 100.0));
        _ = writeln!(text, "| CPU, of one core | – | {start} | {middle} | {end} | – |");
        for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
            let [start, middle, end] = self.quantiles(share).map(|took| format!("{:.1}", took.as_secs_f64() * 1000.0));
            _ = writeln!(
                text,
                "| {name} of the steady load, from when it was due, ms | – | {start} | {middle} | {end} | – |"
            );
        }
        text += "\nStart, middle and end are the thirds of the run: medians of memory and descriptors, quantiles of all that fell into each.\n";

        let table = |text: &mut String, title: &str, pick: &dyn Fn(&str) -> Option<String>| {
            _ = write!(text, "\n| {title} | count |\n|---|---|\n");
            let rows: BTreeMap<_, _> = counts.iter().filter_map(|(name, count)| Some((pick(name)?, count))).collect();
            rows.iter().for_each(|(name, count)| _ = writeln!(text, "| {name} | {count} |"));
            if rows.is_empty() {
                *text += "| none | 0 |\n";
            }
        };
        table(&mut text, "violations", &|name| name.strip_prefix("VIOLATION: ").map(String::from));
        table(&mut text, "faults around the proxies", &|name| name.strip_prefix("fault: ").map(String::from));
        let other = |name: &str| !name.starts_with("VIOLATION") && !name.starts_with("fault");
        table(&mut text, "what was judged, answered and done to it", &|name| other(name).then(|| name.to_owned()));
        text
    }

    /// Half of the requests went out long after they were due: somebody else had the machine.
    fn is_overloaded(&self) -> bool {
        self.quantiles(0.5).iter().any(|took| *took > Duration::from_secs(1))
    }

    /// The medians of the thirds.
    fn thirds(&self, figure: impl Fn(&Sample) -> u64) -> [u64; 3] {
        let parts = self.parts(self.samples.iter().map(|sample| (sample.at, figure(sample))));
        parts.map(|mut part| {
            part.sort_unstable();
            part.get(part.len() / 2).copied().unwrap_or_default()
        })
    }

    fn quantiles(&self, share: f64) -> [Duration; 3] {
        self.parts(self.latencies.iter().copied()).map(|mut part| {
            part.sort_unstable();
            part.get((part.len().saturating_sub(1) as f64 * share) as usize).copied().unwrap_or_default()
        })
    }

    fn processor(&self) -> [f64; 3] {
        self.parts(self.samples.iter().map(|sample| (sample.at, (sample.at, sample.processor)))).map(|part| {
            let (Some(first), Some(last)) = (part.first(), part.last()) else { return 0.0 };
            (last.1 - first.1) / (last.0 - first.0).as_secs_f64().max(1.0)
        })
    }

    fn parts<T>(&self, all: impl Iterator<Item = (Duration, T)>) -> [Vec<T>; 3] {
        let mut parts = [Vec::new(), Vec::new(), Vec::new()];
        for (at, value) in all {
            let third = at.as_secs_f64() / self.lasted.as_secs_f64() * 3.0;
            parts[(third as usize).min(2)].push(value);
        }
        parts
    }
}

/// How far a run is, for who looks on.
pub fn line(world: &World) -> String {
    let shown = ["answers", "verdicts: allowed", "verdicts: disallowed", "held too long"];
    let counts = shown.map(|name| format!("{} {name}", world.counted(name))).join(", ");
    format!("{counts}, {} violations", world.violations())
}

/// By where cargo puts what it has built.
pub fn is_optimised(binary: &Path) -> bool {
    !binary.components().any(|part| part.as_os_str() == "debug")
}

/// The machine's load average.
pub fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(", ")
}

/// What a proxy may have at the end of a run that is too short to show growth: KiB, and 256 idle connections, two for each
/// client and what it has when idle.
const MEMORY: u64 = 64 * 1024;
const DESCRIPTORS: u64 = 600;

fn machine() -> String {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let value = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default().to_owned();
        line.split(':').nth(1).unwrap_or_default().trim().to_owned()
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory =
        value(&read("/proc/meminfo"), "MemTotal").trim_end_matches(" kB").parse::<u64>().unwrap_or_default() >> 20;
    let model = value(&read("/proc/cpuinfo"), "model name");
    format!("{model}, {cores} cores, {memory} GiB, Linux {}", output("uname", &["-r"]))
}

fn output(command: &str, arguments: &[&str]) -> String {
    let output = Command::new(command).args(arguments).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}
