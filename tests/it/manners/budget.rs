//! `budget`: how much may be asked of a host, or by a user, in a day or an hour.

use super::{ADMIN, fleet, get, json, pages, processes, refusal, with_status};
use crate::support::redis::Redis;
use crate::support::{Binary, Proxy, Reply, assert_refused, eventually};
use argon2::{Argon2, Params, PasswordHasher};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

const BUDGET: &str = "pace: { budget: { requests: 3, per: day } }";

/// Returns when a new day or hour is not about to begin, which would give everybody a new budget.
pub(super) async fn not_at_midnight() {
    let seconds = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs() % 3600;
    while seconds() > 3540 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// The hash of a password at the lowest cost.
fn hash(password: &str) -> String {
    let cheap = Params::new(8, 1, 1, None).expect("cheap");
    Argon2::from(cheap).hash_password(password.as_bytes()).expect("a hash").to_string()
}

async fn statuses(proxies: &[SocketAddr], url: &str, count: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for number in 0..count {
        statuses.push(get(proxies[number % proxies.len()], url).await.status());
    }
    statuses
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_over_the_budget_are_refused_until_the_period_ends() {
    not_at_midnight().await;
    let (origin, _) = with_status(200).await;
    let proxy = Proxy::start(&format!("{BUDGET}\n{ADMIN}")).await;
    let page = origin.url("/page");
    assert_eq!(statuses(&[proxy.address()], &page, 4).await, [200, 200, 200, 429]);
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
    let before = now();
    let refused = proxy.get(&page).await;
    let asked = before..=now() + 1;
    let problem = assert_refused(&refused, 429, "http_request_denied", "budget-spent");
    assert_eq!(problem["budget"], "3 requests per day");
    assert_eq!(problem["budget_of"], origin.authority("a.localhost"));
    let (_, after) = refusal(&refused);
    let midnight = before / 86_400 * 86_400 + 86_400;
    assert!(asked.contains(&(midnight - after)), "{after} s, asked at {asked:?}");
    assert_eq!(origin.log.count("/page"), 3);
    // Another host has one of its own.
    assert_eq!(proxy.get(&origin.url_at("b.localhost", "/page")).await.status(), 200);
    let budgets = json(proxy.admin_address(), "/api/v1/status").await["budgets"].clone();
    assert_eq!((&budgets[0]["requests"], &budgets[0]["max_requests"]), (&3.into(), &3.into()), "{budgets}");
    assert_eq!((&budgets[1]["requests"], &budgets[1]["per"]), (&1.into(), &"day".into()), "{budgets}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_are_counted_after_receipt() {
    not_at_midnight().await;
    let origin = pages(|_| Reply::text([b'x'; 600])).await;
    let proxy = Proxy::start(&format!("pace: {{ budget: {{ bytes: 1000, per: hour }} }}\n{ADMIN}")).await;
    for so_far in [600, 1200] {
        assert_eq!(proxy.get(&origin.url("/page")).await.status(), 200);
        let mut counted = 0;
        while counted != so_far {
            counted = json(proxy.admin_address(), "/api/v1/status").await["budgets"][0]["bytes"].as_u64().unwrap_or(0);
        }
    }
    assert_eq!(refusal(&proxy.get(&origin.url("/page")).await).0, "budget-spent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_that_was_not_sent_is_refunded() {
    not_at_midnight().await;
    let (origin, _) = with_status(200).await;
    // On a connection that was kept, a request may leave before it is seen that nobody is there.
    let proxy = Proxy::start(&format!("{BUDGET}\n{ADMIN}\nlimits: {{ max_idle_connections: 0 }}")).await;
    let url = origin.url("/page");
    assert_eq!(statuses(&[proxy.address()], &url, 1).await, [200]);
    let address = origin.address();
    drop(origin);
    while tokio::net::TcpStream::connect(address).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Nobody is there any more.
    for _ in 0..5 {
        assert_eq!(proxy.get(&url).await.status(), 502);
    }
    let spent = async || json(proxy.admin_address(), "/api/v1/status").await["budgets"][0]["requests"].as_u64();
    for _ in 0..500 {
        if spent().await == Some(1) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{:?} requests are counted", spent().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn budget_of_a_user_covers_all_hosts() {
    not_at_midnight().await;
    let (origin, _) = with_status(200).await;
    let (a, b) = (hash("alice"), hash("bob"));
    let users = format!(
        "access: {{ users: [{{ name: alice, password: '{a}', budget: {{ requests: 2 }} }}, {{ name: bob, password: '{b}' }}] }}"
    );
    let proxy = Proxy::start(&format!("{users}\npace: {{ budget: {{ requests: 4 }} }}")).await;
    let by = async |user: &str, host: &str| {
        let (url, host) = (origin.url_at(host, "/page"), origin.authority(host));
        let credentials = BASE64_STANDARD.encode(format!("{user}:{user}"));
        let mut client = proxy.client().await;
        let shown = format!("Proxy-Authorization: Basic {credentials}");
        client.send(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{shown}\r\n\r\n")).await;
        client.response().await
    };
    assert_eq!((by("alice", "a.localhost").await.status(), by("alice", "b.localhost").await.status()), (200, 200));
    let refused = by("alice", "a.localhost").await;
    assert_eq!((refused.status(), refused.problem()["budget_of"].clone()), (429, "user=alice".into()));
    // Her requests do not count towards the host's budget, of which three are left.
    for status in [200, 200, 200, 429] {
        assert_eq!(by("bob", "a.localhost").await.status(), status);
    }
}

/// A tunnel counts as one request, and its bytes as those of an answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn budget_of_a_user_limits_tunnels() {
    not_at_midnight().await;
    let (origin, _) = with_status(200).await;
    let password = hash("alice");
    let user = |more: &str| {
        format!(
            "access: {{ users: [{{ name: alice, password: '{password}', {more} }}] }}\n\
             intercept: {{ default: tunnel }}"
        )
    };
    let connect = async |proxy: &Proxy, fields: &str| {
        let mut client = proxy.client().await;
        let (host, credentials) = (origin.authority("a.localhost"), BASE64_STANDARD.encode("alice:alice"));
        let shown = format!("Proxy-Authorization: Basic {credentials}");
        client.send(format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n{shown}\r\n{fields}\r\n")).await;
        let head = client.head().await;
        (client, head.status())
    };
    let proxy = Proxy::start(&user("budget: { requests: 2 }")).await;
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(connect(&proxy, "").await.1);
    }
    assert_eq!(statuses, [200, 200, 429]);
    // CONNECT obeys `max_waiting: 0` and `Prefer: wait=0` like other requests.
    let slow = "pace: { min_delay: 30s }";
    for (proxy, fields, refused) in [
        (Proxy::start(&format!("{}\n{slow}", user("max_waiting: 0"))).await, "", 503),
        (Proxy::start(&format!("{}\n{slow}", user("max_waiting: 5"))).await, "Prefer: wait=0\r\n", 429),
    ] {
        let (_open, first) = connect(&proxy, fields).await;
        assert_eq!((first, connect(&proxy, fields).await.1), (200, refused));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_shows_the_reloaded_budgets() {
    not_at_midnight().await;
    let (origin, _) = with_status(200).await;
    let password = hash("alice");
    let yaml = |alices: &str, a: &str, b: &str, key: &str| {
        format!(
            "{ADMIN}\naccess: {{ users: [{{ name: alice, password: '{password}'{alices} }}] }}\npace: {{ key: {key} }}\n\
             hosts: {{ a.localhost: {{ budget: {a} }}, b.localhost: {{ budget: {b} }} }}"
        )
    };
    let few = "{ requests: 3 }";
    let proxy = Proxy::start(&yaml(&format!(", budget: {few}"), few, few, "host")).await;
    let mut client = proxy.client().await;
    for host in ["a.localhost", "b.localhost"] {
        let (url, host) = (origin.url_at(host, "/page"), origin.authority(host));
        let shown = format!("Proxy-Authorization: Basic {}", BASE64_STANDARD.encode("alice:alice"));
        client.send(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{shown}\r\n\r\n")).await;
        assert_eq!(client.response().await.status(), 200);
    }
    let [a, b] = ["a.localhost", "b.localhost"].map(|host| origin.authority(host));
    let shown = async || {
        let budgets = json(proxy.admin_address(), "/api/v1/status").await["budgets"].clone();
        let of = |it: &serde_json::Value| {
            format!("{} {}/{}", it["of"].as_str().expect("a text"), it["requests"], it["max_requests"])
        };
        budgets.as_array().expect("a list").iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(shown().await, [format!("{a} 1/3"), format!("{b} 1/3"), "user=alice 2/3".to_owned()]);
    let reload = |yaml: &str| proxy.reload(yaml).expect("it is well-formed");
    reload(&yaml(", budget: { requests: 9 }", "{ requests: 5 }", "{}", "host"));
    assert_eq!(shown().await, [format!("{a} 1/5"), "user=alice 2/9".to_owned()]);
    reload(&yaml("", few, "{ requests: 3, per: hour }", "host"));
    assert_eq!(shown().await, [format!("{a} 1/3")]);
    reload(&yaml("", few, few, "address"));
    assert_eq!(shown().await, [format!("{a} 1/3"), format!("{b} 1/3")], "as without a known address");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn budget_can_be_set_per_host_and_only_reports_in_report_mode() {
    not_at_midnight().await;
    let (origin, _) = with_status(200).await;
    let hosts = "hosts: { a.localhost: { budget: {} }, b.localhost: { budget: { requests: 0 } } }";
    let proxy = Proxy::start(&format!("{BUDGET}\n{hosts}")).await;
    for (host, answers) in [("a.localhost", [200; 4]), ("b.localhost", [429; 4]), ("c.localhost", [200, 200, 200, 429])]
    {
        assert_eq!(statuses(&[proxy.address()], &origin.url_at(host, "/page"), 4).await, answers, "{host}");
    }
    let proxy = Proxy::start(&format!("{BUDGET}\nmode: report")).await;
    assert_eq!(statuses(&[proxy.address()], &origin.url("/page"), 4).await, [200; 4]);
    let reported = proxy.get(&origin.url("/page")).await;
    assert!(reported.field("proxy-status").is_some_and(|status| status.contains("budget")), "{:?}", reported.head);
    assert_eq!(proxy.counts().reported["budget-spent"], 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tunnel_costs_one_request() {
    not_at_midnight().await;
    let (origin, _) = with_status(200).await;
    let yaml = "intercept: { default: tunnel }\npace: { budget: { requests: 1 } }";
    let proxy = Proxy::start(yaml).await;
    let connect = async || {
        let host = origin.authority("a.localhost");
        let mut client = proxy.client().await;
        client.send(format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        client.head().await.status()
    };
    assert_eq!((connect().await, connect().await), (200, 429));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spending_survives_a_restart_and_a_kill() {
    not_at_midnight().await;
    let (origin, _) = with_status(200).await;
    let page = origin.url("/page");
    let proxy = Binary::serve(BUDGET).await;
    assert_eq!(statuses(&[proxy.address()], &page, 2).await, [200, 200]);
    let proxy = Binary::serve_in(proxy.kill().await, BUDGET).await;
    assert_eq!(statuses(&[proxy.address()], &page, 2).await, [200, 429]);
    let proxy = Binary::serve_in(proxy.stop().await, BUDGET).await;
    assert_eq!(statuses(&[proxy.address()], &page, 1).await, [429]);
    assert_eq!(origin.log.count("/page"), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_of_a_machine_share_the_budget() {
    not_at_midnight().await;
    let (origin, _) = with_status(200).await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let processes = processes(directory.path(), 2, BUDGET).await;
    let addresses: Vec<_> = processes.iter().map(Binary::address).collect();
    assert_eq!(statuses(&addresses, &origin.url("/page"), 5).await, [200, 200, 200, 429, 429]);
}

/// Requests arrive concurrently at several instances.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_of_a_fleet_never_exceed_the_shared_budget() {
    not_at_midnight().await;
    let Some(redis) = Redis::start().await else { return };
    let (origin, _) = with_status(200).await;
    let fleet = fleet(&redis, 2, "pace: { budget: { requests: 10 } }").await;
    let mut requests = tokio::task::JoinSet::new();
    for number in 0..30 {
        let (proxy, url) = (fleet[number % 2].address(), origin.url("/page"));
        requests.spawn(async move { get(proxy, &url).await.status() });
    }
    let statuses = requests.join_all().await;
    let count = |status| statuses.iter().filter(|it| **it == status).count();
    assert_eq!((count(200), count(429), origin.log.count("/page")), (10, 20, 10), "{statuses:?}");
}

async fn status_of(instance: &Binary) -> Value {
    let token = std::fs::read_to_string(instance.directory().join("store/admin-token")).expect("it was made");
    let (admin, token) = (format!("http://{}/api/v1/status", instance.admin()), token.trim().to_owned());
    let answer = instance.curl(&["--noproxy", "*", "-H", &format!("Authorization: Bearer {token}"), &admin]).await;
    serde_json::from_str(&answer.text()).expect("JSON")
}

async fn until(is_so: impl AsyncFn() -> bool) {
    for _ in 0..200 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not within ten seconds");
}

/// While the server is lost, each instance spends its share; when it is back, even emptied, it receives all counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spending_while_the_fleet_server_was_lost_is_reported_later() {
    not_at_midnight().await;
    let Some(mut redis) = Redis::start().await else { return };
    let (origin, _) = with_status(200).await;
    let yaml = "pace: { budget: { requests: 10 } }";
    let mut fleet = fleet(&redis, 2, &format!("{yaml}\n{ADMIN}")).await;
    let all_say = async |fleet: &[Binary], what: &str, times: usize| {
        eventually(what, || fleet.iter().all(|it| it.output().matches(what).count() >= times)).await;
    };
    // The budget of one host was spent before, and both instances know.
    let addresses: Vec<_> = fleet.iter().map(Binary::address).collect();
    let (spent, page) = (origin.url_at("spent.localhost", "/spent"), origin.url("/page"));
    assert_eq!(statuses(&addresses, &spent, 12).await[10..], [429, 429]);
    until(async || status_of(&fleet[0]).await["fleet"]["instances"] == 2).await;
    redis.kill().await;
    all_say(&fleet, "is unreachable", 1).await;
    assert_eq!(statuses(&addresses[..1], &page, 6).await, [200, 200, 200, 200, 200, 429], "its half");
    assert_eq!(statuses(&addresses[1..], &page, 3).await, [200; 3]);
    redis.restart().await;
    all_say(&fleet, "joined the fleet", 2).await;
    let counted = async |binary: &Binary| {
        let budgets = status_of(binary).await["budgets"].clone();
        let mut all = budgets.as_array().expect("a list").iter();
        all.find(|it| it["of"] == origin.authority("a.localhost").as_str()).and_then(|it| it["requests"].as_u64())
    };
    // Each has told it of its own; who did so last has heard of both.
    until(async || counted(&fleet[0]).await.max(counted(&fleet[1]).await) == Some(8)).await;
    fleet.push(Binary::serve(&format!("fleet: '{}'\n{yaml}", redis.url())).await);
    let addresses: Vec<_> = fleet.iter().rev().map(Binary::address).collect();
    assert_eq!(statuses(&addresses, &page, 4).await, [200, 200, 429, 429]);
    assert_eq!(statuses(&addresses, &spent, 3).await, [429; 3]);
    assert_eq!((origin.log.count("/page"), origin.log.count("/spent")), (10, 10));
}

/// Requests made before the instances notice the loss of data do not lower the count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fleet_server_emptied_under_traffic_receives_the_spending() {
    not_at_midnight().await;
    let Some(redis) = Redis::start().await else { return };
    let (origin, _) = with_status(200).await;
    let fleet = fleet(&redis, 2, &format!("pace: {{ budget: {{ requests: 10 }} }}\n{ADMIN}")).await;
    let addresses: Vec<_> = fleet.iter().map(Binary::address).collect();
    let page = origin.url("/page");
    assert_eq!(statuses(&addresses, &page, 6).await, [200; 6]);
    let _: () = redis::cmd("FLUSHALL").query_async(&mut redis.connection().await).await.expect("it is there");
    assert_eq!(statuses(&addresses, &page, 2).await, [200; 2]);
    let counted = async || {
        let mut redis = redis.connection().await;
        let keys: Vec<String> =
            redis::cmd("KEYS").arg("*:budget:*").query_async(&mut redis).await.expect("it is there");
        let key = keys.first()?;
        redis::cmd("HGET").arg(key).arg("requests").query_async::<Option<u64>>(&mut redis).await.expect("it is a hash")
    };
    until(async || counted().await >= Some(6)).await;
    let after = statuses(&addresses, &page, 8).await;
    let went = after.iter().filter(|status| **status == 200).count();
    assert!(went <= 4, "{after:?}");
}
