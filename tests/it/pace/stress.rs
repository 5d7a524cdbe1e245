//! Gaps by the kernel's clock on a machine that has too much to do: origins in both versions of HTTP, instances that are
//! killed and started again. A minute each: `cargo test --test it pace::stress -- --ignored --nocapture --test-threads 1`.

use crate::support::redis::Redis;
use crate::support::{Alpn, Binary, Origin};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::sleep;

const DELAY: Duration = Duration::from_millis(100);
const TIME: Duration = Duration::from_secs(55);
/// Threads that do nothing but compute.
const HOGS: usize = 6;

/// Runs this many instances. With `killed_every`, the last one is killed and restarted at this interval.
async fn keeps_its_gaps(instances: usize, yaml: &str, killed_every: Option<Duration>) {
    let robots = format!("User-agent: *\nCrawl-delay: {}\n", DELAY.as_secs_f64());
    let plain = Origin::site(&robots).await;
    let http2 = [Origin::tls_site(Alpn::H2, &robots).await, Origin::tls_site(Alpn::H2, &robots).await];
    let mut urls: Vec<String> = (0..16).map(|host| plain.url_at(&format!("h{host}.localhost"), "/page")).collect();
    for origin in &http2 {
        urls.extend(
            ["localhost", "a.localhost", "b.localhost", "c.localhost"].map(|host| origin.url_at(host, "/page")),
        );
    }
    let mut fleet = Vec::new();
    for _ in 0..instances {
        fleet.push(Binary::serve(yaml).await);
    }
    let addresses: Arc<[Mutex<SocketAddr>]> = fleet.iter().map(|instance| Mutex::new(instance.address())).collect();
    let (stop, mut clients) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
    for (number, url) in (0..instances).flat_map(|number| urls.iter().map(move |url| (number, url))) {
        for _ in 0..2 {
            let (url, addresses, stop) = (url.clone(), addresses.clone(), stop.clone());
            clients.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let address = *addresses[number].lock().expect("no panic");
                    if ask(address, &url).await.is_err() {
                        sleep(Duration::from_millis(20)).await;
                    }
                }
            });
        }
    }
    let hogs: Vec<_> = (0..HOGS)
        .map(|_| {
            let stop = stop.clone();
            std::thread::spawn(move || while !stop.load(Ordering::Relaxed) {})
        })
        .collect();
    let began = Instant::now();
    while began.elapsed() < TIME {
        sleep(killed_every.unwrap_or(TIME).min(TIME.saturating_sub(began.elapsed()))).await;
        if killed_every.is_some() && began.elapsed() < TIME {
            let directory = fleet.pop().expect("one more").kill().await;
            fleet.push(Binary::serve_in(directory, yaml).await);
            *addresses[instances - 1].lock().expect("no panic") = fleet[instances - 1].address();
        }
    }
    stop.store(true, Ordering::Relaxed);
    hogs.into_iter().for_each(|hog| hog.join().expect("it only computes"));
    clients.abort_all();
    let mut starts: HashMap<String, Vec<Instant>> = HashMap::new();
    for seen in [&plain, &http2[0], &http2[1]].into_iter().flat_map(|origin| origin.log.all()) {
        if seen.path() == "/page" {
            starts.entry(seen.host.clone()).or_default().push(seen.at);
        }
    }
    let mut gaps = Vec::new();
    for (host, mut starts) in starts {
        starts.sort_unstable();
        gaps.extend(starts.windows(2).map(|pair| (pair[1] - pair[0], host.clone())));
    }
    gaps.sort_unstable();
    let share = gaps[0].0.as_secs_f64() / DELAY.as_secs_f64();
    println!("{} gaps at {} hosts, the shortest {:.4} of the delay: {:?}", gaps.len(), urls.len(), share, &gaps[..3]);
    assert!(gaps[0].0 >= DELAY, "{:?}", gaps.iter().take_while(|(gap, _)| *gap < DELAY).collect::<Vec<_>>());
}

async fn ask(proxy: SocketAddr, url: &str) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(proxy).await?;
    let host = url.split('/').nth(2).expect("an absolute URL");
    stream.write_all(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    match answer.starts_with(b"HTTP/1.1 200") {
        true => Ok(()),
        false => Err(std::io::ErrorKind::Other.into()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute, and all of the machine"]
async fn stress_one_process_keeps_its_gaps() {
    keeps_its_gaps(1, "", None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute, and all of the machine"]
async fn stress_killed_process_keeps_its_gaps() {
    keeps_its_gaps(1, "", Some(Duration::from_secs(8))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute, and all of the machine"]
async fn stress_two_processes_of_one_machine_keep_their_gaps() {
    let store = tempfile::tempdir().expect("a temporary directory");
    let yaml = format!("store: {{ directory: '{}' }}", store.path().display());
    keeps_its_gaps(2, &yaml, Some(Duration::from_secs(8))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute, and all of the machine"]
async fn stress_fleet_keeps_its_gaps() {
    let Some(redis) = Redis::start().await else { return };
    keeps_its_gaps(2, &format!("fleet: '{}'", redis.url()), None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute, and all of the machine"]
async fn stress_fleet_with_a_killed_instance_keeps_its_gaps() {
    let Some(redis) = Redis::start().await else { return };
    keeps_its_gaps(2, &format!("fleet: '{}'", redis.url()), Some(Duration::from_secs(8))).await;
}
