//! Many that want the same page at one time, and processes that want the same directory.

use super::{caching, fresh, is_hit, pages, with, with_cache};
use crate::support::{Binary, Client, Proxy, Reply, Response, at_once, eventually};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use tokio::task::{JoinSet, block_in_place};

async fn get(proxy: SocketAddr, url: &str) -> Response {
    let host = url.split('/').nth(2).expect("an absolute URL");
    Client::open(proxy).await.get(url, host).await
}

async fn many(proxy: &Proxy, url: &str) -> Vec<Response> {
    let (address, url) = (proxy.address(), url.to_owned());
    let asking = (0..20).map(|_| {
        let url = url.clone();
        async move { get(address, &url).await }
    });
    asking.collect::<JoinSet<_>>().join_all().await
}

const SLOW: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_requests_for_a_page_share_one_fetch() {
    let origin = pages(|_| Reply { after: SLOW, ..fresh("page") }).await;
    let (proxy, _directory) = caching("").await;
    let all = many(&proxy, &origin.url("/page")).await;
    assert!(all.iter().all(|response| response.status() == 200 && response.text() == "page"));
    assert_eq!(all.iter().filter(|response| is_hit(response)).count(), 19);
    assert_eq!(origin.log.count("/page"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_or_unstorable_shared_fetch_lets_waiters_fetch_themselves() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let origin = pages(move |seen| {
        let is_first = count.fetch_add(1, Ordering::Relaxed) == 0;
        match seen.path().as_str() {
            "/fails" if is_first => Reply { after: SLOW, ..Reply::reset() },
            "/fails" => fresh("page"),
            _ => Reply { after: SLOW, ..Reply::text("own").field("Cache-Control", "no-store") },
        }
    })
    .await;
    let (proxy, _directory) = caching("").await;
    let all = many(&proxy, &origin.url("/fails")).await;
    let failed = all.iter().filter(|response| response.status() == 502).count();
    assert!(failed <= 1 && all.iter().filter(|response| response.text() == "page").count() == 20 - failed);
    let all = many(&proxy, &origin.url("/own")).await;
    assert!(all.iter().all(|response| response.text() == "own" && !is_hit(response)));
    assert_eq!(origin.log.count("/own"), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_get_the_page_after_the_fetching_client_leaves() {
    let origin = pages(|_| Reply { after: SLOW, ..fresh("page") }).await;
    let (proxy, _directory) = caching("").await;
    let url = origin.url("/page");
    let mut leaving = proxy.client().await;
    leaving.send(format!("GET {url} HTTP/1.1\r\nHost: {}\r\n\r\n", origin.authority("a.localhost"))).await;
    eventually("the first is there", || origin.log.count("/page") == 1).await;
    let address = proxy.address();
    let others = (0..3).map(move |_| {
        let url = url.clone();
        async move { assert_eq!(get(address, &url).await.status(), 200) }
    });
    let others = tokio::spawn(at_once(others));
    drop(leaving);
    others.await.unwrap();
    // One waiter may fetch for all, or each for itself.
    assert!((2..=4).contains(&origin.log.count("/page")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cache_directory_is_used_by_one_process_at_a_time() {
    let origin = pages(|_| fresh("page")).await;
    let directory = tempfile::tempdir().unwrap();
    let yaml = with_cache(directory.path(), "");
    let first = Binary::serve(&yaml).await;
    let second = Binary::serve(&yaml).await;
    eventually("the warning", || second.output().contains("another process uses the cache")).await;
    for expected in [false, true] {
        assert_eq!(is_hit(&get(first.address(), &origin.url("/page")).await), expected);
        assert!(!is_hit(&get(second.address(), &origin.url("/page")).await), "it goes without");
    }
    drop(first.stop().await);
    eventually("its turn", || second.output().contains("the cache is ready")).await;
    assert!(is_hit(&get(second.address(), &origin.url("/page")).await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsafe_request_during_a_fetch_prevents_storing_only_at_its_own_site() {
    let (go, held) = mpsc::channel();
    let (held, asked) = (Mutex::new(held), Arc::new(AtomicUsize::new(0)));
    let count = asked.clone();
    let site = pages(move |seen| {
        if seen.field("referer").is_some() {
            count.fetch_add(1, Ordering::Relaxed);
            block_in_place(|| held.lock().unwrap().recv()).unwrap();
        }
        fresh("page")
    })
    .await;
    let other =
        pages(|_| Reply::status(201).field("Location", "/a").field("Content-Location", "/b").body("changed")).await;
    let (proxy, _directory) = caching("").await;
    let changing = &mut proxy.client().await;
    for (number, (changed, times, is_stored)) in [(&other, 200, true), (&site, 1, false)].into_iter().enumerate() {
        let path = format!("/page/{times}");
        let (url, host) = (site.url(&path), site.authority("a.localhost"));
        let mut client = proxy.client().await;
        client.send(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nReferer: held\r\n\r\n")).await;
        eventually("the page is under way", || asked.load(Ordering::Relaxed) > number).await;
        for _ in 0..times {
            with(changing, changed, "POST", &path, "Content-Length: 0\r\n").await;
        }
        go.send(()).unwrap();
        assert_eq!(client.response().await.text(), "page");
        let again = get(proxy.address(), &url).await;
        assert_eq!(is_hit(&again), is_stored, "{times}");
    }
}
