//! Endurance: two proxies that share a Redis, under load and under faults of every kind, with an independent judge of
//! each verdict and each gap. Fails on a wrong verdict, a broken gap, a wrong or lost answer, memory or descriptors that
//! grow, a p99 that drifts, a panic.
//!
//! `cargo bench --bench soak -- [SECONDS] [--binary FILE] [--report FILE] [--same-hosts]`: 1800 seconds if nothing else is
//! asked for. With `--same-hosts` none come and go, so that caches fill at the start and memory may not grow at all. The binary
//! is cargo's unless one is named; the report is written as Markdown. Needs redis-server; with faketime the proxies' clocks are
//! set, and with the right to mount a store's disk is filled. How much the machine can do is measured in a first round of all
//! faults, which is not judged for latency or growth; in a short run for some seconds without any. Of an unoptimised binary
//! latencies are not judged: it gets a smaller share of what the machine can do, and less while the machine cannot do even that.
//!
//! One proxy, `steady`, lives from the start to the end: its memory and descriptors are measured. The other, `changing`, is
//! replaced and killed.

#[path = "../support/arrival.rs"]
mod arrival;
mod certs;
mod client;
mod faults;
mod instance;
mod origin;
mod report;
mod wire;
mod world;

use client::{Crowd, closed, rude, steady};
use faults::{Clock, Disk, Redis};
use instance::Instance;
use report::{Outcome, Sample};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::time::{sleep, sleep_until};
use world::{Kind, World};

/// Clients of the steady load, and of each kind beside it.
const STEADY: usize = 48;
const PACED: usize = 24;
const BROKEN: usize = 8;
const FAULTY: usize = 8;
const RUDE: usize = 10;
/// Within a round each fault happens once.
const ROUND: Duration = Duration::from_secs(45);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut seconds, mut binary, mut report) = (1800, PathBuf::from(env!("CARGO_BIN_EXE_politely")), None);
    let mut same_hosts = false;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--binary" => binary = arguments.next().expect("--binary FILE").into(),
            "--report" => report = Some(PathBuf::from(arguments.next().expect("--report FILE"))),
            "--same-hosts" => same_hosts = true,
            "--bench" => {}
            number => seconds = number.parse().expect("seconds"),
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    let outcome = runtime.block_on(soak(Duration::from_secs(seconds), &binary, same_hosts));
    let text = outcome.markdown(&binary);
    println!("\n{text}");
    if let Some(file) = report {
        std::fs::write(&file, text).expect("the report can be written");
    }
    runtime.shutdown_background();
    if !outcome.failures().is_empty() {
        std::process::exit(1);
    }
}

async fn soak(length: Duration, binary: &std::path::Path, same_hosts: bool) -> Outcome {
    let is_optimised = report::is_optimised(binary);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let at = directory.path();
    let world = Arc::new(World::new());
    let authority = certs::Authority::new(&at.join("origins.pem"));
    let ports = origin::start(&world, authority.server(b"http/1.1"), authority.server(b"h2")).await;
    let clock = Arc::new(Clock::new(at));
    let mut redis = Redis::start().expect("redis-server is installed (apt-get install redis-server)");
    for name in ["steady", "changing"] {
        std::fs::create_dir_all(at.join(name)).expect("the directory is writable");
        instance::place(binary, &at.join(name));
    }
    let disk = Disk::mount(&at.join("steady/store"));
    let yaml = format!(
        "admin: {{ address: 'off' }}\nintercept: {{ ca: {{ directory: '{at}/ca' }} }}\n\
         egress: {{ allow: [127.0.0.0/8], ports: ['1-65535'], ca_file: '{at}/origins.pem' }}\nlog: {{ access: 'off', level: info }}\n\
         robots: {{ min_ttl: 1s, max_ttl: 3s, timeout: 10s }}\npace: {{ max_concurrent: 64 }}\nfleet: {redis}\n\
         limits: {{ drain_timeout: 5s, max_idle_connections: 256 }}\n",
        at = at.display(),
        redis = redis.url(),
    );
    let start = |name| Arc::new(Instance::start(name, at, &yaml, clock.clone(), world.clone()));
    let (first, second) = (start("steady"), start("changing"));
    sleep(Duration::from_secs(1)).await;
    let crowd = Arc::new(Crowd {
        world: world.clone(),
        ports,
        proxies: vec![first.clone(), second.clone()],
        authority: at.join("ca"),
        stop: AtomicBool::new(false),
        rate: AtomicU64::new(0),
        makes_up: is_optimised,
        same_hosts,
        schedule: Mutex::new(Instant::now()),
        latencies: Mutex::default(),
    });
    let idle = first.figures();

    // As fast as it goes beside all others, of which a share is the load.
    let mut clients = tokio::task::JoinSet::new();
    (0..PACED).for_each(|_| _ = clients.spawn(closed(crowd.clone(), Kind::Paced)));
    (0..BROKEN).for_each(|_| _ = clients.spawn(closed(crowd.clone(), Kind::Broken)));
    (0..FAULTY).for_each(|_| _ = clients.spawn(closed(crowd.clone(), Kind::Faulty)));
    (0..RUDE).for_each(|number| _ = clients.spawn(rude(crowd.clone(), number)));
    (0..STEADY).for_each(|_| _ = clients.spawn(steady(crowd.clone())));
    sleep(Duration::from_secs(2)).await;
    let (before, began) = (world.counted("answers"), Instant::now());
    let mut turn = 0;
    if length >= ROUND * 6 {
        round(turn, &world, &first, &second, &mut redis, disk.as_ref(), &clock, binary).await;
        turn += 1;
    } else {
        sleep(length / 12).await;
    }
    let capacity = (world.counted("answers") - before) as f64 / began.elapsed().as_secs_f64();
    let share = if is_optimised { 0.7 } else { 0.35 };
    let rate = (capacity * share).max(20.0) as u64;
    println!("{capacity:.0} requests a second at most: {rate} it is");
    *crowd.schedule.lock().expect("no panic") = Instant::now();
    crowd.rate.store(rate, Ordering::Relaxed);
    crowd.latencies.lock().expect("no panic").clear();

    let began = Instant::now();
    let samples = Arc::new(Mutex::new(Vec::new()));
    let watch = tokio::spawn(watch(first.clone(), began, samples.clone()));
    while began.elapsed() + ROUND <= length.max(ROUND + Duration::from_secs(1)) {
        round(turn, &world, &first, &second, &mut redis, disk.as_ref(), &clock, binary).await;
        turn += 1;
        let memory = first.figures().map_or(0, |(memory, ..)| memory / 1024);
        println!("{:>5} s: {}, {memory} MiB", began.elapsed().as_secs(), report::line(&world));
    }
    sleep_until((began + length).into()).await;
    let lasted = began.elapsed();
    watch.abort();
    crowd.stop.store(true, Ordering::Relaxed);
    let load = report::load();
    let stopped = async { while clients.join_next().await.is_some() {} };
    if tokio::time::timeout(Duration::from_secs(100), stopped).await.is_err() {
        world.violation("a client that never ended", "after 100 s");
    }
    sleep(Duration::from_secs(2)).await;
    let left = first.figures();
    world.judge_gaps();
    let logs = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    for proxy in [&first, &second] {
        _ = std::fs::copy(proxy.config().with_file_name("log"), logs.join(format!("soak-{}.log", proxy.name)));
        if !proxy.stop() {
            world.violation("a proxy that did not end well", proxy.name);
        }
    }
    let samples = std::mem::take(&mut *samples.lock().expect("no panic"));
    let latencies = std::mem::take(&mut *crowd.latencies.lock().expect("no panic"));
    let latencies = latencies.into_iter().map(|(at, took)| (at.saturating_duration_since(began), took)).collect();
    let missing = [
        (clock.is_there(), "clock steps (faketime is not installed)"),
        (disk.is_some(), "a full disk (no right to mount)"),
    ];
    let missing = missing.iter().filter(|(is_there, _)| !is_there).map(|(_, what)| *what).collect();
    Outcome {
        world,
        lasted,
        capacity,
        share,
        rate,
        is_optimised,
        rounds: turn,
        idle,
        left,
        samples,
        latencies,
        missing,
        load,
    }
}

/// Each fault once.
#[expect(clippy::too_many_arguments, reason = "one caller, which has them all")]
async fn round(
    turn: u64,
    world: &Arc<World>,
    first: &Arc<Instance>,
    second: &Arc<Instance>,
    redis: &mut Redis,
    disk: Option<&Disk>,
    clock: &Arc<Clock>,
    binary: &std::path::Path,
) {
    let began = Instant::now();
    let at = |seconds| sleep_until((began + Duration::from_secs(seconds)).into());
    let done = |what: &str| world.count(&format!("fault: {what}"));
    at(2).await;
    [first, second].iter().for_each(|proxy| proxy.reload(turn));
    done("reloads of both proxies");
    at(4).await;
    world.disturb();
    world.fleet_is_lost(true);
    redis.hang(Duration::from_secs(3)).await;
    world.fleet_is_lost(false);
    done("Redis hung for 3 s");
    at(12).await;
    second.upgrade(binary).await;
    done("upgrades to a replaced binary");
    instance::ca(first, &["rotate"], world);
    sleep(Duration::from_secs(1)).await;
    instance::ca(first, &["rotate", "--finish", "--yes"], world);
    [first, second].iter().for_each(|proxy| instance::signal("HUP", proxy.pid()));
    done("rotations of the certificate authority");
    at(21).await;
    world.disturb();
    world.fleet_is_lost(true);
    redis.lose_everything(Duration::from_secs(2)).await;
    world.fleet_is_lost(false);
    done("Redis killed, and empty after 2 s");
    at(29).await;
    world.disturb();
    second.kill();
    done("SIGKILL and a start");
    at(33).await;
    if let Some(disk) = disk {
        disk.fill();
        sleep(Duration::from_secs(3)).await;
        disk.free();
        done("disk of a store full for 3 s");
    }
    at(37).await;
    if clock.is_there() {
        world.disturb();
        // One second more, within which it is noticed, and one in hand.
        world.set_clock(Duration::from_secs(6));
        clock.set(["+10d", "-1d", "+2h"][turn as usize % 3]);
        sleep(Duration::from_secs(4)).await;
        clock.set("+0");
        world.disturb();
        done("clock set by days or hours, and back after 4 s");
    }
    sleep_until((began + ROUND).into()).await;
}

async fn watch(proxy: Arc<Instance>, began: Instant, samples: Arc<Mutex<Vec<Sample>>>) {
    loop {
        if let Some((memory, descriptors, processor)) = proxy.figures() {
            let sample = Sample { at: began.elapsed(), memory, descriptors, processor };
            samples.lock().expect("no panic").push(sample);
        }
        sleep(Duration::from_millis(500)).await;
    }
}
