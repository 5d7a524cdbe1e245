//! Requests of a killed instance.

use super::{get, instances};
use crate::support::redis::Redis;
use crate::support::{Client, Origin, Reply, eventually};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_in_flight_of_a_killed_instance_blocks_others_only_for_seconds() {
    let Some(redis) = Redis::start().await else { return };
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text("User-agent: *\nCrawl-delay: 1\n"),
        "/hangs" => Reply::text("never").after(Duration::from_secs(300)),
        _ => Reply::text("page"),
    })
    .await;
    let mut fleet = instances(&redis, 2, "").await;
    let mut client = Client::open(fleet[0].address()).await;
    client.send(crate::support::client::get(&origin.url("/hangs"), &origin.authority("a.localhost"))).await;
    eventually("the request in flight", || origin.log.count("/hangs") == 1).await;
    let killed = Instant::now();
    fleet.remove(0).kill().await;
    assert_eq!(get(&fleet[0], &origin.url("/page")).await.status(), 200);
    // What it held is held for 5 s, and found free when the next renews its place in the line; then comes the gap.
    assert!(killed.elapsed() < Duration::from_secs(12), "{:?}", killed.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queued_request_of_a_killed_instance_blocks_others_only_for_seconds() {
    let Some(redis) = Redis::start().await else { return };
    let origin = Origin::site("User-agent: *\nCrawl-delay: 3\n").await;
    let mut fleet = instances(&redis, 2, "").await;
    assert_eq!(get(&fleet[1], &origin.url("/page")).await.status(), 200);
    // This instance has reserved the next slot, and will not use it.
    let mut client = Client::open(fleet[0].address()).await;
    client.send(crate::support::client::get(&origin.url("/gone"), &origin.authority("a.localhost"))).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let killed = Instant::now();
    fleet.remove(0).kill().await;
    assert_eq!(get(&fleet[0], &origin.url("/page")).await.status(), 200);
    assert!(killed.elapsed() < Duration::from_secs(13), "{:?}", killed.elapsed());
    assert_eq!(origin.log.count("/gone"), 0);
}
