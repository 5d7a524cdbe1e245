//! `pace.breaker`: a host that turns requests away is left alone, by all who share its pace.

use super::{ADMIN, asked, fleet, get, json, pages, processes, refusal, with_status};
use crate::support::redis::Redis;
use crate::support::{Binary, Proxy, Reply, assert_refused, eventually};
use std::sync::atomic::Ordering;
use std::time::Duration;

const BREAKER: &str = "pace: { breaker: { after: 3, pause: 1h }, max_wait: 0 }";

/// Requests this many pages, which the host itself answers with this status.
async fn turned_away(proxy: std::net::SocketAddr, origin: &super::Origin, count: usize, status: u16) {
    for _ in 0..count {
        let response = get(proxy, &origin.url("/page")).await;
        assert_eq!((response.status(), response.field("proxy-status").is_none()), (status, true));
    }
}

#[track_caller]
fn assert_paused(response: &super::Response, at_least: u64, at_most: u64) {
    assert_refused(response, 503, "destination_unavailable", "host-paused");
    let (_, after) = refusal(response);
    assert!((at_least..=at_most).contains(&after), "{after}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_is_paused_after_consecutive_refusals_with_retry_after() {
    let (origin, _) = with_status(403).await;
    let proxy = Proxy::start(&format!("{BREAKER}\n{ADMIN}")).await;
    turned_away(proxy.address(), &origin, 3, 403).await;
    for _ in 0..3 {
        assert_paused(&proxy.get(&origin.url("/page")).await, 3500, 3600);
    }
    assert_eq!(origin.log.count("/page"), 3);
    let status = json(proxy.admin_address(), "/api/v1/status").await;
    let pace = &status["authorities"][0]["pace"];
    assert_eq!(pace["refusals"], 3, "{pace}");
    assert!(pace["paused"].as_f64().expect("seconds") > 3500.0, "{pace}");
    assert_eq!(status["requests"]["refused"]["host-paused"], 3);
    let metrics = asked(proxy.admin_address(), "/metrics").await.text();
    assert!(metrics.contains("politely_requests_total{outcome=\"host-paused\"} 3"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_trial_request_after_the_pause_decides() {
    let (origin, status) = with_status(503).await;
    let proxy = Proxy::start("pace: { breaker: { after: 2, pause: 3s }, max_wait: 0 }").await;
    let goes = async || {
        let count = origin.log.count("/page");
        loop {
            let response = proxy.get(&origin.url("/page")).await;
            if origin.log.count("/page") > count {
                return response;
            }
            assert!(matches!(response.status(), 429 | 503), "{}", response.text());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    for _ in 0..3 {
        assert_eq!(goes().await.status(), 503);
    }
    assert_paused(&proxy.get(&origin.url("/page")).await, 1, 3);
    status.store(200, Ordering::Relaxed);
    assert_eq!(goes().await.status(), 200);
    // The backoff is halved by each success.
    for _ in 0..4 {
        assert_eq!(goes().await.status(), 200);
    }
    assert_eq!(proxy.get(&origin.url("/page")).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn challenges_count_as_refusals_and_other_answers_reset_the_count() {
    let origin = pages(|seen| match seen.path().as_str() {
        "/challenge" => Reply::text("who are you?").field("cf-mitigated", "challenge"),
        "/waf" => Reply::status(202).field("x-amzn-waf-action", "challenge"),
        _ => Reply::status(404),
    })
    .await;
    let proxy = Proxy::start("pace: { breaker: { after: 2, pause: 1h }, max_wait: 0 }").await;
    // On one connection, where each is over before the next begins.
    let (mut client, host) = (proxy.client().await, origin.authority("a.localhost"));
    for path in ["/challenge", "/missing", "/waf", "/missing", "/challenge", "/waf"] {
        assert_ne!(client.get(&origin.url(path), &host).await.status(), 503, "{path}");
    }
    assert_paused(&proxy.get(&origin.url("/missing")).await, 3500, 3600);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn breaker_can_be_set_per_host_and_only_reports_in_report_mode() {
    let (origin, _) = with_status(403).await;
    let yaml = "hosts: { a.localhost: { breaker: { after: 0 } }, b.localhost: { breaker: { after: 1 } } }";
    let proxy = Proxy::start(&format!("{BREAKER}\n{yaml}")).await;
    for (host, fourth) in [("a.localhost", 403), ("b.localhost", 503), ("c.localhost", 503)] {
        let url = origin.url_at(host, "/page");
        let statuses = [(); 4].map(|()| proxy.get(&url));
        let mut last = 0;
        for response in statuses {
            last = response.await.status();
        }
        assert_eq!(last, fourth, "{host}");
    }
    assert_eq!(origin.log.count("/page"), 4 + 1 + 3);
    let proxy = Proxy::start(&format!("{BREAKER}\nmode: report")).await;
    turned_away(proxy.address(), &origin, 3, 403).await;
    assert_eq!(proxy.get(&origin.url("/page")).await.status(), 403);
}

/// Pages that a site keeps for members do not show its load, but several of them in a row would pause the host.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn breaker_is_off_by_default() {
    let origin = pages(|seen| match seen.path().starts_with("/members/") {
        true => Reply::status(403),
        false => Reply::text("page"),
    })
    .await;
    for (pace, status) in [("max_wait: 0", 200), ("max_wait: 0, breaker: {}", 503)] {
        let proxy = Proxy::start(&format!("pace: {{ {pace} }}")).await;
        for page in 0..5 {
            assert_eq!(proxy.get(&origin.url(&format!("/members/{page}"))).await.status(), 403);
        }
        assert_eq!(proxy.get(&origin.url("/open")).await.status(), status, "{pace}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pause_survives_a_restart() {
    let (origin, _) = with_status(403).await;
    let proxy = Binary::serve(BREAKER).await;
    turned_away(proxy.address(), &origin, 3, 403).await;
    // The store is written in the background, without delay.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let proxy = Binary::serve_in(proxy.kill().await, BREAKER).await;
    assert_paused(&get(proxy.address(), &origin.url("/page")).await, 3400, 3600);
    assert_eq!(origin.log.count("/page"), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_of_a_machine_share_the_pause() {
    let (origin, status) = with_status(200).await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let processes = processes(directory.path(), 2, BREAKER).await;
    turned_away(processes[1].address(), &origin, 1, 200).await;
    status.store(403, Ordering::Relaxed);
    turned_away(processes[0].address(), &origin, 3, 403).await;
    all_know(&processes, &origin).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_of_a_fleet_share_the_pause() {
    let Some(redis) = Redis::start().await else { return };
    let (origin, status) = with_status(200).await;
    let fleet = fleet(&redis, 3, BREAKER).await;
    for instance in &fleet {
        turned_away(instance.address(), &origin, 1, 200).await;
    }
    status.store(429, Ordering::Relaxed);
    // The first alone makes all keep a distance, as ever.
    let first = get(fleet[0].address(), &origin.url("/page")).await;
    assert_eq!(first.status(), 429);
    status.store(403, Ordering::Relaxed);
    eventually("two more", || origin.log.count("/page") >= 4).await;
    all_know(&fleet, &origin).await;
}

/// Soon nobody asks the host any more, and everybody says why.
async fn all_know(proxies: &[Binary], origin: &super::Origin) {
    for proxy in proxies {
        let mut tries = 0..200;
        loop {
            let response = get(proxy.address(), &origin.url("/page")).await;
            if response.text().contains("host-paused") {
                // Allows for differences between the instances' clocks.
                assert_paused(&response, 3400, 3601);
                break;
            }
            assert!(tries.next().is_some(), "{} {}", response.status(), response.text());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let count = origin.log.count("/page");
    for proxy in proxies {
        assert_paused(&get(proxy.address(), &origin.url("/page")).await, 3400, 3600);
    }
    assert_eq!(origin.log.count("/page"), count);
}
