//! Ten minutes at full speed against 2,000 authorities, half of them over a strict HTTP/2, whose robots.txt change,
//! break, hang and come back, with the proxy killed and started again ten times, its clock set forth and back, and the
//! Redis that it uses hung and emptied. The origins judge every request that reaches them by the rules then in force.
//! Ends with counts, and with a failure if a disallowed URL got through, a message was one that strict servers refuse,
//! or somebody was told to wait for more than an hour.
//!
//! `cargo bench --bench soak -- [SECONDS] [without-clock] [without-redis]`: the faults of either can be left out.

#[path = "../../tests/it/support/authority.rs"]
mod authority;
mod client;
mod faults;
mod origin;
mod site;

use client::{Ports, crawl};
use faults::{Clock, Redis};
use site::{GIVEN_UP, Site};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};

const CLIENTS: usize = 40;
const KILLS: u32 = 10;

fn main() {
    let seconds = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(600);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    let with = |fault: &str| !std::env::args().any(|argument| argument == format!("without-{fault}"));
    runtime.block_on(soak(Duration::from_secs(seconds), with("clock"), with("redis")));
}

async fn soak(length: Duration, with_clock: bool, with_redis: bool) {
    let (plain, tls) = (listener().await, listener().await);
    let port = |listener: &TcpListener| listener.local_addr().expect("bound").port();
    let ports = Ports { http: port(&plain), https: port(&tls) };
    let site = Arc::new(Site::new());
    tokio::spawn(origin::serve_http(plain, site.clone()));
    let names = authority::test_ca().server_config(&["*.soak.localhost"], &[b"h2"]);
    tokio::spawn(origin::serve_h2(tls, names.into(), site.clone()));

    let directory = tempfile::tempdir().expect("a temporary directory");
    let clock = Clock::new(directory.path(), with_clock);
    let mut redis = if with_redis { Redis::start() } else { None };
    let fleet = redis.as_ref().map_or_else(|| "~".to_owned(), Redis::url);
    let target = Arc::new(Mutex::new(None));
    let stop = Arc::new(AtomicBool::new(false));
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(crawl(target.clone(), ports, site.clone(), stop.clone()));
    }
    let start = Instant::now();
    for round in 0..=KILLS {
        // One step at the start and one in the middle, so that some are seen across a kill and some while it runs.
        let step = 2 * round as usize;
        let mut told = vec![clock.set(step)];
        let (mut child, address) = start_proxy(directory.path(), &fleet, &clock, &site).await;
        *target.lock().expect("held briefly") = Some(address);
        sleep_until(start + length * (3 * round + 1) / (3 * (KILLS + 1))).await;
        if let Some(redis) = &mut redis {
            told.push(redis.fault(round).await);
        }
        sleep_until(start + length * (3 * round + 2) / (3 * (KILLS + 1))).await;
        told.push(clock.set(step + 1));
        sleep_until(start + length * (round + 1) / (KILLS + 1)).await;
        *target.lock().expect("held briefly") = None;
        // SIGKILL, in the middle of whatever it does.
        child.kill().expect("it runs");
        child.wait().expect("our child");
        site.kill(Instant::now());
        site.tally.add("kills");
        println!("{:>4} s ({}): {}", start.elapsed().as_secs(), told.join(", "), site.tally.line());
    }
    stop.store(true, Ordering::Relaxed);
    clients.join_all().await;
    let set_aside = std::fs::read_dir(directory.path().join("store")).expect("the store").count() - 1;
    let longest = site.longest_without_verdict();
    println!("stores set aside: {set_aside}; longest without a verdict after a site's last failure: {longest:.1?}");
    assert_eq!((site.tally.violations(), set_aside), (0, 0));
    // What the proxy says is believed as long as it says it of sites that hang, and of next to no other.
    assert!(site.tally.get(GIVEN_UP) <= site.tally.get("hung") + site.tally.get("robots.txt") / 200);
    assert!(longest < Duration::from_secs(3600));
    assert!(site.tally.get("pages that came") > 0 && site.tally.get("told 403") > 0);
}

/// Takes what the proxy says: of fetches that it gives up, and of faults of its own.
fn listen(says: impl Read + Send + 'static, site: Arc<Site>) {
    std::thread::spawn(move || {
        for line in BufReader::new(says).lines().map_while(Result::ok) {
            if line.contains("no complete answer within") {
                let host = line.split("://h").nth(1).and_then(|rest| rest.split('.').next()?.parse().ok());
                site.given_up(host.expect("it names the site"), Instant::now());
            } else if line.contains("ERROR") || line.contains("panicked") {
                println!("{line}");
            }
        }
    });
}

async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.expect("a free port")
}

async fn sleep_until(then: Instant) {
    tokio::time::sleep_until(then.into()).await;
}

async fn start_proxy(directory: &Path, fleet: &str, clock: &Clock, site: &Arc<Site>) -> (Child, SocketAddr) {
    let file = directory.join("politely.yaml");
    let (at, roots) = (directory.display(), authority::test_ca().pem_file().display());
    let yaml = format!(
        "listen: [{{ address: '127.0.0.1:0' }}]\nadmin: {{ address: 'off' }}\n\
         intercept: {{ ca: {{ directory: '{at}/ca' }} }}\nstore: {{ directory: '{at}/store', memory: 1MiB }}\n\
         egress: {{ allow: [127.0.0.0/8], ports: ['1-65535'], ca_file: '{roots}' }}\nlog: {{ access: 'off', level: warn }}\n\
         robots: {{ min_ttl: 1s, max_ttl: 3s, timeout: 4s }}\npace: {{ max_concurrent: 64 }}\nfleet: {fleet}\n"
    );
    std::fs::write(&file, yaml).expect("the directory is writable");
    // A port that is free now, and free a moment later.
    let address = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
    let mut command = Command::new(env!("CARGO_BIN_EXE_politely"));
    command.args(["serve", "--listen", &address.to_string(), "--config"]).arg(&file);
    let child = clock.over(&mut command).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("the binary is built");
    listen(child.stdout.take().expect("it is a pipe"), site.clone());
    listen(child.stderr.take().expect("it is a pipe"), site.clone());
    while TcpStream::connect(address).await.is_err() {
        assert!(child.try_wait().is_ok_and(|status| status.is_none()), "it ended at the start");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (child, address)
}
