//! A million authorities: what one costs in memory, how long a request's admission takes beside few and beside all of
//! them, and how long the store takes to find one. Prints a table.
//!
//! `cargo bench --bench rulebook -- [AUTHORITIES]`

use arc_swap::ArcSwap;
use http::{HeaderMap, header};
use politely::config::Settings;
use politely::gate::{Admitted, Gate};
use politely::policy::{Authority, Request, Scheme};
use politely::upstream::{OriginRoots, Upstream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of the robots.txt files of 4,158 sites, at each twentieth of them.
const SIZES: [usize; 21] =
    [1, 66, 100, 135, 168, 203, 253, 309, 375, 465, 591, 724, 884, 1105, 1388, 1754, 2215, 2798, 4043, 8019, 40_000];
/// Different files. Most sites have one that their content system wrote.
const FILES: usize = 5_000;
/// Of six authorities, so many have a file, and so many of these come with validators.
const WITH_FILE: usize = 4;
const WITH_VALIDATORS: usize = 3;

fn main() {
    let count = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(1_000_000);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("threads").block_on(run(count));
}

async fn run(count: usize) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let bodies: Vec<Vec<u8>> = (0..FILES).map(body).collect();
    let gate = open(directory.path());

    fill(&gate, 0..1000, &bodies);
    let few = [latencies(&gate, 1000, HOSTS, 1).await, latencies(&gate, 1000, HOSTS, TURNS).await];
    tell("1,000 authorities, first request to a host", &few[0]);
    tell("1,000 authorities, later requests", &few[1]);

    let (before, counted) = (resident(), gate.figures().robots);
    let start = Instant::now();
    for from in (1000..count).step_by(80_000) {
        fill(&gate, from..(from + 80_000).min(count), &bodies);
        // What is not written yet would be counted as well.
        while gate.figures().robots.unwritten_bytes > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let figures = gate.figures().robots;
    println!("{count} authorities, {} files, learnt and stored in {:.1?}", figures.files, start.elapsed());
    assert_eq!(figures.authorities, count);
    let per = |bytes: usize| bytes as f64 / (count - 1000) as f64;
    println!("counted: {:.0} bytes an authority", per(figures.authority_bytes - counted.authority_bytes));
    println!("resident: {:.0} bytes an authority, with files and caches", per(resident() - before));
    println!("files: {:.1} MiB", figures.file_bytes as f64 / f64::from(1 << 20));

    let many = [latencies(&gate, count, HOSTS, 1).await, latencies(&gate, count, HOSTS, TURNS).await];
    tell(&format!("{count} authorities, first request to a host"), &many[0]);
    tell(&format!("{count} authorities, later requests"), &many[1]);
    let [first, later] = [0, 1].map(|kind| median(&many[kind]).as_secs_f64() / median(&few[kind]).as_secs_f64());
    println!("medians {first:.2} and {later:.2} times those at 1,000");
    drop(latencies(&gate, count, MANY_HOSTS, 1).await);
    let wide = latencies(&gate, count, MANY_HOSTS, 1).await;
    tell(&format!("{count} authorities, later requests, {MANY_HOSTS} hosts by turns"), &wide);

    gate.close();
    drop(gate);
    let files = directory.path().read_dir().expect("it is there").flatten();
    let bytes: u64 = files.map(|file| file.metadata().map_or(0, |file| file.blocks() * 512)).sum();
    println!("on disk: {:.0} bytes an authority", bytes as f64 / count as f64);
    let start = Instant::now();
    let gate = open(directory.path());
    println!("opened in {:.1?}", start.elapsed());
    tell("first use after a restart, from disk", &latencies(&gate, count, 20 * HOSTS, 1).await);
}

fn open(directory: &Path) -> Gate {
    let yaml = format!("store: {{ directory: '{}', memory: 8GiB, disk: 32GiB }}", directory.display());
    let settings = Settings::parse("bench.yaml", &yaml).expect("the lines above");
    let roots = politely::tls::roots::bundle(None).unwrap();
    let roots = OriginRoots { store: roots.store, pem: roots.pem.into() };
    let upstream = Arc::new(Upstream::new(&Arc::new(settings.clone()), roots, Vec::new()).unwrap());
    Gate::open(Arc::new(ArcSwap::from_pointee(settings)), upstream)
}

fn authority(number: usize) -> Authority {
    Authority::new(Scheme::Https, &format!("www.site-{number}.example"), None).expect("a host name")
}

fn fill(gate: &Gate, numbers: std::ops::Range<usize>, bodies: &[Vec<u8>]) {
    let mut validated = HeaderMap::new();
    validated.insert(header::ETAG, "\"5f3c-62a1b2c3d4e5f\"".parse().expect("a field"));
    validated.insert(header::LAST_MODIFIED, "Tue, 02 Jan 2024 03:04:05 GMT".parse().expect("a field"));
    let plain = HeaderMap::new();
    for number in numbers {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        match mixed % 6 {
            kind if kind < WITH_FILE => {
                let headers = if kind < WITH_VALIDATORS { &validated } else { &plain };
                gate.insert(&authority(number), 200, headers, &bodies[mixed / 6 % bodies.len()]);
            }
            _ => gate.insert(&authority(number), 404, &plain, b""),
        }
    }
}

fn body(number: usize) -> Vec<u8> {
    let at = number * 20 * 64 / FILES;
    let (low, high) = (SIZES[at / 64], SIZES[at / 64 + 1]);
    let size = low + (high - low) * (at % 64) / 64;
    let mut text = format!("User-agent: *\n# {number}\n");
    for line in 0.. {
        if text.len() >= size {
            break;
        }
        text += &format!("Disallow: /section-{line}/{}\n", number * 31 % 97);
    }
    text.into_bytes()
}

/// So many of `count` hosts, out of order, in `turns`; no request waits.
async fn latencies(gate: &Gate, count: usize, hosts: usize, turns: usize) -> Vec<Duration> {
    let mut latencies = Vec::with_capacity(hosts * turns);
    for host in (0..turns).flat_map(|_| 0..hosts) {
        let authority = authority(host.wrapping_mul(7_919_777) % count);
        let target = b"/blog/2024/05/a-day-at-the-seaside";
        let request = Request::new(&authority, target);
        let start = Instant::now();
        let admitted = gate.admit(&request, None).await;
        latencies.push(start.elapsed());
        assert!(matches!(admitted, Ok(Admitted::Go { .. })));
    }
    latencies.sort_unstable();
    latencies
}

fn median(sorted: &[Duration]) -> Duration {
    sorted[sorted.len() / 2]
}

fn tell(what: &str, sorted: &[Duration]) {
    let at = |share: f64| sorted[(sorted.len() as f64 * share) as usize];
    println!("{what}: median {:.1?}, 90 % {:.1?}, 99 % {:.1?}", at(0.5), at(0.9), at(0.99));
}

fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("pages");
    pages * 4096
}

const HOSTS: usize = 1000;
const MANY_HOSTS: usize = 100_000;
const TURNS: usize = 20;
