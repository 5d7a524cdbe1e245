//! What a fleet makes of a delay: three instances (the built binary), one redis-server that is 30 ms away each way, hosts
//! with delays of 0.2 to 5 s, two minutes of more requests than these let through, at two of them with one request open for each
//! instance. Prints for each how many starts the origin saw of those that the delay allows, and the smallest gap; then what a
//! request cost the server. Run with `cargo bench --bench fleet` (`--profile dev` spares the optimised build, `-- --binary FILE`
//! takes one that is there, `-- --seconds N` takes less time).

#[path = "support/processes.rs"]
mod processes;
#[path = "../tests/it/support/relay.rs"]
mod relay;

use processes::{argument, free_address, listening, read_head, serve, spawn_redis};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// For each of [`HOSTS`], which instance a start came through, and when.
type Starts = Arc<[Mutex<Vec<(usize, Instant)>>; HOSTS.len()]>;

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(measure());
}

async fn measure() {
    let starts = Starts::default();
    let origin = origin(starts.clone()).await;
    let directory = tempfile::tempdir().expect("a directory");
    let redis_at = free_address();
    let redis = spawn_redis(redis_at.port());
    listening(redis_at).await;
    let relay = relay::Relay::to(redis_at).await;
    relay.delay(AWAY, AWAY);
    let mut fleet = Vec::new();
    for number in 0..INSTANCES {
        let yaml = format!(
            "store: {{ disk: 0 }}\nlog: {{ access: 'off', level: warn }}\nfleet: redis://{}/0\n",
            relay.address
        );
        fleet.push(serve(&directory.path().join(number.to_string()), &yaml, |_| ()).await);
    }
    for (number, (_, address)) in fleet.iter().enumerate() {
        for (host, (_, clients)) in HOSTS.into_iter().enumerate() {
            (0..clients).for_each(|_| drop(tokio::spawn(client(host, number, *address, origin))));
        }
    }
    // All have come, and each robots.txt has been fetched.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let last = |host: usize| starts[host].lock().expect("no panic").last().expect("they have begun").1;
    let from: Vec<Instant> = (0..HOSTS.len()).map(last).collect();
    let all = || (0..HOSTS.len()).map(|host| starts[host].lock().expect("no panic").len()).sum::<usize>();
    let (before, calls_before) = (all(), scripts(redis_at).await);
    tokio::time::sleep(time()).await;
    let (requests, calls) = (all() - before, scripts(redis_at).await);
    tokio::time::sleep_until((*from.iter().max().expect("some") + time() + Duration::from_secs(1)).into()).await;
    for (host, from) in from.into_iter().enumerate() {
        report(HOSTS[host], &starts[host].lock().expect("no panic"), from);
    }
    // Each instance says every second that it is there.
    let (calls, micros) = (calls.0 - calls_before.0 - time().as_secs() * INSTANCES as u64, calls.1 - calls_before.1);
    let each = |all: u64| all as f64 / requests as f64;
    println!(
        "{requests} requests: {:.2} calls of scripts and {:.1} µs of the server for each",
        each(calls),
        each(micros)
    );
    drop((fleet, redis));
}

fn report((delay, clients): (Duration, usize), starts: &[(usize, Instant)], from: Instant) {
    let counted: Vec<_> = starts.iter().filter(|(_, at)| *at >= from && *at < from + time()).collect();
    let allowed = time().as_millis() / delay.as_millis();
    let each: Vec<usize> =
        (0..INSTANCES).map(|number| counted.iter().filter(|(through, _)| *through == number).count()).collect();
    let mut gaps: Vec<Duration> = counted.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
    gaps.sort_unstable();
    let early = gaps.iter().filter(|gap| **gap < delay).count();
    let (middle, mean) = (gaps[gaps.len() / 2], gaps.iter().sum::<Duration>() / gaps.len() as u32);
    let share = delay.as_secs_f64() / mean.as_secs_f64() * 100.0;
    println!(
        "{delay:?}, {clients} open: {} starts of {allowed}, {share:.1} %; through each instance {each:?}",
        counted.len()
    );
    let (handed_over, own): (Vec<_>, Vec<_>) = counted.windows(2).partition(|pair| pair[0].0 != pair[1].0);
    let mean_of = |pairs: &[&[&(usize, Instant)]]| {
        pairs.iter().map(|pair| pair[1].1 - pair[0].1).sum::<Duration>() / pairs.len().max(1) as u32
    };
    println!("  mean gap: {:?} within an instance, {:?} from one to the next", mean_of(&own), mean_of(&handed_over));
    println!(
        "  gaps: least {:?}, median {middle:?}, mean {mean:?}, most {:?}, too short {early}",
        gaps[0],
        gaps[gaps.len() - 1]
    );
}

async fn client(host: usize, number: usize, proxy: SocketAddr, origin: SocketAddr) {
    let mut stream = BufReader::new(TcpStream::connect(proxy).await.expect("the proxy listens"));
    let authority = format!("{host}.localhost:{}", origin.port());
    let request = format!("GET http://{authority}/{number} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: Bot\r\n\r\n");
    while stream.write_all(request.as_bytes()).await.is_ok() {
        let Some((_, length)) = read_head(&mut stream).await else { return };
        stream.read_exact(&mut vec![0; length]).await.expect("a body");
    }
}

async fn origin(starts: Starts) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let starts = starts.clone();
            stream.set_nodelay(true).expect("a socket");
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                while let Some((head, _)) = read_head(&mut stream).await {
                    let path = head.split(' ').nth(1).unwrap_or_default();
                    let host = (0..HOSTS.len()).find(|host| head.contains(&format!("Host: {host}.localhost")));
                    let host = host.expect("the client's own field");
                    let body = match path.trim_start_matches('/').parse() {
                        Ok(number) => {
                            starts[host].lock().expect("no panic").push((number, Instant::now()));
                            String::from("page")
                        }
                        Err(_) => format!("User-agent: *\nCrawl-delay: {}\n", HOSTS[host].0.as_secs_f64()),
                    };
                    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// Scripts that the server has run, and the microseconds that they took.
async fn scripts(redis: SocketAddr) -> (u64, u64) {
    let client = redis::Client::open(format!("redis://{redis}/0")).expect("a good URL");
    let mut connection = client.get_multiplexed_async_connection().await.expect("it listens");
    let stats: String = redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await.expect("it answers");
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:")).expect("some have been run");
    let number = |name: &str| {
        let field = line.split(',').find_map(|field| field.strip_prefix(name)).expect(name);
        field.parse().expect("a number")
    };
    (number("calls="), number("usec="))
}

fn time() -> Duration {
    Duration::from_secs(argument("--seconds").and_then(|seconds| seconds.parse().ok()).unwrap_or(120))
}

/// One way to the server.
const AWAY: Duration = Duration::from_millis(30);
const INSTANCES: usize = 3;
/// The delay of each host, and how many requests to it are open at each instance.
const HOSTS: [(Duration, usize); 7] =
    [(ms(200), 3), (ms(500), 3), (ms(1000), 3), (ms(3000), 3), (ms(5000), 3), (ms(300), 1), (ms(1001), 1)];

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
