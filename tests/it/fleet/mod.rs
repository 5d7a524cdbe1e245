//! Several instances, one redis-server: one pace, one fetch of each robots.txt, and what happens without the server.

mod apart;
mod budget_script;
mod clocks;
mod copies;
mod crash;
mod faults;
mod forgets;
mod hung_up;
mod instances_script;
mod loss;
mod many_servers;
mod one_pace;
mod pace_script;
mod parted;
mod secure;

use crate::support::redis::Redis;
use crate::support::{Binary, Client, Origin, Reply, Response, Seen};
use std::time::{Duration, Instant};

/// Instances of one fleet.
async fn instances(redis: &Redis, count: usize, yaml: &str) -> Vec<Binary> {
    let mut instances = Vec::new();
    for _ in 0..count {
        instances.push(Binary::serve(&format!("fleet: '{}'\n{yaml}", redis.url())).await);
    }
    instances
}

async fn get(proxy: &Binary, url: &str) -> Response {
    let host = url.split('/').nth(2).expect("an absolute URL");
    Client::open(proxy.address()).await.get(url, host).await
}

/// Requests the page from all instances concurrently.
async fn all(fleet: &[Binary], url: &str) -> Vec<Response> {
    let mut requests = tokio::task::JoinSet::new();
    for address in fleet.iter().map(Binary::address) {
        let (url, host) = (url.to_owned(), url.split('/').nth(2).expect("an absolute URL").to_owned());
        requests.spawn(async move { Client::open(address).await.get(&url, &host).await });
    }
    requests.join_all().await
}

/// Pages, and a robots.txt that asks for this delay.
async fn site(delay: &str) -> Origin {
    Origin::site(&format!("User-agent: *\nCrawl-delay: {delay}\n")).await
}

/// Pages by `page`, and an empty robots.txt.
async fn pages(page: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Origin {
    Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => page(seen),
    })
    .await
}

/// No two starts of pages are closer, as the origin saw them, but for what estimates of the server's clock differ by.
#[track_caller]
fn assert_apart(starts: &[Instant], gap: Duration) {
    let gaps: Vec<Duration> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|&measured| measured + CLOCKS >= gap), "{gaps:?}, not {gap:?}");
}

/// On a machine with a lot of other work to do, where the quickest answer of the server takes as long.
const CLOCKS: Duration = Duration::from_millis(40);

/// Waits until the instance logs this, after its start.
async fn comes_to_say(instance: &Binary, what: &str) {
    crate::support::eventually(what, || says(instance, what)).await;
}

/// Whether the instance has logged this.
fn says(instance: &Binary, what: &str) -> bool {
    instance.output().contains(what)
}
