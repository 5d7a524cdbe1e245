//! Waiting for a turn: in line, not too long, and no longer than the client is there.

use super::pacing::{all, assert_gaps, delay};
use crate::serving::access::{request, users};
use crate::support::client::get;
use crate::support::h2_client;
use crate::support::{Alpn, Origin, Proxy, Reply, Response, assert_refused, eventually};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_over_max_wait_is_refused_at_once_with_retry_after() {
    let origin = Origin::site(&delay("60")).await;
    let proxy = Proxy::start("pace: { max_wait: 20s }").await;
    let start = Instant::now();
    assert_eq!(proxy.get(&origin.url("/page1")).await.status(), 200);
    for _ in 0..2 {
        let refused = proxy.get(&origin.url("/page2")).await;
        let problem = assert_refused(&refused, 429, "http_request_denied", "crawl-delay");
        let elapsed = start.elapsed().as_secs();
        let after: u64 = refused.field("retry-after").unwrap().parse().unwrap();
        // The rest of a minute, rounded up, so that a client coming back is not too early.
        assert!((60 - elapsed - 1..=60).contains(&after), "{after}");
        assert_eq!(problem["retry_after"], after);
    }
    assert!(start.elapsed() < Duration::from_secs(20), "not after the wait");
    assert_eq!(origin.log.pages(), ["/page1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_counts_the_requests_ahead() {
    let origin = Origin::site(&delay("20")).await;
    let proxy = Proxy::start("pace: { max_wait: 21s }").await;
    assert_eq!(proxy.get(&origin.url("/page1")).await.status(), 200);
    let mut waiting = proxy.client().await;
    waiting.send(get(&origin.url("/page2"), &origin.authority("a.localhost"))).await;
    eventually("it waits", || proxy.waiting() == 1).await;
    let refused = proxy.get(&origin.url("/page3")).await;
    assert_refused(&refused, 429, "http_request_denied", "crawl-delay");
    let after: u64 = refused.field("retry-after").unwrap().parse().unwrap();
    assert!((22..=40).contains(&after), "{after}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_returning_after_retry_after_is_served() {
    let origin = Origin::site(&delay("4")).await;
    let proxy = Proxy::start("pace: { max_wait: 0 }").await;
    assert_eq!(proxy.get(&origin.url("/page1")).await.status(), 200);
    let refused = proxy.get(&origin.url("/page2")).await;
    let after: u64 = refused.field("retry-after").unwrap().parse().unwrap();
    assert!((1..=4).contains(&after), "{after}");
    tokio::time::sleep(Duration::from_secs(after)).await;
    assert_eq!(proxy.get(&origin.url("/page2")).await.status(), 200);
    assert!(origin.log.gaps("/page")[0] >= Duration::from_secs(4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prefer_wait_shortens_the_wait() {
    let origin = Origin::site(&delay("30")).await;
    let proxy = Proxy::start("").await;
    assert_eq!(proxy.get(&origin.url("/page1")).await.status(), 200);
    let start = Instant::now();
    let got = proxy.curl(&["-H", "Prefer: respond-async, wait=1", &origin.url("/page2")]).await;
    assert_eq!((got.status(), got.head().proxy_error().as_deref()), (429, Some("http_request_denied")));
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_queue_refuses_further_requests() {
    let origin = Origin::site(&delay("3")).await;
    let proxy = Arc::new(Proxy::start("pace: { queue: 2 }").await);
    assert_eq!(proxy.get(&origin.url("/page1")).await.status(), 200);
    let responses = all(&proxy, (2..6).map(|number| origin.url(&format!("/page{number}")))).await;
    let full: Vec<&Response> = responses.iter().filter(|response| response.status() != 200).collect();
    assert_eq!(full.len(), 2);
    for refused in full {
        assert_refused(refused, 503, "connection_limit_reached", "queue-full");
        assert!(refused.field("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    }
    assert_gaps(&origin, 2, Duration::from_secs(3));
}

/// The site's delay. The client that hangs up has to be gone by then.
const GAP: Duration = Duration::from_secs(4);

/// The first goes, the second waits and hangs up, the third must then go in the second's place.
async fn place_given_back(origin: &Origin, proxy: &Arc<Proxy>, hang_up: impl AsyncFnOnce()) {
    assert_eq!(proxy.get(&origin.url("/page1")).await.status(), 200);
    hang_up().await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(proxy.get(&origin.url("/page3")).await.status(), 200);
    assert_eq!(origin.log.pages(), ["/page1", "/page3"]);
    assert_gaps(origin, 1, GAP);
    assert!(origin.log.gaps("/page")[0] < GAP * 2, "{:?}", origin.log.gaps("/page"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_leaving_the_queue_frees_its_place() {
    let origin = Origin::site(&delay("4")).await;
    let proxy = Arc::new(Proxy::start("").await);
    place_given_back(&origin, &proxy, async || {
        let mut client = proxy.client().await;
        client.send(get(&origin.url("/page2"), &origin.authority("a.localhost"))).await;
        assert!(client.glance(Duration::from_millis(200)).await.is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_with_an_unsent_body_leaving_the_queue_frees_its_place() {
    let origin = Origin::site(&delay("4")).await;
    let proxy = Arc::new(Proxy::start("").await);
    place_given_back(&origin, &proxy, async || {
        let mut client = proxy.client().await;
        let (url, host) = (origin.url("/page2"), origin.authority("a.localhost"));
        client.send(format!("POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100000\r\n\r\nsome of it")).await;
        assert!(client.glance(Duration::from_millis(200)).await.is_empty());
    })
    .await;
}

/// The client has sent more than the proxy reads before the slot comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_with_many_pipelined_requests_leaving_the_queue_frees_its_place() {
    let origin = Origin::site(&delay("4")).await;
    let proxy = Arc::new(Proxy::start("").await);
    place_given_back(&origin, &proxy, async || {
        let mut client = proxy.client().await;
        let (url, host) = (origin.url("/page2"), origin.authority("a.localhost"));
        let ahead = get(&url, &host).repeat(1000);
        client.send(ahead).await;
        assert!(client.glance(Duration::from_millis(200)).await.is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_and_h2_clients_leaving_the_queue_free_their_places() {
    let origin = Origin::tls_site(Alpn::Both, &delay("4")).await;
    let proxy = Arc::new(Proxy::start("").await);
    place_given_back(&origin, &proxy, async || {
        let mut client = proxy.tls(&origin, "a.localhost", &[b"http/1.1"]).await;
        client.send(get("/page2", &origin.authority("a.localhost"))).await;
        assert!(client.glance(Duration::from_millis(200)).await.is_empty());
    })
    .await;
    // The connection stays; only the stream is given up.
    let origin = Origin::tls_site(Alpn::Both, &delay("4")).await;
    let h2 = proxy.h2(&origin, "a.localhost").await;
    place_given_back(&origin, &proxy, async || {
        let pending = h2.send(h2_client::request("GET", &origin.url("/page2")), true).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        drop(pending);
    })
    .await;
    // The connection is still good.
    assert_eq!(h2.get(&origin.url("/no")).await.status(), 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_leaving_a_request_in_flight_frees_the_host() {
    let robots = delay("0.2");
    let origin = Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(&robots),
        "/page1" => Reply::silence(),
        _ => Reply::text("page"),
    })
    .await;
    let proxy = Proxy::start("").await;
    let mut client = proxy.client().await;
    client.send(get(&origin.url("/page1"), &origin.authority("a.localhost"))).await;
    eventually("the first request", || origin.log.count("/page1") == 1).await;
    drop(client);
    assert_eq!(proxy.get(&origin.url("/page2")).await.status(), 200);
}

/// The host's only slot is held by a client that does not send its announced body.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_stalling_its_upload_does_not_block_the_queue() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(delay("1")),
        _ => Reply::text("page"),
    })
    .await;
    let proxy = Proxy::start("limits: { read_timeout: 12s }\npace: { max_wait: 10s }").await;
    let mut stalled = proxy.client().await;
    let host = origin.authority("a.localhost");
    stalled.send(format!("POST {} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 10\r\n\r\n", origin.url("/form"))).await;
    eventually("its request", || origin.log.count("/form") == 1).await;
    // Well before the one that has stalled is given up, and is told so.
    assert_eq!(proxy.get(&origin.url("/page")).await.status(), 200);
    stalled.send("0123456789").await;
    assert_eq!(stalled.response().await.text(), "page", "it goes on whenever it likes");
}

/// The client sends nothing because the origin has not asked for it yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_waiting_for_100_continue_has_not_stalled() {
    let slow = Duration::from_secs(4);
    let origin = Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(delay("1")),
        "/form" => Reply::text("form").before_the_body().after(slow),
        _ => Reply::text("page"),
    })
    .await;
    let proxy = Proxy::start("limits: { read_timeout: 12s }\npace: { max_wait: 10s }").await;
    let (mut client, host) = (proxy.client().await, origin.authority("a.localhost"));
    let expecting = "Content-Length: 10\r\nExpect: 100-continue";
    client.send(format!("POST {} HTTP/1.1\r\nHost: {host}\r\n{expecting}\r\n\r\n", origin.url("/form"))).await;
    eventually("its request", || origin.log.count("/form") == 1).await;
    assert_eq!(proxy.get(&origin.url("/page")).await.status(), 200);
    let apart = origin.log.starts("/page")[0] - origin.log.starts("/form")[0];
    assert!(apart >= slow, "one at a time, and the first was under way: {apart:?}");
    assert_eq!(client.response().await.text(), "form");
}

/// Another request has its slot by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_request_is_not_retried_without_a_slot() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(delay("1")),
        "/form" => Reply::reset().before_the_body().after(Duration::from_secs(4)),
        _ => Reply::text("page"),
    })
    .await;
    let proxy = Proxy::start("limits: { read_timeout: 12s }\npace: { max_wait: 10s }").await;
    let mut stalled = proxy.client().await;
    let host = origin.authority("a.localhost");
    stalled.send(format!("PUT {} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 10\r\n\r\n", origin.url("/form"))).await;
    eventually("its request", || origin.log.count("/form") == 1).await;
    assert_eq!(proxy.get(&origin.url("/page")).await.status(), 200);
    // On a connection that was kept it would be sent again, as it could not be known whether it was there.
    assert_eq!(stalled.response().await.status(), 502);
    assert_eq!(origin.log.count("/form"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusal_of_a_stalled_request_still_pauses_the_host() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(delay("1")),
        "/form" => {
            Reply::status(429).field("Retry-After", "100").before_the_body().after(Duration::from_secs(4)).then_close()
        }
        _ => Reply::text("page"),
    })
    .await;
    let proxy = Proxy::start("limits: { read_timeout: 12s }\npace: { max_wait: 10s }").await;
    let (mut stalled, host) = (proxy.client().await, origin.authority("a.localhost"));
    stalled.send(format!("POST {} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 10\r\n\r\n", origin.url("/form"))).await;
    eventually("its request", || origin.log.count("/form") == 1).await;
    assert_eq!(proxy.get(&origin.url("/page")).await.status(), 200, "its turn is another's");
    assert_eq!(stalled.head().await.status(), 429);
    let refused = proxy.get(&origin.url("/page2")).await;
    assert_refused(&refused, 429, "http_request_denied", "crawl-delay");
    assert!(refused.field("retry-after").unwrap().parse::<u64>().unwrap() > 10);
}

/// The host's only slot is held by a client that does not read its long answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_stalling_its_download_does_not_block_the_queue() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(delay("1")),
        "/huge" => Reply::pattern(1 << 30),
        _ => Reply::text("page"),
    })
    .await;
    let proxy = Proxy::start("limits: { read_timeout: 12s }\npace: { max_wait: 10s }").await;
    let mut stalled = proxy.client().await;
    stalled.send(get(&origin.url("/huge"), &origin.authority("a.localhost"))).await;
    eventually("the answer's beginning", || origin.log.count("/huge") == 1).await;
    // Well before the one that has stalled is given up.
    assert_eq!(proxy.get(&origin.url("/page")).await.status(), 200);
    drop(stalled);
}

/// The redirected robots.txt is on another host, which has its own pace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_of_a_robots_redirect_over_max_wait_is_refused_at_once() {
    for (yaml, prefer) in [("pace: { max_wait: 5s }", "handling=lenient"), ("", "wait=1")] {
        let other = Origin::site(&delay("20")).await;
        let (target, page) = (other.url_at("b.localhost", "/robots.txt"), other.url_at("b.localhost", "/page"));
        let origin = Origin::http(move |seen| match seen.path().as_str() {
            "/robots.txt" => Reply::redirect(target.clone()),
            _ => Reply::text("page"),
        })
        .await;
        let proxy = Proxy::start(yaml).await;
        let start = Instant::now();
        assert_eq!(proxy.get(&page).await.status(), 200);
        let refused = proxy.curl(&["-H", &format!("Prefer: {prefer}"), &origin.url("/x")]).await;
        let elapsed = start.elapsed().as_secs();
        assert_eq!(refused.status(), 429, "{prefer}: {}", refused.text());
        let after: u64 = refused.head().field("retry-after").unwrap().parse().unwrap();
        assert!(elapsed < 6, "{prefer}: not after the wait, but {elapsed} s");
        assert!((20 - elapsed - 2..=20).contains(&after), "{prefer}: {after}");
    }
}

/// The clients send or read just enough to seem alive, or read an endless answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dripping_clients_and_endless_answers_do_not_block_the_queue() {
    for target in ["/huge", "/form", "/events", "/camera"] {
        let origin = Origin::http(|seen| match seen.path().as_str() {
            "/robots.txt" => Reply::text(delay("1")),
            "/huge" => Reply::pattern(1 << 30),
            "/events" => {
                Reply::drip(&["event"; 1000], Duration::from_millis(200)).field("Content-Type", "Text/Event-Stream")
            }
            "/camera" => Reply::drip(&[&*"frame".repeat(10_000); 1000], Duration::from_millis(100))
                .field("Content-Type", "multipart/x-mixed-replace; boundary=frame"),
            _ => Reply::text("page"),
        })
        .await;
        let proxy = Proxy::start("limits: { read_timeout: 12s }\npace: { max_wait: 10s }").await;
        let (mut hog, host) = (TcpStream::connect(proxy.address()).await.unwrap(), origin.authority("a.localhost"));
        let asked = match target {
            "/form" => format!("POST {} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1000\r\n\r\n", origin.url(target)),
            _ => get(&origin.url(target), &host),
        };
        hog.write_all(asked.as_bytes()).await.unwrap();
        eventually("its request", || origin.log.count(target) == 1).await;
        let drips = tokio::spawn(async move {
            for _ in 0..1000 {
                match target {
                    "/form" => hog.write_all(b"x").await.expect("it is taken"),
                    _ => drop(hog.read(&mut [0; 100]).await.expect("more")),
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        assert_eq!(proxy.get(&origin.url("/page")).await.status(), 200, "{target}");
        assert!(!drips.is_finished(), "it goes on whenever it likes");
        drips.abort();
    }
}

/// All of them are of one client, which may use every place of the host.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_answers_hold_no_place_at_a_host_without_a_gap() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/events" => {
            Reply::drip(&["event"; 1000], Duration::from_millis(200)).field("Content-Type", "text/event-stream")
        }
        _ => Reply::text("page"),
    })
    .await;
    let proxy = Proxy::start("hosts: { '*': { robots: ignore } }\npace: { max_wait: 10s, max_concurrent: 2 }").await;
    let mut listening = Vec::new();
    for number in 1..=6 {
        let mut client = proxy.client().await;
        client.send(get(&origin.url("/events"), &origin.authority("a.localhost"))).await;
        assert_eq!(client.head().await.status(), 200, "{number}");
        listening.push(client);
    }
    assert_eq!(proxy.get(&origin.url("/page")).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_retry_counts_towards_the_users_max_waiting() {
    let origin = Origin::resetting(&delay("3")).await;
    let proxy = Proxy::start(&users("max_waiting: 1")).await;
    let ask = async |target: &str| {
        let mut client = proxy.client().await;
        client.send(request(&origin.url(target), "alice")).await;
        client
    };
    assert_eq!(ask("/page1").await.response().await.status(), 200);
    let mut retried = ask("/page2").await;
    eventually("the retry", || origin.log.count("/page2") == 1 && proxy.waiting() == 1).await;
    assert_eq!(ask("/page3").await.response().await.status(), 503);
    assert_eq!(retried.response().await.status(), 200);
}

/// Holds for any requests that others have in flight: long polls, endless downloads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_with_nothing_in_flight_at_a_host_gets_a_place() {
    use argon2::PasswordHasher;
    let hash = argon2::Argon2::from(argon2::Params::new(8, 1, 1, None).unwrap()).hash_password(b"pw").unwrap();
    let users = ["alice", "bob", "carol"].map(|name| format!("{{ name: {name}, password: '{hash}' }}")).join(", ");
    let yaml = format!(
        "hosts: {{ '*': {{ robots: ignore }} }}\npace: {{ max_wait: 2s, max_concurrent: 3 }}\naccess: {{ users: [{users}] }}"
    );
    for target in ["/poll", "/radio"] {
        let origin = Origin::http(|seen| match seen.path().as_str() {
            "/poll" => Reply::silence(),
            "/radio" => Reply::drip(&[&*"sound".repeat(1000); 1000], Duration::from_millis(100)),
            _ => Reply::text("page"),
        })
        .await;
        let proxy = Proxy::start(&yaml).await;
        let host = origin.authority("a.localhost");
        let ask = async |user: &str, target: &str| {
            use base64::Engine;
            let credentials = base64::prelude::BASE64_STANDARD.encode(format!("{user}:pw"));
            let mut client = proxy.client().await;
            let fields = format!("\r\nProxy-Authorization: Basic {credentials}\r\n\r\n");
            client.send(get(&origin.url(target), &host).replacen("\r\n\r\n", &fields, 1)).await;
            client
        };
        let mut held = Vec::new();
        for number in 1..=3 {
            held.push(ask("alice", target).await);
            eventually("hers", || origin.log.count(target) == number).await;
        }
        for _ in 0..2 {
            for user in ["bob", "carol"] {
                assert_eq!(ask(user, "/page").await.response().await.status(), 200, "{user} beside {target}");
            }
        }
        assert_eq!(ask("alice", "/page").await.response().await.status(), 429, "she has all that she may have");
        assert_eq!(origin.log.count("/page"), 4);
    }
}

/// The requests for two pages, which wait behind the first page's.
async fn two_that_wait(proxy: &Arc<Proxy>, origin: &Origin) -> JoinHandle<Vec<Response>> {
    assert_eq!(proxy.get(&origin.url("/page1")).await.status(), 200);
    let waiting = tokio::spawn({
        let (proxy, urls) = (proxy.clone(), [2, 3].map(|number| origin.url(&format!("/page{number}"))));
        async move { all(&proxy, urls).await }
    });
    eventually("two that wait", || proxy.waiting() == 2).await;
    waiting
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloaded_longer_delay_applies_to_waiting_requests() {
    let origin = Origin::site("User-agent: *\n").await;
    let proxy = Arc::new(Proxy::start("pace: { min_delay: 4s }").await);
    let waiting = two_that_wait(&proxy, &origin).await;
    proxy.reload("pace: { min_delay: 5s }").expect("a good configuration");
    assert!(waiting.await.unwrap().iter().all(|response| response.status() == 200));
    assert_gaps(&origin, 2, Duration::from_secs(5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_to_report_mode_releases_waiting_requests() {
    let origin = Origin::site("User-agent: *\nCrawl-delay: 60\n").await;
    let proxy = Arc::new(Proxy::start("pace: { max_wait: 5m }").await);
    let waiting = two_that_wait(&proxy, &origin).await;
    proxy.reload("mode: report\npace: { max_wait: 5m }").expect("a good configuration");
    assert!(waiting.await.unwrap().iter().all(|response| response.status() == 200));
    assert_eq!(proxy.waiting(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloaded_shorter_max_wait_applies_to_waiting_requests() {
    let origin = Origin::site("User-agent: *\nCrawl-delay: 60\n").await;
    let proxy = Arc::new(Proxy::start("pace: { max_wait: 5m }").await);
    let waiting = two_that_wait(&proxy, &origin).await;
    proxy.reload("pace: { max_wait: 1s }").expect("a good configuration");
    assert!(waiting.await.unwrap().iter().all(|response| response.status() == 429));
}

/// Requests whose slots come in time keep their places.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloaded_max_wait_that_suffices_keeps_the_order_of_waiting_requests() {
    let origin = Origin::site("User-agent: *\n").await;
    let proxy = Arc::new(Proxy::start("pace: { max_wait: 5m, min_delay: 500ms }").await);
    assert_eq!(proxy.get(&origin.url("/page0")).await.status(), 200);
    let (held, mut waiting) = (proxy.clone(), Vec::new());
    for number in 1..=6 {
        let (proxy, url) = (proxy.clone(), origin.url(&format!("/page{number}")));
        waiting.push(tokio::spawn(async move { proxy.get(&url).await.status() }));
        eventually("it waits, or was sent", || held.waiting() + origin.log.pages().len() > number).await;
    }
    proxy.reload("pace: { max_wait: 4m, min_delay: 500ms }").expect("a good configuration");
    for status in waiting {
        assert_eq!(status.await.unwrap(), 200);
    }
    assert_eq!(origin.log.pages(), [0, 1, 2, 3, 4, 5, 6].map(|number| format!("/page{number}")));
}

/// They do not keep the old pace beside new requests with the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shorter_crawl_delay_of_a_site_applies_to_waiting_requests() {
    let delay = Arc::new(AtomicUsize::new(4));
    let origin = Origin::http({
        let delay = delay.clone();
        move |seen| match seen.path().as_str() {
            "/robots.txt" => Reply::text(format!("User-agent: *\nCrawl-delay: {}\n", delay.load(Ordering::Relaxed))),
            _ => Reply::text("page"),
        }
    })
    .await;
    let proxy = Arc::new(Proxy::start("robots: { min_ttl: 1s, max_ttl: 1s }").await);
    assert_eq!(proxy.get(&origin.url("/page1")).await.status(), 200);
    let ask = |numbers: std::ops::Range<u32>| {
        let (proxy, urls) =
            (proxy.clone(), numbers.map(|number| origin.url(&format!("/page{number}"))).collect::<Vec<_>>());
        tokio::spawn(async move { all(&proxy, urls).await })
    };
    let before = ask(2..6);
    eventually("those that wait", || proxy.waiting() == 4).await;
    delay.store(1, Ordering::Relaxed);
    // The copy has expired.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(proxy.get(&origin.url("/robots.txt")).await.text(), "User-agent: *\nCrawl-delay: 1\n");
    let after = ask(6..8);
    for responses in [before, after] {
        assert!(responses.await.unwrap().iter().all(|response| response.status() == 200));
    }
    let gaps = origin.log.gaps("/page");
    assert!(gaps.len() == 6 && gaps.iter().all(|gap| *gap >= Duration::from_secs(1)), "{gaps:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn longer_delay_of_one_user_does_not_slow_others() {
    const SLOW: Duration = Duration::from_secs(3);
    let origin = Arc::new(Origin::site("").await);
    // The slow one, and bob.
    let users = users("hosts: { '*': { crawl_delay: 3s } }");
    for of_all in ["", "hosts: { '*': { crawl_delay: 100ms } }"] {
        let proxy = Arc::new(Proxy::start(&format!("{of_all}\n{users}")).await);
        let ask = |name: &'static str| {
            let (origin, proxy) = (origin.clone(), proxy.clone());
            async move {
                let mut client = proxy.client().await;
                client.send(request(&origin.url(&format!("/{name}")), name)).await;
                assert_eq!(client.response().await.status(), 200);
            }
        };
        let before = origin.log.count("/alice");
        ask("bob").await;
        let slow: Vec<_> = (0..3).map(|_| tokio::spawn(ask("alice"))).collect();
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            ask("bob").await;
        }
        assert!(origin.log.count("/alice") - before < 3, "the quick one does not wait for the slow one's delay");
        for slow in slow {
            slow.await.unwrap();
        }
        let gaps = origin.log.gaps("/alice");
        assert!(gaps[before..].iter().all(|gap| *gap >= SLOW), "{gaps:?}");
    }
}
