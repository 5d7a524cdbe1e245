//! Each robots.txt is fetched once for all.

use super::faults::behind_relays;
use super::{all, get, instances, says};
use crate::support::redis::Redis;
use crate::support::{Binary, Client, Origin, Reply, eventually};
use redis::AsyncCommands;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

const KEEP_OUT: &str = "User-agent: *\nDisallow: /private\n";

/// A robots.txt by `robots`, which is told how often it has been asked for before.
async fn origin(robots: impl Fn(usize, bool) -> Reply + Send + Sync + 'static) -> Origin {
    let asked = AtomicUsize::new(0);
    Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => robots(asked.fetch_add(1, Ordering::SeqCst), seen.field("if-none-match").is_some()),
        _ => Reply::text("page"),
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fleet_fetches_robots_txt_once() {
    let Some(redis) = Redis::start().await else { return };
    let origin = origin(|_, _| Reply::text(KEEP_OUT).after(Duration::from_millis(700))).await;
    let fleet = instances(&redis, 3, "").await;
    let responses = all(&fleet, &origin.url("/private")).await;
    assert!(responses.iter().all(|response| response.status() == 403), "{responses:?}");
    let late = instances(&redis, 1, "").await;
    assert_eq!(get(&late[0], &origin.url("/private")).await.status(), 403);
    let copy = get(&late[0], &origin.url("/robots.txt")).await;
    assert_eq!((copy.text().as_str(), copy.field("age").is_some()), (KEEP_OUT, true));
    assert_eq!(origin.log.count("/robots.txt"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fleet_shares_a_failed_fetch() {
    let Some(redis) = Redis::start().await else { return };
    let origin = origin(|_, _| Reply::status(503).field("Retry-After", "600")).await;
    let fleet = instances(&redis, 3, "").await;
    for instance in &fleet {
        let refused = get(instance, &origin.url("/private")).await;
        let told: u64 = refused.field("retry-after").expect("when to come back").parse().expect("seconds");
        assert!(refused.status() == 503 && (570..=600).contains(&told), "{told}");
    }
    assert_eq!(origin.log.count("/robots.txt"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fleet_revalidates_a_copy_once() {
    let Some(redis) = Redis::start().await else { return };
    let origin = origin(|_, conditional| match conditional {
        true => Reply::status(304),
        false => Reply::text(KEEP_OUT).field("ETag", "\"v1\"").field("Cache-Control", "max-age=2"),
    })
    .await;
    let fleet = instances(&redis, 3, "robots: { min_ttl: 2s }").await;
    let first = Instant::now();
    all(&fleet, &origin.url("/private")).await;
    assert_eq!(origin.log.count("/robots.txt"), 1);
    tokio::time::sleep(Duration::from_millis(2100)).await;
    // All find it stale, use it, and have it renewed behind their backs by one of them.
    let responses = all(&fleet, &origin.url("/private")).await;
    assert!(responses.iter().all(|response| response.status() == 403));
    eventually("the renewal", || origin.log.count("/robots.txt") == 2).await;
    assert!(first.elapsed() < Duration::from_secs(4), "the machine is too slow for this test");
    assert_eq!(origin.log.of("/robots.txt")[1].field("if-none-match"), Some("\"v1\""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_copy_obeys_the_max_ttl_of_the_reading_instance() {
    let Some(redis) = Redis::start().await else { return };
    let origin = origin(|_, _| Reply::text(KEEP_OUT)).await;
    let (long, short) =
        (instances(&redis, 1, "").await, instances(&redis, 1, "robots: { min_ttl: 0s, max_ttl: 1s }").await);
    for instance in [&long[0], &short[0]] {
        assert_eq!(get(instance, &origin.url("/private")).await.status(), 403);
    }
    assert_eq!(origin.log.count("/robots.txt"), 1);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(get(&long[0], &origin.url("/private")).await.status(), 403);
    assert_eq!(origin.log.count("/robots.txt"), 1);
    assert_eq!(get(&short[0], &origin.url("/private")).await.status(), 403);
    eventually("the renewal", || origin.log.count("/robots.txt") == 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refresh_reaches_all_instances() {
    let Some(redis) = Redis::start().await else { return };
    let origin = origin(|before, _| Reply::text(if before == 0 { "" } else { KEEP_OUT })).await;
    let fleet = instances(&redis, 3, WITH_ADMIN).await;
    let url = origin.url("/private");
    assert!(all(&fleet, &url).await.iter().all(|response| response.status() == 200));
    refresh(&fleet[0], &origin).await;
    assert_eq!(get(&fleet[0], &url).await.status(), 403);
    for instance in &fleet[1..] {
        goes_by_the_later_one(instance, &url).await;
    }
    assert_eq!(origin.log.count("/robots.txt"), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_for_another_instances_fetch_checks_again_after_reconnecting() {
    let Some(redis) = Redis::start().await else { return };
    let origin = origin(|_, _| Reply::text(KEEP_OUT).after(Duration::from_millis(1500))).await;
    let fleet = behind_relays(&redis, 2, "").await;
    let url = origin.url("/private");
    let waits = async {
        eventually("the fetch", || origin.log.count("/robots.txt") == 1).await;
        let began = Instant::now();
        let breaks = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            // The message that the copy is there is lost in this time.
            fleet[1].0.lose_answers(Duration::from_millis(1500)).await;
        };
        let (waited, ()) = tokio::join!(get(&fleet[1].1, &url), breaks);
        (waited, began.elapsed())
    };
    let (fetched, (waited, time)) = tokio::join!(get(&fleet[0].1, &url), waits);
    assert_eq!((fetched.status(), waited.status(), origin.log.count("/robots.txt")), (403, 403, 1));
    // Otherwise it would wait until the fetch lock expires.
    assert!(time < Duration::from_secs(4), "{time:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_instance_fetches_after_the_fetching_one_dies() {
    let Some(redis) = Redis::start().await else { return };
    let origin = origin(|before, _| match before {
        0 => Reply::text(KEEP_OUT).after(Duration::from_secs(60)),
        _ => Reply::text(KEEP_OUT),
    })
    .await;
    let mut fleet = instances(&redis, 3, "").await;
    let dies = fleet.remove(0);
    let mut client = Client::open(dies.address()).await;
    client.send(crate::support::client::get(&origin.url("/private"), &origin.authority("a.localhost"))).await;
    eventually("the first fetch", || origin.log.count("/robots.txt") == 1).await;
    let url = origin.url("/private");
    let (responses, _) = tokio::join!(all(&fleet, &url), dies.kill());
    assert!(responses.iter().all(|response| response.status() == 403), "{responses:?}");
    assert_eq!(origin.log.count("/robots.txt"), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newer_stored_copy_wins_over_the_fleets_older_copy_after_a_kill() {
    let Some(redis) = Redis::start().await else { return };
    let origin = origin(|before, _| Reply::text(if before == 0 { "" } else { KEEP_OUT })).await;
    let yaml = format!("fleet: '{}'\nadmin: {{ address: '127.0.0.1:0' }}", redis.url());
    let instance = Binary::serve(&yaml).await;
    let url = origin.url("/private");
    assert_eq!(get(&instance, &url).await.status(), 200);
    // The fleet keeps the first copy, which is fresh for a day, and never receives the second.
    redis.signal(libc::SIGSTOP);
    refresh(&instance, &origin).await;
    assert_eq!(get(&instance, &url).await.status(), 403);
    // The store is written in the background.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let directory = instance.kill().await;
    redis.signal(libc::SIGCONT);
    let instance = Binary::serve_in(directory, &yaml).await;
    assert_eq!(get(&instance, &url).await.status(), 403);
    assert_eq!(origin.log.count("/robots.txt"), 2);
}

/// The server hangs between the claim and the copy, which waits in its socket.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_delayed_at_the_server_is_dated_by_its_fetch() {
    let Some(redis) = Redis::start().await.map(Arc::new) else { return };
    let hangs = redis.clone();
    let origin = origin(move |before, _| match before {
        0 => {
            hangs.signal(libc::SIGSTOP);
            Reply::text("")
        }
        _ => Reply::text(KEEP_OUT),
    })
    .await;
    let yaml = format!("fleet: '{}'\n{WITH_ADMIN}", redis.url());
    let instance = Binary::serve(&yaml).await;
    let url = origin.url("/private");
    assert_eq!(get(&instance, &url).await.status(), 200);
    refresh(&instance, &origin).await;
    assert_eq!(get(&instance, &url).await.status(), 403);
    // The store is written in the background.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let directory = instance.kill().await;
    redis.signal(libc::SIGCONT);
    let instance = Binary::serve_in(directory, &yaml).await;
    assert_eq!(get(&instance, &url).await.status(), 403);
    assert_eq!(origin.log.count("/robots.txt"), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_read_late_by_its_instance_is_dated_by_its_fetch() {
    let Some(redis) = Redis::start().await else { return };
    let (asked, is_asked) = std::sync::mpsc::channel();
    let origin = origin(move |before, _| match before {
        0 => {
            asked.send(()).expect("it is waited for");
            Reply::text("").after(Duration::from_millis(500))
        }
        _ => Reply::text(KEEP_OUT),
    })
    .await;
    let fleet = instances(&redis, 2, "").await;
    let url = origin.url("/private");
    let (late, first) = (&fleet[0], &url);
    let reads_late = get(late, first);
    let stops_meanwhile = async {
        eventually("its fetch", || is_asked.try_recv().is_ok()).await;
        late.signal(libc::SIGSTOP);
        // Once the right to fetch has run out.
        assert_eq!(get(&fleet[1], first).await.status(), 403);
        late.signal(libc::SIGCONT);
    };
    let _ = tokio::join!(reads_late, stops_meanwhile);
    goes_by_the_later_one(late, &url).await;
    for instance in &fleet {
        assert_eq!(get(instance, &url).await.status(), 403);
    }
    let third = instances(&redis, 1, "").await;
    assert_eq!(get(&third[0], &url).await.status(), 403);
    assert_eq!(origin.log.count("/robots.txt"), 2);
}

const WITH_ADMIN: &str = "admin: { address: '127.0.0.1:0' }";

/// The server answers nobody, until each has noticed, and for as long as this takes.
async fn while_it_is_lost(redis: &Redis, fleet: &[Binary], what: impl Future<Output = ()>) {
    redis.signal(libc::SIGSTOP);
    eventually("the loss is noticed", || fleet.iter().all(|instance| says(instance, "is unreachable"))).await;
    what.await;
    redis.signal(libc::SIGCONT);
    let joined = |instance: &Binary| instance.output().matches("joined the fleet").count() == 2;
    eventually("all are back", || fleet.iter().all(joined)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn later_of_two_separately_fetched_copies_wins() {
    let Some(redis) = Redis::start().await else { return };
    let origin = origin(|before, _| Reply::text(if before < 4 { "" } else { KEEP_OUT })).await;
    let fleet = instances(&redis, 2, WITH_ADMIN).await;
    let url = origin.url("/private");
    assert!(all(&fleet, &url).await.iter().all(|response| response.status() == 200));
    while_it_is_lost(&redis, &fleet, async {
        for _ in 0..3 {
            refresh(&fleet[0], &origin).await;
        }
    })
    .await;
    refresh(&fleet[1], &origin).await;
    assert_eq!(get(&fleet[1], &url).await.status(), 403);
    goes_by_the_later_one(&fleet[0], &url).await;
    assert_eq!(origin.log.count("/robots.txt"), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_published_during_our_failing_fetch_is_used() {
    const FAILS_AFTER: Duration = Duration::from_secs(9);
    let Some(redis) = Redis::start().await else { return };
    let origin = origin(|before, _| match before {
        0 => Reply::text(""),
        1 => Reply::status(503).after(FAILS_AFTER),
        _ => Reply::text(KEEP_OUT),
    })
    .await;
    let fleet = instances(&redis, 2, WITH_ADMIN).await;
    let url = origin.url("/private");
    assert!(all(&fleet, &url).await.iter().all(|response| response.status() == 200));
    let (lost, is_lost) = oneshot::channel();
    let fails = async {
        // Before, it would have the right to fetch from the server, and the other would wait for it.
        is_lost.await.unwrap();
        refresh(&fleet[0], &origin).await;
    };
    let publishes = async {
        while_it_is_lost(&redis, &fleet, async {
            lost.send(()).unwrap();
            eventually("its fetch", || origin.log.count("/robots.txt") == 2).await;
        })
        .await;
        refresh(&fleet[1], &origin).await;
        goes_by_the_later_one(&fleet[0], &url).await;
        assert!(origin.log.of("/robots.txt")[1].at.elapsed() < FAILS_AFTER, "the machine is too slow for this test");
    };
    tokio::join!(fails, publishes);
    assert_eq!(get(&fleet[0], &url).await.status(), 403, "nor does the failure bring the older one back");
}

/// Waits until the instance refuses, by the later copy.
async fn goes_by_the_later_one(instance: &Binary, url: &str) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while get(instance, url).await.status() != 403 {
        assert!(Instant::now() < deadline, "it still goes by the old copy");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn refresh(instance: &Binary, origin: &Origin) {
    let output = instance.output();
    let admin = output.split("admin address http://").nth(1).and_then(|rest| rest.split('/').next());
    let admin = admin.expect("it says so at the start").parse().expect("an address");
    let authority = origin.url("").replace(':', "%3A").replace('/', "%2F");
    let mut client = Client::open(admin).await;
    client
        .send(format!(
            "POST /api/v1/authorities/{authority}/refresh HTTP/1.1\r\nHost: {admin}\r\nContent-Length: 0\r\n\
             Authorization: Bearer {}\r\n\r\n",
            crate::support::ADMIN_TOKEN
        ))
        .await;
    assert_eq!(client.response().await.status(), 200);
}

/// Anybody who can write to the server can write such a copy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compression_bomb_as_shared_copy_is_fetched_again() {
    let Some(redis) = Redis::start().await else { return };
    let origin = origin(|_, _| Reply::text(KEEP_OUT)).await;
    let url = origin.url("/private");
    let first = instances(&redis, 1, "").await;
    assert_eq!(get(&first[0], &url).await.status(), 403);
    let key = format!("politely:{{{}}}:robots", origin.url("").trim_end_matches('/'));
    let connection = &mut redis.connection().await;
    // The copy is published after the answer, so the process must live until then.
    let deadline = Instant::now() + Duration::from_secs(10);
    let copy = loop {
        assert!(Instant::now() < deadline, "it is not shared");
        match connection.hget::<_, _, Option<Vec<u8>>>(&key, "copy").await.expect("a hash or nothing") {
            Some(copy) if copy.ends_with(KEEP_OUT.as_bytes()) => break copy,
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    drop(first);
    // At its end, the file: its digest, the length of the rest, its own length, and itself, as packing it saves nothing.
    let head = copy.strip_suffix(KEEP_OUT.as_bytes()).expect("it is there");
    let head = &head[..head.len() - (16 + 1 + 4)];
    let mut bomb = b"User-agent: *\nAllow: /\n#".to_vec();
    bomb.resize(BOMB, b'a');
    let packed = zstd::bulk::compress(&bomb, 3).expect("memory");
    let length = packed.len() + 4;
    assert!((1 << 7..1 << 14).contains(&length), "two bytes for it: {length}");
    let lengths = [&[length as u8 | 0x80, (length >> 7) as u8][..], &(BOMB as u32).to_le_bytes()].concat();
    let copy = [head, &openssl::sha::sha256(&bomb)[..16], &lengths, &packed].concat();
    let () = connection.hset(&key, "copy", copy).await.expect("a hash");
    let later = instances(&redis, 1, "").await;
    let before = later[0].peak_kib();
    assert_eq!(get(&later[0], &url).await.status(), 403);
    assert_eq!(origin.log.count("/robots.txt"), 2);
    let taken = (later[0].peak_kib() - before) << 10;
    assert!(taken < BOMB as u64 / 2, "{taken} bytes");
}

const BOMB: usize = 64 << 20;
