//! Several processes on one machine that use one store: one pace for each host, one fetch of each robots.txt, whoever of
//! them ends and however.

use crate::origin;
use crate::support::binary::{Binary, Ended, politely_with};
use crate::support::{Client, Origin, Reply, eventually, test_ca};
use std::path::Path;
use std::time::{Duration, Instant};

/// What the machine's noise may take off: an origin that is scheduled late, as while processes start, sees the first of two
/// requests late. Over all of them it takes off no more.
const LATE: Duration = Duration::from_millis(250);
const GAP: Duration = Duration::from_millis(500);

async fn slow() -> Origin {
    site("0.5").await
}

async fn site(delay: &str) -> Origin {
    let robots = format!("User-agent: *\nCrawl-delay: {delay}\nDisallow: /private\n");
    Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(robots.clone()),
        _ => Reply::text("page"),
    })
    .await
}

/// With its store in this directory.
async fn serve(directory: &Path) -> Binary {
    Binary::serve(&format!("store: {{ directory: '{}' }}", directory.display())).await
}

/// `run` of so many requests one after the other.
async fn run(home: &Path, origin: &Origin, name: &str, count: usize) -> Ended {
    let script =
        format!("for i in $(seq {count}); do curl -q -sS -o /dev/null -f {}/$i || exit 9; done", origin.url(name));
    let (home, roots) = (home.to_str().expect("UTF-8"), test_ca().pem_file().to_str().expect("UTF-8"));
    let variables = [
        ("STATE_DIRECTORY", home),
        ("POLITELY_EGRESS__ALLOW", "[127.0.0.0/8]"),
        ("POLITELY_EGRESS__PORTS", "[\"1-65535\"]"),
        ("POLITELY_EGRESS__CA_FILE", roots),
    ];
    politely_with(&["run", "sh", "-c", &script], &variables).await
}

async fn get(proxy: &Binary, url: &str) -> u16 {
    let host = url.split('/').nth(2).expect("an absolute URL").to_owned();
    Client::open(proxy.address()).await.get(url, &host).await.status()
}

/// Asks for page after page until it is dropped, or its proxy is gone.
fn crawl(proxy: &Binary, origin: &Origin, name: &str) -> tokio::task::JoinHandle<()> {
    let (address, host) = (proxy.address(), origin.authority("a.localhost"));
    let url = origin.url(name);
    tokio::spawn(async move {
        for number in 0.. {
            let mut client = Client::open(address).await;
            let request = format!("GET {url}/{number} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            if client.try_send(request).await.is_err() || client.try_head().await.is_none() {
                return;
            }
        }
    })
}

#[track_caller]
fn assert_gaps(origin: &Origin, gap: Duration, at_least: usize) {
    let gaps = origin.log.gaps("/page");
    assert!(gaps.len() + 1 >= at_least, "{}: {:?}", gaps.len() + 1, origin.log.targets());
    assert!(gaps.iter().all(|&measured| measured + LATE >= gap), "{gaps:?}, not {gap:?}");
    let all: Duration = gaps.iter().sum();
    assert!(all + LATE >= gap * gaps.len() as u32, "{gaps:?}, not {gap:?} on average");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_serve_and_two_runs_keep_one_pace_and_fetch_robots_once() {
    let origin = slow().await;
    let home = tempfile::tempdir().expect("a temporary directory");
    let proxy =
        Binary::serve_with("store: { directory: ~ }", &[("STATE_DIRECTORY", home.path().to_str().expect("UTF-8"))])
            .await;
    let crawl = crawl(&proxy, &origin, "/page/serve");
    let (one, other) =
        tokio::join!(run(home.path(), &origin, "/page/one", 7), run(home.path(), &origin, "/page/other", 7));
    crawl.abort();
    for ended in [one, other] {
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert!(!ended.stderr.contains("another politely") && !ended.stderr.contains("warn"), "{}", ended.stderr);
    }
    assert_gaps(&origin, GAP, 20);
    assert_eq!(origin.log.count("/robots.txt"), 1);
    assert!(!proxy.output().contains("another politely"), "{}", proxy.output());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_gets_its_share_of_the_turns() {
    let origin = site("0.1").await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (one, other) = (serve(directory.path()).await, serve(directory.path()).await);
    let crawls = [crawl(&one, &origin, "/page/one"), crawl(&other, &origin, "/page/other")];
    let both = || ["/page/one", "/page/other"].map(|name| origin.log.gaps(name).len());
    eventually("turns of both", || both().iter().all(|count| *count > 15)).await;
    crawls.iter().for_each(tokio::task::JoinHandle::abort);
    assert_gaps(&origin, Duration::from_millis(100), 30);
}

/// The one that the others ask, in the middle of it all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_killed_is_taken_over_and_nobodys_gap_is_broken() {
    let origin = slow().await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let first = serve(directory.path()).await;
    let (second, third) = (serve(directory.path()).await, serve(directory.path()).await);
    let crawls = [(&first, "one"), (&second, "two"), (&third, "three")]
        .map(|(proxy, name)| crawl(proxy, &origin, &format!("/page/{name}")));
    let pages = || origin.log.gaps("/page").len();
    eventually("pages", || pages() >= 6).await;
    let (killed, before) = (Instant::now(), pages());
    drop(first.kill().await);
    eventually("the next page", || pages() > before).await;
    assert!(killed.elapsed() < GAP + Duration::from_secs(2), "{:?}", killed.elapsed());
    eventually("pages of the others", || pages() >= before + 8).await;
    // What was known is known, and what is new is kept by whoever has the store now.
    let other = origin_of_rules().await;
    assert_eq!(get(&second, &other.url("/private")).await, 403);
    assert_eq!(get(&third, &other.url("/private")).await, 403);
    crawls.iter().for_each(tokio::task::JoinHandle::abort);
    assert_gaps(&origin, GAP, 14);
    tokio::time::sleep(Duration::from_millis(300)).await;
    drop((second.kill().await, third.kill().await));
    let last = serve(directory.path()).await;
    assert_eq!(get(&last, &other.url("/private")).await, 403);
    assert_eq!(get(&last, &origin.url("/private")).await, 403);
    assert_eq!((origin.log.count("/robots.txt"), other.log.count("/robots.txt")), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_has_just_started_counts_for_one_that_comes_and_one_that_stays() {
    let origin = site("2").await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let first = serve(directory.path()).await;
    assert_eq!(get(&first, &origin.url("/page/1")).await, 200);
    let second = serve(directory.path()).await;
    assert_eq!(get(&second, &origin.url("/page/2")).await, 200);
    drop(second.stop().await);
    assert_eq!(get(&first, &origin.url("/page/3")).await, 200);
    let third = serve(directory.path()).await;
    drop(first.stop().await);
    assert_eq!(get(&third, &origin.url("/page/4")).await, 200);
    assert_gaps(&origin, Duration::from_secs(2), 4);
    assert_eq!(origin.log.count("/robots.txt"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_origin_that_asks_for_time_has_it_from_all() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        "/page/busy" => Reply::status(503).field("Retry-After", "3"),
        _ => Reply::text("page"),
    })
    .await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (one, other) = (serve(directory.path()).await, serve(directory.path()).await);
    for proxy in [&one, &other] {
        assert_eq!(get(proxy, &origin.url("/page/open")).await, 200);
    }
    assert_eq!(get(&one, &origin.url("/page/busy")).await, 503);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(get(&other, &origin.url("/page/later")).await, 200);
    let gap = origin.log.one("/page/later").at - origin.log.one("/page/busy").at;
    assert!(gap + LATE >= Duration::from_secs(3), "{gap:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_stopped_holds_nobody_up_and_is_told_of() {
    let origin = slow().await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (one, other) = (serve(directory.path()).await, serve(directory.path()).await);
    for proxy in [&one, &other] {
        assert_eq!(get(proxy, &origin.url("/page")).await, 200);
    }
    one.signal(libc::SIGSTOP);
    eventually("a word of it", || other.output().contains("does not answer")).await;
    let crawl = crawl(&other, &origin, "/page/alone");
    eventually("pages all the same", || origin.log.gaps("/page/alone").len() > 3).await;
    let gaps = origin.log.gaps("/page/alone");
    assert!(gaps.iter().all(|gap| *gap + LATE >= 2 * GAP), "for each that there may be: {gaps:?}");
    one.signal(libc::SIGCONT);
    let before = origin.log.gaps("/page/alone").len();
    eventually("its pace again", || {
        let gaps = origin.log.gaps("/page/alone");
        gaps[before..].iter().any(|gap| *gap < 2 * GAP - LATE)
    })
    .await;
    crawl.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_nothing_can_be_shared_that_is_said_and_it_serves() {
    let origin = origin_of_rules().await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("file");
    std::fs::write(&file, "no directory").expect("it is writable");
    let proxy = serve(&file).await;
    assert_eq!(get(&proxy, &origin.url("/private")).await, 403);
    let told = proxy.output();
    assert_eq!(told.matches("nothing is shared").count(), 1, "{told}");
    assert!(told.contains("store.directory"), "{told}");
}

/// What comes over the socket from whoever may write there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense_on_the_socket_is_borne() {
    use tokio::io::AsyncWriteExt;
    let origin = slow().await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let proxy = serve(directory.path()).await;
    for nonsense in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 64], &[0; 64], &[5, 0, 0, 0, 1, 1, 1, 1, 1], b"\x01"] {
        let socket = directory.path().join("politely.sock");
        let mut stream = tokio::net::UnixStream::connect(socket).await.expect("it listens");
        let _ = stream.write_all(nonsense).await;
        assert_eq!(get(&proxy, &origin.url("/page")).await, 200);
    }
    assert_gaps(&origin, GAP, 5);
}

async fn origin_of_rules() -> Origin {
    origin(|_| Reply::text(crate::KEEP_OUT)).await
}
