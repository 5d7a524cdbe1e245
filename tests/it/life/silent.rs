//! Silent hosts, which are common in broad crawls: which requests wait for them.

use super::{KEEP_OUT, origin};
use crate::serving::access::{request, users};
use crate::support::client::get;
use crate::support::{Client, Origin, Proxy, Reply, eventually, within};
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use std::ops::Range;
use std::time::Duration;

/// Names that begin with `silent` never answer.
async fn hosts() -> Origin {
    origin(|seen| if seen.host.starts_with("silent") { Reply::silence() } else { Reply::text(KEEP_OUT) }).await
}

/// Clients that ask for as many silent hosts, each once.
async fn silent(proxy: &Proxy, origin: &Origin, numbers: Range<usize>, user: &str) -> Vec<Client> {
    let ask = async |number: usize| {
        let mut client = proxy.client().await;
        client.send(request(&origin.url_at(&format!("silent{number}.localhost"), "/open"), user)).await;
        client
    };
    join_all(numbers.map(ask)).await
}

async fn status(proxy: &Proxy, origin: &Origin, host: &str, user: &str) -> u16 {
    let mut client = proxy.client().await;
    client.send(request(&origin.url_at(host, "/open"), user)).await;
    client.response().await.status()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_with_400_silent_sites_reaches_another_site() {
    let origin = hosts().await;
    let proxy = Proxy::start("robots: { timeout: 10m }").await;
    let asked = silent(&proxy, &origin, 0..400, "nobody").await;
    eventually("all to be asked", || origin.log.count("/robots.txt") == 400).await;
    assert_eq!(within("the healthy one", status(&proxy, &origin, "a.localhost", "nobody")).await, 200);
    drop(asked);
}

/// A client has at most as many fetches in flight as there are free places.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_with_many_robots_fetches_leaves_places_for_others() {
    let origin = hosts().await;
    let bounds = "robots: { timeout: 10m }\nlimits: { max_robots_fetches: 8 }";
    let proxy = Proxy::start(&format!("{bounds}\n{}", users("max_connections: 100"))).await;
    let asked = || origin.log.count("/robots.txt");
    let of_alice = silent(&proxy, &origin, 0..20, "alice").await;
    eventually("half of the places", || asked() == 4).await;
    assert_eq!(within("another's", status(&proxy, &origin, "b.localhost", "bob")).await, 200);
    let asked = || origin.log.count("/robots.txt") - 1;
    let of_bob = silent(&proxy, &origin, 20..40, "bob").await;
    eventually("half of the rest", || asked() == 6).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(asked(), 6, "and two are left");
    // A reload makes room at once.
    proxy.reload(&format!("{}\n{}", bounds.replace('8', "100"), users("max_connections: 100"))).expect("it is valid");
    eventually("all", || asked() == 40).await;
    drop((of_alice, of_bob));
}

/// Later requests do not wait for fetches that nobody needs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queued_robots_fetch_is_dropped_with_its_client() {
    let origin = hosts().await;
    let proxy = Proxy::start("robots: { timeout: 3s }\nlimits: { max_robots_fetches: 2 }").await;
    let asked = silent(&proxy, &origin, 0..50, "nobody").await;
    eventually("the first", || origin.log.count("/robots.txt") == 1).await;
    drop(asked);
    eventually("nobody to wait", || proxy.waiting() == 0).await;
    assert_eq!(within("the next", status(&proxy, &origin, "a.localhost", "nobody")).await, 200);
    assert!(origin.log.count("/robots.txt") <= 3, "{}", origin.log.count("/robots.txt"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_silent_sites_do_not_delay_a_thousand_others() {
    let origin = hosts().await;
    let proxy = Proxy::start("robots: { timeout: 10m }").await;
    let asked = silent(&proxy, &origin, 0..1000, "nobody").await;
    let crawl = async |worker: usize| {
        let mut client = proxy.client().await;
        for number in (worker..1000).step_by(8) {
            let host = format!("host{number}.localhost");
            client.send(get(&origin.url_at(&host, "/open"), &origin.authority(&host))).await;
            assert_eq!(within(&host, client.response()).await.status(), 200, "{host}");
        }
    };
    join_all((0..8).map(crawl)).await;
    eventually("the others to have been asked", || origin.log.count("/robots.txt") >= 2000).await;
    assert_eq!(origin.log.count("/open"), 1000);
    drop(asked);
}

/// A file that stalls after a few kilobytes holds memory in one of a bounded number of places, which clients share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalling_long_files_have_bounded_places_and_leave_some_to_others() {
    let long = format!("{KEEP_OUT}{}", "# a comment\n".repeat(2000));
    let origin = origin(move |seen| match seen.host.starts_with("silent") {
        true => {
            // The answer takes minutes.
            let pieces: Vec<&str> = [&*long].into_iter().chain(["#"; 1000]).collect();
            Reply::drip(&pieces, Duration::from_millis(300))
        }
        false => Reply::text(&long),
    })
    .await;
    let proxy = Proxy::start(&format!("robots: {{ timeout: 20s }}\n{}", users("max_connections: 1000"))).await;
    let ask = async |number: usize| status(&proxy, &origin, &format!("silent{number}.localhost"), "alice").await;
    // Half of the places, as nobody else has any; the rest waits as long as its site has time.
    let mut asked: FuturesUnordered<_> = (0..132).map(ask).collect();
    let another = async {
        eventually("all to have been asked", || origin.log.count("/robots.txt") == 132).await;
        within("another's", status(&proxy, &origin, "b.localhost", "bob")).await
    };
    tokio::pin!(another);
    tokio::select! {
        of_bob = &mut another => assert_eq!(of_bob, 200),
        of_alice = asked.next() => panic!("{of_alice:?}, before another had a place"),
    }
    for _ in 0..132 {
        assert_eq!(within("the next", asked.next()).await, Some(503), "and it may come back");
    }
}
