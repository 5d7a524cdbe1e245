//! Crawl delays, measured where they matter: at the origin. Lower bounds are strict; upper ones leave room for a noisy
//! machine, on which any start may be late.

use crate::support::client::get;
use crate::support::h2_client::request;
use crate::support::{Alpn, Client, Origin, Proxy, Reply, Response};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

pub fn delay(seconds: &str) -> String {
    format!("User-agent: *\nCrawl-delay: {seconds}\nDisallow: /no\n")
}

/// Never less than `gap`; of several, one at least is not two.
#[track_caller]
pub fn assert_gaps(origin: &Origin, count: usize, gap: Duration) {
    let gaps = origin.log.gaps("/page");
    assert_eq!(gaps.len(), count, "{:?}", origin.log.targets());
    assert!(gaps.iter().all(|&measured| measured >= gap), "{gaps:?}, not {gap:?}");
    assert!(count == 1 || gaps.iter().any(|&measured| measured < gap * 2), "{gaps:?}, not {gap:?}");
}

/// Gets these at once, each on a connection of its own.
pub async fn all(proxy: &Arc<Proxy>, urls: impl IntoIterator<Item = String>) -> Vec<Response> {
    let mut requests = tokio::task::JoinSet::new();
    for (number, url) in urls.into_iter().enumerate() {
        let proxy = proxy.clone();
        requests.spawn(async move { (number, proxy.get(&url).await) });
    }
    let mut responses = requests.join_all().await;
    responses.sort_by_key(|(number, _)| *number);
    responses.into_iter().map(|(_, response)| response).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_requests_of_curl_start_a_second_apart() {
    let origin = Origin::site(&delay("1")).await;
    let proxy = Proxy::start("").await;
    let urls: Vec<String> = (0..4).map(|number| origin.url(&format!("/page{number}"))).collect();
    let got = proxy.curl(&["--parallel", "--parallel-immediate", &urls[0], &urls[1], &urls[2], &urls[3]]).await;
    assert_eq!(got.code, 0, "{}", got.stderr);
    assert_gaps(&origin, 3, Duration::from_secs(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gap_is_kept_over_https_with_h1_and_h2_clients() {
    let origin = Origin::tls_site(Alpn::Both, &delay("0.5")).await;
    let proxy = Proxy::start("").await;
    let h2 = proxy.h2(&origin, "a.localhost").await;
    let first = h2.send(request("GET", &origin.url("/page0")), true).await;
    let second = h2.send(request("GET", &origin.url("/page1")), true).await;
    let mut h1 = proxy.tls(&origin, "a.localhost", &[b"http/1.1"]).await;
    assert_eq!(h1.get("/page2", &origin.authority("a.localhost")).await.status(), 200);
    assert_eq!((first.response().await.unwrap().status(), second.response().await.unwrap().status()), (200, 200));
    assert_eq!(proxy.get(&origin.url("/page3")).await.status(), 200);
    assert_gaps(&origin, 3, Duration::from_millis(500));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_request_starts_at_once_and_refused_ones_take_no_slot() {
    let origin = Origin::site(&delay("30")).await;
    let proxy = Proxy::start("").await;
    let start = Instant::now();
    for _ in 0..5 {
        assert_eq!(proxy.get(&origin.url("/no")).await.status(), 403);
    }
    assert_eq!(proxy.get(&origin.url("/page")).await.status(), 200);
    assert_eq!(proxy.get(&origin.url("/no")).await.status(), 403, "and they do not wait either");
    assert_eq!(proxy.get(&origin.url("/robots.txt")).await.status(), 200);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crawl_delay_limits_to_one_request_at_a_time() {
    let robots = delay("0.1");
    let origin = Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(&robots),
        _ => Reply::text("slow").after(Duration::from_millis(600)),
    })
    .await;
    let proxy = Arc::new(Proxy::start("").await);
    all(&proxy, (0..3).map(|number| origin.url(&format!("/page{number}")))).await;
    assert_gaps(&origin, 2, Duration::from_millis(600));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn max_concurrent_limits_requests_without_a_delay() {
    let held = Duration::from_secs(2);
    let origin = Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => Reply::text("slow").after(held),
    })
    .await;
    let proxy = Arc::new(Proxy::start("pace: { max_concurrent: 3 }").await);
    let responses = all(&proxy, (0..6).map(|number| origin.url(&format!("/page{number}")))).await;
    assert!(responses.iter().all(|response| response.status() == 200));
    let mut starts: Vec<Instant> =
        origin.log.all().iter().filter(|seen| seen.path() != "/robots.txt").map(|seen| seen.at).collect();
    starts.sort_unstable();
    for (number, start) in starts.iter().enumerate().skip(3) {
        assert!(*start - starts[number - 3] >= held, "more than three were in flight");
    }
    assert!(starts[2] - starts[0] < held, "three were");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_do_not_wait_for_each_other() {
    let origin = Origin::site(&delay("30")).await;
    let proxy = Proxy::start("").await;
    let start = Instant::now();
    for host in ["a.localhost", "b.localhost", "localhost", "127.0.0.1"] {
        assert_eq!(proxy.get(&origin.url_at(host, "/page")).await.status(), 200);
    }
    let other_port = Origin::site(&delay("30")).await;
    assert_eq!(proxy.get(&other_port.url("/page")).await.status(), 200, "another port is a pace of its own");
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_pauses_the_host() {
    for (status, after) in [(429, "2"), (503, "2")] {
        let origin = Origin::http(move |seen| match seen.path().as_str() {
            "/robots.txt" => Reply::text(""),
            "/page1" => Reply::status(status).field("Retry-After", after).body("slow down"),
            _ => Reply::text("page"),
        })
        .await;
        let proxy = Proxy::start("").await;
        let told = proxy.get(&origin.url("/page1")).await;
        // Passed on untouched: not the proxy's own 429.
        assert_eq!(
            (told.status(), told.text().as_str(), told.field("retry-after")),
            (status, "slow down", Some(after))
        );
        assert_eq!(told.head.proxy_error(), None);
        assert_eq!(proxy.get(&origin.url("/page2")).await.status(), 200);
        let gap = origin.log.gaps("/page")[0];
        assert!(gap >= Duration::from_secs(2) && gap < Duration::from_secs(20), "{gap:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn longest_retry_after_counts_and_dates_use_the_origins_clock() {
    let date = |seconds: i64| httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds as u64));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64;
    let proxy = Proxy::start("pace: { max_wait: 0 }").await;
    for fields in [
        vec![("Retry-After", "30".to_owned()), ("Retry-After", "600".to_owned())],
        vec![("Retry-After", "soon".to_owned()), ("Retry-After", "600".to_owned())],
        vec![("Retry-After", "600, 60".to_owned())],
        vec![("Date", date(now + 86_400)), ("Retry-After", date(now + 86_400 + 600))],
        vec![("Date", date(now - 86_400)), ("Retry-After", date(now - 86_400 + 600))],
    ] {
        for busy in ["/page", "/robots.txt"] {
            let told = fields.clone();
            let origin = Origin::http(move |seen| {
                let reply = if seen.path() == busy { Reply::status(503) } else { Reply::text("") };
                told.iter().fold(reply, |reply, (name, value)| reply.field(*name, value))
            })
            .await;
            proxy.get(&origin.url("/page")).await;
            let refused = proxy.get(&origin.url("/next")).await;
            let after: u64 = refused.field("retry-after").expect("when to come back").parse().expect("seconds");
            assert!((500..=601).contains(&after), "{busy} with {fields:?}: {after}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_counts_from_the_answer_head() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        "/page1" => Reply {
            status: 429,
            ..Reply::drip(&["slow", " ", "down"], Duration::from_millis(300)).field("Retry-After", "2")
        },
        _ => Reply::text("page"),
    })
    .await;
    let proxy = Proxy::start("").await;
    let mut told = proxy.client().await;
    told.send(get(&origin.url("/page1"), &origin.authority("a.localhost"))).await;
    assert_eq!(told.head().await.status(), 429);
    assert_eq!(proxy.get(&origin.url("/page2")).await.status(), 200);
    let gaps = origin.log.gaps("/page");
    assert!(gaps[0] >= Duration::from_secs(2), "{gaps:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crawl_delay_starts_nothing_during_a_refusal_body() {
    for status in [403, 429] {
        let origin = Origin::http(move |seen| match seen.path().as_str() {
            "/robots.txt" => Reply::text(delay("0.1")),
            _ => Reply { status, ..Reply::drip(&["slow", " ", "down"], Duration::from_millis(700)) }
                .field("Retry-After", "0"),
        })
        .await;
        let proxy = Arc::new(Proxy::start("pace: { breaker: { after: 1, pause: 100ms } }").await);
        all(&proxy, (0..3).map(|number| origin.url(&format!("/page{number}")))).await;
        let gaps = origin.log.gaps("/page");
        assert!(gaps.len() == 2 && gaps.iter().all(|gap| *gap >= Duration::from_millis(2100)), "{status}: {gaps:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusal_without_retry_after_backs_off_exponentially_from_one_second() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        "/page1" | "/page2" => Reply::status(429),
        _ => Reply::text("page"),
    })
    .await;
    let proxy = Proxy::start("").await;
    for page in ["/page1", "/page2", "/page3"] {
        proxy.get(&origin.url(page)).await;
    }
    let gaps = origin.log.gaps("/page");
    // Each less than the next step.
    assert!(gaps[0] >= Duration::from_secs(1) && gaps[0] < Duration::from_secs(2), "{gaps:?}");
    assert!(gaps[1] >= Duration::from_secs(2) && gaps[1] < Duration::from_secs(4), "{gaps:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crawl_delay_has_bounds_and_overrides() {
    let half = Duration::from_millis(500);
    for (robots, yaml) in [
        (delay("100"), "pace: { max_crawl_delay: 500ms }"),
        (delay("0"), "pace: { min_delay: 500ms }"),
        (delay("0.2"), "pace: { min_delay: 500ms }"),
        (delay("30"), "hosts: { 'a.localhost': { crawl_delay: 500ms } }"),
        ("User-agent: *\nRequest-rate: 2/1\n".to_owned(), ""),
    ] {
        let origin = Origin::site(&robots).await;
        let proxy = Proxy::start(yaml).await;
        for page in ["/page1", "/page2"] {
            assert_eq!(proxy.get(&origin.url(page)).await.status(), 200);
        }
        assert_gaps(&origin, 1, half);
        assert!(origin.log.gaps("/page")[0] < Duration::from_secs(20), "{robots} {yaml}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_keeps_the_gap() {
    let origin = Origin::resetting(&delay("1")).await;
    let proxy = Proxy::start("").await;
    for page in ["/page1", "/page2", "/page3"] {
        proxy.get(&origin.url(page)).await;
    }
    let gaps = origin.log.gaps("/page");
    assert!(gaps.iter().all(|&gap| gap >= Duration::from_secs(1)), "{gaps:?} {:?}", origin.log.targets());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gap_counts_from_the_request_not_from_its_connection() {
    let robots = delay("1");
    // The first page needs a connection, which takes most of the gap; the second goes over the one that is there.
    let origin = Origin::https_after(Duration::from_millis(700), move |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(&robots).then_close(),
        _ => Reply::text("page"),
    })
    .await;
    let proxy = Arc::new(Proxy::start("").await);
    all(&proxy, (0..3).map(|number| origin.url(&format!("/page{number}")))).await;
    assert_gaps(&origin, 2, Duration::from_secs(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_tunnel_counts_as_one_start() {
    let origin = Origin::tls_site(Alpn::H1, "").await;
    let yaml = "intercept: { hosts: { 'a.localhost': tunnel } }\npace: { min_delay: 1s }";
    let proxy = Proxy::start(yaml).await;
    let start = Instant::now();
    for _ in 0..2 {
        let client = Client::connect(proxy.address(), &origin.authority("a.localhost")).await;
        client.tls("a.localhost", crate::support::test_ca().pem_file(), &[]).await;
    }
    assert!(start.elapsed() >= Duration::from_secs(1), "{:?}", start.elapsed());
}
