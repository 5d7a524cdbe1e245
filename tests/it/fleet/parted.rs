//! Instances without their server, or without some of the others: together they keep one pace.

use super::faults::behind_relays;
use super::{Binary, assert_apart, comes_to_say, get, says, site};
use crate::support::redis::Redis;
use crate::support::{Client, Origin, assert_refused, eventually};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::sleep;

const GAP: Duration = Duration::from_millis(500);
/// Time that a busy machine may add or take away.
const NOISE: Duration = Duration::from_millis(400);

/// Instances of a fleet of so many, by this server.
async fn of(instances: usize, redis: &Redis, count: usize) -> Vec<Binary> {
    let mut fleet = Vec::new();
    for _ in 0..count {
        fleet.push(Binary::serve(&format!("fleet: {{ url: '{}', instances: {instances} }}", redis.url())).await);
    }
    fleet
}

/// Requests through each, one after the other, until it is dropped.
fn load<'a>(fleet: impl IntoIterator<Item = &'a Binary>, origin: &Origin) -> JoinSet<()> {
    let mut clients = JoinSet::new();
    for (number, instance) in fleet.into_iter().enumerate() {
        let (address, url) = (instance.address(), origin.url(&format!("/page-{number}")));
        let authority = origin.authority("a.localhost");
        clients.spawn(async move {
            loop {
                let answer = Client::open(address).await.get(&url, &authority).await;
                assert_eq!(answer.status(), 200, "{}", answer.text());
            }
        });
    }
    clients
}

fn starts_since(origin: &Origin, from: Instant) -> Vec<Instant> {
    let mut starts = origin.log.starts("/page");
    starts.retain(|at| *at >= from);
    starts
}

/// Asserts that the starts keep one pace, except for one start that each instance may have been due.
#[track_caller]
fn assert_no_faster(starts: &[Instant], instances: u32) {
    let (Some(first), Some(last)) = (starts.first(), starts.last()) else { panic!("it goes on") };
    let whole = *last - *first + NOISE;
    let least = GAP * (starts.len() as u32).saturating_sub(instances);
    assert!(whole >= least, "{} starts in {whole:?}: {starts:?}", starts.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instance_starting_without_the_server_serves_if_instances_is_set() {
    let Some(mut redis) = Redis::start().await else { return };
    redis.kill().await;
    let origin = site("0.2").await;
    let began = Instant::now();
    let unknown = Binary::serve(&format!("fleet: '{}'", redis.url())).await;
    let configured = of(1, &redis, 1).await.remove(0);
    let refuses =
        Binary::serve(&format!("fleet: {{ url: '{}', instances: 1 }}\non_fleet_loss: refuse", redis.url())).await;
    assert!(began.elapsed() < Duration::from_secs(20), "they wait for nothing: {:?}", began.elapsed());
    comes_to_say(&unknown, "is unreachable").await;
    for url in [origin.url("/page"), origin.url_at("b.localhost", "/page")] {
        let refused = get(&unknown, &url).await;
        let problem = assert_refused(&refused, 503, "proxy_internal_error", "fleet-lost");
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("`fleet.instances`")), "{problem}");
        assert!(refused.field("retry-after").is_some());
        assert_eq!(get(&configured, &url).await.status(), 200);
        assert_refused(&get(&refuses, &url).await, 503, "proxy_internal_error", "fleet-lost");
    }
    redis.restart().await;
    for instance in [&unknown, &configured, &refuses] {
        comes_to_say(instance, "joined the fleet").await;
        assert_eq!(get(instance, &origin.url("/page")).await.status(), 200);
    }
    // Another start, with what the last one has learnt.
    sleep(Duration::from_millis(2500)).await;
    let directory = unknown.kill().await;
    redis.kill().await;
    let known = Binary::serve_in(directory, &format!("fleet: '{}'", redis.url())).await;
    comes_to_say(&known, "is unreachable").await;
    assert_eq!(get(&known, &origin.url_at("c.localhost", "/page")).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_instances_starting_without_the_server_keep_one_pace_in_total() {
    let Some(mut redis) = Redis::start().await else { return };
    redis.kill().await;
    let origin = site("0.5").await;
    let fleet = of(3, &redis, 3).await;
    let began = Instant::now();
    let _load = load(&fleet, &origin);
    eventually("starts", || origin.log.starts("/page").len() >= 24).await;
    assert_no_faster(&starts_since(&origin, began), 3);
}

/// They do not start in lockstep.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_losing_the_server_together_start_one_gap_apart() {
    const GAP: Duration = Duration::from_millis(1000);
    let Some(mut redis) = Redis::start().await else { return };
    let origin = site("1").await;
    let fleet = of(1, &redis, 3).await;
    sleep(Duration::from_millis(2500)).await;
    let _load = load(&fleet, &origin);
    eventually("a start", || !origin.log.starts("/page").is_empty()).await;
    redis.kill().await;
    eventually("all have lost it", || fleet.iter().all(|instance| says(instance, "is unreachable"))).await;
    let lost = Instant::now();
    eventually("starts", || starts_since(&origin, lost).len() >= 10).await;
    let starts = starts_since(&origin, lost);
    // Clocks are the same here; a start may be late by a quarter of a gap.
    assert_apart(&starts, GAP / 2);
    // That start's turn is then lost.
    assert!(starts[9] - starts[0] < GAP * 20, "{starts:?}");
    let has_started = |number: usize| origin.log.starts(&format!("/page-{number}")).iter().any(|at| *at >= lost);
    assert!((0..3).all(has_started), "each has its turn: {:?}", origin.log.pages());
}

/// The others leave it its part.
async fn one_is_cut_off(of: u32) {
    let Some(redis) = Redis::start().await else { return };
    let origin = site("0.5").await;
    let fleet = behind_relays(&redis, of as usize, "").await;
    sleep(Duration::from_millis(2500)).await;
    let (relay, cut_off) = &fleet[0];
    let others: Vec<&Binary> = fleet[1..].iter().map(|(_, instance)| instance).collect();
    let _load = load(fleet.iter().map(|(_, instance)| instance), &origin);
    eventually("starts", || origin.log.starts("/page").len() > 4).await;
    let cut = Instant::now();
    relay.faults.holds.send_replace(true);
    relay.cut();
    comes_to_say(cut_off, "is unreachable").await;
    for other in &others {
        comes_to_say(other, "1 of the fleet's").await;
    }
    sleep(Duration::from_secs(15)).await;
    // From the moment it is cut off: what it starts by itself, the others do not start any more.
    let (starts, whole) = (starts_since(&origin, cut), cut.elapsed());
    assert_no_faster(&starts, 2);
    let own = origin.log.starts("/page-0").into_iter().filter(|at| *at >= cut).count() as u32;
    println!("{} starts in {whole:?} of {of}, {own} of the one that was cut off", starts.len());
    assert!(own * GAP * of >= whole.saturating_sub(Duration::from_secs(8)), "it goes on: {own} in {whole:?}");
    // The link is restored.
    relay.faults.holds.send_replace(false);
    for other in &others {
        comes_to_say(other, "no instance of the fleet is missing any more").await;
    }
    sleep(Duration::from_secs(2)).await;
    let back = Instant::now();
    sleep(Duration::from_secs(8)).await;
    let starts = starts_since(&origin, back);
    assert_apart(&starts, GAP);
    assert!(starts.len() >= 10, "the whole pace is theirs again: {}", starts.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_instances_cut_off_keeps_its_share_of_the_pace() {
    one_is_cut_off(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_three_instances_cut_off_keeps_its_share_of_the_pace() {
    one_is_cut_off(3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_running_of_three_configured_instances_leave_the_third_its_share() {
    let Some(redis) = Redis::start().await else { return };
    let origin = site("0.5").await;
    let fleet = of(3, &redis, 2).await;
    sleep(Duration::from_millis(2500)).await;
    let _load = load(&fleet, &origin);
    eventually("starts", || origin.log.starts("/page").len() >= 8).await;
    assert_apart(&origin.log.starts("/page"), GAP * 3 / 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_or_stopped_instance_is_not_counted_as_missing() {
    let Some(redis) = Redis::start().await else { return };
    let yaml = format!("fleet: '{}'", redis.url());
    let mut fleet = of(1, &redis, 2).await;
    let instances = async || -> usize {
        let mut count = redis::cmd("ZCARD");
        count.arg("politely:instances").query_async(&mut redis.connection().await).await.expect("it answers")
    };
    let killed = fleet.remove(0).kill().await;
    comes_to_say(&fleet[0], "1 of the fleet's 2 instances are missing").await;
    let again = Binary::serve_in(killed, &yaml).await;
    comes_to_say(&fleet[0], "no instance of the fleet is missing any more").await;
    assert_eq!(instances().await, 2);
    again.stop().await;
    assert_eq!(instances().await, 1);
    sleep(Duration::from_millis(4500)).await;
    assert_eq!(fleet[0].output().matches("are missing").count(), 1, "{}", fleet[0].output());
}
