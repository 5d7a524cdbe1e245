//! Each group of a robots.txt keeps the delay that it asks for, and does not make the others wait.

use crate::support::client::get;
use crate::support::redis::Redis;
use crate::support::{Binary, Client, Origin, Reply};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

const SLOW: Duration = Duration::from_secs(2);
const QUICK: Duration = Duration::from_millis(100);
const TIME: Duration = Duration::from_secs(7);
/// Error of the instances' clock estimates on a busy machine: less than the difference between the two delays.
const CLOCKS: Duration = Duration::from_millis(80);

fn robots() -> String {
    format!(
        "User-agent: slow\nCrawl-delay: {}\n\nUser-agent: *\nCrawl-delay: {}\n",
        SLOW.as_secs(),
        QUICK.as_secs_f64()
    )
}

/// A request of the crawler of that name.
fn named(name: &str, origin: &Origin) -> String {
    get(&origin.url(&format!("/{name}")), &origin.authority("a.localhost")).replace("TestBot", name)
}

/// A slow crawler and a quick one at each instance.
async fn each_keeps_its_own(fleet: &[Binary], clocks: Duration) {
    let (origin, stop) = (Arc::new(Origin::site(&robots()).await), Arc::new(AtomicBool::new(false)));
    let mut clients = JoinSet::new();
    for (address, name) in fleet.iter().flat_map(|it| ["slow", "quick"].map(|name| (it.address(), name))) {
        let (origin, stop) = (origin.clone(), stop.clone());
        clients.spawn(async move {
            let mut client = Client::open(address).await;
            while !stop.load(Ordering::Relaxed) {
                client.send(named(name, &origin)).await;
                let response = client.response().await;
                assert_eq!(response.status(), 200, "{response:?}");
            }
        });
    }
    sleep(TIME).await;
    stop.store(true, Ordering::Relaxed);
    clients.join_all().await;
    for (path, delay, least) in [("/slow", SLOW, 2), ("/quick", QUICK, 25)] {
        let gaps = origin.log.gaps(path);
        assert!(gaps.iter().all(|gap| *gap + clocks >= delay), "{path}: {gaps:?}");
        assert!(gaps.len() >= least, "{path}: {gaps:?}");
    }
    assert_eq!(origin.log.count("/robots.txt"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crawler_with_a_long_delay_does_not_slow_another() {
    each_keeps_its_own(&[Binary::serve("").await], Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crawler_with_a_long_delay_does_not_slow_another_process() {
    let store = tempfile::tempdir().expect("a temporary directory");
    let yaml = format!("store: {{ directory: '{}' }}", store.path().display());
    each_keeps_its_own(&[Binary::serve(&yaml).await, Binary::serve(&yaml).await], Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crawler_with_a_long_delay_does_not_slow_another_instance() {
    let Some(redis) = Redis::start().await else { return };
    let yaml = format!("fleet: '{}'", redis.url());
    each_keeps_its_own(&[Binary::serve(&yaml).await, Binary::serve(&yaml).await], CLOCKS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_sent_to_one_group_applies_to_all() {
    let robots = robots();
    let origin = Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(&robots),
        "/slow" => Reply::status(429).field("Retry-After", "2"),
        _ => Reply::text("page"),
    })
    .await;
    let proxy = Binary::serve("").await;
    let mut client = Client::open(proxy.address()).await;
    for (name, status) in [("quick", 200), ("slow", 429), ("quick", 200)] {
        client.send(named(name, &origin)).await;
        assert_eq!(client.response().await.status(), status, "{name}");
    }
    let pages: Vec<_> = origin.log.all().into_iter().filter(|seen| seen.path() != "/robots.txt").collect();
    assert!(pages[2].at - pages[1].at >= Duration::from_secs(2), "{:?}", pages[2].at - pages[1].at);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn min_delay_and_crawl_delay_override_apply_to_all_groups_together() {
    let origin = Origin::site(&robots()).await;
    for yaml in ["pace: { min_delay: 1s }", "hosts: { '*.localhost': { crawl_delay: 1s } }"] {
        let proxy = Binary::serve(yaml).await;
        let mut both = JoinSet::new();
        let before = origin.log.pages().len();
        for name in ["quick", "slow", "quick"] {
            let (address, request) = (proxy.address(), named(name, &origin));
            both.spawn(async move {
                let mut client = Client::open(address).await;
                client.send(request).await;
                client.response().await.status()
            });
        }
        assert_eq!(both.join_all().await, [200; 3]);
        let mut pages: Vec<_> = origin.log.all().into_iter().filter(|seen| seen.path() != "/robots.txt").collect();
        pages.sort_by_key(|seen| seen.at);
        let gaps: Vec<_> = pages[before..].windows(2).map(|pair| pair[1].at - pair[0].at).collect();
        assert!(gaps.len() == 2 && gaps.iter().all(|gap| *gap >= Duration::from_secs(1)), "{yaml}: {gaps:?}");
    }
}
