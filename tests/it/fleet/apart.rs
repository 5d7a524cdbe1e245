//! Paces on one server, and copies of robots.txt on another: what becomes of one is nothing to the other.

use super::{all, comes_to_say, get, says};
use crate::support::redis::Redis;
use crate::support::{Binary, Origin, Reply, eventually};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

const GAP: Duration = Duration::from_secs(1);

/// Who did not know of the other would start with it. These know the server's clock by a few answers only.
#[track_caller]
fn assert_paced(origin: &Origin) {
    let gaps = origin.log.gaps("/page");
    assert!(gaps.iter().all(|gap| *gap >= GAP * 2 / 3), "{gaps:?}");
}

async fn instances(paces: &Redis, copies: &Redis, count: usize) -> Vec<Binary> {
    let mut fleet = Vec::new();
    let yaml = format!("fleet: {{ pace: '{}', copies: '{}' }}\non_fleet_loss: refuse\n", paces.url(), copies.url());
    for _ in 0..count {
        fleet.push(Binary::serve(&yaml).await);
    }
    fleet
}

async fn site() -> Origin {
    super::site("1").await
}

/// The last parts of the names of all keys.
async fn kinds(redis: &Redis) -> Vec<String> {
    let keys: Vec<String> =
        redis::cmd("KEYS").arg("*").query_async(&mut redis.connection().await).await.expect("it answers");
    let mut kinds: Vec<_> = keys.iter().filter_map(|key| key.rsplit(':').next()).map(str::to_owned).collect();
    kinds.sort();
    kinds
}

fn all_say(fleet: &[Binary], what: &str, times: usize) -> bool {
    fleet.iter().all(|instance| instance.output().matches(what).count() >= times)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn separate_servers_hold_only_paces_or_only_copies() {
    let (Some(paces), Some(copies)) = (Redis::start().await, Redis::start().await) else { return };
    let origin = site().await;
    let fleet = instances(&paces, &copies, 3).await;
    for _ in 0..2 {
        let pages = all(&fleet, &origin.url("/page")).await;
        assert!(pages.iter().all(|page| page.status() == 200), "{pages:?}");
    }
    assert_paced(&origin);
    assert_eq!(origin.log.count("/robots.txt"), 1);
    let (of_paces, of_copies) = (kinds(&paces).await, kinds(&copies).await);
    assert!(of_paces.iter().all(|kind| ["instances", "pace"].contains(&kind.as_str())), "{of_paces:?}");
    assert_eq!((of_paces.contains(&"pace".into()), of_copies), (true, vec!["copy".to_owned(), "copying".to_owned()]));
}

/// The server answers one registration, and nothing after it that would settle its clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_of_a_copies_only_server_is_not_needed() {
    let (Some(paces), Some(copies)) = (Redis::start().await, Redis::start().await) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let (address, server) = (listener.local_addr().expect("it is bound"), copies.address());
    let relay = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            connections.spawn(until_the_second_call(client, server));
        }
    });
    let yaml = format!("fleet: {{ pace: '{}', copies: 'redis://{address}/' }}\n", paces.url());
    let instance = Binary::serve(&yaml).await;
    comes_to_say(&instance, "copies of robots.txt are shared at").await;
    relay.abort();
}

/// Relays to the server until the client's second script call, and drops everything after it.
async fn until_the_second_call(client: TcpStream, server: SocketAddr) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let asks = async {
        let (mut sent, mut part) = (Vec::new(), vec![0; 65536]);
        while let Ok(length @ 1..) = from_client.read(&mut part).await {
            sent.extend_from_slice(&part[..length]);
            if sent.windows(7).filter(|word| *word == b"EVALSHA").count() < 2 {
                to_server.write_all(&part[..length]).await.expect("it reads");
            }
        }
    };
    tokio::select! {
        () = asks => {}
        _ = tokio::io::copy(&mut from_server, &mut to_client) => {}
    }
}

/// The server is killed, then hung: no request is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_copies_server_keeps_the_pace_and_each_instance_fetches() {
    let (Some(paces), Some(mut copies)) = (Redis::start().await, Redis::start().await) else { return };
    let origins = [site().await, site().await, site().await];
    let fleet = instances(&paces, &copies, 2).await;
    let asks = async |origin: &Origin, fetches: usize| {
        for _ in 0..2 {
            let pages = all(&fleet, &origin.url("/page")).await;
            assert!(pages.iter().all(|page| page.status() == 200), "{pages:?}");
        }
        assert_paced(origin);
        let seen: Vec<_> = origin.log.of("/robots.txt").iter().map(|seen| seen.at).collect();
        assert_eq!(seen.len(), fetches, "{seen:?} {:?}", fleet.iter().map(Binary::output).collect::<Vec<_>>());
    };
    copies.kill().await;
    eventually("they know", || all_say(&fleet, "each instance fetches robots.txt for itself", 1)).await;
    asks(&origins[0], 2).await;
    copies.restart().await;
    eventually("it is back", || all_say(&fleet, "copies of robots.txt are shared at", 2)).await;
    asks(&origins[1], 1).await;
    // This request waits until the server is known to be lost.
    copies.signal(libc::SIGSTOP);
    asks(&origins[2], 2).await;
    copies.signal(libc::SIGCONT);
    assert!(!fleet.iter().any(|instance| says(instance, "`on_fleet_loss` applies")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_pace_server_still_shares_copies() {
    let (Some(mut paces), Some(copies)) = (Redis::start().await, Redis::start().await) else { return };
    let origin = site().await;
    let fleet = instances(&paces, &copies, 2).await;
    assert_eq!(get(&fleet[0], &origin.url("/robots.txt")).await.status(), 200);
    paces.kill().await;
    eventually("they know", || all_say(&fleet, "`on_fleet_loss` applies", 1)).await;
    assert_eq!(get(&fleet[0], &origin.url("/page")).await.status(), 503);
    paces.restart().await;
    eventually("it is back", || all_say(&fleet, "joined the fleet", 2)).await;
    let pages = all(&fleet, &origin.url("/page")).await;
    assert!(pages.iter().all(|page| page.status() == 200), "{pages:?}");
    assert_paced(&origin);
    assert_eq!(origin.log.count("/robots.txt"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evicted_copies_are_fetched_again_and_paces_are_kept() {
    let options = ["--maxmemory", "4mb", "--maxmemory-policy", "allkeys-random"];
    let (Some(paces), Some(copies)) = (Redis::start().await, Redis::with_options(&options).await) else { return };
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text("User-agent: *\nCrawl-delay: 1\n"),
        _ => Reply::text("page"),
    })
    .await;
    let fleet = instances(&paces, &copies, 2).await;
    assert!(all(&fleet, &origin.url("/page")).await.iter().all(|page| page.status() == 200));
    assert_eq!(origin.log.count("/robots.txt"), 1);
    let mut connection = copies.connection().await;
    for number in 0.. {
        let () =
            redis::cmd("SET").arg(number).arg(vec![b'x'; 8192]).query_async(&mut connection).await.expect("it evicts");
        if number % 64 == 0 && !kinds(&copies).await.iter().any(|kind| kind == "copy") {
            break;
        }
    }
    let late = instances(&paces, &copies, 1).await;
    let both = [&fleet[0], &late[0]];
    for instance in [both, both].into_iter().flatten() {
        assert_eq!(get(instance, &origin.url("/page")).await.status(), 200);
    }
    assert_eq!(origin.log.count("/robots.txt"), 2, "by the one that has none");
    assert_paced(&origin);
    assert!(!fleet.iter().chain(&late).any(|it| says(it, "has the policy") || says(it, "is unreachable")));
}
