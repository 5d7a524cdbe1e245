//! Copies of robots.txt growing old (RFC 9309 §2.4, RFC 9111): renewed behind the scenes, kept when they cannot be.

use crate::support::{Origin, Proxy, Reply, Seen, eventually};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The first answer to robots.txt, then another for every later request; every page with 200.
async fn changing(first: Reply, later: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Origin {
    let fetches = Arc::new(AtomicUsize::new(0));
    Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" if fetches.fetch_add(1, Ordering::SeqCst) == 0 => first.clone(),
        "/robots.txt" => later(seen),
        _ => Reply::text("page"),
    })
    .await
}

const SHORT: &str = "robots: { min_ttl: 1s, max_ttl: 1s }";
const OLD: &str = "User-agent: *\nDisallow: /old\n";
const NEW: &str = "User-agent: *\nDisallow: /new\n";

async fn status(proxy: &Proxy, origin: &Origin, target: &str) -> u16 {
    proxy.get(&origin.url(target)).await.status()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_copy_decides_until_it_is_renewed() {
    let origin = changing(Reply::text(OLD), |_| Reply::text(NEW).after(Duration::from_secs(4))).await;
    let proxy = Proxy::start(SHORT).await;
    assert_eq!((status(&proxy, &origin, "/old").await, status(&proxy, &origin, "/new").await), (403, 200));
    tokio::time::sleep(Duration::from_millis(1100)).await;
    // The copy is stale now: this request starts the renewal and is answered by the old rules all the same.
    assert_eq!(status(&proxy, &origin, "/old").await, 403);
    eventually("the renewal's start", || origin.log.count("/robots.txt") == 2).await;
    assert_eq!(status(&proxy, &origin, "/new").await, 200, "nobody waits for the renewal");
    crate::support::within("the new rules", async {
        while status(&proxy, &origin, "/new").await != 403 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(status(&proxy, &origin, "/old").await, 200, "rules are swapped whole");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_is_revalidated_with_its_validators() {
    let first = Reply::text(OLD).field("ETag", "\"v1\"").field("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT");
    let origin = changing(first, |_| Reply::status(304).field("ETag", "\"v1\"")).await;
    let proxy = Proxy::start(SHORT).await;
    assert_eq!(status(&proxy, &origin, "/old").await, 403);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(status(&proxy, &origin, "/old").await, 403);
    eventually("the renewal", || origin.log.count("/robots.txt") == 2).await;
    let again = &origin.log.of("/robots.txt")[1];
    assert_eq!(again.field("if-none-match"), Some("\"v1\""));
    assert_eq!(again.field("if-modified-since"), Some("Mon, 01 Jan 2024 00:00:00 GMT"));
    assert_eq!((status(&proxy, &origin, "/old").await, status(&proxy, &origin, "/x").await), (403, 200));
}

/// After raising `max_size`, a 304 would keep the same truncated copy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn truncated_copy_is_fetched_unconditionally() {
    let long = format!("User-agent: *\n{}Disallow: /late\n", "# filler\n".repeat(60_000));
    let origin = Origin::http(move |seen| match (seen.path().as_str(), seen.field("if-none-match")) {
        ("/robots.txt", Some(_)) => Reply::status(304),
        ("/robots.txt", None) => Reply::text(long.clone()).field("ETag", "\"v1\""),
        _ => Reply::text("page"),
    })
    .await;
    let limited = |size: &str| format!("robots: {{ min_ttl: 1s, max_ttl: 1s, max_size: {size} }}");
    let proxy = Proxy::start(&limited("500KiB")).await;
    assert_eq!(status(&proxy, &origin, "/late").await, 200);
    proxy.reload(&limited("1MiB")).unwrap();
    crate::support::within("the whole file", async {
        while status(&proxy, &origin, "/late").await != 403 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn last_good_copy_is_kept_while_robots_txt_is_unreachable() {
    for later in [Reply::status(500), Reply::status(429), Reply::reset()] {
        let origin = changing(Reply::text(OLD), move |_| later.clone()).await;
        let proxy = Proxy::start(SHORT).await;
        assert_eq!(status(&proxy, &origin, "/old").await, 403);
        tokio::time::sleep(Duration::from_millis(1100)).await;
        status(&proxy, &origin, "/old").await;
        eventually("the renewal", || origin.log.count("/robots.txt") >= 2).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!((status(&proxy, &origin, "/old").await, status(&proxy, &origin, "/x").await), (403, 200));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_robots_txt_is_retried_after_its_retry_after() {
    let origin = changing(Reply::status(503).field("Retry-After", "1"), |_| Reply::text(OLD)).await;
    let proxy = Proxy::start("").await;
    let refused = proxy.get(&origin.url("/x")).await;
    assert_eq!((refused.status(), refused.field("retry-after")), (503, Some("1")));
    crate::support::within("the second try", async {
        while status(&proxy, &origin, "/x").await != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let gaps = origin.log.gaps("/robots.txt");
    assert!(gaps[0] >= Duration::from_secs(1), "{gaps:?}");
    assert_eq!((origin.log.count("/robots.txt"), status(&proxy, &origin, "/old").await), (2, 403));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn max_age_sets_the_lifetime_within_min_and_max_ttl() {
    let long = changing(Reply::text(OLD).field("Cache-Control", "max-age=3600"), |_| Reply::text(NEW)).await;
    let short = changing(Reply::text(OLD).field("Cache-Control", "max-age=1"), |_| Reply::text(NEW)).await;
    let proxy = Proxy::start("robots: { min_ttl: 0 }").await;
    for origin in [&long, &short] {
        assert_eq!(status(&proxy, origin, "/old").await, 403);
    }
    tokio::time::sleep(Duration::from_millis(1100)).await;
    for origin in [&long, &short] {
        status(&proxy, origin, "/old").await;
    }
    eventually("the renewal", || short.log.count("/robots.txt") == 2).await;
    assert_eq!(long.log.count("/robots.txt"), 1);
    // By default, not even an origin that forbids keeping is asked more often than every five minutes.
    let never = changing(Reply::text(OLD).field("Cache-Control", "no-store, max-age=0"), |_| Reply::text(NEW)).await;
    let proxy = Proxy::start("").await;
    for _ in 0..3 {
        assert_eq!(status(&proxy, &never, "/old").await, 403);
    }
    assert_eq!(never.log.count("/robots.txt"), 1);
}

/// RFC 9110 §13.1: a 304 stands for a 200. To the validators of an error page, it would mean that the file is still missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_robots_txt_is_fetched_unconditionally() {
    for status in [404, 204] {
        let first =
            Reply::status(status).field("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT").field("ETag", "\"a\"");
        let origin = changing(first, |seen| match seen.field("if-none-match").or(seen.field("if-modified-since")) {
            Some(_) => Reply::status(304),
            None => Reply::text(NEW),
        })
        .await;
        let proxy = Proxy::start(SHORT).await;
        crate::support::within("the new rules", async {
            while self::status(&proxy, &origin, "/new").await != 403 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }
}

/// The 304 confirms nothing: the file is fetched at once, not after the wait that follows a failure.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn robots_304_with_another_etag_is_followed_by_a_full_fetch() {
    let origin = changing(Reply::text(OLD).field("ETag", "\"a\""), |seen| match seen.field("if-none-match") {
        Some(_) => Reply::status(304).field("ETag", "\"b\"").field("Retry-After", "3600"),
        None => Reply::text(NEW),
    })
    .await;
    let proxy = Proxy::start(SHORT).await;
    assert_eq!(status(&proxy, &origin, "/old").await, 403);
    crate::support::within("the new rules", async {
        while status(&proxy, &origin, "/new").await != 403 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}
