//! What a restart and a `kill -9` leave: copies with their ages and validators, failures, and the pace that is owed.

use super::{KEEP_OUT, origin};
use crate::support::{Binary, Client, Origin, Proxy, Reply, at_once, eventually, within};
use std::collections::HashSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

async fn status(proxy: &Binary, url: &str) -> u16 {
    let host = url.split('/').nth(2).expect("an absolute URL");
    Client::open(proxy.address()).await.get(url, host).await.status()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_survives_a_restart_with_its_age_and_validators() {
    let origin = origin(|seen| match seen.field("if-none-match") {
        Some(_) => Reply::status(304),
        None => Reply::text(KEEP_OUT).field("ETag", "\"v1\"").field("Cache-Control", "max-age=5"),
    })
    .await;
    let yaml = "robots: { min_ttl: 0 }";
    let proxy = Proxy::start(yaml).await;
    assert_eq!(proxy.get(&origin.url("/private")).await.status(), 403);
    let directory = proxy.shutdown().await;
    let proxy = Proxy::start_in(directory, yaml).await;
    let copy = proxy.get(&origin.url("/robots.txt")).await;
    assert_eq!((copy.text().as_str(), copy.field("etag")), (KEEP_OUT, Some("\"v1\"")));
    assert_eq!(proxy.get(&origin.url("/private")).await.status(), 403);
    assert_eq!(origin.log.count("/robots.txt"), 1, "what is fresh is not fetched again");
    tokio::time::sleep(Duration::from_millis(5100)).await;
    let directory = proxy.shutdown().await;
    let proxy = Proxy::start_in(directory, yaml).await;
    assert_eq!(proxy.get(&origin.url("/private")).await.status(), 403, "a stale copy is used at once");
    eventually("the renewal", || origin.log.count("/robots.txt") == 2).await;
    assert_eq!(origin.log.of("/robots.txt")[1].field("if-none-match"), Some("\"v1\""));
    eventually("the confirmation", || origin.log.of("/robots.txt").len() == 2).await;
    let copy = proxy.get(&origin.url("/robots.txt")).await;
    assert_eq!((copy.text().as_str(), copy.field("etag")), (KEEP_OUT, Some("\"v1\"")));
}

/// Each directory that others can enter is named once per start, and left unchanged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directories_open_to_others_cause_a_warning() {
    for (mode, warnings) in [(0o700, 0), (0o755, 2)] {
        let home = tempfile::tempdir().expect("a temporary directory");
        let [store, cache] = ["store", "cache"].map(|name| home.path().join(name));
        for directory in [&store, &cache] {
            std::fs::create_dir(directory).expect("it is writable");
            std::fs::set_permissions(directory, Permissions::from_mode(mode)).expect("it is ours");
        }
        let yaml =
            format!("store: {{ directory: '{}' }}\ncache: {{ directory: '{}' }}", store.display(), cache.display());
        let proxy = Binary::serve(&yaml).await;
        let told = proxy.output();
        assert_eq!(told.matches("other users can see").count(), warnings, "{told}");
        let now = std::fs::metadata(&store).expect("it is there").permissions().mode();
        assert_eq!(now & 0o777, mode);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_and_unreachable_states_survive_a_restart() {
    let missing = origin(|_| Reply::status(404)).await;
    let broken = origin(|_| Reply::status(503).field("Retry-After", "600")).await;
    let proxy = Proxy::start("").await;
    assert_eq!(proxy.get(&missing.url("/open")).await.status(), 200);
    assert_eq!(proxy.get(&broken.url("/open")).await.status(), 503);
    let proxy = Proxy::start_in(proxy.shutdown().await, "").await;
    assert_eq!(proxy.get(&missing.url("/open")).await.status(), 200);
    let refused = proxy.get(&broken.url("/open")).await;
    let told: u64 = refused.field("retry-after").expect("when to come back").parse().expect("seconds");
    assert!(refused.status() == 503 && (570..=600).contains(&told), "{told}");
    assert_eq!((missing.log.count("/robots.txt"), broken.log.count("/robots.txt")), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crawl_delay_debt_survives_a_kill() {
    let origin = origin(|_| Reply::text("User-agent: *\nCrawl-delay: 5\n")).await;
    let proxy = Binary::serve("").await;
    assert_eq!(status(&proxy, &origin.url("/open")).await, 200);
    let proxy = Binary::serve_in(proxy.kill().await, "").await;
    assert_eq!(status(&proxy, &origin.url("/private")).await, 200);
    let gap = origin.log.one("/private").at - origin.log.one("/open").at;
    assert!(gap >= Duration::from_millis(4950), "{gap:?}");
}

/// Holds whichever writes have reached the disk by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crawl_delay_debt_survives_a_kill_right_after_a_start() {
    at_once([0, 20, 60, 100].map(|pause| async move {
        let origin = origin(|_| Reply::text("User-agent: *\nCrawl-delay: 2\n")).await;
        let proxy = Binary::serve("").await;
        let (address, url, host) = (proxy.address(), origin.url("/open"), origin.authority("a.localhost"));
        let asks = tokio::spawn(async move { Client::open(address).await.get(&url, &host).await.status() });
        eventually("the page", || origin.log.count("/open") == 1).await;
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let proxy = Binary::serve_in(proxy.kill().await, "").await;
        asks.abort();
        assert_eq!(status(&proxy, &origin.url("/private")).await, 200);
        let gap = origin.log.one("/private").at - origin.log.one("/open").at;
        assert!(gap >= Duration::from_millis(1950), "killed after {pause} ms: {gap:?}");
    }))
    .await;
}

/// Each start is recorded before its request is sent, so a start that is not recorded has not happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_started_requests_leave_a_debt_after_a_stop_or_kill() {
    async fn page(proxy: &Binary, origin: &Origin) -> u16 {
        let (url, host) = (origin.url("/open"), origin.authority("a.localhost"));
        let request = format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nPrefer: wait=1\r\n\r\n");
        let mut client = Client::open(proxy.address()).await;
        client.send(request).await;
        client.response().await.status()
    }
    let slow = || origin(|_| Reply::text("User-agent: *\nCrawl-delay: 50\n"));
    let (origin, other) = (slow().await, slow().await);
    let proxy = Binary::serve("").await;
    // The copy alone: no page has started.
    assert_eq!(status(&proxy, &origin.url("/robots.txt")).await, 200);
    let proxy = Binary::serve_in(proxy.stop().await, "").await;
    assert_eq!(page(&proxy, &origin).await, 200, "nothing has started");
    let proxy = Binary::serve_in(proxy.stop().await, "").await;
    assert_eq!(page(&proxy, &origin).await, 429, "now it has");
    assert_eq!(status(&proxy, &other.url("/robots.txt")).await, 200);
    let proxy = Binary::serve_in(proxy.kill().await, "").await;
    assert_eq!(page(&proxy, &origin).await, 429, "still");
    assert_eq!(page(&proxy, &other).await, 200, "nothing has started");
    let proxy = Binary::serve_in(proxy.kill().await, "").await;
    assert_eq!(page(&proxy, &other).await, 429, "now it has");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_process_shares_the_store_directory() {
    let origin = origin(|_| Reply::text(KEEP_OUT)).await;
    let first = Binary::serve("").await;
    assert_eq!(status(&first, &origin.url("/private")).await, 403);
    let shared = first.directory().join("store");
    let second = Binary::serve(&format!("store: {{ directory: '{}' }}", shared.display())).await;
    assert_eq!(status(&second, &origin.url("/private")).await, 403);
    assert!(!second.output().contains("another `politely`"), "{}", second.output());
    assert_eq!(origin.log.count("/robots.txt"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_request_after_a_restart_renews_a_stale_copy() {
    let origin = origin(|_| Reply::text("User-agent: *\nDisallow:\n")).await;
    let short = "robots: { min_ttl: 1s, max_ttl: 1s }";
    let proxy = Binary::serve(short).await;
    assert_eq!(status(&proxy, &origin.url("/open")).await, 200);
    let directory = proxy.stop().await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let proxy = Binary::serve_in(directory, short).await;
    assert_eq!(status(&proxy, &origin.url("/open")).await, 200);
    eventually("the renewal", || origin.log.count("/robots.txt") == 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_store_is_set_aside_without_interrupting_service() {
    let origin = origin(|_| Reply::text(KEEP_OUT)).await;
    let proxy = Binary::serve("").await;
    assert_eq!(status(&proxy, &origin.url("/private")).await, 403);
    let directory = proxy.stop().await;
    let file = directory.path().join("store/robots.index");
    std::fs::write(&file, "no index").expect("it is there");
    let proxy = Binary::serve_in(directory, "").await;
    assert_eq!(status(&proxy, &origin.url("/private")).await, 403);
    assert!(proxy.output().contains("was renamed to"), "{}", proxy.output());
    let directory = proxy.stop().await;
    let names = std::fs::read_dir(directory.path().join("store")).expect("it is there").flatten();
    let names: Vec<_> = names.filter(|it| it.file_name().to_string_lossy().starts_with("robots.index")).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    let proxy = Binary::serve_in(directory, "").await;
    assert_eq!(status(&proxy, &origin.url("/private")).await, 403);
    assert_eq!(origin.log.count("/robots.txt"), 2, "the new store holds it");
}

/// Every host has rules of its own, so that a mix-up would show.
async fn hosts(fetched: Arc<AtomicUsize>) -> Origin {
    Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => {
            fetched.fetch_add(1, Ordering::SeqCst);
            let host = seen.host.split('.').next().unwrap_or_default();
            Reply::text(format!("User-agent: *\nDisallow: /{host}\n# {}\n", "filler ".repeat(300)))
        }
        _ => Reply::text("page"),
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_at_any_moment_keeps_fresh_copies_and_no_torn_ones() {
    let fetched = Arc::new(AtomicUsize::new(0));
    let origin = hosts(fetched.clone()).await;
    let mut proxy = Binary::serve("").await;
    let mut settled: HashSet<usize> = HashSet::new();
    let mut next = 0;
    for round in 0..8 {
        let before = origin.log.count("/robots.txt");
        // Copies stored well before the kill are still there, and intact.
        for &host in &settled {
            let (url, other) = (format!("/h{host}"), format!("/h{}", host + 1));
            let at = format!("h{host}.localhost");
            assert_eq!(status(&proxy, &origin.url_at(&at, &url)).await, 403, "round {round}, host {host}");
            assert_eq!(status(&proxy, &origin.url_at(&at, &other)).await, 200, "round {round}, host {host}");
        }
        assert_eq!(origin.log.count("/robots.txt"), before, "round {round}: nothing that was fresh is fetched again");
        let fresh: Vec<_> = (next..next + 12).collect();
        next += 12;
        for &host in &fresh {
            let at = format!("h{host}.localhost");
            assert_eq!(status(&proxy, &origin.url_at(&at, &format!("/h{host}"))).await, 403);
        }
        // Written behind the answers, a second later at most.
        tokio::time::sleep(Duration::from_millis(1300)).await;
        settled.extend(&fresh);
        // Killed at some moment of a storm of further writes.
        let storm = {
            let (address, port) = (proxy.address(), origin.port());
            tokio::spawn(async move {
                for host in next.. {
                    let at = format!("h{host}.localhost:{port}");
                    let mut client = Client::open(address).await;
                    if client.try_send(crate::support::client::get(&format!("http://{at}/x"), &at)).await.is_err() {
                        return;
                    }
                    if client.try_head().await.is_none() {
                        return;
                    }
                }
            })
        };
        tokio::time::sleep(Duration::from_millis(37 * (round + 1))).await;
        let directory = proxy.kill().await;
        storm.abort();
        next += 1000;
        proxy = within("the next start", Binary::serve_in(directory, "")).await;
        assert!(!proxy.output().contains("was renamed to"), "{}", proxy.output());
    }
}
