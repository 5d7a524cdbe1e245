//! Getting robots.txt (RFC 9309 §2.3): when, how, and what each answer means for the pages.

use crate::support::{Alpn, Origin, Protocol, Proxy, Reply, Seen, assert_refused};
use std::io::Write;
use std::time::Duration;

pub const KEEP_OUT: &str = "User-agent: *\nDisallow: /private\n";

/// An origin whose robots.txt is answered by `robots`, and every page with 200.
pub async fn origin(robots: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Origin {
    Origin::http(move |seen| if seen.path() == "/robots.txt" { robots(seen) } else { Reply::text("page") }).await
}

/// The status of a page that [`KEEP_OUT`] disallows, and of one that it allows.
pub async fn statuses(proxy: &Proxy, origin: &Origin) -> (u16, u16) {
    let private = proxy.get(&origin.url("/private")).await.status();
    (private, proxy.get(&origin.url("/open")).await.status())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_requests_fetch_robots_txt_once() {
    let origin = origin(|_| Reply::text(KEEP_OUT).after(Duration::from_millis(300))).await;
    let proxy = std::sync::Arc::new(Proxy::start("pace: { max_concurrent: 100 }").await);
    let mut all = tokio::task::JoinSet::new();
    for number in 0..60 {
        let url = origin.url(if number % 2 == 0 { "/private" } else { "/open" });
        let proxy = proxy.clone();
        all.spawn(async move { proxy.get(&url).await.status() });
    }
    let mut statuses = all.join_all().await;
    statuses.sort_unstable();
    assert_eq!((statuses[..30].to_vec(), statuses[30..].to_vec()), (vec![200; 30], vec![403; 30]));
    assert_eq!((origin.log.count("/robots.txt"), origin.log.count("/open"), origin.log.count("/private")), (1, 30, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_arriving_as_a_fetch_ends_does_not_fetch_again() {
    const HOSTS: usize = 100;
    let origin = origin(|_| Reply::text(KEEP_OUT)).await;
    let proxy = std::sync::Arc::new(Proxy::start("pace: { max_concurrent: 100 }").await);
    let mut all = tokio::task::JoinSet::new();
    for number in 0..HOSTS * 8 {
        let url = origin.url_at(&format!("h{}.localhost", number / 8), "/private");
        let proxy = proxy.clone();
        all.spawn(async move { proxy.get(&url).await.status() });
    }
    assert!(all.join_all().await.into_iter().all(|status| status == 403));
    assert_eq!(origin.log.targets(), vec!["/robots.txt"; HOSTS]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_authority_has_its_own_robots_txt() {
    let by_host = |seen: &Seen| match seen.path().as_str() {
        "/robots.txt" if seen.host.starts_with("a.") => Reply::text("User-agent: *\nDisallow: /a\n"),
        "/robots.txt" => Reply::text("User-agent: *\nDisallow: /b\n"),
        _ => Reply::text("page"),
    };
    let plain = Origin::http(by_host).await;
    let tls = Origin::https(Alpn::H1, by_host).await;
    let proxy = Proxy::start("").await;
    for origin in [&plain, &tls] {
        for (host, target, status) in [
            ("a.localhost", "/a", 403),
            ("a.localhost", "/b", 200),
            ("b.localhost", "/a", 200),
            ("b.localhost", "/b", 403),
        ] {
            assert_eq!(proxy.get(&origin.url_at(host, target)).await.status(), status, "{host} {target}");
        }
        assert_eq!(origin.log.count("/robots.txt"), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn robots_fetch_names_the_crawler_and_no_client_fields() {
    let origin = origin(|_| Reply::text("")).await;
    let proxy = Proxy::start("identity: { product_tokens: [ExampleBot], contact: 'https://example.com/bot' }").await;
    let got = proxy
        .curl(&[
            "-A",
            "Mozilla/5.0",
            "-u",
            "user:secret",
            "-b",
            "session=secret",
            "-e",
            "http://secret/",
            &origin.url("/x?secret"),
        ])
        .await;
    assert_eq!(got.status(), 200);
    let fetch = origin.log.one("/robots.txt");
    assert_eq!((fetch.method.as_str(), fetch.host.as_str()), ("GET", origin.authority("a.localhost").as_str()));
    let agent = fetch.field("user-agent").unwrap();
    assert!(agent.contains("ExampleBot") && agent.contains("https://example.com/bot"), "{agent}");
    let coding = fetch.field("accept-encoding").unwrap();
    assert!(["gzip", "br", "zstd"].iter().all(|name| coding.contains(name)), "{coding}");
    assert!(!String::from_utf8_lossy(&fetch.head).contains("secret"));
    assert_eq!(origin.log.one("/x?secret").field("user-agent"), Some("Mozilla/5.0"), "requests keep their own");
}

/// RFC 9113 §8.3.1: over HTTP/2, only `:authority` names the host. nginx answers 400 if Host is sent too, which would mean "no robots.txt".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn robots_fetch_over_http2_is_accepted_by_a_strict_origin() {
    let origin = Origin::tls_site(Alpn::H2, KEEP_OUT).await;
    let proxy = Proxy::start("").await;
    assert_eq!(statuses(&proxy, &origin).await, (403, 200));
    let fetch = origin.log.one("/robots.txt");
    assert_eq!((fetch.protocol, fetch.all("host")), (Protocol::Http2, vec![]));
    assert_eq!(fetch.host, origin.authority("a.localhost"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_redirects_are_followed_and_six_allow_everything() {
    for status in [301, 302, 303, 307, 308] {
        let hops = |first: u32| {
            move |seen: &Seen| {
                let path = seen.path();
                let left = path.strip_prefix("/hop/").map_or(first, |left| left.parse().unwrap());
                match left {
                    _ if path != "/robots.txt" && !path.starts_with("/hop/") => Reply::text("page"),
                    0 => Reply::text(KEEP_OUT),
                    left => Reply { status, ..Reply::redirect(format!("/hop/{}", left - 1)) },
                }
            }
        };
        let (five, six) = (Origin::http(hops(5)).await, Origin::http(hops(6)).await);
        let proxy = Proxy::start("").await;
        assert_eq!(statuses(&proxy, &five).await, (403, 200), "{status}");
        assert_eq!(statuses(&proxy, &six).await, (200, 200), "{status}");
        assert_eq!(six.log.count("/hop/0"), 0, "the sixth is not followed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirected_rules_apply_to_the_original_authority() {
    let elsewhere = Origin::tls_site(Alpn::H1, KEEP_OUT).await;
    let target = elsewhere.url_at("b.localhost", "/robots.txt");
    let away = origin(move |_| Reply::redirect(target.clone())).await;
    let proxy = Proxy::start("").await;
    assert_eq!(statuses(&proxy, &away).await, (403, 200));
    assert_eq!((away.log.pages(), elsewhere.log.pages().len()), (vec!["/open".to_owned()], 0));
    let fetch = elsewhere.log.one("/robots.txt");
    assert_eq!(fetch.host, elsewhere.authority("b.localhost"));
    for name in ["authorization", "cookie", "referer"] {
        assert_eq!(fetch.field(name), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirect_loop_or_missing_location_allows_everything() {
    let circle = origin(|_| Reply::redirect("/robots.txt")).await;
    let nowhere = origin(|_| Reply::status(302)).await;
    let proxy = Proxy::start("").await;
    assert_eq!(statuses(&proxy, &circle).await, (200, 200));
    assert_eq!(statuses(&proxy, &nowhere).await, (200, 200));
    assert!(circle.log.count("/robots.txt") <= 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn egress_rules_apply_to_each_redirect_hop() {
    let Ok(inside) = Origin::try_http_on("127.0.0.2:0", crate::support::origin::pages(KEEP_OUT)).await else {
        return;
    };
    let target = inside.url_at("127.0.0.2", "/robots.txt");
    let origin = origin(move |_| Reply::redirect(target.clone())).await;
    let proxy = Proxy::start("egress: { deny: [127.0.0.2/32] }").await;
    let refused = proxy.get(&origin.url("/open")).await;
    assert_refused(&refused, 503, "destination_unavailable", "robots-unreachable");
    assert_eq!(inside.connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compressed_robots_txt_is_read() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(KEEP_OUT.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let zstd = zstd::encode_all(KEEP_OUT.as_bytes(), 3).unwrap();
    let mut brotli = Vec::new();
    brotli::BrotliCompress(&mut KEEP_OUT.as_bytes(), &mut brotli, &Default::default()).unwrap();
    for (coding, body) in [("gzip", gzip), ("zstd", zstd), ("br", brotli)] {
        let origin = origin(move |_| Reply::text(&body).field("Content-Encoding", coding)).await;
        let proxy = Proxy::start("").await;
        assert_eq!(statuses(&proxy, &origin).await, (403, 200), "{coding}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_first_500_kib_of_robots_txt_count() {
    let long = |padding: usize| format!("{KEEP_OUT}#{}\nDisallow: /late\n", "x".repeat(padding));
    let within = origin({
        let text = long(511_900);
        move |_| Reply::text(&text)
    })
    .await;
    let beyond = origin({
        let text = long(2_000_000);
        move |_| Reply::text(&text)
    })
    .await;
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    bomb.write_all(KEEP_OUT.as_bytes()).unwrap();
    for _ in 0..800 {
        bomb.write_all(&[b'\n'; 64 * 1024]).unwrap();
    }
    let bomb = bomb.finish().unwrap();
    let bomb = origin(move |_| Reply::text(&bomb).field("Content-Encoding", "gzip")).await;
    let proxy = Proxy::start("").await;
    for (origin, late) in [(&within, 403), (&beyond, 200), (&bomb, 200)] {
        assert_eq!(statuses(&proxy, origin).await, (403, 200));
        assert_eq!(proxy.get(&origin.url("/late")).await.status(), late);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn html_in_place_of_robots_txt_allows_everything() {
    let origin = origin(|_| {
        Reply::text("<!doctype html><html><body>Not found</body></html>").field("content-type", "text/html")
    })
    .await;
    let proxy = Proxy::start("").await;
    assert_eq!(statuses(&proxy, &origin).await, (200, 200));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_for_robots_txt_is_answered_from_our_copy() {
    let origin = origin(|_| Reply::text("User-agent: *\nDisallow: /\n").field("ETag", "\"v1\"")).await;
    let proxy = Proxy::start("").await;
    for _ in 0..3 {
        let response = proxy.get(&origin.url("/robots.txt")).await;
        assert_eq!((response.status(), response.text().as_str()), (200, "User-agent: *\nDisallow: /\n"));
        let age: u64 = response.field("age").expect("how old the copy is").parse().unwrap();
        assert!(age < 60);
    }
    assert_eq!(proxy.get(&origin.url("/")).await.status(), 403);
    assert_eq!(origin.log.targets(), ["/robots.txt"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_for_a_missing_robots_txt_is_404() {
    let origin = origin(|_| Reply::status(404).body("no such file")).await;
    let proxy = Proxy::start("").await;
    for _ in 0..2 {
        assert_eq!(proxy.get(&origin.url("/robots.txt")).await.status(), 404);
    }
    assert_eq!(proxy.get(&origin.url("/x")).await.status(), 200);
}
