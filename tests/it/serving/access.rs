//! Settings of one user: host overrides and limits.

use crate::support::{Alpn, Client, H2Client, Origin, Proxy, Reply, Seen, assert_refused, eventually};
use argon2::{Argon2, Params, PasswordHasher};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

const ROBOTS: &str = "User-agent: *\nDisallow: /no\n";

/// Alice with these keys, and Bob without any; their passwords are their names.
pub fn users(alice: &str) -> String {
    let hash = |password: &str| {
        let cheap = Params::new(8, 1, 1, None).unwrap();
        Argon2::from(cheap).hash_password(password.as_bytes()).unwrap().to_string()
    };
    let (a, b) = (hash("alice"), hash("bob"));
    format!("access: {{ users: [{{ name: alice, password: '{a}', {alice} }}, {{ name: bob, password: '{b}' }}] }}")
}

pub fn request(url: &str, user: &str) -> String {
    let host = url.split('/').nth(2).unwrap();
    let credentials = BASE64_STANDARD.encode(format!("{user}:{user}"));
    format!(
        "GET {url} HTTP/1.1\r\nHost: {host}\r\nProxy-Authorization: Basic {credentials}\r\nUser-Agent: TestBot\r\n\r\n"
    )
}

async fn get(proxy: &Proxy, url: &str, user: &str) -> crate::support::Response {
    let mut client = proxy.client().await;
    client.send(request(url, user)).await;
    client.response().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_overrides_of_a_user_apply_only_to_her() {
    let origin = Origin::site(ROBOTS).await;
    let yaml = "hosts: { '*.localhost': { robots: ignore, deny: [/mine/] }, b.localhost: { intercept: deny } }";
    let proxy = Proxy::start(&format!("{}\nhosts: {{ a.localhost: {{ deny: [/ours/] }} }}", users(yaml))).await;
    for (path, alice, bob) in [("/x", 200, 200), ("/no", 200, 403), ("/mine/x", 403, 200), ("/ours/x", 200, 403)] {
        assert_eq!(get(&proxy, &origin.url(path), "alice").await.status(), alice, "{path}");
        assert_eq!(get(&proxy, &origin.url(path), "bob").await.status(), bob, "{path}");
    }
    // Inside CONNECT it is whose CONNECT it was.
    let host = origin.authority("b.localhost");
    for (user, status) in [("alice", 403), ("bob", 200)] {
        let credentials = BASE64_STANDARD.encode(format!("{user}:{user}"));
        let mut client = proxy.client().await;
        client
            .send(format!(
                "CONNECT {host} HTTP/1.1\r\nHost: {host}\r\nProxy-Authorization: Basic {credentials}\r\n\r\n"
            ))
            .await;
        assert_eq!(client.head().await.status(), status, "{user}");
        if status == 200 {
            assert_eq!(client.get("/x", &host).await.status(), 200, "{user}");
        }
    }
}

/// The evidence contains this crawler, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_agent_of_a_user_is_sent_and_selects_the_robots_group() {
    let origin = Origin::site("User-agent: AliceBot\nDisallow: /alice\nUser-agent: MainBot\nDisallow: /main\n").await;
    let own = users("user_agent: 'AliceBot/2 (+https://alice.example)'");
    let yaml = format!(
        "{own}\nidentity: {{ user_agent: MainBot/1, product_tokens: [MainBot] }}\nevidence: {{ directory: EVIDENCE }}"
    );
    let directory = tempfile::tempdir().unwrap();
    let evidence = directory.path().join("evidence");
    let proxy = Proxy::start_in(directory, &yaml.replace("EVIDENCE", evidence.to_str().unwrap())).await;
    for (path, alice, bob) in [("/x", 200, 200), ("/alice", 403, 200), ("/main", 200, 403)] {
        assert_eq!(get(&proxy, &origin.url(path), "alice").await.status(), alice, "{path}");
        assert_eq!(get(&proxy, &origin.url(path), "bob").await.status(), bob, "{path}");
    }
    let agents =
        |target: &str| origin.log.of(target).iter().map(|seen| seen.all("user-agent").join(";")).collect::<Vec<_>>();
    assert_eq!(agents("/x"), ["AliceBot/2 (+https://alice.example)", "MainBot/1"]);
    assert_eq!(agents("/robots.txt"), ["MainBot/1"], "it is read for all");
    let _directory = proxy.shutdown().await;
    let ended =
        crate::support::binary::politely(&["report", evidence.to_str().unwrap(), "--by", "user", "--format", "json"])
            .await;
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.stderr));
    let users = report["users"].as_array().expect("a list").iter();
    let tokens: Vec<_> = users.clone().map(|user| format!("{} {}", user["name"], user["product_tokens"])).collect();
    assert_eq!(tokens, [r#""alice" ["AliceBot"]"#, r#""bob" ["MainBot"]"#]);
    let agents: Vec<_> = users.map(|user| user["agents"].to_string()).collect();
    assert_eq!(agents, [r#"["AliceBot/2 (+https://alice.example)"]"#, r#"["MainBot/1"]"#], "as the site saw them");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn egress_lists_of_a_user_are_enforced() {
    let origin = Origin::site(ROBOTS).await;
    let proxy = Proxy::start(&users("egress: { hosts: [a.localhost], methods: [HEAD, GET] }")).await;
    for (host, alice) in [("a.localhost", 200), ("b.localhost", 403)] {
        let url = origin.url_at(host, "/x");
        let answer = get(&proxy, &url, "alice").await;
        assert_eq!(answer.status(), alice, "{host}");
        assert_eq!(answer.text().contains("by access.users[].egress.hosts: the host b"), alice == 403, "{host}");
        assert_eq!(get(&proxy, &url, "bob").await.status(), 200, "{host}");
    }
    // A restricted user may still read the proxy's setup page.
    assert_eq!(get(&proxy, "http://politely.invalid/", "alice").await.status(), 200);
    let post = |user| request(&origin.url("/post"), user).replace("GET ", "POST ");
    for (user, status) in [("alice", 403), ("bob", 200)] {
        let mut client = proxy.client().await;
        client.send(post(user)).await;
        assert_eq!(client.response().await.status(), status, "{user}");
    }
}

/// Answers all but `/held`.
pub fn holding(seen: &Seen) -> Reply {
    match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        "/held" => Reply::silence(),
        _ => Reply::echo(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn max_connections_of_a_user_counts_connections_in_use() {
    let origin = Origin::http(holding).await;
    let proxy = Proxy::start(&users("max_connections: 2")).await;
    let open = async |user: &str| {
        let mut client = proxy.client().await;
        client.send(request(&origin.url("/x"), user)).await;
        let response = client.response().await;
        (client, response)
    };
    let mut idle = Vec::new();
    for number in 0..4 {
        let (client, answered) = open("alice").await;
        assert_eq!(answered.status(), 200, "{number} others are idle");
        idle.push(client);
    }
    for (number, client) in idle.iter_mut().take(2).enumerate() {
        client.send(request(&origin.url("/held"), "alice")).await;
        eventually("its request", || origin.log.count("/held") == number + 1).await;
    }
    let (mut third, refused) = open("alice").await;
    assert_refused(&refused, 503, "connection_limit_reached", "connection-limit");
    assert_eq!(open("bob").await.1.status(), 200, "it is her bound");
    // The connection counts for its current user.
    third.send(request(&origin.url("/z"), "bob")).await;
    assert_eq!(third.response().await.status(), 200);
    drop(idle);
    let mut answered = 503;
    while answered == 503 {
        answered = open("alice").await.1.status();
    }
    assert_eq!(answered, 200);
}

/// A connection may carry streams of several users: each user counts while one of their streams is open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_places_on_a_shared_h2_connection_are_counted_separately() {
    let origin = Origin::http(holding).await;
    let proxy = Proxy::start(&users("max_connections: 1")).await;
    let shared = H2Client::known(proxy.client().await).await;
    let asks = async |path: &str, user: &str| {
        let mut asked = crate::support::h2_client::request("GET", &origin.url(path));
        let credentials = format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{user}")));
        asked.headers_mut().insert("proxy-authorization", credentials.parse().unwrap());
        shared.send(asked, true).await
    };
    let held = asks("/held", "alice").await;
    eventually("her request", || origin.log.count("/held") == 1).await;
    for user in ["bob", "alice"] {
        assert_eq!(asks("/x", user).await.response().await.unwrap().status(), 200, "{user}");
        let refused = get(&proxy, &origin.url("/x"), "alice").await;
        assert_refused(&refused, 503, "connection_limit_reached", "connection-limit");
    }
    drop(held);
    while get(&proxy, &origin.url("/x"), "alice").await.status() == 503 {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn intercepted_tunnels_count_for_their_user_while_in_use() {
    let origin = Origin::https(Alpn::H1, holding).await;
    let proxy = Proxy::start(&users("max_connections: 1")).await;
    let host = origin.authority("a.localhost");
    let credentials = BASE64_STANDARD.encode("alice:alice");
    let connect =
        format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\nProxy-Authorization: Basic {credentials}\r\n\r\n");
    let mut inside = Vec::new();
    for _ in 0..2 {
        let mut client = proxy.client().await;
        client.send(&connect).await;
        assert_eq!(client.head().await.status(), 200, "the other is idle");
        let mut client = client.tls("a.localhost", &proxy.ca_pem_path(), &[b"http/1.1"]).await;
        assert_eq!(client.get("/x", &host).await.status(), 200);
        inside.push(client);
    }
    inside[0].send(crate::support::client::get("/held", &host)).await;
    eventually("the request", || origin.log.count("/held") == 1).await;
    let mut third = proxy.client().await;
    third.send(&connect).await;
    assert_refused(&third.response().await, 503, "connection_limit_reached", "connection-limit");
    assert_refused(&inside[1].get("/y", &host).await, 503, "connection_limit_reached", "connection-limit");
}

/// Clients may open tunnels in advance.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_tunnels_of_a_user_make_room_for_new_ones() {
    let origin = Origin::http(holding).await;
    for how in ["intercept", "tunnel"] {
        let limits = "{ header_timeout: 1h, idle_timeout: 1s }";
        let yaml = format!("{}\nintercept: {{ default: {how} }}\nlimits: {limits}", users("max_connections: 1"));
        let proxy = Proxy::start(&yaml).await;
        let host = origin.authority("a.localhost");
        let credentials = BASE64_STANDARD.encode("alice:alice");
        let mut silent = proxy.client().await;
        let proof = format!("Proxy-Authorization: Basic {credentials}");
        silent.send(format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n{proof}\r\n\r\n")).await;
        assert_eq!(silent.head().await.status(), 200);
        let answered = async { while get(&proxy, &origin.url("/x"), "alice").await.status() == 503 {} };
        crate::support::within("a place", answered).await;
        drop(silent);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_connection_does_not_count_for_its_user() {
    let origin = Origin::site(ROBOTS).await;
    let proxy = Proxy::start(&users("max_connections: 1")).await;
    for _ in 0..3 {
        let mut client: Client = proxy.client().await;
        client.send(request(&origin.url("/x"), "alice")).await;
        let mut answered = client.response().await.status();
        // The one before may be on its way out still.
        while answered == 503 {
            client = proxy.client().await;
            client.send(request(&origin.url("/x"), "alice")).await;
            answered = client.response().await.status();
        }
        assert_eq!(answered, 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn max_waiting_of_a_user_is_enforced() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text("User-agent: *\nCrawl-delay: 30\n"),
        _ => Reply::text("page"),
    })
    .await;
    let proxy = Proxy::start(&users("max_waiting: 1")).await;
    assert_eq!(get(&proxy, &origin.url("/first"), "bob").await.status(), 200);
    let mut waiting = proxy.client().await;
    waiting.send(request(&origin.url("/waits"), "alice")).await;
    eventually("her request to wait", || proxy.waiting() == 1).await;
    let refused = get(&proxy, &origin.url("/one-too-many"), "alice").await;
    assert_refused(&refused, 503, "connection_limit_reached", "queue-full");
    // Elsewhere, where nothing has to wait, she goes on.
    assert_eq!(get(&proxy, &origin.url_at("b.localhost", "/x"), "alice").await.status(), 200);
    // Nor does she evict another user with more requests waiting there.
    assert_eq!(get(&proxy, &origin.url_at("c.localhost", "/first"), "bob").await.status(), 200);
    let mut his = Vec::new();
    for number in 1..=2 {
        let mut client = proxy.client().await;
        client.send(request(&origin.url_at("c.localhost", "/his"), "bob")).await;
        eventually("his request to wait", || proxy.waiting() == 1 + number).await;
        his.push(client);
    }
    let refused = get(&proxy, &origin.url_at("c.localhost", "/one-too-many"), "alice").await;
    assert_refused(&refused, 503, "connection_limit_reached", "queue-full");
    assert_eq!(proxy.waiting(), 3);
    drop(his);
    eventually("his places to be free", || proxy.waiting() == 1).await;
    // Her place is free again when she gives up.
    drop(waiting);
    eventually("her place to be free", || proxy.waiting() == 0).await;
    let mut waiting = proxy.client().await;
    waiting.send(request(&origin.url("/waits"), "alice")).await;
    eventually("her request to wait", || proxy.waiting() == 1).await;
}

/// Users see only what they could have requested themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirected_robots_txt_is_hidden_from_users_denied_its_host() {
    for confined in ["egress: { hosts: [a.localhost] }", "hosts: { b.localhost: { deny: [/] } }"] {
        let inner = Origin::site("User-agent: *\nDisallow: /inner\n").await;
        let target = inner.url_at("b.localhost", "/robots.txt");
        let origin = Origin::http(move |seen| match seen.path().as_str() {
            "/robots.txt" => Reply::redirect(target.clone()),
            _ => Reply::text("page"),
        })
        .await;
        let proxy = Proxy::start(&users(confined)).await;
        for (user, status) in [("bob", 200), ("alice", 302), ("bob", 200), ("alice", 302)] {
            let answer = get(&proxy, &origin.url("/robots.txt"), user).await;
            assert_eq!(
                (answer.status(), answer.text().contains("/inner")),
                (status, status == 200),
                "{user} {confined}"
            );
        }
        assert_eq!(get(&proxy, &origin.url("/inner"), "alice").await.status(), 403, "it holds all the same");
        assert_eq!(get(&proxy, &origin.url("/x"), "alice").await.status(), 200);
    }
}

/// Guesses for one name are checked 5 s apart, so those of departed clients would delay the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn password_checks_of_departed_clients_are_skipped() {
    let origin = Origin::site(ROBOTS).await;
    let proxy = Proxy::start(&users("")).await;
    let (url, guesses) = (origin.url("/x"), 8);
    let host = url.split('/').nth(2).unwrap();
    for number in 0..guesses {
        let credentials = BASE64_STANDARD.encode(format!("alice:guess {number}"));
        let mut client = proxy.client().await;
        client
            .send(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nProxy-Authorization: Basic {credentials}\r\n\r\n"))
            .await;
    }
    eventually("all but the first to be seen to leave", || proxy.counts().client_gone == guesses - 1).await;
    assert_eq!(get(&proxy, &url, "alice").await.status(), 200);
}
