//! `pace.adaptive`: the gap follows the host's own latency, as the host sees it.

use super::{ADMIN, fleet, get, json, pages, processes};
use crate::support::redis::Redis;
use crate::support::{Binary, Origin, Proxy, Reply};
use std::net::SocketAddr;
use std::time::Duration;

const ADAPTIVE: &str = "pace: { adaptive: { factor: 3, max: 5s } }";
const SLOW: Duration = Duration::from_millis(200);

async fn slow() -> Origin {
    pages(|_| Reply::text("page").after(SLOW)).await
}

/// Pages one after the other through these proxies; the gaps between them.
async fn crawl(proxies: &[SocketAddr], origin: &Origin) -> Vec<Duration> {
    for (number, proxy) in proxies.iter().enumerate() {
        let answer = get(*proxy, &origin.url(&format!("/page{number}"))).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
    }
    origin.log.gaps("/page")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_host_gets_longer_gaps() {
    let origin = slow().await;
    let proxy = Proxy::start(&format!("{ADAPTIVE}\n{ADMIN}")).await;
    let gaps = crawl(&[proxy.address(); 4], &origin).await;
    assert!(gaps.iter().all(|gap| *gap >= SLOW * 3), "{gaps:?}");
    let status = json(proxy.admin_address(), "/api/v1/status").await;
    let latency = status["authorities"][0]["pace"]["latency"].as_f64().expect("it is known");
    assert!((0.2..20.0).contains(&latency), "{latency}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adaptive_host_gets_one_request_at_a_time_and_the_wait_names_the_reason() {
    let origin = slow().await;
    let proxy = Proxy::start(&format!("pace: {{ adaptive: {{ factor: 50, max: 60s }} }}\n{ADMIN}")).await;
    assert_eq!(proxy.get(&origin.url("/page")).await.status(), 200);
    let mut waits = proxy.client().await;
    waits.send(crate::support::client::get(&origin.url("/page1"), &origin.authority("a.localhost"))).await;
    let held = loop {
        let held = json(proxy.admin_address(), "/api/v1/held").await;
        if !held[0].is_null() {
            break held[0].clone();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(held["for"], "adaptive", "{held}");
    assert!(held["gap"].as_f64().expect("a gap") >= 10.0, "{held}");
    assert!(held["detail"].as_str().expect("words").contains("to answer"), "{held}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adaptive_can_be_set_per_host() {
    let origin = slow().await;
    let yaml = "pace: { adaptive: { factor: 1000, max: 60s }, max_wait: 0 }\n\
        hosts: { a.localhost: { adaptive: { factor: 0 } }, b.localhost: { adaptive: { factor: 1, max: 1ms } } }";
    let proxy = Proxy::start(yaml).await;
    for (host, second) in [("a.localhost", 200), ("b.localhost", 200), ("c.localhost", 429)] {
        // On one connection, where the first is over before the next begins.
        let (mut client, url, authority) = (proxy.client().await, origin.url_at(host, "/page"), origin.authority(host));
        assert_eq!(client.get(&url, &authority).await.status(), 200, "{host}");
        assert_eq!(client.get(&url, &authority).await.status(), second, "{host}");
    }
}

/// The latency learnt by one process holds back the other, which has no answer yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_of_a_machine_share_the_latency() {
    let origin = slow().await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let processes = processes(directory.path(), 2, ADAPTIVE).await;
    let [one, other] = [&processes[0], &processes[1]].map(Binary::address);
    let gaps = crawl(&[one, other, one, other], &origin).await;
    assert!(gaps.iter().all(|gap| *gap >= SLOW * 3), "{gaps:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_of_a_fleet_share_the_latency() {
    let Some(redis) = Redis::start().await else { return };
    let origin = slow().await;
    let fleet = fleet(&redis, 2, ADAPTIVE).await;
    let [one, other] = [&fleet[0], &fleet[1]].map(Binary::address);
    // The second start of one tells the server what its first answer took.
    let gaps = crawl(&[one, one, other, other], &origin).await;
    assert!(gaps.iter().all(|gap| *gap >= SLOW * 3), "{gaps:?}");
}
