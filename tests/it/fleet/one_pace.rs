//! All instances keep one pace.

use super::{all, assert_apart, get, instances, pages, site};
use crate::support::redis::Redis;
use crate::support::{Client, Origin, Reply, Response, eventually, within};
use std::time::{Duration, Instant};
use tokio::time::sleep;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_instances_share_one_pace() {
    let Some(redis) = Redis::start().await else { return };
    let origin = site("0.3").await;
    let fleet = instances(&redis, 3, "").await;
    let mut requests = tokio::task::JoinSet::new();
    for (number, instance) in fleet.iter().enumerate() {
        for page in 0..4 {
            let (address, authority) = (instance.address(), origin.authority("a.localhost"));
            let url = origin.url(&format!("/page-{number}-{page}"));
            requests.spawn(async move { Client::open(address).await.get(&url, &authority).await });
        }
    }
    let responses: Vec<Response> = requests.join_all().await;
    assert!(responses.iter().all(|response| response.status() == 200), "{responses:?}");
    let starts = origin.log.starts("/page");
    assert_eq!(starts.len(), 12);
    assert_apart(&starts, Duration::from_millis(300));
    assert!(starts[11] - starts[0] < Duration::from_millis(300) * 11 * 3, "nobody sleeps over its turn");
    assert_eq!(origin.log.count("/robots.txt"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_instance_and_another_take_turns() {
    let Some(redis) = Redis::start().await else { return };
    let origin = site("0.3").await;
    let fleet = instances(&redis, 2, "").await;
    let mut busy = tokio::task::JoinSet::new();
    for page in 0..40 {
        let (address, authority) = (fleet[0].address(), origin.authority("a.localhost"));
        let url = origin.url(&format!("/busy-{page}"));
        busy.spawn(async move { Client::open(address).await.get(&url, &authority).await });
    }
    eventually("the busy one is under way", || origin.log.pages().len() > 1).await;
    let before = origin.log.pages().len();
    assert_eq!(get(&fleet[1], &origin.url("/modest")).await.status(), 200);
    // The instances alternate, as soon as the other has asked.
    let place = origin.log.pages().iter().position(|page| page == "/modest").expect("it has been there");
    assert!(place < before + 10, "{place}, not {before} or one of the next: {:?}", origin.log.pages());
    // The busy instance gets its next slot soon.
    let before = origin.log.pages().len();
    eventually("the busy one goes on", || origin.log.pages().len() > before).await;
    let pages = origin.log.all().into_iter().filter(|seen| seen.path() != "/robots.txt").map(|seen| seen.at);
    assert_apart(&pages.collect::<Vec<_>>(), Duration::from_millis(300));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fleet_sends_one_request_at_a_time_to_a_host() {
    let Some(redis) = Redis::start().await else { return };
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text("User-agent: *\nCrawl-delay: 0.3\n"),
        _ => Reply::text("slow").after(Duration::from_millis(1000)),
    })
    .await;
    let fleet = instances(&redis, 3, "").await;
    let url = origin.url("/page");
    let all = all(&fleet, &url).await;
    assert!(all.iter().all(|response| response.status() == 200));
    assert_apart(&origin.log.starts("/page"), Duration::from_millis(1000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn min_delay_is_shared_but_allows_concurrent_requests() {
    let Some(redis) = Redis::start().await else { return };
    let origin = pages(|_| Reply::text("slow").after(Duration::from_secs(5))).await;
    let fleet = instances(&redis, 3, "pace: { min_delay: 300ms }").await;
    let url = origin.url("/page");
    let all = all(&fleet, &url).await;
    assert!(all.iter().all(|response| response.status() == 200));
    let starts = origin.log.starts("/page");
    assert_apart(&starts, Duration::from_millis(300));
    assert!(starts[2] - starts[0] < Duration::from_secs(5), "they overlap");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_holds_all_instances_back() {
    let Some(redis) = Redis::start().await else { return };
    let origin = pages(|seen| match seen.path().as_str() {
        "/refused" => Reply::status(429).field("Retry-After", "3"),
        _ => Reply::text("page"),
    })
    .await;
    let fleet = instances(&redis, 3, "").await;
    for instance in &fleet {
        assert_eq!(get(instance, &origin.url("/before")).await.status(), 200);
    }
    assert_eq!(get(&fleet[0], &origin.url("/refused")).await.status(), 429);
    let told = origin.log.one("/refused").at;
    // The message has to reach the others.
    sleep(Duration::from_millis(1200)).await;
    let url = origin.url("/after");
    let all = all(&fleet[1..], &url).await;
    assert!(all.iter().all(|response| response.status() == 200));
    let after = origin.log.starts("/after");
    assert!(after[0] - told >= Duration::from_secs(3), "{:?}", after[0] - told);
    // The first success halves the backoff.
    assert!(after[1] - after[0] >= Duration::from_secs(1), "{:?}", after[1] - after[0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_without_a_delay_causes_no_server_calls() {
    let Some(redis) = Redis::start().await else { return };
    let origin = pages(|_| Reply::text("page")).await;
    let fleet = instances(&redis, 1, "").await;
    assert_eq!(get(&fleet[0], &origin.url("/page")).await.status(), 200);
    let (before, began) = (redis.script_calls().await, Instant::now());
    for _ in 0..200 {
        assert_eq!(get(&fleet[0], &origin.url("/page")).await.status(), 200);
    }
    let calls = redis.script_calls().await - before;
    // The instance sends a heartbeat every second.
    assert!(calls <= began.elapsed().as_secs() + 2, "{calls}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_with_a_delay_causes_one_server_call_per_request() {
    let Some(redis) = Redis::start().await else { return };
    // Longer than an answer takes on a busy machine: one that outlasts its gap is told.
    let origin = site("0.6").await;
    let fleet = instances(&redis, 1, "").await;
    assert_eq!(get(&fleet[0], &origin.url("/page")).await.status(), 200);
    let (before, began) = (redis.script_calls().await, Instant::now());
    for _ in 0..8 {
        assert_eq!(get(&fleet[0], &origin.url("/page")).await.status(), 200);
    }
    let calls = redis.script_calls().await - before;
    assert!((8..=10 + began.elapsed().as_secs() + 2).contains(&calls), "{calls}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_hangs_up_returns_its_slot_to_the_fleet() {
    const GAP: Duration = Duration::from_secs(3);
    let Some(redis) = Redis::start().await else { return };
    let origin = site("3").await;
    let fleet = instances(&redis, 2, "").await;
    assert_eq!(get(&fleet[0], &origin.url("/page-0")).await.status(), 200);
    let authority = origin.authority("a.localhost");
    for number in 1..=2 {
        let mut gone = Client::open(fleet[0].address()).await;
        gone.send(crate::support::client::get(&origin.url("/gone"), &authority)).await;
        sleep(Duration::from_millis(300)).await;
        // Another comes after it has gone; or before that, and then keeps its own start.
        let mut gone = Some(gone);
        gone.take_if(|_| number == 1);
        sleep(Duration::from_millis(100)).await;
        let url = origin.url(&format!("/page-{number}"));
        let hang_up = async {
            sleep(Duration::from_millis(300)).await;
            drop(gone);
        };
        let (response, ()) = tokio::join!(get(&fleet[1], &url), hang_up);
        assert_eq!((response.status(), origin.log.count("/gone")), (200, 0));
        let gap = *origin.log.gaps("/page").last().expect("some");
        assert!(gap >= GAP && gap < GAP * (number + 1), "{gap:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_over_max_wait_for_another_instances_slot_is_refused_at_once() {
    let Some(redis) = Redis::start().await else { return };
    let origin = site("100").await;
    let fleet = instances(&redis, 2, "").await;
    assert_eq!(get(&fleet[0], &origin.url("/page")).await.status(), 200);
    let refused = get(&fleet[1], &origin.url("/page")).await;
    let told: u64 = refused.field("retry-after").expect("when to come back").parse().expect("seconds");
    assert!(refused.status() == 429 && (80..=100).contains(&told), "{} {told}", refused.status());
    // The refused request has not used up the slot.
    let url = origin.url("/page");
    let no_wait = format!("GET {url} HTTP/1.1\r\nHost: {}\r\nPrefer: wait=0\r\n\r\n", origin.authority("a.localhost"));
    let mut client = Client::open(fleet[0].address()).await;
    client.send(no_wait).await;
    assert_eq!(client.response().await.status(), 429);
}

/// Nobody waits for an instance that has only just started, as if it had delays to tell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_that_start_together_begin_at_once() {
    let Some(redis) = Redis::start().await else { return };
    let _first = instances(&redis, 1, "").await;
    let told = redis::cmd("ZRANGE").arg("politely:instances").arg(0).arg(-1).arg("WITHSCORES").to_owned();
    let scores: Vec<(String, f64)> = told.query_async(&mut redis.connection().await).await.expect("it answers");
    assert!(scores.len() == 1 && scores[0].1.fract() == 0.0, "{scores:?}");
}

/// Report mode holds nothing, but the others learn of its starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_in_report_mode_counts_for_the_other_instances() {
    let Some(redis) = Redis::start().await else { return };
    let origin = site("100").await;
    let reporting = instances(&redis, 1, "mode: report").await;
    let enforcing = instances(&redis, 1, "").await;
    assert_eq!(get(&enforcing[0], &origin.url("/robots.txt")).await.status(), 200);
    let keys = async || -> Vec<String> {
        let asked = redis::cmd("KEYS").arg("politely:*:pace").to_owned();
        asked.query_async(&mut redis.connection().await).await.expect("it answers")
    };
    let before = keys().await;
    for _ in 0..3 {
        assert_eq!(get(&reporting[0], &origin.url("/page")).await.status(), 200);
    }
    within("its starts are told", async {
        while keys().await == before {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(get(&enforcing[0], &origin.url("/page")).await.status(), 429);
}
