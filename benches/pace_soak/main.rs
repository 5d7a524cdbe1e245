//! Crawl delays as they reach the origin, through the whole proxy: 500 clients, 200 hosts with delays from 0.05 to 2 s,
//! 10,000 requests. Prints the smallest margin over a gap and how late turns come; run with
//! `cargo bench --bench pace_soak`. With `-- --faults SECONDS` it is several processes and a fleet under faults instead (`faults`;
//! `--binary FILE` takes one that is there).
//!
//! A request has come when the kernel has it: all run on one machine, and an origin that is not scheduled for a while
//! would read one late and the next in time.

#[path = "../support/arrival.rs"]
mod arrival;
mod faults;
#[path = "../support/processes.rs"]
mod processes;

use arrival::{receive, stamp};
use politely::config::Settings;
use processes::{argument, read_head};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Host and arrival of each request by its number.
type Starts = Arc<Mutex<HashMap<usize, (usize, SystemTime)>>>;

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    if let Some(origin) = argument("--crawl") {
        return runtime.block_on(faults::crawl_by_environment(origin.parse().expect("an address")));
    }
    let Some(seconds) = argument("--faults") else { return runtime.block_on(soak()) };
    let seconds = Duration::from_secs(seconds.parse().expect("seconds"));
    let is_good = runtime.block_on(faults::soak(seconds));
    runtime.shutdown_background();
    std::process::exit(i32::from(!is_good));
}

async fn soak() {
    let starts = Starts::default();
    let origin = origin({
        let starts = starts.clone();
        move |head, at| answer(head, at, &starts)
    });
    let directory = tempfile::tempdir().expect("a directory");
    let text = format!(
        "listen: [{{ address: '127.0.0.1:0' }}]\nstore: {{ disk: 0 }}\n\
         intercept: {{ ca: {{ directory: '{}' }} }}\n\
         egress: {{ allow: [127.0.0.0/8, '::1/128'], ports: ['1-65535'] }}\npace: {{ max_wait: 1h }}\n",
        directory.path().display()
    );
    let settings = Settings::parse("bench.yaml", &text).expect("good settings");
    let proxy = politely::server::start(settings).await.expect("the proxy starts");
    let address = proxy.addresses()[0];

    let begin = Instant::now();
    let clients = (0..CLIENTS).map(|client| tokio::spawn(client_of(client, address, origin)));
    let mut sent = HashMap::new();
    for client in clients.collect::<Vec<_>>() {
        sent.extend(client.await.expect("no panic"));
    }
    println!("{} requests in {:?}", sent.len(), begin.elapsed());
    report(&starts.lock().expect("no panic"), &sent);
}

/// Tells, over all hosts, how starts keep to the gap and how late they are once they are due.
fn report(starts: &HashMap<usize, (usize, SystemTime)>, sent: &HashMap<usize, SystemTime>) {
    let mut hosts: HashMap<usize, Vec<(SystemTime, usize)>> = HashMap::new();
    for (&request, &(host, at)) in starts {
        hosts.entry(host).or_default().push((at, request));
    }
    let (mut margins, mut late) = (Vec::new(), Vec::new());
    for (host, mut starts) in hosts {
        starts.sort_unstable();
        for pair in starts.windows(2) {
            let ((before, _), (at, request)) = (pair[0], pair[1]);
            margins.push(micros(at, before + delay(host)));
            // Due when the gap has passed and the request is there.
            late.push(micros(at, (before + delay(host)).max(sent[&request])));
        }
    }
    margins.sort_unstable();
    late.sort_unstable();
    let at = |sorted: &[i64], share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize] as f64 / 1000.0;
    println!(
        "gap, beyond the delay: least {:.3} ms, early {}",
        at(&margins, 0.0),
        margins.iter().filter(|&&m| m < 0).count()
    );
    let [p50, p90, p99, most] = [0.5, 0.9, 0.99, 1.0].map(|share| at(&late, share));
    println!("lateness: p50 {p50:.3} ms, p90 {p90:.3} ms, p99 {p99:.3} ms, most {most:.3} ms");
}

fn micros(at: SystemTime, due: SystemTime) -> i64 {
    let size = |span: Duration| i64::try_from(span.as_micros()).expect("minutes at most");
    at.duration_since(due).map_or_else(|early| -size(early.duration()), size)
}

/// From 0.05 s to 2 s, most of them short.
fn delay(host: usize) -> Duration {
    let share = host as f64 / (HOSTS - 1) as f64;
    Duration::from_millis((50.0 * 40_f64.powf(share)).round() as u64)
}

async fn client_of(client: usize, proxy: SocketAddr, origin: SocketAddr) -> Vec<(usize, SystemTime)> {
    let mut stream = BufReader::new(TcpStream::connect(proxy).await.expect("the proxy listens"));
    let mut sent = Vec::new();
    for turn in 0..REQUESTS / CLIENTS {
        let request = turn * CLIENTS + client;
        // Every host as often as any other, in another order for each client.
        let host = (client * 7 + turn * 13) % HOSTS;
        let authority = format!("h{host}.localhost:{}", origin.port());
        sent.push((request, SystemTime::now()));
        let head =
            format!("GET http://{authority}/{request} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: ExampleBot\r\n\r\n");
        stream.write_all(head.as_bytes()).await.expect("the proxy reads");
        let (head, length) = read_head(&mut stream).await.expect("an answer");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        stream.read_exact(&mut vec![0; length]).await.expect("a body");
    }
    sent
}

/// On a thread of its own, so that what the proxy and the clients do delays its clock no more than the machine has to.
/// `answer`: the body for a request's head and its arrival.
fn origin(answer: impl Fn(&str, SystemTime) -> String + Clone + Send + 'static) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    listener.set_nonblocking(true).expect("a TCP socket");
    stamp(&listener);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let serve = async move {
        let listener = TcpListener::from_std(listener).expect("within the runtime");
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                stream.set_nodelay(true).expect("a TCP socket");
                while let Some((head, at)) = receive(&stream).await {
                    assert!(head.ends_with("\r\n\r\n"), "{head}");
                    let answer = answer(&head, at);
                    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{answer}", answer.len());
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    };
    std::thread::spawn(move || runtime.block_on(serve));
    address
}

fn answer(head: &str, at: SystemTime, starts: &Starts) -> String {
    let host = head.lines().find_map(|line| line.strip_prefix("Host: h")?.split('.').next()?.parse().ok());
    let host: usize = host.expect("a host with a number");
    match head.split(' ').nth(1) {
        Some("/robots.txt") => format!("User-agent: *\nCrawl-delay: {}\n", delay(host).as_secs_f64()),
        target => {
            let request = target.and_then(|target| target[1..].parse().ok()).expect("a number");
            starts.lock().expect("no panic").insert(request, (host, at));
            String::from("page\n")
        }
    }
}

const CLIENTS: usize = 500;
const HOSTS: usize = 200;
const REQUESTS: usize = 10_000;
