//! Connections to origins that serve one client connection alone: those that an origin has authenticated (NTLM, Negotiate), and
//! those that have carried a body.

use crate::admin::address::{ON, asked};
use crate::support::client::get;
use crate::support::{Alpn, Client, Origin, Protocol, Proxy, Reply, Seen, eventually, within};
use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

const NO_ROBOTS: &str = "hosts: { '*.localhost': { robots: ignore } }";

/// An origin that authenticates connections, as those do that speak NTLM or Negotiate: whoever asks on one is alice from then on.
fn authenticating(scheme: &'static str) -> impl Fn(&Seen) -> Reply + Send + Sync + 'static {
    let alices = Mutex::new(HashSet::new());
    move |seen| {
        let mut alices = alices.lock().unwrap();
        let challenge = |challenge: &str| Reply::status(401).field("WWW-Authenticate", challenge).body("who");
        match seen.field("authorization").and_then(|value| value.split_once(' ')) {
            Some((_, "hello")) => challenge(&format!("{scheme} challenge")),
            Some((_, "response")) => {
                alices.insert(seen.connection);
                Reply::text("alice")
            }
            _ if alices.contains(&seen.connection) => Reply::text("alice"),
            _ => challenge(scheme),
        }
    }
}

/// A client to the origin: through CONNECT, or to the proxy itself.
async fn client(proxy: &Proxy, origin: &Origin) -> Client {
    match origin.url("").starts_with("https") {
        true => proxy.tls(origin, "a.localhost", &[b"http/1.1"]).await,
        false => proxy.client().await,
    }
}

fn users() -> String {
    use argon2::PasswordHasher;
    let hash = argon2::Argon2::from(argon2::Params::new(8, 1, 1, None).unwrap()).hash_password(b"pw").unwrap();
    let users = ["alice", "bob"].map(|name| format!("{{ name: {name}, password: '{hash}' }}")).join(", ");
    format!("access: {{ users: [{users}] }}")
}

fn basic(user: &str) -> String {
    use base64::Engine;
    format!("Basic {}", base64::prelude::BASE64_STANDARD.encode(format!("{user}:pw")))
}

async fn ask(client: &mut Client, origin: &Origin, fields: &str, body: &str) -> (u16, String) {
    let target = if origin.url("").starts_with("https") { "/x".to_owned() } else { origin.url("/x") };
    let method = if body.is_empty() { "GET" } else { "POST" };
    let head = get(&target, &origin.authority("a.localhost")).replacen("GET", method, 1);
    client.send(head.replacen("\r\n\r\n", &format!("\r\n{fields}\r\n{body}"), 1)).await;
    let response = client.response().await;
    (response.status(), response.text())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_authenticated_by_ntlm_is_not_shared() {
    for (scheme, written) in [("NTLM", "nTLM"), ("Negotiate", "Negotiate")] {
        for origin in [
            Origin::http(authenticating(scheme)).await,
            Origin::https(Alpn::H1, authenticating(scheme)).await,
            Origin::https(Alpn::Both, authenticating(scheme)).await,
        ] {
            let proxy = Proxy::start(NO_ROBOTS).await;
            let mut alice = client(&proxy, &origin).await;
            assert_eq!(ask(&mut alice, &origin, "", "").await.0, 401);
            for (word, expected) in [("hello", (401, "who")), ("response", (200, "alice"))] {
                let (status, text) =
                    ask(&mut alice, &origin, &format!("Authorization: {written} {word}\r\n"), "").await;
                assert_eq!((status, text.as_str()), expected, "{scheme} {}", origin.url(""));
            }
            // As without a proxy, her next request on the connection needs no credentials.
            assert_eq!(ask(&mut alice, &origin, "", "").await, (200, "alice".into()));
            for _ in 0..3 {
                let mut bob = client(&proxy, &origin).await;
                assert_eq!(ask(&mut bob, &origin, "", "").await, (401, "who".into()), "{scheme}");
            }
            assert_eq!(ask(&mut alice, &origin, "", "").await, (200, "alice".into()));
            let asked = origin.log.of("/x");
            let with_terms = asked.iter().filter(|seen| seen.field("authorization").is_some());
            assert!(with_terms.clone().all(|seen| seen.protocol == Protocol::Http1));
            assert_eq!(with_terms.map(|seen| seen.connection).collect::<HashSet<_>>().len(), 1);
            let open = origin.open_connections();
            drop(alice);
            eventually("it is closed with her connection", || origin.open_connections() < open).await;
        }
    }
}

/// Some origins send the challenge of a proxy, 407.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_challenged_for_ntlm_is_not_shared() {
    for (status, name) in [(401, "WWW-Authenticate"), (407, "Proxy-Authenticate")] {
        for (terms, is_private) in
            [("NTLM", true), ("Basic realm=\"x\", negotiate", true), ("Basic realm=\"x\"", false)]
        {
            for is_hidden in [false, true] {
                let answer = move |_: &Seen| {
                    let answer = Reply::status(status).field(name, terms).body("who");
                    if is_hidden { answer.field("Connection", name) } else { answer }
                };
                for origin in [Origin::http(answer).await, Origin::https(Alpn::H1, answer).await] {
                    let proxy = Proxy::start(NO_ROBOTS).await;
                    let (mut alice, mut bob) = (client(&proxy, &origin).await, client(&proxy, &origin).await);
                    // A connection that others may use is back a moment after its answer.
                    for _ in 0..if is_private { 2 } else { 5 } {
                        assert_eq!(ask(&mut alice, &origin, "", "").await.0, status);
                        assert_eq!(ask(&mut bob, &origin, "", "").await.0, status);
                    }
                    let on: Vec<_> = origin.log.of("/x").iter().map(|seen| seen.connection).collect();
                    let what = format!("{status} {terms} {is_hidden} {}: {on:?}", origin.url(""));
                    let [hers, his] = [0, 1].map(|first| on.iter().skip(first).step_by(2).collect::<HashSet<_>>());
                    assert_eq!(hers.is_disjoint(&his), is_private, "{what}");
                    if is_private {
                        assert_eq!((hers.len(), his.len()), (1, 1), "{what}");
                        drop(alice);
                        eventually("it is closed with her connection", || origin.open_connections() == 1).await;
                        assert_eq!(ask(&mut bob, &origin, "", "").await.0, status);
                        assert_eq!(origin.log.of("/x")[4].connection, on[1], "{what}");
                    }
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_on_one_client_connection_do_not_share_authenticated_connections() {
    let proxy = Proxy::start(&format!("{NO_ROBOTS}\n{}", users())).await;
    let origin = Origin::http(authenticating("NTLM")).await;
    let mut shared = client(&proxy, &origin).await;
    let by = |user: &str| format!("Proxy-Authorization: {}\r\n", basic(user));
    let authenticated = format!("{}Authorization: NTLM response\r\n", by("alice"));
    assert_eq!(ask(&mut shared, &origin, &authenticated, "").await.0, 200);
    assert_eq!(ask(&mut shared, &origin, &by("alice"), "").await.0, 200);
    assert_eq!(ask(&mut shared, &origin, &by("bob"), "").await.0, 401);
    assert_eq!(ask(&mut shared, &origin, &by("alice"), "").await.0, 200, "hers is still hers");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn authenticated_connection_belongs_to_the_http2_client_connection() {
    let origin = Origin::https(Alpn::Both, authenticating("Negotiate")).await;
    let proxy = Proxy::start(NO_ROBOTS).await;
    let [alice, bob] = [proxy.h2(&origin, "a.localhost").await, proxy.h2(&origin, "a.localhost").await];
    let mut request = crate::support::h2_client::request("GET", &origin.url("/x"));
    request.headers_mut().insert("authorization", http::HeaderValue::from_static("Negotiate response"));
    assert_eq!(alice.exchange(request, b"").await.unwrap().text(), "alice");
    assert_eq!(bob.get(&origin.url("/x")).await.status(), 401);
    assert_eq!(alice.get(&origin.url("/x")).await.text(), "alice");
}

/// On an HTTP/2 connection to the proxy itself, each stream has its own user.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn authenticated_connection_belongs_to_client_connection_and_user_in_http2_to_the_proxy() {
    use crate::support::h2_client::{H2Client, request};
    let origin = Origin::http(authenticating("NTLM")).await;
    let proxy = Proxy::start(&format!("{NO_ROBOTS}\n{ON}\n{}", users())).await;
    let shared = H2Client::known(proxy.client().await).await;
    let ask = async |method: &str, user: &str, terms: Option<&'static str>| {
        let mut sent = request(method, &origin.url("/x"));
        sent.headers_mut().insert("proxy-authorization", basic(user).parse().unwrap());
        if let Some(terms) = terms {
            sent.headers_mut().insert("authorization", http::HeaderValue::from_static(terms));
        }
        let body: &[u8] = if method == "POST" { b"body" } else { b"" };
        let answer = shared.exchange(sent, body).await.unwrap().text();
        // Each stream has its own task: the connection is idle a moment after the answer.
        let all_are_idle = format!("politely_origin_connections_idle {}\n", origin.connections());
        within("the connection is idle", async {
            while !asked(proxy.admin_address(), "GET", "/metrics", "").await.text().contains(&all_are_idle) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        answer
    };
    assert_eq!(ask("GET", "alice", Some("NTLM response")).await, "alice");
    for _ in 0..3 {
        assert_eq!(ask("GET", "alice", None).await, "alice");
        assert_eq!(ask("GET", "bob", None).await, "who", "he has nothing of hers");
        assert_eq!(ask("POST", "alice", None).await, "alice", "and takes nothing from her");
    }
    let on = |number: usize| origin.log.of("/x")[number].connection;
    assert_eq!((0..10).map(on).collect::<HashSet<_>>().len(), 2, "one each");
    assert_eq!(origin.connections(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_that_carried_a_body_is_not_shared() {
    for origin in [Origin::http(|_| Reply::text("x")).await, Origin::https(Alpn::H1, |_| Reply::text("x")).await] {
        let proxy = Proxy::start(NO_ROBOTS).await;
        let (mut one, mut other) = (client(&proxy, &origin).await, client(&proxy, &origin).await);
        let chunked = "Transfer-Encoding: chunked\r\n";
        for (fields, body) in [("Content-Length: 4\r\n", "body"), (chunked, "4\r\nbody\r\n0\r\n\r\n")] {
            assert_eq!(ask(&mut one, &origin, fields, body).await.0, 200);
            assert_eq!(ask(&mut other, &origin, "", "").await.0, 200);
            assert_eq!(ask(&mut one, &origin, "", "").await.0, 200);
        }
        let on: Vec<_> = origin.log.of("/x").iter().map(|seen| seen.connection).collect();
        assert!(on[2] == on[0] && on[3] == on[0] && on[5] == on[0], "its own client uses it again: {on:?}");
        assert!(on[1] != on[0] && on[4] != on[0], "another does not: {on:?}");
        assert_eq!(on.iter().collect::<HashSet<_>>().len(), 2, "{on:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn private_idle_connections_of_many_clients_stay_within_the_limit() {
    let origin = Origin::http(|_| Reply::text("x")).await;
    let proxy = Proxy::start(&format!("{NO_ROBOTS}\nlimits: {{ max_idle_connections: 50 }}")).await;
    let mut clients = Vec::new();
    for _ in 0..300 {
        let mut client = client(&proxy, &origin).await;
        assert_eq!(ask(&mut client, &origin, "Content-Length: 4\r\n", "body").await.0, 200);
        clients.push(client);
    }
    eventually("the oldest make room", || origin.open_connections() <= 50).await;
    // Whose connection has gone gets another.
    assert_eq!(ask(&mut clients[0], &origin, "Content-Length: 4\r\n", "body").await.0, 200);
    drop(clients);
    eventually("all are closed with their clients", || origin.open_connections() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn private_idle_connections_of_one_client_do_not_evict_anothers() {
    let origin = Origin::http(|_| Reply::text("x")).await;
    let proxy = Proxy::start(&format!("{NO_ROBOTS}\nlimits: {{ max_idle_connections_per_host: 2 }}")).await;
    let mut posting = Vec::new();
    for _ in 0..4 {
        let mut client = client(&proxy, &origin).await;
        assert_eq!(ask(&mut client, &origin, "Content-Length: 4\r\n", "body").await.0, 200);
        posting.push(client);
    }
    let mut other = client(&proxy, &origin).await;
    for _ in 0..3 {
        assert_eq!(ask(&mut other, &origin, "", "").await.0, 200);
    }
    for client in &mut posting {
        assert_eq!(ask(client, &origin, "Content-Length: 4\r\n", "body").await.0, 200);
    }
    let on: Vec<_> = origin.log.of("/x").iter().map(|seen| seen.connection).collect();
    assert!(on[4] == on[5] && on[5] == on[6], "the other's own is kept: {on:?}");
    assert_eq!(on[..4], on[7..], "and so is each of theirs");
}
