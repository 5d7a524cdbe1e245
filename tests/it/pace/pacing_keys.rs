//! Pace keys, bursts of subresources, and pacing in report mode.

use super::pacing::{all, assert_gaps, delay};
use crate::support::client::get;
use crate::support::relay::Relay;
use crate::support::{Origin, Proxy, Reply, assert_refused, eventually};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpSocket;

const SECOND: Duration = Duration::from_secs(1);
const UPGRADE: &str = "Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
                       Sec-WebSocket-Version: 13\r\nAccept:";

fn part(dest: &str, url: &str, host: &str) -> String {
    get(url, host).replace("Accept:", &format!("Sec-Fetch-Dest: {dest}\r\nAccept:"))
}

/// A port of 127.0.0.1 at which nobody listens, nor will before this goes: another test would be asked in the origin's place.
fn nobody() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket
}

/// The address ::1 with the same port.
fn beside(nobody: &TcpSocket) -> String {
    format!("[::1]:{}", nobody.local_addr().unwrap().port())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pace_key_address_is_shared_by_names_of_one_address() {
    let origin = Origin::site(&delay("1")).await;
    let proxy = Arc::new(Proxy::start("pace: { key: address }").await);
    let hosts = ["a.localhost", "b.localhost", "127.0.0.1"];
    let urls = hosts.iter().enumerate().map(|(number, host)| origin.url_at(host, &format!("/page{number}")));
    let responses = all(&proxy, urls).await;
    assert!(responses.iter().all(|response| response.status() == 200));
    let gaps = origin.log.gaps("/page");
    assert!(gaps.len() == 2 && gaps.iter().all(|&gap| gap >= SECOND), "{gaps:?}");
}

/// The name resolves to 127.0.0.1, where nothing listens, before ::1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_falling_back_to_a_second_address_is_paced_there() {
    let (pages, nobody) = (crate::support::origin::pages(&delay("1")), nobody());
    let Ok(origin) = Origin::try_http_on(&beside(&nobody), pages).await else { return no_ipv6() };
    let proxy = Arc::new(Proxy::start("pace: { key: address }").await);
    let hosts = ["a.localhost", "[::1]", "b.localhost", "[::1]", "a.localhost"];
    let urls = hosts.iter().enumerate().map(|(number, host)| origin.url_at(host, &format!("/page{number}")));
    let responses = all(&proxy, urls).await;
    assert!(responses.iter().all(|response| response.status() == 200));
    let gaps = origin.log.gaps("/page");
    assert!(gaps.len() == 4 && gaps.iter().all(|&gap| gap >= SECOND), "{gaps:?}");
}

/// The start of the connection is paced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tunnel_or_upgrade_falling_back_to_a_second_address_is_paced_there() {
    let nobody = nobody();
    let Ok(origin) = Origin::try_http_on(&beside(&nobody), |_| Reply::websocket()).await else { return no_ipv6() };
    let rules = "pace: { key: address, min_delay: 1s }\nhosts: { '*': { robots: ignore, intercept: tunnel } }";
    let proxy = Proxy::start(rules).await;
    let start = Instant::now();
    for (waited, host) in ["[::1]", "a.localhost", "[::1]", "b.localhost"].into_iter().enumerate() {
        let mut client = proxy.client().await;
        let host = origin.authority(host);
        match waited {
            0 | 1 => client.send(format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await,
            _ => client.send(get(&format!("http://{host}/"), &host).replace("Accept:", UPGRADE)).await,
        }
        let status = client.head().await.status();
        assert!(matches!(status, 200 | 101), "{host}: {status}");
        assert!(start.elapsed() >= SECOND * waited as u32, "{host}: {:?}", start.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subresources_follow_their_page_in_a_burst_and_obey_robots_txt() {
    let gap = 4 * SECOND;
    let origin = Origin::site(&delay("4")).await;
    let host = origin.authority("a.localhost");
    let proxy = Proxy::start("pace: { subresources: burst }").await;
    assert_eq!(proxy.get(&origin.url("/page0")).await.status(), 200);
    let start = Instant::now();
    let mut client = proxy.client().await;
    for (dest, target) in [("image", "/i.png"), ("style", "/s.css"), ("script", "/s.js")] {
        client.send(part(dest, &origin.url(target), &host)).await;
        assert_eq!(client.response().await.status(), 200);
    }
    client.send(part("image", &origin.url("/no.png"), &host)).await;
    assert_refused(&client.response().await, 403, "http_request_denied", "robots-disallowed");
    assert!(start.elapsed() < gap, "{:?}", start.elapsed());
    // A document is a page, as is what a script asks for, and the parts have not taken its turn.
    client.send(part("document", &origin.url("/page1"), &host)).await;
    assert_eq!(client.response().await.status(), 200);
    client.send(part("empty", &origin.url("/page2"), &host)).await;
    assert_eq!(client.response().await.status(), 200);
    assert_gaps(&origin, 2, gap);
}

/// Over http, browsers do not send Sec-Fetch-Dest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subresources_without_sec_fetch_dest_are_recognised_by_their_referer() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text("User-agent: *\nDisallow: /no\nCrawl-delay: 100\n"),
        "/style.css" => Reply::status(200).field("Content-Type", "text/css"),
        path if path.starts_with("/page") => Reply::status(200).field("Content-Type", "text/html; charset=utf-8"),
        _ => Reply::text("part"),
    })
    .await;
    // Requests that would have to wait are refused at once.
    let proxy = Proxy::start("pace: { subresources: burst, max_wait: 1s }").await;
    let status = async |target: &str, accept: &str, referer: Option<&str>| {
        let referer = referer.map_or(String::new(), |page| format!("Referer: {page}\r\n"));
        let (url, host) = (origin.url(target), origin.authority("a.localhost"));
        let mut client = proxy.client().await;
        client.send(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\n{referer}\r\n")).await;
        client.response().await.status()
    };
    let (image, any) = ("image/avif,image/webp,*/*;q=0.8", "*/*");
    let (page, style) = (origin.url("/page"), origin.url("/style.css"));
    let page = Some(&*page);
    assert_eq!(status("/page", "text/html,*/*;q=0.8", None).await, 200);
    assert_eq!(status("/i.png", image, page).await, 200);
    assert_eq!(status("/s.js?v=1", any, page).await, 200);
    assert_eq!(status("/style.css", "text/css,*/*;q=0.1", page).await, 200);
    assert_eq!(status("/f.woff2", any, Some(&style)).await, 200, "what a style names is its part");
    assert_eq!(status("/no.png", image, page).await, 403, "rules hold for parts");
    // Crawlers send Referer as well: what they take is pages.
    assert_eq!(status("/page2", any, page).await, 429);
    assert_eq!(status("/i.png", any, page).await, 429);
    assert_eq!(status("/page2", "text/html, image/*", page).await, 429);
    assert_eq!(status("/i.png", image, None).await, 429);
    assert_eq!(status("/i.png", image, Some(&origin.url("/page2"))).await, 429, "nobody has had that page");
    assert_eq!(status("/s.js", "*/*\r\nSec-Fetch-Dest: empty", page).await, 429, "a script asked for it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subresource_waits_like_a_page_by_default() {
    let origin = Origin::site(&delay("1")).await;
    let proxy = Proxy::start("").await;
    assert_eq!(proxy.get(&origin.url("/page0")).await.status(), 200);
    let mut client = proxy.client().await;
    client.send(part("image", &origin.url("/page1.png"), &origin.authority("a.localhost"))).await;
    assert_eq!(client.response().await.status(), 200);
    assert_gaps(&origin, 1, SECOND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_on_a_subresource_pauses_pages() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text("User-agent: *\nCrawl-delay: 0.1\n"),
        "/i.png" => Reply::status(429).field("Retry-After", "2"),
        _ => Reply::text("page"),
    })
    .await;
    let host = origin.authority("a.localhost");
    let proxy = Proxy::start("pace: { subresources: burst }").await;
    assert_eq!(proxy.get(&origin.url("/page0")).await.status(), 200);
    let mut client = proxy.client().await;
    // The proxy has the answer before this client has.
    let told = Instant::now();
    client.send(part("image", &origin.url("/i.png"), &host)).await;
    assert_eq!(client.response().await.status(), 429);
    assert_eq!(proxy.get(&origin.url("/page1")).await.status(), 200);
    assert!(told.elapsed() >= 2 * SECOND, "{:?}", told.elapsed());
}

/// Each wait counts from the last request that was sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn report_mode_reports_the_wait_without_delaying() {
    let origin = Origin::site(&delay("100")).await;
    let proxy = Proxy::start("mode: report\npace: { max_wait: 5m }").await;
    let told = async |page: &str| {
        let response = proxy.get(&origin.url(page)).await;
        assert_eq!(response.status(), 200);
        response.head.proxy_status_parameter("details")
    };
    assert_eq!(told("/page0").await, None, "the first would have gone at once");
    for page in ["/page1", "/page2"] {
        let held = told(page).await.expect("it would have waited");
        assert!(held.starts_with("it would have waited ") && held.ends_with(" s for its crawl-delay"), "{held}");
    }
    proxy.reload("mode: report\npace: { max_wait: 1s }").expect("a good configuration");
    let late = told("/page3").await.expect("it would have been refused");
    assert!(late.contains("over max_wait"), "{late}");
}

/// The starts of report mode are kept like others: across a reload and a restart, for the host and for a group's delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delay_counts_from_the_last_start_of_report_mode() {
    for (robots, pace) in [(delay("100"), ""), (String::new(), "min_delay: 100s, ")] {
        let enforced = format!("pace: {{ {pace}max_wait: 0 }}");
        let origin = Origin::site(&robots).await;
        let mut proxy = Proxy::start(&format!("mode: report\n{enforced}")).await;
        for page in 0..10 {
            assert_eq!(proxy.get(&origin.url(&format!("/page{page}"))).await.status(), 200);
        }
        let refused = async |proxy: &Proxy| {
            let response = proxy.get(&origin.url("/page")).await;
            let told: u64 = response.field("retry-after").expect("when to come back").parse().expect("seconds");
            assert!(response.status() == 429 && (60..=101).contains(&told), "{} {told}", response.status());
        };
        proxy.reload(&enforced).expect("a good configuration");
        refused(&proxy).await;
        proxy = Proxy::start_in(proxy.shutdown().await, &enforced).await;
        refused(&proxy).await;
    }
}

fn no_ipv6() {
    eprintln!("skipped: there is no ::1 here, or nothing to listen on there");
}

/// The first address of the name does not answer; the second has sent Retry-After.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subresource_does_not_burst_to_a_second_address_that_is_paused() {
    let nobody = nobody();
    let answer = |seen: &crate::support::Seen| match &seen.target[..] {
        b"/busy" => Reply::status(429).field("Retry-After", "3"),
        _ => Reply::text("x"),
    };
    let Ok(origin) = Origin::try_http_on(&beside(&nobody), answer).await else { return no_ipv6() };
    let rules = "pace: { key: address, subresources: burst, min_delay: 100ms }\nhosts: { '*': { robots: ignore } }";
    let proxy = Proxy::start(rules).await;
    let busy = origin.authority("[::1]");
    let (start, host) = (Instant::now(), origin.authority("a.localhost"));
    assert_eq!(proxy.client().await.get(&format!("http://{busy}/busy"), &busy).await.status(), 429);
    let mut client = proxy.client().await;
    client.send(part("image", &format!("http://{host}/i"), &host)).await;
    assert_eq!(client.response().await.status(), 200);
    assert!(start.elapsed() >= SECOND * 3, "after {:?}", start.elapsed());
}

/// Its pooled connection has ended, so it is retried, but not before Retry-After and the delay have passed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subresource_retry_does_not_burst_while_the_host_is_paused() {
    let answer = |seen: &crate::support::Seen| match &seen.target[..] {
        b"/busy" => Reply::status(429).field("Retry-After", "1"),
        b"/i" => Reply::silence(),
        _ => Reply::text("x"),
    };
    let origin = Origin::http(answer).await;
    let way = Relay::to(origin.address()).await;
    let rules = "pace: { subresources: burst, min_delay: 30s }\nhosts: { '*': { robots: ignore } }";
    let proxy = Proxy::start(rules).await;
    let host = format!("a.localhost:{}", way.address.port());
    let url = |page: &str| format!("http://{host}{page}");
    let mut one = proxy.client().await;
    one.send(part("image", &url("/warm"), &host)).await;
    assert_eq!(one.response().await.status(), 200);
    one.send(part("image", &url("/i"), &host)).await;
    eventually("the part", || origin.log.count("/i") == 1).await;
    assert_eq!(proxy.get(&url("/busy")).await.status(), 429);
    way.cut();
    eventually("its wait", || proxy.waiting() == 1).await;
    tokio::time::sleep(SECOND * 3).await;
    assert_eq!(origin.log.count("/i"), 1, "it is not sent again before");
}
