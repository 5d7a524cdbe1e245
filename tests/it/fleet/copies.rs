//! Each robots.txt is fetched once for all.

use super::faults::behind_relays;
use super::{all, get, instances, says};
use crate::support::binary::{open, politely_with};
use crate::support::redis::Redis;
use crate::support::{Binary, Client, Origin, Reply, eventually};
use redis::{AsyncCommands, Script};
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

/// The first of the new instances has the right to renew the copy, but uses the copy as it is. Nor is an instance waited for that renews
/// it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_instances_use_an_outdated_copy_without_waiting_for_each_other() {
    let Some(redis) = Redis::start().await else { return };
    let origin = origin(|_, _| Reply::text(KEEP_OUT).field("Cache-Control", "max-age=1")).await;
    let yaml = "robots: { min_ttl: 1s, timeout: 2s }\npace: { max_wait: 2s }";
    let fleet = instances(&redis, 1, yaml).await;
    assert_eq!(get(&fleet[0], &origin.url("/private")).await.status(), 403);
    is_shared(&redis, &origin).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let new = instances(&redis, 3, yaml).await;
    let responses = all(&new, &origin.url("/page")).await;
    assert!(responses.iter().all(|response| response.status() == 200), "{responses:?}");
    let (connection, right) = (&mut redis.connection().await, key(&origin).replace(":copy", ":fetch"));
    let () = connection.set_ex(right, "another:1", 60).await.expect("it may");
    let last = instances(&redis, 1, yaml).await;
    assert_eq!(get(&last[0], &origin.url("/private")).await.status(), 403);
    assert_eq!(origin.log.count("/robots.txt"), 1);
}

/// Its network may be worse than that of the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_fetch_of_a_command_is_not_shared() {
    let Some(redis) = Redis::start().await else { return };
    let origin = origin(|before, _| if before == 0 { Reply::status(503) } else { Reply::text(KEEP_OUT) }).await;
    let fleet = format!("fleet={}", redis.url());
    let url = origin.url("/private");
    let run = ["run", "--set", &fleet, "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", &url];
    let ended = politely_with(&run, &open()).await;
    assert_eq!(ended.stdout, "503", "{}", ended.stderr);
    let fleet = instances(&redis, 1, "").await;
    assert_eq!(get(&fleet[0], &origin.url("/private")).await.status(), 403);
    assert_eq!(origin.log.count("/robots.txt"), 2);
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
        true => Reply::status(304).field("Cache-Control", "max-age=600"),
        false => Reply::text(KEEP_OUT).field("ETag", "\"v1\"").field("Cache-Control", "max-age=5"),
    })
    .await;
    let fleet = instances(&redis, 3, "robots: { min_ttl: 5s }").await;
    all(&fleet, &origin.url("/private")).await;
    assert_eq!(origin.log.count("/robots.txt"), 1);
    tokio::time::sleep(Duration::from_millis(5100)).await;
    // All find it stale, use it, and have it renewed behind their backs by one of them.
    let responses = all(&fleet, &origin.url("/private")).await;
    assert!(responses.iter().all(|response| response.status() == 403));
    eventually("the renewal", || origin.log.count("/robots.txt") == 2).await;
    assert_eq!(origin.log.of("/robots.txt")[1].field("if-none-match"), Some("\"v1\""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_copy_obeys_the_max_ttl_of_the_reading_instance() {
    let Some(redis) = Redis::start().await else { return };
    let origin = origin(|_, _| Reply::text(KEEP_OUT)).await;
    let (long, short) =
        (instances(&redis, 1, "").await, instances(&redis, 1, "robots: { min_ttl: 0s, max_ttl: 5s }").await);
    for instance in [&long[0], &short[0]] {
        assert_eq!(get(instance, &origin.url("/private")).await.status(), 403);
    }
    assert_eq!(origin.log.count("/robots.txt"), 1);
    tokio::time::sleep(Duration::from_millis(5100)).await;
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

/// An instance is suspended while the origin answers it, for longer than its right to fetch the file lasts. It is woken before or after the
/// later fetch of the other instance ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_read_late_by_its_instance_is_dated_by_its_fetch() {
    let Some(redis) = Redis::start().await else { return };
    for is_woken_first in [false, true] {
        let origin = origin(move |before, _| match before {
            0 => Reply::text("").after(Duration::from_millis(500)),
            _ => Reply::text(KEEP_OUT).after(Duration::from_millis(if is_woken_first { 1_500 } else { 0 })),
        })
        .await;
        let fleet = instances(&redis, 2, "").await;
        let url = origin.url("/private");
        let (late, first) = (&fleet[0], &url);
        let log = &origin.log;
        let begins = |number| eventually("the fetch begins", move || log.count("/robots.txt") == number);
        let stops_meanwhile = async {
            begins(1).await;
            late.signal(libc::SIGSTOP);
            let wakes = async {
                if is_woken_first {
                    begins(2).await;
                    late.signal(libc::SIGCONT);
                }
            };
            // Once the right to fetch has run out.
            let (answer, ()) = tokio::join!(get(&fleet[1], first), wakes);
            assert_eq!(answer.status(), 403);
            late.signal(libc::SIGCONT);
        };
        tokio::join!(get(late, first), stops_meanwhile);
        goes_by_the_later_one(late, &url).await;
        for instance in &fleet {
            assert_eq!(get(instance, &url).await.status(), 403);
        }
        let third = instances(&redis, 1, "").await;
        assert_eq!(get(&third[0], &url).await.status(), 403);
        assert_eq!(origin.log.count("/robots.txt"), 2);
    }
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
    loop {
        let answer = get(instance, url).await;
        if answer.status() == 403 {
            break;
        }
        assert!(Instant::now() < deadline, "it still goes by the old copy: {} {}", answer.status(), instance.output());
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
    // By a process that lives until then.
    is_shared(&redis, &origin).await;
    let connection = &mut redis.connection().await;
    let (at, key) = ("local at, fresh_until, copy = cmsgpack.unpack(redis.call('GET', KEYS[1]))", key(&origin));
    let copy: Vec<u8> = Script::new(&format!("{at} return copy")).key(&key).invoke_async(connection).await.unwrap();
    drop(first);
    // At its end, the file: its digest, its length, and itself, as packing it saves nothing.
    let head = copy.strip_suffix(KEEP_OUT.as_bytes()).expect("it is there");
    let head = &head[..head.len() - (16 + 4)];
    let mut bomb = b"User-agent: *\nAllow: /\n#".to_vec();
    bomb.resize(BOMB, b'a');
    let packed = [&(BOMB as u32).to_le_bytes()[..], &zstd::bulk::compress(&bomb, 3).expect("memory")].concat();
    let digest = &openssl::sha::sha256(&bomb)[..16];
    let name = digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let () = connection.set(format!("politely:text:{name}"), &packed).await.expect("it may");
    for (fetches, file) in [(2, &packed[..]), (3, &[])] {
        let put = Script::new(&format!("{at} redis.call('SET', KEYS[1], cmsgpack.pack(at, fresh_until, ARGV[1]))"));
        let () = put.key(&key).arg([head, digest, file].concat()).invoke_async(connection).await.expect("it runs");
        let later = instances(&redis, 1, "").await;
        let before = later[0].peak_kib();
        assert_eq!(get(&later[0], &url).await.status(), 403);
        assert_eq!(origin.log.count("/robots.txt"), fetches);
        let taken = (later[0].peak_kib() - before) << 10;
        assert!(taken < BOMB as u64 / 2, "{taken} bytes");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbled_copy_is_fetched_anew_once_and_replaced() {
    let Some(redis) = Redis::start().await else { return };
    let origin = origin(|_, _| Reply::text(KEEP_OUT)).await;
    let url = origin.url("/private");
    for (fetches, garble) in [(2, "SET"), (3, "LPUSH")] {
        let connection = &mut redis.connection().await;
        let () = redis::cmd("DEL").arg(key(&origin)).query_async(connection).await.unwrap();
        let () = redis::cmd(garble).arg(key(&origin)).arg("garbled").query_async(connection).await.unwrap();
        let fleet = instances(&redis, 2, "").await;
        let responses = all(&fleet, &url).await;
        assert!(responses.iter().all(|response| response.status() == 403), "{responses:?}");
        is_shared(&redis, &origin).await;
        let late = instances(&redis, 1, "").await;
        assert_eq!(get(&late[0], &url).await.status(), 403);
        assert_eq!(origin.log.count("/robots.txt"), fetches - 1, "{garble}");
    }
}

const BOMB: usize = 64 << 20;

/// The key of the origin's copy.
fn key(origin: &Origin) -> String {
    format!("politely:{{{}}}:copy", origin.url("").trim_end_matches('/'))
}

/// Whoever has fetched the file shares it behind its answer.
async fn is_shared(redis: &Redis, origin: &Origin) {
    let (connection, right) = (&mut redis.connection().await, key(origin).replace(":copy", ":fetch"));
    let deadline = Instant::now() + Duration::from_secs(10);
    while !connection.exists::<_, bool>(key(origin)).await.unwrap()
        || connection.exists::<_, bool>(&right).await.unwrap()
    {
        assert!(Instant::now() < deadline, "it is not shared");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// How often the server has run this command.
async fn count(redis: &Redis, command: &str) -> u64 {
    let stats = redis::cmd("INFO").arg("commandstats").query_async::<String>(&mut redis.connection().await).await;
    let name = format!("cmdstat_{command}:calls=");
    let calls = stats.expect("it answers").lines().find_map(|line| Some(line.strip_prefix(&name)?.to_owned()));
    calls.map_or(0, |calls| calls.split(',').next().expect("one").parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_holds_a_copy_is_told_of_other_contents_only() {
    let Some(redis) = Redis::start().await else { return };
    let origin = origin(|before, _| Reply::text(if before < 2 { "" } else { KEEP_OUT })).await;
    let fleet = instances(&redis, 2, WITH_ADMIN).await;
    let url = origin.url("/private");
    for instance in &fleet {
        assert_eq!(get(instance, &url).await.status(), 200);
        is_shared(&redis, &origin).await;
    }
    refresh(&fleet[0], &origin).await;
    is_shared(&redis, &origin).await;
    assert_eq!((origin.log.count("/robots.txt"), count(&redis, "publish").await), (2, 0));
    refresh(&fleet[0], &origin).await;
    goes_by_the_later_one(&fleet[1], &url).await;
    assert_eq!((origin.log.count("/robots.txt"), count(&redis, "publish").await), (3, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_wait_for_a_copy_are_told_once() {
    let Some(redis) = Redis::start().await else { return };
    let origin = origin(|_, _| Reply::text(KEEP_OUT).after(Duration::from_millis(1500))).await;
    let fleet = instances(&redis, 3, "").await;
    let began = Instant::now();
    assert!(all(&fleet, &origin.url("/private")).await.iter().all(|response| response.status() == 403));
    assert!(began.elapsed() < Duration::from_millis(4500), "nobody waits until the right expires");
    assert_eq!((origin.log.count("/robots.txt"), count(&redis, "publish").await), (1, 1));
}

/// A robots.txt that is stored apart from the copies.
fn long() -> String {
    format!("{KEEP_OUT}{}", (0..100).map(|number| format!("Disallow: /{number}\n")).collect::<String>())
}

/// An instance that has the file from one host does not ask for it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_many_hosts_have_is_stored_once_and_read_once() {
    let Some(redis) = Redis::start().await else { return };
    let origin = origin(|_, _| Reply::text(long())).await;
    let hosts = || (0..5).map(|number| origin.url_at(&format!("h{number}.localhost"), "/private"));
    for _ in 0..2 {
        let fleet = instances(&redis, 1, "").await;
        for url in hosts() {
            assert_eq!(get(&fleet[0], &url).await.status(), 403);
        }
        eventually_some(&redis, "politely:*:copy", 5).await;
    }
    eventually_some(&redis, "politely:text:*", 1).await;
    assert_eq!((origin.log.count("/robots.txt"), count(&redis, "getrange").await), (5, 1));
    let copies: Vec<String> = redis.connection().await.keys("politely:*:copy").await.expect("it may");
    for key in copies {
        let length: usize = redis.connection().await.strlen(key).await.expect("a string");
        assert!(length < 100, "{length}");
    }
}

/// So many keys.
async fn eventually_some(redis: &Redis, keys: &str, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while redis.connection().await.keys::<_, Vec<String>>(keys).await.expect("it may").len() != count {
        assert!(Instant::now() < deadline, "not {count} of {keys}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Evicted, or expired just then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_whose_file_is_lost_is_fetched_again_once_for_all() {
    let Some(redis) = Redis::start().await else { return };
    let origin = origin(|_, _| Reply::text(long())).await;
    let url = origin.url("/private");
    let first = instances(&redis, 1, "").await;
    assert_eq!(get(&first[0], &url).await.status(), 403);
    is_shared(&redis, &origin).await;
    let files: Vec<String> = redis.connection().await.keys("politely:text:*").await.expect("it may");
    let () = redis.connection().await.del(files).await.expect("it may");
    let late = instances(&redis, 3, "").await;
    assert!(all(&late, &url).await.iter().all(|response| response.status() == 403));
    assert_eq!(origin.log.count("/robots.txt"), 2);
    eventually_some(&redis, "politely:text:*", 1).await;
}

/// The second reads no file that long, and leaves the others theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_longer_than_an_instance_reads_is_fetched_by_it_and_kept_for_the_others() {
    let Some(redis) = Redis::start().await else { return };
    let text = format!("{}{KEEP_OUT}", "# long\n".repeat(130_000));
    let origin = origin(move |_, _| Reply::text(&text)).await;
    let url = origin.url("/private");
    const LONG: &str = "robots: { max_size: 1MiB }";
    let longest = instances(&redis, 1, LONG).await;
    assert_eq!(get(&longest[0], &url).await.status(), 403);
    is_shared(&redis, &origin).await;
    let short = instances(&redis, 1, "robots: { max_size: 500KiB }").await;
    assert_eq!(get(&short[0], &url).await.status(), 200);
    let late = instances(&redis, 1, LONG).await;
    for instance in [&longest[0], &late[0]] {
        assert_eq!(get(instance, &url).await.status(), 403);
    }
    assert_eq!(origin.log.count("/robots.txt"), 2);
}
