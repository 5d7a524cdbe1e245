//! Ten minutes at full speed against 2,000 authorities whose robots.txt change, break, hang and come back, with the proxy
//! killed and started again ten times. The origins judge every request that reaches them by the rules then in force.
//! Ends with counts, and with a failure if a disallowed URL got through.
//!
//! `cargo bench --bench soak -- [SECONDS]`

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const HOSTS: usize = 2000;
const CLIENTS: usize = 40;
const KILLS: u32 = 10;
/// Of 16 sections, each version disallows those whose bit it has.
const SECTIONS: u32 = 16;
/// From when a copy was sent until no request decided by the one before is on its way any more.
const ON_ITS_WAY: Duration = Duration::from_secs(2);

/// Within this time a copy is in the store. It is written behind, so that a kill may take what came just before.
const WRITTEN: Duration = Duration::from_secs(1);
const NEVER: Duration = Duration::from_secs(24 * 3600);

fn main() {
    let seconds = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(600);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    runtime.block_on(soak(Duration::from_secs(seconds)));
}

async fn soak(length: Duration) {
    let origin = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = origin.local_addr().expect("bound").port();
    let site = Arc::new(Site { hosts: (0..HOSTS).map(|_| Mutex::default()).collect(), tally: Tally::default() });
    tokio::spawn(serve(origin, site.clone()));

    let directory = tempfile::tempdir().expect("a temporary directory");
    let target = Arc::new(Mutex::new(None));
    let stop = Arc::new(AtomicBool::new(false));
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(crawl(target.clone(), port, site.clone(), stop.clone()));
    }
    let start = Instant::now();
    for round in 0..=KILLS {
        let (mut child, address) = start_proxy(directory.path()).await;
        *target.lock().expect("held briefly") = Some(address);
        let end = length * (round + 1) / (KILLS + 1);
        tokio::time::sleep(end.saturating_sub(start.elapsed())).await;
        *target.lock().expect("held briefly") = None;
        // SIGKILL, in the middle of whatever it does.
        child.kill().expect("it runs");
        child.wait().expect("our child");
        let now = Instant::now();
        site.hosts.iter().for_each(|host| host.lock().expect("held briefly").kill(now));
        site.tally.add("kills");
        println!("{:>4} s: {}", start.elapsed().as_secs(), site.tally.line());
    }
    stop.store(true, Ordering::Relaxed);
    clients.join_all().await;
    let set_aside = std::fs::read_dir(directory.path().join("store")).expect("the store").count() - 1;
    println!("stores set aside: {set_aside}");
    let violations = site.tally.get("VIOLATIONS: disallowed, and yet it came");
    assert_eq!((violations, set_aside), (0, 0));
    assert!(site.tally.get("pages that came") > 0 && site.tally.get("told 403") > 0);
}

async fn start_proxy(directory: &Path) -> (Child, SocketAddr) {
    let file = directory.join("politely.yaml");
    let at = directory.display();
    let yaml = format!(
        "listen: [{{ address: '127.0.0.1:0' }}]\nadmin: {{ address: 'off' }}\n\
         intercept: {{ ca: {{ directory: '{at}/ca' }} }}\nstore: {{ directory: '{at}/store', memory: 1MiB }}\n\
         egress: {{ allow: [127.0.0.0/8], ports: ['1-65535'] }}\nlog: {{ access: 'off', level: error }}\n\
         robots: {{ min_ttl: 1s, max_ttl: 3s, timeout: 1s }}\npace: {{ max_concurrent: 64 }}\n"
    );
    std::fs::write(&file, yaml).expect("the directory is writable");
    // A port that is free now, and free a moment later.
    let address = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
    let child = Command::new(env!("CARGO_BIN_EXE_politely"))
        .args(["serve", "--listen", &address.to_string(), "--config"])
        .arg(&file)
        .stdin(Stdio::null())
        .spawn()
        .expect("the binary is built");
    while TcpStream::connect(address).await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (child, address)
}

/// The origins, all behind one port.
struct Site {
    hosts: Vec<Mutex<Host>>,
    tally: Tally,
}

/// One authority: its robots.txt, and which of its versions may be in force with the proxy.
#[derive(Default)]
struct Host {
    /// Of the last ones sent, the sections they disallow; `None` allows all. With the time when each was sent.
    sent: Vec<(Option<u32>, Instant)>,
    /// Being sent.
    under_way: Vec<Option<u32>>,
    killed: Option<Instant>,
}

impl Host {
    /// The proxy is killed: what it has got just now may not be in its store yet, and the copy before it be in force.
    fn kill(&mut self, now: Instant) {
        self.killed = Some(now);
        for (_, at) in self.sent.iter_mut().filter(|(_, at)| now.duration_since(*at) < WRITTEN) {
            *at = now + NEVER;
        }
    }

    fn sent(&mut self, version: Option<u32>, began: Instant) {
        let at = self.under_way.iter().position(|under_way| *under_way == version).expect("it was under way");
        self.under_way.remove(at);
        let lost = self.killed.is_some_and(|killed| killed >= began);
        self.sent.push((version, Instant::now() + if lost { NEVER } else { Duration::ZERO }));
    }

    /// Whether no copy that could be in force allows it.
    fn forbids(&mut self, section: u32, now: Instant) -> bool {
        // A copy is out of force once its successor has been there for a while.
        if let Some(last) = self.sent.iter().rposition(|(_, at)| now.duration_since(*at) > ON_ITS_WAY) {
            self.sent.drain(..last);
        }
        let allows = |version: &Option<u32>| version.is_none_or(|bits| bits >> section & 1 == 0);
        !self.sent.iter().any(|(version, _)| allows(version)) && !self.under_way.iter().any(allows)
    }
}

#[derive(Default)]
struct Tally(Mutex<BTreeMap<String, u64>>, AtomicU64);

impl Tally {
    fn add(&self, what: &str) {
        *self.0.lock().expect("held briefly").entry(what.to_owned()).or_default() += 1;
    }

    fn get(&self, what: &str) -> u64 {
        self.0.lock().expect("held briefly").get(what).copied().unwrap_or_default()
    }

    fn line(&self) -> String {
        let tally = self.0.lock().expect("held briefly");
        let slowest = Duration::from_micros(self.1.load(Ordering::Relaxed));
        let counts: Vec<_> = tally.iter().map(|(what, count)| format!("{count} {what}")).collect();
        format!("{}; slowest answer {slowest:.1?}", counts.join(", "))
    }
}

async fn serve(listener: TcpListener, site: Arc<Site>) {
    while let Ok((stream, _)) = listener.accept().await {
        let site = site.clone();
        tokio::spawn(async move {
            let mut stream = BufReader::new(stream);
            while let Ok(true) = answer(&mut stream, &site).await {}
        });
    }
}

/// One request; whether the connection goes on.
async fn answer(stream: &mut BufReader<TcpStream>, site: &Site) -> io::Result<bool> {
    let (mut target, mut host) = (String::new(), None);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(false);
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some(path) = line.strip_prefix("GET ") {
            target = path.split(' ').next().unwrap_or_default().to_owned();
        } else if let Some(name) = line.to_ascii_lowercase().strip_prefix("host: h") {
            host = name.split('.').next().and_then(|number| number.parse::<usize>().ok());
        }
    }
    let host = &site.hosts[host.expect("a host of ours")];
    if target == "/robots.txt" {
        return robots(stream, host, &site.tally).await;
    }
    let section = target[2..].split('/').next().and_then(|section| section.parse().ok()).expect("a target of ours");
    site.tally.add("pages that came");
    if host.lock().expect("held briefly").forbids(section, Instant::now()) {
        site.tally.add("VIOLATIONS: disallowed, and yet it came");
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage").await?;
    Ok(true)
}

async fn robots(stream: &mut BufReader<TcpStream>, host: &Mutex<Host>, tally: &Tally) -> io::Result<bool> {
    let version = fastrand::u32(..1 << SECTIONS);
    let rules: String =
        (0..SECTIONS).filter(|bit| version >> bit & 1 == 1).map(|bit| format!("Disallow: /s{bit}/\n")).collect();
    let text = format!("User-agent: *\n{rules}");
    let length = text.len();
    let whole = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{text}");
    let (what, octets, means) = match fastrand::u32(..100) {
        0..60 => ("robots.txt", whole, Some(Some(version))),
        60..66 => ("robots.txt, slowly", whole, Some(Some(version))),
        66..74 => ("404", "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".into(), Some(None)),
        74..84 => ("503", "HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n".into(), None),
        84..89 => ("429", "HTTP/1.1 429 Slow\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n".into(), None),
        89..93 => ("half a robots.txt", whole[..whole.len() - 9].into(), None),
        93..96 => ("no HTTP", "nonsense\r\n\r\n".into(), None),
        96..98 => ("closed", String::new(), None),
        _ => {
            tally.add("hung");
            tokio::time::sleep(Duration::from_secs(5)).await;
            return Ok(false);
        }
    };
    tally.add(what);
    let began = Instant::now();
    if let Some(version) = means {
        host.lock().expect("held briefly").under_way.push(version);
    }
    let sent = send(stream, &octets, what.ends_with("slowly")).await;
    if let Some(version) = means {
        // Even if it broke off: the other side may have had all of it.
        host.lock().expect("held briefly").sent(version, began);
    }
    sent.map(|()| means.is_some())
}

async fn send(stream: &mut BufReader<TcpStream>, octets: &str, slowly: bool) -> io::Result<()> {
    let (first, second) = octets.split_at(octets.len() / 2);
    stream.write_all(first.as_bytes()).await?;
    if slowly {
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    stream.write_all(second.as_bytes()).await
}

/// Asks for one page after the other, as fast as they are answered.
async fn crawl(proxy: Arc<Mutex<Option<SocketAddr>>>, port: u16, site: Arc<Site>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        let address = *proxy.lock().expect("held briefly");
        match address {
            Some(address) => _ = session(address, port, &site.tally, &stop).await,
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

async fn session(proxy: SocketAddr, port: u16, tally: &Tally, stop: &AtomicBool) -> io::Result<()> {
    let mut stream = BufReader::new(TcpStream::connect(proxy).await?);
    while !stop.load(Ordering::Relaxed) {
        // Some hosts are asked far more often than others, as in a real crawl.
        let host = (fastrand::f64() * fastrand::f64() * HOSTS as f64) as usize;
        let (host, section) = (format!("h{host}.localhost:{port}"), fastrand::u32(..SECTIONS));
        let start = Instant::now();
        let request =
            format!("GET http://{host}/s{section}/x HTTP/1.1\r\nHost: {host}\r\nUser-Agent: SoakBot/1.0\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let Ok(status) = timeout(Duration::from_secs(70), response(&mut stream)).await else {
            tally.add("NO ANSWER in 70 s");
            return Ok(());
        };
        tally.add(&format!("told {}", status?));
        let took = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        tally.1.fetch_max(took, Ordering::Relaxed);
    }
    Ok(())
}

async fn response(stream: &mut BufReader<TcpStream>) -> io::Result<u16> {
    let (mut status, mut length) = (None, 0);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().expect("a number");
        } else if status.is_none() {
            status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        }
    }
    stream.read_exact(&mut vec![0; length]).await?;
    status.ok_or_else(|| io::ErrorKind::InvalidData.into())
}
