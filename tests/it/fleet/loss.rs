//! The server dies, stops, and comes back, under load: nobody waits for it, and all are one fleet again by themselves.

use super::{all, assert_apart, comes_to_say, get, instances, pages, site};
use crate::support::redis::Redis;
use crate::support::relay::Relay;
use crate::support::{ADMIN_TOKEN, Alpn, Binary, Client, Origin, Proxy, Reply, assert_refused, eventually};
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const GAP: Duration = Duration::from_millis(200);
/// Time after which each instance knows the number of instances: they report every second.
const ACQUAINTED: Duration = Duration::from_millis(2500);

/// Requests through all instances, one after the other through each, until it is stopped.
struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU32>,
    clients: JoinSet<Duration>,
}

impl Load {
    fn on(fleet: &[Binary], origin: &Origin, name: &str) -> Self {
        let mut load = Self { stop: Arc::default(), done: Arc::default(), clients: JoinSet::new() };
        for (number, address) in fleet.iter().map(Binary::address).enumerate() {
            let (stop, done) = (load.stop.clone(), load.done.clone());
            let (url, authority) = (origin.url(&format!("/{name}-{number}")), origin.authority("a.localhost"));
            load.clients.spawn(async move {
                let mut longest = Duration::ZERO;
                while !stop.load(Ordering::SeqCst) {
                    let began = Instant::now();
                    let response = Client::open(address).await.get(&url, &authority).await;
                    assert_eq!(response.status(), 200, "{}", response.text());
                    longest = longest.max(began.elapsed());
                    done.fetch_add(1, Ordering::SeqCst);
                }
                longest
            });
        }
        load
    }

    /// Waits until this many more requests have been answered.
    async fn goes_on(&self, more: u32) {
        let until = self.done.load(Ordering::SeqCst) + more;
        eventually("further answers", || self.done.load(Ordering::SeqCst) >= until).await;
    }

    /// The longest that any waited.
    async fn stop(self) -> Duration {
        self.stop.store(true, Ordering::SeqCst);
        self.clients.join_all().await.into_iter().max().unwrap_or_default()
    }
}

async fn all_say(fleet: &[Binary], what: &str, times: usize) {
    eventually(what, || fleet.iter().all(|instance| instance.output().matches(what).count() >= times)).await;
}

/// Waits until each has had a few starts since then. A start that is late loses its turn.
async fn few_starts_of_each(origin: &Origin, name: &str, from: Instant) {
    let since = |number| origin.log.starts(&format!("/{name}-{number}")).into_iter().filter(|at| *at > from).count();
    eventually("starts of each", || (0..3).all(|number| since(number) > 3)).await;
}

/// While it was lost each kept its own part of the pace, one of three. A start may be late by a quarter of a gap, and the next not.
fn assert_slow(origin: &Origin, name: &str, from: Instant, to: Instant) {
    for number in 0..3 {
        let own = origin.log.starts(&format!("/{name}-{number}"));
        let own: Vec<_> = own.into_iter().filter(|at| *at > from && *at < to).collect();
        assert!(own.len() > 2, "it goes on: {own:?}");
        assert_apart(&own, GAP * 2);
        let whole = own[own.len() - 1] - own[0] + GAP;
        assert!(whole >= GAP * 3 * (own.len() as u32 - 1), "{own:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pace_is_kept_when_the_server_is_killed_and_replaced_by_an_empty_one() {
    let Some(mut redis) = Redis::start().await else { return };
    let origin = site("0.2").await;
    let fleet = instances(&redis, 3, "").await;
    tokio::time::sleep(ACQUAINTED).await;
    let load = Load::on(&fleet, &origin, "load");
    load.goes_on(5).await;
    redis.kill().await;
    all_say(&fleet, "is unreachable", 1).await;
    let lost = Instant::now();
    few_starts_of_each(&origin, "load", lost).await;
    let back = Instant::now();
    redis.restart().await;
    all_say(&fleet, "joined the fleet", 2).await;
    load.goes_on(6).await;
    let longest = load.stop().await;
    // The server is lost after 2 to 3 s; 2 s later all have noticed, and each has its part within 600 ms, unless it is late.
    assert!(longest < Duration::from_secs(20), "{longest:?}");
    assert_slow(&origin, "load", lost, back);
    assert_eq!(origin.log.count("/robots.txt"), 1);
    let again = Load::on(&fleet, &origin, "again");
    again.goes_on(9).await;
    again.stop().await;
    assert_apart(&origin.log.starts("/again"), GAP);
    // Once for each loss, not once for each request.
    assert!(fleet.iter().all(|instance| instance.output().matches("is unreachable").count() == 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pace_is_kept_when_the_server_is_stopped_and_continued() {
    let Some(redis) = Redis::start().await else { return };
    let origin = site("0.2").await;
    let fleet = instances(&redis, 3, "").await;
    tokio::time::sleep(ACQUAINTED).await;
    let load = Load::on(&fleet, &origin, "load");
    load.goes_on(5).await;
    redis.signal(libc::SIGSTOP);
    all_say(&fleet, "is unreachable", 1).await;
    let lost = Instant::now();
    few_starts_of_each(&origin, "load", lost).await;
    let back = Instant::now();
    redis.signal(libc::SIGCONT);
    all_say(&fleet, "joined the fleet", 2).await;
    load.goes_on(6).await;
    let longest = load.stop().await;
    assert!(longest < Duration::from_secs(20), "{longest:?}");
    assert_slow(&origin, "load", lost, back);
    let again = Load::on(&fleet, &origin, "again");
    again.goes_on(9).await;
    again.stop().await;
    assert_apart(&origin.log.starts("/again"), GAP);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_do_not_wait_for_a_lost_server() {
    let Some(redis) = Redis::start().await else { return };
    let origin = site("0").await;
    let fleet = instances(&redis, 1, "").await;
    assert_eq!(get(&fleet[0], &origin.url("/page")).await.status(), 200);
    redis.signal(libc::SIGSTOP);
    let url = |host: &str| origin.url_at(&format!("{host}.localhost"), "/page");
    let (first, late) = (url("first"), url("late"));
    let asks_late = async {
        tokio::time::sleep(Duration::from_millis(1800)).await;
        get(&fleet[0], &late).await
    };
    let goes_on = async {
        assert_eq!(get(&fleet[0], &first).await.status(), 200);
        comes_to_say(&fleet[0], "is unreachable").await;
        // These ask nobody. Nor does the late one since the server is lost.
        for number in 0..8 {
            assert_eq!(get(&fleet[0], &url(&format!("next-{number}"))).await.status(), 200);
        }
    };
    tokio::select! {
        biased;
        response = asks_late => assert_eq!(response.status(), 200),
        () = goes_on => panic!("the late one still waits for the server"),
    }
    redis.signal(libc::SIGCONT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backoff_of_a_host_outlives_the_server() {
    let Some(mut redis) = Redis::start().await else { return };
    let origin = super::pages(|seen| match seen.path().as_str() {
        "/refused" => super::Reply::status(503).field("Retry-After", "8"),
        _ => super::Reply::text("page"),
    })
    .await;
    let fleet = instances(&redis, 2, "").await;
    assert!(all(&fleet, &origin.url("/before")).await.iter().all(|response| response.status() == 200));
    assert_eq!(get(&fleet[0], &origin.url("/refused")).await.status(), 503);
    let told = origin.log.one("/refused").at;
    redis.kill().await;
    redis.restart().await;
    all_say(&fleet, "joined the fleet", 2).await;
    // The message has to reach the others.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(get(&fleet[1], &origin.url("/after")).await.status(), 200);
    let held = origin.log.one("/after").at - told;
    assert!(held >= Duration::from_secs(8), "{held:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_fleet_loss_refuse_answers_503_until_the_server_is_back() {
    let Some(mut redis) = Redis::start().await else { return };
    let origin = site("0.2").await;
    let fleet = instances(&redis, 2, "on_fleet_loss: refuse").await;
    assert!(all(&fleet, &origin.url("/page")).await.iter().all(|response| response.status() == 200));
    redis.kill().await;
    all_say(&fleet, "is unreachable", 1).await;
    for instance in &fleet {
        for url in [origin.url("/page"), origin.url_at("b.localhost", "/page"), origin.url("/robots.txt")] {
            let refused = get(instance, &url).await;
            let problem = assert_refused(&refused, 503, "proxy_internal_error", "fleet-lost");
            assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("on_fleet_loss")), "{problem}");
            assert!(refused.field("retry-after").is_some());
        }
    }
    redis.restart().await;
    all_say(&fleet, "joined the fleet", 2).await;
    for url in [origin.url("/page"), origin.url_at("b.localhost", "/page")] {
        assert!(all(&fleet, &url).await.iter().all(|response| response.status() == 200));
    }
    assert_apart(&origin.log.starts("/page").split_off(2)[..2], Duration::ZERO);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_fleet_loss_refuse_also_refuses_waiting_requests() {
    let Some(mut redis) = Redis::start().await else { return };
    let origin = site("20").await;
    let fleet = instances(&redis, 1, "on_fleet_loss: refuse").await;
    assert_eq!(get(&fleet[0], &origin.url("/page")).await.status(), 200);
    let url = origin.url("/page");
    let kill = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        redis.kill().await;
    };
    let (refused, ()) = tokio::join!(get(&fleet[0], &url), kill);
    assert_refused(&refused, 503, "proxy_internal_error", "fleet-lost");
}

/// The server is unreachable by then, so it cannot be told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slot_that_expires_before_the_connection_opens_is_not_used() {
    let Some(redis) = Redis::start().await else { return };
    let relay = Relay::to(redis.address()).await;
    let origin = Origin::https_after(Duration::from_secs(8), |_| Reply::text("page")).await;
    let fleet =
        format!("fleet: 'redis://{}/0'\non_fleet_loss: refuse\nadmin: {{ address: '127.0.0.1:0' }}", relay.address);
    let host = "robots: ignore, crawl_delay: 1s, budget: { requests: 10, per: day }";
    let proxy = Proxy::start(&format!("{fleet}\nhosts: {{ '*': {{ {host} }} }}")).await;
    let mut client = proxy.tls(&origin, "a.localhost", &[b"http/1.1"]).await;
    client.send(crate::support::client::get("/page", &origin.authority("a.localhost"))).await;
    eventually("the connection", || origin.connections() == 1).await;
    relay.faults.holds.send_replace(true);
    relay.cut();
    assert_refused(&client.response().await, 503, "proxy_internal_error", "fleet-lost");
    assert!(origin.log.targets().is_empty(), "{:?}", origin.log.targets());
    // Nor is the start counted in the budget.
    let admin = proxy.admin_address();
    let spent = async || {
        let mut client = Client::open(admin).await;
        let token = format!("Authorization: Bearer {ADMIN_TOKEN}");
        client.send(format!("GET /api/v1/status HTTP/1.1\r\nHost: {admin}\r\n{token}\r\n\r\n")).await;
        let status = client.response().await;
        serde_json::from_slice::<Value>(&status.body).expect("it is JSON")["budgets"][0]["requests"].as_u64()
    };
    for _ in 0..500 {
        if spent().await == Some(0) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{:?} requests are counted", spent().await);
}

/// An instance whose turns can be taken away. Alone, it and another keep twice the gap.
struct Parted {
    proxy: Proxy,
    link: Relay,
    _other: Proxy,
    _redis: Redis,
}

impl Parted {
    async fn start(yaml: &str) -> Option<Self> {
        let redis = Redis::start().await?;
        let link = Relay::to(redis.address()).await;
        let instance = async |server: SocketAddr| Proxy::start(&format!("fleet: 'redis://{server}/0'\n{yaml}")).await;
        let (proxy, other) = (instance(link.address).await, instance(redis.address()).await);
        Some(Self { proxy, link, _other: other, _redis: redis })
    }

    /// A turn ends while who has it connects by `way`, which has been closed until now; the connection ends while it waits for
    /// another turn. `before`: as many have been made by this way. `is_over`: it has not had to wait.
    async fn take_away(&self, way: &Relay, before: u64, is_over: impl Fn() -> bool) {
        eventually("a turn and a connection", || way.faults.accepted.load(Ordering::Relaxed) > before).await;
        self.link.faults.holds.send_replace(true);
        self.link.cut();
        eventually("the loss", || !self.proxy.has_fleet()).await;
        way.faults.holds.send_replace(false);
        eventually("a wait for another turn", || self.proxy.waiting() == 1 || is_over()).await;
        way.cut();
    }
}

/// Closes a way that has nothing to carry for now. How many have gone by it.
fn close(way: &Relay) -> u64 {
    way.cut();
    way.faults.holds.send_replace(true);
    way.faults.accepted.load(Ordering::Relaxed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_that_loses_its_slot_retries_on_another_connection() {
    let origin = Origin::https(Alpn::H1, |_| Reply::text("page")).await;
    let way = Relay::to(origin.address()).await;
    let hosts = "hosts: { '*': { robots: ignore, crawl_delay: 5s } }";
    let Some(fleet) = Parted::start(hosts).await else { return };
    let authority = format!("a.localhost:{}", way.address.port());
    let client = Client::connect(fleet.proxy.address(), &authority).await;
    let mut client = client.tls("a.localhost", &fleet.proxy.ca_pem_path(), &[b"http/1.1"]).await;
    assert_eq!(client.get("/first", &authority).await.status(), 200);
    let before = close(&way);
    client.send(format!("POST /form HTTP/1.1\r\nHost: {authority}\r\nContent-Length: 4\r\n\r\nform")).await;
    fleet.take_away(&way, before, || origin.log.count("/form") == 1).await;
    let answer = client.response().await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    assert_eq!(origin.log.count("/form"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tunnel_that_loses_its_slot_retries_on_another_connection() {
    let (origin, tunnels) = (Origin::http(|_| Reply::text("page")).await, "intercept: { default: tunnel }");
    let upstream_proxy = Proxy::start(tunnels).await;
    let way = Relay::to(upstream_proxy.address()).await;
    let egress = format!("egress: {{ upstream_proxy: 'http://{}' }}", way.address);
    let yaml = format!("{tunnels}\n{egress}\nhosts: {{ '*': {{ crawl_delay: 5s }} }}");
    let Some(fleet) = Parted::start(&yaml).await else { return };
    let (proxy, authority) = (fleet.proxy.address(), origin.authority("a.localhost"));
    drop(Client::connect(proxy, &authority).await);
    let before = close(&way);
    let connecting = {
        let authority = authority.clone();
        tokio::spawn(async move { Client::connect(proxy, &authority).await })
    };
    fleet.take_away(&way, before, || connecting.is_finished()).await;
    let mut client = connecting.await.expect("it is granted");
    assert_eq!(client.get("/page", &authority).await.status(), 200, "by a connection that is there");
}

/// A service that restarts repeatedly while its server is lost must not start a request at each restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_while_the_server_is_lost_keeps_delays_and_pauses() {
    let Some(redis) = Redis::start().await else { return };
    let (slow, rude) = (site("60").await, pages(|_| Reply::status(403)).await);
    let yaml = format!(
        "fleet: {{ url: '{}', instances: 1 }}\npace: {{ max_wait: 5s, breaker: {{ after: 2, pause: 10m }} }}",
        redis.url()
    );
    let mut instance = Binary::serve(&yaml).await;
    let urls = [slow.url_at("slow.localhost", "/page"), rude.url_at("rude.localhost", "/page")];
    for (url, statuses) in urls.iter().zip([[200, 429], [403, 403]]) {
        for status in statuses {
            assert_eq!(get(&instance, url).await.status(), status);
        }
    }
    redis.signal(libc::SIGSTOP);
    comes_to_say(&instance, "is unreachable").await;
    for is_killed in [false, true] {
        let directory = if is_killed { instance.kill().await } else { instance.stop().await };
        instance = Binary::serve_in(directory, &yaml).await;
        for url in &urls {
            let status = get(&instance, url).await.status();
            assert!(matches!(status, 429 | 503), "{status} for {url}, killed: {is_killed}");
        }
    }
    redis.signal(libc::SIGCONT);
    assert_eq!([&slow, &rude].map(|origin| origin.log.count("/page")), [1, 2]);
}
