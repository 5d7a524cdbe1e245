//! What the gate costs: admission where no delay is in force, and requests that wait, and hosts that owe a delay. Prints
//! figures; run with `cargo bench --bench pacing` (`-- --only admission`, `waiters`, `hosts` or `debts` for a part).

use politely::config::Settings;
use politely::gate::{Account, Admitted, Gate, LastHost, PaceOutcome};
use politely::policy::{Authority, Request};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let only = std::env::args().skip_while(|argument| argument != "--only").nth(1);
    let is_wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    if is_wanted("admission") {
        runtime.block_on(admission("the host's pace alone", "hosts: { '*': { robots: ignore } }"));
        runtime.block_on(admission("with the decision by robots.txt", ""));
    }
    if is_wanted("waiters") {
        runtime.block_on(waiters());
    }
    if is_wanted("hosts") {
        runtime.block_on(hosts_with_a_waiter());
    }
    if is_wanted("debts") {
        runtime.block_on(hosts_in_debt());
    }
}

/// One host asked for over and over by one thread, then two hosts by two, as by a connection that is kept open: admitted, its
/// turn taken and given back. The least of a hundred rounds, as the machine has other things to do.
async fn admission(what: &str, yaml: &str) {
    let port = origin().await;
    let gate = gate(yaml);
    for threads in [1, 2] {
        let tasks = (0..threads).map(|number| {
            let (gate, authority) = (gate.clone(), host(number, port));
            tokio::spawn(async move {
                let (ask, mut last) = (ask(&authority), LastHost::default());
                // Fetches its robots.txt.
                go(&gate, &ask, &mut last).await;
                let mut least = Duration::MAX;
                for _ in 0..ROUNDS {
                    let start = Instant::now();
                    for _ in 0..ADMISSIONS {
                        go(&gate, &ask, &mut last).await;
                    }
                    least = least.min(start.elapsed() / ADMISSIONS);
                }
                least
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            println!("admission, {what}, {threads} thread(s): {:?}", task.await.expect("no panic"));
        }
    }
}

async fn waiters() {
    let gate = gate("hosts: { '*.localhost': { robots: ignore, crawl_delay: 1h } }");
    let before = resident();
    let start = Instant::now();
    for number in 0..HOSTS * (WAITERS_EACH + 1) {
        let (gate, authority) = (gate.clone(), host(number % HOSTS, 80));
        tokio::spawn(async move { go(&gate, &ask(&authority), &mut LastHost::default()).await });
    }
    // The first of each host goes, the others wait.
    while gate.figures().waiting < HOSTS * WAITERS_EACH {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (elapsed, grown) = (start.elapsed(), resident() - before);
    let waiting = gate.figures().waiting;
    println!(
        "{waiting} waiters over {HOSTS} hosts: {} MiB, {} bytes each, in line after {elapsed:?}",
        grown >> 20,
        grown / waiting
    );
}

/// With the default store: the processor while each of many hosts has a request waiting, and for each host's first page.
async fn hosts_with_a_waiter() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let gate = gate_with_store(directory.path());
    for hosts in [8_000, 100_000] {
        let (of, started) = (format!("w{hosts}"), cpu());
        for number in 0..hosts {
            go(&gate, &ask(&named(&of, number)), &mut LastHost::default()).await;
        }
        let (first, before) = ((cpu() - started) / hosts as u32, gate.figures().waiting);
        for number in 0..hosts {
            let (gate, authority) = (gate.clone(), named(&of, number));
            tokio::spawn(async move { go(&gate, &ask(&authority), &mut LastHost::default()).await });
        }
        while gate.figures().waiting < before + hosts {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        let from = cpu();
        tokio::time::sleep(WATCHED).await;
        let share = (cpu() - from).as_secs_f64() / WATCHED.as_secs_f64();
        println!("{hosts} hosts with a request waiting: {:.2} % of a core; {first:?} for a first page", share * 100.0);
    }
}

/// With the default store: the memory of hosts that owe a delay, by their number.
async fn hosts_in_debt() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let gate = gate_with_store(directory.path());
    let before = memory();
    for number in 0..1_000_000 {
        go(&gate, &ask(&named("d", number)), &mut LastHost::default()).await;
        if (number + 1) % 100_000 == 0 {
            let (own, shared) = memory();
            let file = directory.path().join("politely.pace7").metadata().expect("it is there").len();
            println!(
                "{} hosts in debt: {} MiB of memory, {} MiB of the file ({} MiB long)",
                number + 1,
                (own - before.0) >> 20,
                (shared - before.1) >> 20,
                file >> 20
            );
        }
    }
}

fn ask(authority: &Authority) -> Request<'_> {
    Request::new(authority, b"/a/page?of=some&length=more")
}

async fn go(gate: &Gate, ask: &Request<'_>, last: &mut LastHost) {
    match gate.admit_next(ask, None, last, &mut Account::default()).await {
        Ok(Admitted::Go { mut permit, .. }) => {
            // One that never leaves gives its turn back.
            permit.leaves(false);
            permit.note_left();
            permit.outcome = PaceOutcome::Success;
        }
        Ok(Admitted::Robots(_) | Admitted::NotModified | Admitted::Allowed { .. }) => panic!("nobody asked for it"),
        Err(refusal) => panic!("{refusal}"),
    }
}

fn gate(yaml: &str) -> Arc<Gate> {
    let text = format!(
        "identity: {{ product_tokens: [ExampleBot] }}\nstore: {{ disk: 0 }}\n\
         egress: {{ allow: [127.0.0.0/8, '::1/128'], ports: ['1-65535'] }}\n\
         pace: {{ max_crawl_delay: 1h, max_wait: 24h, max_waiting: 1000000 }}\n{yaml}"
    );
    let settings = Settings::parse("bench.yaml", &text).expect("good settings");
    Arc::new(politely::server::gate_alone(settings).expect("a gate"))
}

/// Hosts with a delay of an hour.
fn gate_with_store(directory: &Path) -> Arc<Gate> {
    let text = format!(
        "identity: {{ product_tokens: [ExampleBot] }}\nstore: {{ directory: '{}' }}\n\
         pace: {{ max_crawl_delay: 1h, max_wait: 24h, max_waiting: 1000000 }}\n\
         hosts: {{ '*.localhost': {{ robots: ignore, crawl_delay: 1h }} }}",
        directory.display()
    );
    let settings = Settings::parse("bench.yaml", &text).expect("good settings");
    Arc::new(politely::server::gate_with_store(settings).expect("a gate"))
}

fn named(of: &str, number: usize) -> Authority {
    Authority::from_url(&format!("http://{of}{number}.localhost")).expect("a good URL")
}

fn host(number: usize, port: u16) -> Authority {
    Authority::from_url(&format!("http://h{number}.localhost:{port}")).expect("a good URL")
}

/// Answers everything with one robots.txt.
async fn origin() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).await;
            let body = "User-agent: *\nDisallow: /private\nDisallow: /*.cgi\nAllow: /private/open\n";
            let answer =
                format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    port
}

/// Bytes of this process's own memory, and of mapped files.
fn memory() -> (usize, usize) {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        line.split_whitespace().next().and_then(|kib| kib.parse::<usize>().ok()).expect("a number") << 10
    };
    (of("RssAnon:"), of("RssFile:") + of("RssShmem:"))
}

/// Time of processors that this process has used, in hundredths of a second.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let (_, fields) = stat.rsplit_once(") ").expect("its name comes before");
    let used: u64 = fields.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum();
    Duration::from_millis(used * 10)
}

/// Bytes of memory that this process has.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize = status.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * 4096
}

const ROUNDS: usize = 100;
const ADMISSIONS: u32 = 10_000;
const WATCHED: Duration = Duration::from_secs(20);
const HOSTS: usize = 10_000;
const WAITERS_EACH: usize = 10;
