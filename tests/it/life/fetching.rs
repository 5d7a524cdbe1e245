//! How robots.txt is asked for: once more where the answer blames the question, in the host's turn however long that
//! takes, and for as long as anybody wants it.

use super::{KEEP_OUT, Means, meaning, origin, site};
use crate::support::client::get;
use crate::support::reply::Then;
use crate::support::{
    ADMIN_TOKEN, Alpn, Binary, Client, Origin, Protocol, Proxy, Reply, Seen, assert_refused, eventually, within,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What a request that blames the message is answered with over HTTP/2, and over HTTP/1.1.
fn by_version(
    http2: u16,
    http1: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
) -> impl Fn(&Seen) -> Reply + Send + Sync + 'static {
    site(move |seen| match seen.protocol {
        Protocol::Http2 => Reply::status(http2),
        Protocol::Http1 => http1(seen),
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn robots_answer_400_or_408_is_retried_over_http1() {
    let proxy = Proxy::start("").await;
    for status in [400, 408, 412, 421, 426, 431, 494, 505] {
        let origin = Origin::https(Alpn::Both, by_version(status, |_| Reply::text(KEEP_OUT))).await;
        assert_eq!(meaning(&proxy, &origin).await, Means::Rules, "{status}");
        let asked = origin.log.of("/robots.txt");
        let over: Vec<_> = asked.iter().map(|seen| seen.protocol).collect();
        assert_eq!(over, [Protocol::Http2, Protocol::Http1], "{status}");
        assert_ne!(asked[0].connection, asked[1].connection, "{status}: over a fresh connection");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn robots_4xx_allows_only_if_the_retry_confirms_it() {
    let proxy = Proxy::start("admin: { address: '127.0.0.1:0' }").await;
    for (second, means) in [
        (Reply::status(400), Means::AllowAll),
        (Reply::status(404), Means::AllowAll),
        (Reply::status(500), Means::Unreachable),
        (Reply::reset(), Means::Unreachable),
    ] {
        let answer = second.clone();
        let origin = Origin::https(Alpn::Both, by_version(400, move |_| answer.clone())).await;
        assert_eq!(meaning(&proxy, &origin).await, means, "{second:?}");
        assert_eq!(origin.log.count("/robots.txt"), 2, "{second:?}");
        if means == Means::AllowAll {
            let name = origin.url("").replace(':', "%3A").replace('/', "%2F");
            let url = format!("http://{}/api/v1/authorities/{name}", proxy.admin_address());
            let known: serde_json::Value =
                serde_json::from_str(&crate::support::curl(&["--oauth2-bearer", ADMIN_TOKEN, &url]).await.text())
                    .expect("JSON");
            assert_eq!(known["status"], second.status, "{known}");
            assert_eq!(known["asked_again"]["first_status"], 400, "{known}");
            assert_eq!(known["asked_again"]["first_version"], "HTTP/2", "{known}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn robots_400_or_408_is_retried_on_http1_only_origins() {
    let fetches = AtomicUsize::new(0);
    let origin = origin(move |_| match fetches.fetch_add(1, Ordering::SeqCst) {
        0 => Reply { then: Then::Close, ..Reply::status(408) },
        _ => Reply::text(KEEP_OUT),
    })
    .await;
    let proxy = Proxy::start("").await;
    assert_eq!(meaning(&proxy, &origin).await, Means::Rules);
}

/// Some servers and firewalls answer 400 or 412 to conditional requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_conditional_robots_fetch_is_retried_unconditionally() {
    let proxy = Proxy::start("robots: { min_ttl: 1s, max_ttl: 1s }").await;
    for status in [400, 412] {
        let origin = origin(move |seen| match seen.field("if-none-match") {
            Some(_) => Reply::status(status),
            None => Reply::text(KEEP_OUT).field("ETag", "\"v1\""),
        })
        .await;
        assert_eq!(meaning(&proxy, &origin).await, Means::Rules, "{status}");
        tokio::time::sleep(Duration::from_millis(1100)).await;
        assert_eq!(meaning(&proxy, &origin).await, Means::Rules, "{status}");
        eventually("the renewal", || origin.log.count("/robots.txt") >= 3).await;
        assert_eq!(origin.log.of("/robots.txt")[1].field("if-none-match"), Some("\"v1\""), "{status}");
        assert_eq!(origin.log.of("/robots.txt")[2].field("if-none-match"), None, "{status}");
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(meaning(&proxy, &origin).await, Means::Rules, "{status}");
    }
}

/// Answers one after the other to robots.txt, the last one for good.
async fn one_by_one(replies: Vec<Reply>) -> Origin {
    let fetches = AtomicUsize::new(0);
    origin(move |_| {
        let number = fetches.fetch_add(1, Ordering::SeqCst);
        replies[number.min(replies.len() - 1)].clone()
    })
    .await
}

const SHORT: &str = "min_ttl: 500ms, max_ttl: 500ms";

/// The times from each request at the origin to the next, whatever for.
fn gaps(origin: &Origin) -> Vec<Duration> {
    origin.log.gaps("/")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewal_may_wait_longer_than_max_wait() {
    for mode in ["enforce", "report"] {
        let old = "User-agent: *\nCrawl-delay: 2\nDisallow: /private\n";
        let new = "User-agent: *\nCrawl-delay: 2\nDisallow: /open\n";
        let origin = one_by_one(vec![Reply::text(old), Reply::text(new)]).await;
        let yaml = format!("mode: {mode}\npace: {{ max_wait: 100ms }}\nrobots: {{ {SHORT} }}");
        let proxy = Proxy::start(&yaml).await;
        assert_eq!(proxy.get(&origin.url("/open")).await.status(), 200);
        tokio::time::sleep(Duration::from_millis(600)).await;
        // It is too early for another page, but the request still causes the renewal.
        proxy.get(&origin.url("/private")).await;
        eventually("the renewal", || origin.log.count("/robots.txt") == 2).await;
        let renewal = &origin.log.of("/robots.txt")[1];
        let page = &origin.log.of("/open")[0];
        assert!(renewal.at >= page.at + Duration::from_secs(2), "{mode}: its turn was kept");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewal_starts_before_waiting_requests() {
    let robots = "User-agent: *\nCrawl-delay: 3\nDisallow: /private\n";
    let origin = one_by_one(vec![Reply::text(robots)]).await;
    let proxy = Arc::new(Proxy::start(&format!("robots: {{ {SHORT} }}")).await);
    assert_eq!(proxy.get(&origin.url("/open")).await.status(), 200);
    tokio::time::sleep(Duration::from_millis(550)).await;
    let mut pages = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let (proxy, url) = (proxy.clone(), origin.url("/open"));
        pages.spawn(async move { proxy.get(&url).await.status() });
    }
    assert_eq!(within("the pages", pages.join_all()).await, [200, 200]);
    assert_eq!(origin.log.targets()[..4], ["/robots.txt", "/open", "/robots.txt", "/open"]);
    assert!(gaps(&origin)[1..3].iter().all(|gap| *gap >= Duration::from_secs(3)));
}

/// A copy whose lifetime is shorter than the gap is not renewed in every slot, whether pages wait or come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_leave_slots_for_pages() {
    for max_wait in ["50ms", "60s"] {
        let origin = one_by_one(vec![Reply::text("User-agent: *\nCrawl-delay: 0.5\n")]).await;
        let yaml = format!("pace: {{ max_wait: {max_wait} }}\nrobots: {{ min_ttl: 200ms, max_ttl: 200ms }}");
        let proxy = Arc::new(Proxy::start(&yaml).await);
        let asking = async {
            let mut clients = tokio::task::JoinSet::new();
            loop {
                let (proxy, url) = (proxy.clone(), origin.url("/open"));
                clients.spawn(async move { proxy.get(&url).await });
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let served = eventually("pages", || origin.log.count("/open") >= 4);
        tokio::select! { () = asking => {}, () = served => {} }
        let targets = origin.log.targets();
        let twice = targets.windows(2).any(|pair| pair.iter().all(|target| target == "/robots.txt"));
        assert!(!twice, "{max_wait}: {targets:?}");
    }
}

/// Fetches caused by a refused page, by the client's own request for robots.txt, and with the operator's delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn robots_fetches_keep_the_gap() {
    for (delay, yaml, target) in [
        ("1", "", "/private"),
        ("1", "", "/robots.txt"),
        ("0", "hosts: { 'a.localhost': { crawl_delay: 1s } }", "/private"),
        ("0", "hosts: { 'a.localhost': { crawl_delay: 1s } }", "/robots.txt"),
        ("0", "pace: { min_delay: 1s }", "/robots.txt"),
    ] {
        let robots = format!("User-agent: *\nCrawl-delay: {delay}\nDisallow: /private\n");
        let origin = one_by_one(vec![Reply::text(robots)]).await;
        let proxy = Proxy::start(&format!("robots: {{ {SHORT} }}\n{yaml}")).await;
        assert_eq!(proxy.get(&origin.url("/open")).await.status(), 200);
        tokio::time::sleep(Duration::from_millis(550)).await;
        proxy.get(&origin.url(target)).await;
        eventually("the renewal", || origin.log.count("/robots.txt") == 2).await;
        let gap = gaps(&origin)[1];
        assert!(gap >= Duration::from_secs(1), "{yaml} {target}: {gap:?}");
    }
}

/// The renewal is caused by a crawler whose group has a longer delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewal_keeps_the_general_delay_and_does_not_delay_other_groups() {
    let robots = "User-agent: SlowBot\nCrawl-delay: 30\n\nUser-agent: *\nDisallow: /no\n";
    let origin = Origin::site(robots).await;
    let proxy = Proxy::start(
        "identity: { product_tokens: [] }\nrobots: { min_ttl: 200ms, max_ttl: 200ms }\npace: { max_wait: 10s }",
    )
    .await;
    let ask = async |agent: &str, path: &str| {
        let (mut client, host) = (proxy.client().await, origin.authority("a.localhost"));
        let fields = format!("Host: {host}\r\nUser-Agent: {agent}/1.0\r\nPrefer: wait=1");
        client.send(format!("GET {} HTTP/1.1\r\n{fields}\r\n\r\n", origin.url(path))).await;
        client.response().await.status()
    };
    assert_eq!(ask("AliceBot", "/page1").await, 200);
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(ask("SlowBot", "/page2").await, 429);
    assert_eq!(ask("AliceBot", "/page3").await, 200);
    eventually("the renewal", || origin.log.count("/robots.txt") > 1).await;
}

/// A hop to a host that was just asked for a page waits there, and pages of the first host do not wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_redirect_hop_keeps_the_gap_of_its_host() {
    let other = Origin::site("User-agent: *\nCrawl-delay: 2\n").await;
    let target = other.url_at("b.localhost", "/robots.txt");
    let here = origin(move |_| Reply::redirect(target.clone())).await;
    let proxy = Proxy::start("").await;
    assert_eq!(proxy.get(&other.url_at("b.localhost", "/page")).await.status(), 200);
    assert_eq!(proxy.get(&here.url("/open")).await.status(), 200);
    let gap = gaps(&other)[1];
    assert!(gap >= Duration::from_secs(2), "{gap:?} {:?}", other.log.targets());
}

/// Not from the start of the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gap_after_a_renewal_counts_from_its_request() {
    let robots = "User-agent: *\nCrawl-delay: 1\nDisallow: /private\n";
    let origin = Origin::https_after(Duration::from_millis(600), site(move |_| Reply::text(robots))).await;
    let proxy = Proxy::start(&format!("robots: {{ {SHORT} }}")).await;
    assert_eq!(proxy.get(&origin.url("/open")).await.status(), 200);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(proxy.get(&origin.url("/private")).await.status(), 403);
    eventually("the renewal", || origin.log.count("/robots.txt") == 2).await;
    assert_eq!(proxy.get(&origin.url("/open")).await.status(), 200);
    assert_eq!(origin.log.targets(), ["/robots.txt", "/open", "/robots.txt", "/open"]);
    assert!(gaps(&origin)[2] >= Duration::from_secs(1), "{:?}", gaps(&origin));
}

/// The operator lifts the verdict, not the pace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_allowed_by_the_operator_keep_the_crawl_delay() {
    for host in ["{ allow: [/private] }", "{ robots: report }"] {
        let origin = Origin::site("User-agent: *\nCrawl-delay: 1\nDisallow: /private\n").await;
        let proxy = Proxy::start(&format!("hosts: {{ 'a.localhost': {host} }}")).await;
        for page in ["/private/1", "/private/2"] {
            assert_eq!(proxy.get(&origin.url(page)).await.status(), 200, "{host}");
        }
        let gap = origin.log.gaps("/private")[0];
        assert!(gap >= Duration::from_secs(1), "{host}: {gap:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_for_a_stale_robots_txt_gets_a_fresh_copy() {
    let origin = one_by_one(vec![Reply::text(KEEP_OUT), Reply::text("new")]).await;
    let proxy = Proxy::start(&format!("robots: {{ {SHORT} }}")).await;
    assert_eq!(proxy.get(&origin.url("/robots.txt")).await.text(), KEEP_OUT);
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(proxy.get(&origin.url("/robots.txt")).await.text(), "new", "it was fetched for this");
    assert_eq!(origin.log.count("/robots.txt"), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_for_an_unreachable_robots_txt_gets_the_last_good_copy() {
    let origin = one_by_one(vec![Reply::text(KEEP_OUT), Reply::status(500)]).await;
    let proxy = Proxy::start(&format!("robots: {{ {SHORT} }}")).await;
    assert_eq!(proxy.get(&origin.url("/robots.txt")).await.text(), KEEP_OUT);
    tokio::time::sleep(Duration::from_millis(600)).await;
    for _ in 0..3 {
        assert_eq!(proxy.get(&origin.url("/robots.txt")).await.text(), KEEP_OUT);
    }
    assert_eq!(origin.log.count("/robots.txt"), 2, "and the site is left alone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloaded_on_unavailable_applies_to_known_files() {
    let gone = origin(|_| Reply::status(404)).await;
    let locked = origin(|_| Reply::status(403)).await;
    let proxy = Proxy::start("").await;
    let pages = async || (proxy.get(&gone.url("/open")).await.status(), proxy.get(&locked.url("/open")).await.status());
    assert_eq!(pages().await, (200, 200));
    proxy.reload("robots: { on_unavailable: disallow }").unwrap();
    assert_eq!(pages().await, (403, 200));
    proxy.reload("robots: { on_auth_error: disallow }").unwrap();
    assert_eq!(pages().await, (200, 403));
    proxy.reload("").unwrap();
    assert_eq!(pages().await, (200, 200));
    assert_eq!((gone.log.count("/robots.txt"), locked.log.count("/robots.txt")), (1, 1));
}

/// They are not sent to a host that redirects there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn validators_are_sent_only_to_the_server_that_issued_them() {
    let there = origin(|_| Reply::text(KEEP_OUT).field("ETag", "\"there\"")).await;
    let target = there.url_at("b.localhost", "/robots.txt");
    let here = origin(move |_| Reply::redirect(target.clone())).await;
    let proxy = Proxy::start(&format!("robots: {{ {SHORT} }}")).await;
    assert_eq!(meaning(&proxy, &here).await, Means::Rules);
    tokio::time::sleep(Duration::from_millis(600)).await;
    proxy.get(&here.url("/open")).await;
    eventually("the renewal", || there.log.count("/robots.txt") == 2).await;
    for seen in here.log.of("/robots.txt").iter().chain(&there.log.of("/robots.txt")) {
        assert_eq!(seen.field("if-none-match"), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_for_robots_txt_in_a_redirect_loop_is_answered_as_missing() {
    let circle = origin(|_| Reply::redirect("/robots.txt")).await;
    let nowhere = origin(|_| Reply::status(302)).await;
    let proxy = Proxy::start("").await;
    for origin in [&circle, &nowhere] {
        for _ in 0..2 {
            let response = proxy.get(&origin.url("/robots.txt")).await;
            assert_eq!((response.status(), response.field("location")), (404, None));
        }
        assert_eq!(proxy.get(&origin.url("/open")).await.status(), 200);
    }
}

/// A client that is less patient than the site is slow would otherwise never succeed, and ask the site each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fetch_continues_and_is_stored_after_its_client_left() {
    for (reply, status) in [(Reply::text(KEEP_OUT).after(Duration::from_secs(2)), 200), (Reply::silence(), 503)] {
        let origin = origin(move |_| reply.clone()).await;
        let proxy = Proxy::start("robots: { timeout: 4s }\nadmin: { address: '127.0.0.1:0' }").await;
        let mut client = proxy.client().await;
        client.send(get(&origin.url("/open"), &origin.authority("a.localhost"))).await;
        eventually("the fetch", || origin.log.count("/robots.txt") == 1).await;
        drop(client);
        eventually("its end", || proxy.robots_fetches() == 1).await;
        assert_eq!(proxy.get(&origin.url("/open")).await.status(), status);
        assert_eq!(origin.log.count("/robots.txt"), 1, "{status}: what came of it is known");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_interim_answers_end_the_fetch() {
    let endless = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(1000);
    let origin = origin(move |_| Reply::raw(&endless)).await;
    let proxy = Proxy::start("").await;
    let refused = proxy.get(&origin.url("/open")).await;
    assert_eq!(refused.status(), 503);
    assert!(refused.text().contains("interim"), "{}", refused.text());
}

/// The request is refused like any other, and the file is fetched in the next slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn robots_fetch_refused_by_pacing_is_not_recorded_as_a_failure() {
    let origin = Origin::site(KEEP_OUT).await;
    let proxy = Proxy::start("pace: { key: address, min_delay: 3s, max_wait: 100ms }").await;
    assert_eq!(proxy.get(&origin.url_at("a.localhost", "/open")).await.status(), 200);
    // Both names share one pace: a fetch of the second robots.txt would come too early.
    let there = origin.url_at("b.localhost", "/open");
    let refused = proxy.get(&there).await;
    assert_eq!(refused.status(), 429, "{}", refused.text());
    assert!(refused.text().contains("crawl-delay"), "{}", refused.text());
    let start = Instant::now();
    within("its turn", async {
        while proxy.get(&there).await.status() != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert!(start.elapsed() < Duration::from_secs(20), "not as late as after a failure");
    assert_eq!(origin.log.count("/robots.txt"), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_waits_for_robots_txt_counts_as_waiting() {
    let origin = origin(|_| Reply::silence()).await;
    let proxy = Proxy::start("pace: { max_waiting: 1 }\nrobots: { timeout: 15s }").await;
    let mut waiting = proxy.client().await;
    waiting.send(get(&origin.url("/open"), &origin.authority("a.localhost"))).await;
    eventually("one that waits", || proxy.waiting() == 1).await;
    let refused = proxy.get(&origin.url("/other")).await;
    assert_refused(&refused, 503, "connection_limit_reached", "queue-full");
    drop(waiting);
    eventually("its end", || proxy.waiting() == 0).await;
}

/// The site is asked again as soon as descriptors are free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn robots_fetch_without_free_descriptors_is_not_recorded_as_a_failure() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(KEEP_OUT).then_close(),
        _ => Reply::text("page").then_close(),
    })
    .await;
    let proxy = Binary::serve("").await;
    let mut client = Client::open(proxy.address()).await;
    // After this its connection is there, and needs none any more.
    let (other, host) = (origin.url_at("b.localhost", "/open"), origin.authority("b.localhost"));
    assert_eq!(client.get(&other, &host).await.status(), 200);
    let limit = |most: &str| {
        let (pid, most) = (proxy.pid().to_string(), format!("--nofile={most}:"));
        let done = std::process::Command::new("prlimit").args(["--pid", &pid, &most]).status();
        assert!(done.expect("prlimit of util-linux").success());
    };
    let (url, host) = (origin.url("/open"), origin.authority("a.localhost"));
    limit("3");
    let refused = client.get(&url, &host).await;
    limit("1024");
    assert_refused(&refused, 503, "connection_limit_reached", "out-of-resources");
    assert_eq!(client.get(&url, &host).await.status(), 200);
    assert_eq!(origin.log.count("/robots.txt"), 2);
}
