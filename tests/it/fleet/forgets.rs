//! Data that a server may lose: scripts and debts.

use super::faults::behind_relays;
use super::{assert_apart, comes_to_say, get, instances, site};
use crate::support::redis::Redis;
use crate::support::{Binary, Client, Origin, client, eventually, within};
use redis::aio::MultiplexedConnection;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

async fn info(redis: &Redis, section: &str) -> String {
    redis::cmd("INFO").arg(section).query_async(&mut redis.connection().await).await.expect("it answers")
}

/// With a distant server, the first call would otherwise take three round trips.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_are_loaded_before_their_first_call() {
    let Some(redis) = Redis::start().await else { return };
    let origin = site("0.1").await;
    let fleet = instances(&redis, 1, "pace: { budget: { requests: 10 } }").await;
    comes_to_say(&fleet[0], "joined the fleet").await;
    assert_eq!(get(&fleet[0], &origin.url("/page")).await.status(), 200);
    assert!(redis.script_calls().await >= 4, "each has been called");
    let errors = info(&redis, "errorstats").await;
    assert!(!errors.contains("NOSCRIPT"), "{errors}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_with_an_evicting_maxmemory_policy_causes_a_warning() {
    let Some(redis) = Redis::start().await else { return };
    for (name, value) in [("maxmemory", "100mb"), ("maxmemory-policy", "volatile-lru")] {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg(name).arg(value);
        let () = set.query_async(&mut redis.connection().await).await.expect("it may");
    }
    let fleet = instances(&redis, 1, "").await;
    comes_to_say(&fleet[0], "set `maxmemory-policy noeviction`").await;
}

/// The key may be deleted by hand or evicted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_pace_key_is_restored_with_the_last_start() {
    const GAP: Duration = Duration::from_secs(6);
    let Some(redis) = Redis::start().await else { return };
    let origin = site("6").await;
    let fleet = instances(&redis, 2, "").await;
    assert_eq!(get(&fleet[0], &origin.url("/page-0")).await.status(), 200);
    let mut connection = redis.connection().await;
    let mut keys = redis::cmd("KEYS");
    let keys: Vec<String> = keys.arg("politely:*:pace").query_async(&mut connection).await.expect("it answers");
    assert_eq!(keys.len(), 1);
    let () = redis::cmd("DEL").arg(&keys).query_async(&mut connection).await.expect("it may");
    // The instance with the last start asks the server before another does.
    let mut waits = Client::open(fleet[0].address()).await;
    waits.send(client::get(&origin.url("/gone"), &origin.authority("a.localhost"))).await;
    within("it is there again", async {
        while redis::cmd("EXISTS").arg(&keys).query_async::<u64>(&mut connection).await.expect("it answers") == 0 {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    drop(waits);
    assert_eq!(get(&fleet[1], &origin.url("/page-1")).await.status(), 200);
    assert_eq!(origin.log.count("/gone"), 0);
    assert_apart(&origin.log.starts("/page"), GAP);
}

/// Most of these hosts have no queue any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn debts_of_3000_hosts_are_reported_to_a_server_that_lost_its_data() {
    const HOSTS: usize = 3000;
    let of_operator = "hosts: { '*.localhost': { robots: ignore, crawl_delay: 290s } }";
    for (site, owed, keys) in [
        ("", of_operator, "politely:*:pace"),
        ("User-agent: *\nCrawl-delay: 290\n", "", "politely:*#290000000us}:pace"),
    ] {
        are_told(HOSTS, site, owed, keys).await;
    }
}

/// One request for each of so many hosts. Returns those that have been answered.
async fn start_at_each(instance: &Binary, hosts: usize, origin: &Origin) -> Vec<String> {
    let (mut client, mut started) = (Client::open(instance.address()).await, Vec::new());
    for number in 0..hosts {
        let name = format!("h{number}.localhost");
        let (url, host) = (origin.url_at(&name, "/page"), origin.authority(&name));
        match timeout(Duration::from_secs(5), client.get(&url, &host)).await {
            Ok(answer) if answer.status() == 200 => started.push(name),
            // It came too late for its reserved start, and the next one is far.
            _ => client = Client::open(instance.address()).await,
        }
    }
    assert!(started.len() > hosts * 9 / 10, "{}", started.len());
    started
}

/// Its server is so far away that it tells what is owed for several times as long as others need to notice that the server has
/// forgotten everything. Another instance, and one that is started meanwhile, wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_starts_while_an_instance_still_tells_what_is_owed() {
    const HOSTS: usize = 2500;
    let Some(redis) = Redis::start().await else { return };
    let origin = Origin::site("").await;
    let yaml = "pace: { max_wait: 200s }\nhosts: { '*.localhost': { robots: ignore, crawl_delay: 290s } }";
    let fleet = behind_relays(&redis, 2, yaml).await;
    let [(relay, tells), (_, waits)] = &fleet[..] else { panic!("two") };
    for instance in [tells, waits] {
        comes_to_say(instance, "joined the fleet").await;
    }
    let started = start_at_each(tells, HOSTS, &origin).await;
    let far = Duration::from_millis(250);
    relay.delay(far, far);
    let () = redis::cmd("FLUSHALL").query_async(&mut redis.connection().await).await.expect("it may");
    for instance in [tells, waits] {
        eventually("it notices", || instance.output().matches("joined the fleet").count() == 2).await;
    }
    let late = behind_relays(&redis, 1, yaml).await.remove(0).1;
    comes_to_say(&late, "joined the fleet").await;
    let (before, mut requests) = (origin.log.pages().len(), JoinSet::new());
    for (number, name) in started.iter().enumerate().filter(|(number, _)| number % 50 < 2) {
        let (url, host) = (origin.url_at(name, "/page"), origin.authority(name));
        let address = [waits, &late][number % 50].address();
        requests.spawn(async move { Client::open(address).await.get(&url, &host).await.status() });
    }
    let answers = within("what each request gets", requests.join_all()).await;
    assert!(answers.len() >= 90 && answers.iter().all(|status| *status == 429), "{answers:?}");
    assert_eq!(origin.log.pages().len(), before, "no start is early");
}

/// `site`: its robots.txt. `kept`: the keys for which the server has debts.
async fn are_told(hosts: usize, site: &'static str, owed: &str, kept: &str) {
    let Some(redis) = Redis::start().await else { return };
    let origin = Origin::site(site).await;
    let fleet = instances(&redis, 1, owed).await;
    comes_to_say(&fleet[0], "joined the fleet").await;
    let started = start_at_each(&fleet[0], hosts, &origin).await.len();
    let mut connection = redis.connection().await;
    let () = redis::cmd("FLUSHALL").query_async(&mut connection).await.expect("it may");
    within("all are there again", async {
        let known = async |connection: &mut MultiplexedConnection| {
            let mut keys = redis::cmd("KEYS");
            keys.arg(kept).query_async::<Vec<String>>(connection).await.expect("it answers").len()
        };
        while known(&mut connection).await < started {
            sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
}
