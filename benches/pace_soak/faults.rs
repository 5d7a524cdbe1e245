//! The pace under faults: three instances of a fleet, and beside them a `serve` and two `run`s with one store, all of which ask the same
//! kinds of hosts all the time, while Redis hangs, is killed and comes back with nothing, is emptied, while one instance is cut off from
//! it, is stopped, has its clock set, and a `run` is killed. Two more instances are a fleet by Sentinels, whose master is killed. The judge
//! is at the origin and knows only when requests came, by the kernel.

#[path = "failover.rs"]
mod failover;

use super::processes::{Ends, binary, free_address, read_head, serve, spawn_redis};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::sleep;

#[path = "../../tests/it/support/relay.rs"]
mod relay;

use failover::Watched;
use relay::Relay;

/// By host, when its requests came.
type Starts = Arc<Mutex<BTreeMap<String, Vec<SystemTime>>>>;

/// Of the hosts that the fleet asks (`f…`), the fleet with Sentinels (`s…`), and the processes with one store (`m…`).
const DELAYS: [Duration; 4] = [ms(300), ms(500), ms(1000), ms(3000)];
const INSTANCES: u32 = 3;
const WATCHED_INSTANCES: u32 = 2;
/// Requests open at each host, of each process.
const OPEN: usize = 2;
/// What estimates of the server's clock may differ by (docs/fleet.md), on one machine that has much to do.
const CLOCKS: Duration = ms(40);
/// Until all have noticed that the server is lost or back (docs/fleet.md).
const SETTLED: Duration = ms(8000);
/// The longest answer, and what a machine that has much to do may take for a timer.
const SLACK: Duration = ms(1000);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// For which hosts, by their first letter; what went wrong, from when to when, by the wall clock.
type Faults = Vec<(char, &'static str, SystemTime, SystemTime)>;

pub async fn soak(length: Duration) -> bool {
    let (starts, directory) = (Starts::default(), tempfile::tempdir().expect("a directory"));
    let (origin, at) = (origin(starts.clone()), directory.path());
    let mut redis = Redis::start();
    let clock = at.join("clock");
    set_clock(&clock, "+0");
    let mut fleet = Vec::new();
    for number in 0..INSTANCES {
        let relay = Relay::to(redis.address()).await;
        relay.delay(ms(1), ms(1));
        let (directory, url) = (at.join(format!("f{number}")), format!("redis://{}/0", relay.address));
        let store = format!("store: {{ directory: '{}/store' }}", directory.display());
        let yaml = format!("{store}\nfleet: {{ url: '{url}', instances: {INSTANCES} }}\n");
        let instance = Proxy::serve(&directory, &yaml, (number == 1).then_some(&clock)).await;
        fleet.push((relay, instance));
    }
    let mut watched = Watched::start(at).await;
    let mut by_sentinels = Vec::new();
    for number in 0..WATCHED_INSTANCES {
        let directory = at.join(format!("s{number}"));
        let store = format!("store: {{ directory: '{}/store' }}", directory.display());
        let yaml = format!("{store}\nfleet: {{ url: '{}', instances: {WATCHED_INSTANCES} }}\n", watched.url());
        by_sentinels.push(Proxy::serve(&directory, &yaml, None).await);
    }
    let shared = at.join("shared");
    let beside = Proxy::serve(&at.join("m"), &format!("store: {{ directory: '{}' }}\n", shared.display()), None).await;
    let mut runs = [0, 1].map(|number| run(at, number, &shared, origin));
    let crawls = fleet.iter().map(|(_, it)| (it.address, 'f')).chain([(beside.address, 'm')]);
    let crawls = crawls.chain(by_sentinels.iter().map(|it| (it.address, 's')));
    crawls.for_each(|(proxy, kind)| crawl(proxy, origin, kind));
    sleep(Duration::from_secs(10)).await;
    // The clock of the server is known, and each robots.txt.
    starts.lock().expect("no panic").clear();
    let (began, mut faults, mut round) = (Instant::now(), Faults::new(), 0);
    while began.elapsed() + ROUND <= length {
        let next = began + ROUND * (round + 1);
        let fails_over = async {
            sleep(Duration::from_secs(30)).await;
            let began = watched.fail_over().await;
            ('s', "the master killed", began, SystemTime::now())
        };
        let faulty = faulty_round(&mut redis, &fleet, &mut runs[round as usize % 2], &mut faults, &clock);
        let (failed_over, ()) = tokio::join!(fails_over, faulty);
        faults.push(failed_over);
        let killed = round as usize % 2;
        runs[killed] = run(at, killed as u32, &shared, origin);
        tokio::time::sleep_until(next.into()).await;
        round += 1;
        println!(
            "{:>4} s: {} starts",
            began.elapsed().as_secs(),
            starts.lock().expect("no panic").values().map(Vec::len).sum::<usize>()
        );
    }
    let starts = starts.lock().expect("no panic").clone();
    drop((fleet, by_sentinels, runs));
    starts.iter().fold(true, |good, (host, starts)| judge(host, starts, &faults) && good)
}

const ROUND: Duration = Duration::from_secs(100);

async fn faulty_round(redis: &mut Redis, fleet: &[(Relay, Proxy)], run: &mut Ends, faults: &mut Faults, clock: &Path) {
    let mut fault = |what, from: SystemTime| faults.push(('f', what, from, SystemTime::now()));
    let now = SystemTime::now();
    signal("STOP", &redis.child.0);
    sleep(ms(6000)).await;
    signal("CONT", &redis.child.0);
    fault("Redis hung for 6 s", now);
    sleep(ms(14_000)).await;
    let now = SystemTime::now();
    redis.restart(ms(5000)).await;
    fault("Redis killed, and empty after 5 s", now);
    sleep(ms(14_000)).await;
    let now = SystemTime::now();
    redis.empty();
    fault("Redis emptied", now);
    sleep(ms(12_000)).await;
    let now = SystemTime::now();
    fleet[0].0.faults.holds.send_replace(true);
    sleep(ms(8000)).await;
    fleet[0].0.faults.holds.send_replace(false);
    fault(CUT_OFF, now);
    sleep(ms(13_000)).await;
    let now = SystemTime::now();
    signal("STOP", &fleet[2].1.child.0);
    sleep(ms(4000)).await;
    signal("CONT", &fleet[2].1.child.0);
    fault("an instance stopped for 4 s", now);
    run.kill();
    sleep(ms(5000)).await;
    set_clock(clock, "+2h");
    sleep(ms(5000)).await;
    set_clock(clock, "+0");
}

/// One host's starts. False: something is not as documented.
fn judge(host: &str, starts: &[SystemTime], faults: &Faults) -> bool {
    let (kind, delay) = (host.chars().next().expect("a name"), delay(host).expect("it was asked for"));
    let instances = if kind == 'f' { INSTANCES } else { WATCHED_INSTANCES };
    let (clocks, longest) = match kind {
        'm' => (Duration::ZERO, delay * 4 + SLACK),
        _ => (CLOCKS, delay * (instances + 1) + SLACK),
    };
    let faults: Vec<_> =
        faults.iter().filter(|fault| fault.0 == kind).map(|fault| (fault.1, fault.2, fault.3)).collect();
    let disturbed = |from: SystemTime, to: SystemTime| {
        let rejoins = SETTLED + delay * (instances + 1);
        faults.iter().find(|(_, since, until)| *since <= to && from <= *until + rejoins).map(|it| it.0)
    };
    let since_begin = |at: SystemTime| at.duration_since(starts[0]).unwrap_or_default();
    let (mut early, mut late, mut gaps) = (Vec::new(), Vec::new(), Vec::new());
    let mut disturbed_early = BTreeMap::<_, Vec<_>>::new();
    for pair in starts.windows(2) {
        let gap = pair[1].duration_since(pair[0]).unwrap_or_default();
        gaps.push(gap);
        let what = disturbed(pair[0], pair[1]);
        if gap > longest + if what.is_some() { SETTLED } else { Duration::ZERO } {
            late.push((since_begin(pair[1]), gap));
        }
        match what {
            _ if gap + clocks >= delay => {}
            None => early.push((since_begin(pair[1]), gap)),
            Some(what) => disturbed_early.entry(what).or_default().push(gap),
        }
    }
    gaps.sort_unstable();
    let mean = gaps.iter().sum::<Duration>() / gaps.len() as u32;
    println!(
        "{host} ({delay:?}): {} starts, gaps {:?} to {:?}, mean {mean:?}; early {early:?}, late {late:?}",
        starts.len(),
        gaps[0],
        gaps[gaps.len() - 1]
    );
    // Where one is cut off it has its own part of the rate, and the others leave it that: the mean is kept.
    let mut are_kept = true;
    for (what, since, until) in &faults {
        let (from, to) = (since_begin(*since), since_begin(*until) + SETTLED);
        let count = starts.iter().filter(|at| (from..to).contains(&since_begin(**at))).count();
        let most = (to - from).as_secs_f64() / delay.as_secs_f64() + f64::from(instances) + 1.0;
        if count as f64 > most {
            println!("  {what}: {count} starts of {most:.1}");
            are_kept = false;
        }
    }
    // While all are parted a start may be late by a quarter of a gap, and the next not.
    for (what, gaps) in disturbed_early {
        let least = gaps.iter().min().copied().unwrap_or_default();
        println!("  {what}: {} gaps too short, the least {least:?}", gaps.len());
        are_kept &= ["Redis emptied", CUT_OFF].contains(&what) || least + clocks >= delay * 3 / 4;
    }
    early.is_empty() && late.is_empty() && mean >= delay && are_kept
}

const CUT_OFF: &str = "an instance cut off for 8 s";

fn delay(host: &str) -> Option<Duration> {
    DELAYS.get(host.split('.').next()?.get(1..)?.parse::<usize>().ok()?).copied()
}

/// A redis-server on a port that it keeps.
struct Redis {
    child: Ends,
    port: u16,
}

impl Redis {
    fn start() -> Self {
        let port = free_address().port();
        Self { child: spawn_redis(port), port }
    }

    fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    async fn restart(&mut self, after: Duration) {
        self.child.kill();
        sleep(after).await;
        self.child = spawn_redis(self.port);
    }

    fn empty(&self) {
        let status =
            Command::new("redis-cli").args(["-p", &self.port.to_string(), "flushall"]).stdout(Stdio::null()).status();
        assert!(status.is_ok_and(|status| status.success()), "redis-cli empties it");
    }
}

/// One `politely serve`.
struct Proxy {
    child: Ends,
    address: SocketAddr,
}

impl Proxy {
    async fn serve(directory: &Path, yaml: &str, clock: Option<&PathBuf>) -> Self {
        let yaml = format!("log: {{ access: 'off', level: error }}\npace: {{ max_wait: 1h }}\n{yaml}");
        let (child, address) = serve(directory, &yaml, |command| {
            if let Some((clock, library)) = clock.zip(faketime()) {
                command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", clock);
                command.env("FAKETIME_CACHE_DURATION", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
            }
        })
        .await;
        Self { child, address }
    }
}

/// Debian's, if it is installed.
fn faketime() -> Option<PathBuf> {
    let mut places = std::fs::read_dir("/usr/lib").ok()?.flatten();
    places.find_map(|place| Some(place.path().join("faketime/libfaketimeMT.so.1")).filter(|file| file.exists()))
}

fn set_clock(file: &Path, offset: &str) {
    std::fs::write(file, format!("{offset}\n")).expect("the directory is writable");
}

/// `politely run` of a program that asks the hosts of the machine: this one.
fn run(at: &Path, number: u32, store: &Path, origin: SocketAddr) -> Ends {
    let home = at.join(format!("run{number}"));
    std::fs::create_dir_all(&home).expect("a directory");
    let mut command = Command::new(binary());
    command.args(["run", "-q"]).arg(std::env::current_exe().expect("it has a name")).args(["--bench", "--crawl"]);
    command.arg(origin.to_string()).env("HOME", &home).env("POLITELY_STORE__DIRECTORY", store);
    command.env("POLITELY_EGRESS__ALLOW", "[127.0.0.0/8]").env("POLITELY_EGRESS__PORTS", "[1-65535]");
    command.env("POLITELY_PACE__MAX_WAIT", "1h").env_remove("XDG_STATE_HOME").env_remove("XDG_DATA_HOME");
    Ends(command.stdin(Stdio::null()).spawn().expect("the binary is built"))
}

/// What such a program does, until its proxy has gone.
pub async fn crawl_by_environment(origin: SocketAddr) {
    let proxy = ["http_proxy", "HTTP_PROXY"].into_iter().find_map(|name| std::env::var(name).ok()).expect("it is told");
    let proxy = proxy.trim_start_matches("http://").trim_end_matches('/').rsplit('@').next().map(str::to_owned);
    let proxy = proxy.and_then(|proxy| proxy.parse().ok()).expect("an address");
    crawl(proxy, origin, 'm');
    while TcpStream::connect(proxy).await.is_ok() {
        sleep(ms(200)).await;
    }
}

/// Some requests are open at each host all the time.
fn crawl(proxy: SocketAddr, origin: SocketAddr, kind: char) {
    for number in 0..DELAYS.len() * OPEN {
        tokio::spawn(async move {
            let authority = format!("{kind}{}.localhost:{}", number % DELAYS.len(), origin.port());
            loop {
                if ask(proxy, &authority).await.is_none() {
                    sleep(ms(50)).await;
                }
            }
        });
    }
}

/// Pages, until something goes wrong.
async fn ask(proxy: SocketAddr, authority: &str) -> Option<()> {
    let mut stream = BufReader::new(TcpStream::connect(proxy).await.ok()?);
    let request =
        format!("GET http://{authority}/page HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: ExampleBot\r\n\r\n");
    loop {
        stream.write_all(request.as_bytes()).await.ok()?;
        let (head, length) = read_head(&mut stream).await?;
        stream.read_exact(&mut vec![0; length]).await.ok()?;
        if !head.starts_with("HTTP/1.1 200") {
            sleep(ms(100)).await;
        }
    }
}

fn origin(starts: Starts) -> SocketAddr {
    super::origin(move |head, at| {
        let host = head.lines().find_map(|line| line.strip_prefix("Host: ")?.split(':').next()).unwrap_or_default();
        match delay(host) {
            Some(delay) if head.starts_with("GET /robots.txt") => {
                format!("User-agent: *\nCrawl-delay: {}\n", delay.as_secs_f64())
            }
            _ => {
                starts.lock().expect("no panic").entry(host.to_owned()).or_default().push(at);
                "page\n".to_owned()
            }
        }
    })
}

fn signal(name: &str, child: &Child) {
    let status = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()), "it is there");
}
