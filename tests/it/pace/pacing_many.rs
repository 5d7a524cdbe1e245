//! Many clients and many hosts at once: every host's gap holds, and the greedy do not starve the modest.

use super::pacing::{all, delay};
use crate::support::client::{Client, Stream, get};
use crate::support::{Origin, Proxy, Reply, eventually};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const HOSTS: u32 = 10;
const PAGES: u32 = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_many_hosts_keeps_its_own_gap() {
    // From 0.3 s to 0.57 s.
    let gap = |host: u32| Duration::from_millis(u64::from(300 + 30 * host));
    let number = |host: &str| host.split('.').next().and_then(|host| host[1..].parse().ok()).expect("h0 to h9");
    let origin = Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(delay(&gap(number(&seen.host)).as_secs_f64().to_string())),
        _ => Reply::text("page"),
    })
    .await;
    let proxy = Arc::new(Proxy::start("").await);
    let url = |request| origin.url_at(&format!("h{}.localhost", request % HOSTS), &format!("/page{}", request / HOSTS));
    // Connections are made first: accepting many at once takes an origin a while.
    for request in 0..HOSTS {
        assert_eq!(proxy.get(&url(request)).await.status(), 200);
    }
    let responses = all(&proxy, (HOSTS..HOSTS * PAGES).map(url)).await;
    assert!(responses.iter().all(|response| response.status() == 200));
    let mut starts: HashMap<u32, Vec<Instant>> = HashMap::new();
    for seen in origin.log.all().iter().filter(|seen| seen.path() != "/robots.txt") {
        starts.entry(number(&seen.host)).or_default().push(seen.at);
    }
    assert_eq!(starts.len(), HOSTS as usize);
    for (host, mut starts) in starts {
        starts.sort_unstable();
        assert_eq!(starts.len(), PAGES as usize);
        for pair in starts.windows(2) {
            assert!(pair[1] - pair[0] >= gap(host), "h{host}: {:?}, not {:?}", pair[1] - pair[0], gap(host));
        }
    }
}

/// A connection to the proxy from another address of this machine.
async fn from(address: &str, proxy: &Proxy) -> Client {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind(format!("{address}:0").parse().expect("an address")).expect("all of 127.0.0.0/8 is this machine");
    Client::over(Stream::Plain(socket.connect(proxy.address()).await.expect("the proxy listens")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn greedy_client_delays_another_by_at_most_one_gap() {
    let origin = Origin::site(&delay("2")).await;
    let proxy = Arc::new(Proxy::start("").await);
    let urls: Vec<String> = (0..8).map(|number| origin.url(&format!("/greedy{number}"))).collect();
    let greedy = tokio::spawn({
        let proxy = proxy.clone();
        async move { all(&proxy, urls).await }
    });
    eventually("the greedy one is under way", || origin.log.pages().len() >= 2).await;
    let mut modest = from("127.0.0.2", &proxy).await;
    let before = origin.log.pages().len();
    modest.send(get(&origin.url("/modest"), &origin.authority("a.localhost"))).await;
    assert_eq!(modest.response().await.status(), 200);
    let place = origin.log.pages().iter().position(|page| page == "/modest").expect("it has been there");
    assert!(place <= before + 1, "{place}, not {before} or the next: {:?}", origin.log.pages());
    greedy.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_filling_max_waiting_leaves_places_at_other_hosts() {
    let origin = Origin::site(&delay("10")).await;
    let proxy = Arc::new(Proxy::start("pace: { max_waiting: 3 }").await);
    for host in ["a.localhost", "b.localhost"] {
        assert_eq!(proxy.get(&origin.url_at(host, "/page")).await.status(), 200);
    }
    let mut greedy = Vec::new();
    for waiting in 1..=3 {
        let mut client = proxy.client().await;
        client.send(get(&origin.url("/greedy"), &origin.authority("a.localhost"))).await;
        greedy.push(client);
        eventually("it waits", || proxy.waiting() == waiting).await;
    }
    // Nobody waits on this host.
    let mut modest = from("127.0.0.2", &proxy).await;
    modest.send(get(&origin.url_at("b.localhost", "/modest"), &origin.authority("b.localhost"))).await;
    assert!(modest.glance(Duration::from_millis(500)).await.is_empty(), "it waits");
    // The last of the greedy ones has made room.
    let last = greedy.pop().expect("three").response().await;
    crate::support::assert_refused(&last, 503, "connection_limit_reached", "queue-full");
    for client in &mut greedy {
        assert!(client.glance(Duration::from_millis(50)).await.is_empty(), "the others wait");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_waiting_for_robots_txt_count_towards_max_waiting() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text("").after(Duration::from_secs(5)),
        _ => Reply::text("page"),
    })
    .await;
    let proxy = Arc::new(Proxy::start("pace: { max_waiting: 2 }").await);
    let mut first = Vec::new();
    for host in ["a.localhost", "b.localhost"] {
        let mut client = proxy.client().await;
        client.send(get(&origin.url_at(host, "/page"), &origin.authority(host))).await;
        eventually("it waits", || origin.log.all().iter().any(|seen| seen.host.starts_with(host))).await;
        first.push(client);
    }
    let refused = proxy.get(&origin.url_at("c.localhost", "/page")).await;
    crate::support::assert_refused(&refused, 503, "connection_limit_reached", "queue-full");
    for client in &mut first {
        assert_eq!(client.response().await.status(), 200);
    }
}
