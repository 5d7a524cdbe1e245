//! Clients that were not let in, and what of a user's secrets could leave.

use super::siege::{Siege, refused, shoot};
use crate::support::certs::client_config;
use crate::support::{
    Alpn, Binary, Client, H2Client, Origin, Proxy, TestCa, assert_refused, eventually, h2_client, test_ca,
};
use argon2::{Argon2, Params, PasswordHasher};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use std::path::Path;
use std::time::Duration;

const ROBOTS: &str = "User-agent: AliceBot\nDisallow:\n\nUser-agent: *\nDisallow: /secret\n";

fn users() -> String {
    let cheap = Params::new(8, 1, 1, None).unwrap();
    let hash = Argon2::from(cheap).hash_password(b"correct horse").unwrap().to_string();
    format!(
        "access: {{ users: [{{ name: alice, password: '{hash}', product_tokens: [AliceBot] }}, \
         {{ name: bob, password: '{hash}' }}] }}"
    )
}

fn basic(credentials: &str) -> String {
    format!("Proxy-Authorization: Basic {}\r\n", BASE64_STANDARD.encode(credentials))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_without_the_password_are_refused() {
    let origin = Origin::site(ROBOTS).await;
    let proxy = Proxy::start(&users()).await;
    let (url, host) = (origin.url("/x"), origin.authority("a.localhost"));
    let mut siege = Siege::default();
    for (name, field) in [
        ("no credentials", String::new()),
        ("no password", basic("alice:")),
        ("no name", basic(":correct horse")),
        ("nothing", basic("")),
        ("no colon", basic("alice")),
        ("a wrong password", basic("alice:wrong")),
        ("a wrong name", basic("carol:correct horse")),
        ("a name in capitals", basic("ALICE:correct horse")),
        ("a NUL behind", basic("alice:correct horse\0")),
        ("another scheme", "Proxy-Authorization: Bearer YWxpY2U6Y29ycmVjdCBob3JzZQ==\r\n".into()),
        ("Digest", "Proxy-Authorization: Digest username=\"alice\"\r\n".into()),
        ("not base64", "Proxy-Authorization: Basic !!!\r\n".into()),
        ("the origin's field", basic("alice:correct horse").replace("Proxy-", "")),
    ] {
        // Elsewhere than the tries before, which are limited for each address.
        let mut client = proxy.client().await;
        let answer = shoot(&mut client, format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{field}\r\n")).await;
        let asked = answer.as_ref().is_some_and(|answer| answer.field("proxy-authenticate").is_some());
        siege.tried(name, refused(answer.as_ref(), &[407]).or((!asked).then(|| "not asked for credentials".into())));
    }
    for field in [String::new(), basic("alice:wrong")] {
        let mut client = proxy.client().await;
        let answer = shoot(&mut client, format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n{field}\r\n")).await;
        siege.tried(format!("CONNECT, {field:?}"), refused(answer.as_ref(), &[407]));
    }
    siege.withstood(15);
    assert_eq!(origin.connections(), 0, "not even for robots.txt");
}

/// It is ambiguous which of the credentials counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_proxy_authorization_is_refused_in_any_order() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start(&users()).await;
    let (url, host) = (origin.url("/x"), origin.authority("a.localhost"));
    let (right, wrong) = (basic("alice:correct horse"), basic("alice:wrong"));
    for fields in [format!("{right}{wrong}"), format!("{wrong}{right}"), format!("{right}{right}")] {
        for line in [format!("GET {url}"), format!("CONNECT {host}")] {
            let mut client = proxy.client().await;
            client.send(format!("{line} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n")).await;
            assert_refused(&client.response().await, 400, "http_request_error", "bad-request");
        }
    }
    let client = H2Client::known(proxy.client().await).await;
    let mut asked = h2_client::request("GET", &url);
    for field in [&right, &wrong] {
        let value = field.trim().split_once(": ").unwrap().1.parse().unwrap();
        asked.headers_mut().append("proxy-authorization", value);
    }
    let refused = client.exchange(asked, b"").await.unwrap();
    assert_refused(&refused, 400, "http_request_error", "bad-request");
    assert_eq!(origin.connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_request_needs_credentials_and_a_tunnel_keeps_its_openers_user() {
    let origin = Origin::tls_site(Alpn::Both, ROBOTS).await;
    let proxy = Proxy::start(&users()).await;
    let (url, host) = (origin.url("/secret"), origin.authority("a.localhost"));
    let request = |field: &str| format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{field}\r\n");
    let mut client = proxy.client().await;
    client.send(request(&basic("alice:correct horse"))).await;
    assert_eq!(client.response().await.status(), 200, "AliceBot may");
    client.send(request(&basic("bob:correct horse"))).await;
    assert_eq!(client.response().await.status(), 403, "bob is no AliceBot");
    client.send(request("")).await;
    assert_eq!(client.response().await.status(), 407, "the connection is nobody's");
    for (user, status) in [("alice", 200), ("bob", 403)] {
        let mut client = proxy.client().await;
        let field = basic(&format!("{user}:correct horse"));
        client.send(format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n{field}\r\n")).await;
        assert_eq!(client.head().await.status(), 200);
        let mut client = client.tls("a.localhost", &proxy.ca_pem_path(), &[b"http/1.1"]).await;
        assert_eq!(client.get("/secret", &host).await.status(), status, "{user}");
    }
    assert!(origin.log.all().iter().all(|seen| seen.all("proxy-authorization").is_empty()));
}

/// Guesses for one name at one address are verified one by one, seconds apart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_passwords_are_delayed() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start(&users()).await;
    let (url, host) = (origin.url("/x"), origin.authority("a.localhost"));
    let mut guesses = tokio::task::JoinSet::new();
    for number in 0..50 {
        let mut client = proxy.client().await;
        let head = format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{}\r\n", basic(&format!("alice:guess {number}")));
        guesses.spawn(async move { shoot(&mut client, head).await.map(|answer| answer.status()) });
    }
    assert_eq!(guesses.join_next().await.unwrap().unwrap(), Some(407));
    tokio::time::sleep(Duration::from_millis(500)).await;
    let judged = std::iter::from_fn(|| guesses.try_join_next()).count();
    assert_eq!(judged, 0, "the others wait");
    assert_eq!(origin.connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn right_password_is_admitted_despite_guesses_from_the_same_address() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start(&users()).await;
    let (url, host) = (origin.url("/x"), origin.authority("a.localhost"));
    let ask = async |credentials: &str| {
        let mut client = proxy.client().await;
        let field = basic(credentials);
        let asked = format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{field}\r\n");
        shoot(&mut client, asked).await.map(|answer| answer.status())
    };
    for number in 0..12 {
        assert_eq!(ask(&format!("nobody{number}:x")).await, Some(407));
        // A crawler that was given a password of last year.
        assert_eq!(ask("alice:horse").await, Some(407));
    }
    assert_eq!(ask("alice:correct horse").await, Some(200));
}

/// Each guess would otherwise delay all logins from the address by five seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn socks5_guesser_that_disconnects_does_not_delay_other_logins() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start(&users()).await;
    let mut guessing = Vec::new();
    for number in 10..40 {
        let mut client = proxy.client().await;
        client.send([&[5, 1, 2, 1, 5][..], b"alice", &[7], format!("guess{number}").as_bytes()].concat()).await;
        // Closing with unread input would reset the connection.
        assert!(client.glance(Duration::from_secs(20)).await.starts_with(&[5, 2]));
        guessing.push(client);
    }
    drop(guessing);
    eventually("those not judged yet have left", || proxy.counts().client_gone >= 20).await;
    let mut client = proxy.client().await;
    let field = basic("alice:correct horse");
    let host = origin.authority("a.localhost");
    let answer = shoot(&mut client, format!("GET {} HTTP/1.1\r\nHost: {host}\r\n{field}\r\n", origin.url("/x"))).await;
    assert_eq!(answer.map(|answer| answer.status()), Some(200));
}

/// Guesses on one HTTP/2 connection wait for each other, and only one of them waits beside those of other connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guesses_on_one_http2_connection_do_not_lock_others_out() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start(&users()).await;
    let with = |credentials: &str| {
        let mut asked = h2_client::request("GET", &origin.url("/x"));
        let value = basic(credentials).trim().split_once(": ").unwrap().1.parse().unwrap();
        asked.headers_mut().insert("proxy-authorization", value);
        asked
    };
    let (guessing, asking) = (H2Client::known(proxy.client().await).await, H2Client::known(proxy.client().await).await);
    let mut tries = FuturesUnordered::new();
    for number in 0..50 {
        let sent = guessing.send(with(&format!("alice:guess {number}")), true).await;
        tries.push(async move { sent.head().await.status().as_u16() });
    }
    assert_eq!(tries.next().await, Some(407));
    assert_eq!(asking.exchange(with("alice:correct horse"), b"").await.unwrap().status(), 200);
    let judged = std::iter::from_fn(|| tries.next().now_or_never()).count();
    assert!(judged <= 2, "{judged} were judged before it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_and_logs_contain_no_credentials() {
    let origin = Origin::site("").await;
    let proxy = Binary::serve(&format!("{}\nlog: {{ level: debug, access: stdout }}", users())).await;
    let (url, host) = (origin.url("/x"), origin.authority("a.localhost"));
    for credentials in ["alice:correct horse", "alice:hunter2", "hunter3:x"] {
        let mut client = Client::open(proxy.address()).await;
        let field = basic(credentials);
        let answer = shoot(&mut client, format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{field}\r\n")).await;
        let text = answer.map(|answer| format!("{:?}{}", answer.head, answer.text())).unwrap_or_default();
        assert!(!text.contains("hunter") && !text.contains("argon2"), "{text}");
    }
    let said = proxy.output();
    for secret in ["hunter2", "hunter3", "correct horse", "argon2", "aHVudGVy", "YWxpY2U6"] {
        assert!(!said.contains(secret), "{secret}: {said}");
    }
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_outside_access_clients_are_refused_despite_the_password() {
    let origin = Origin::site("").await;
    let yaml = users().replace("access: {", "access: { clients: [192.0.2.0/24],");
    let proxy = Proxy::start(&yaml).await;
    let (url, host) = (origin.url("/x"), origin.authority("a.localhost"));
    let mut client = proxy.client().await;
    let field = basic("alice:correct horse");
    let answer = shoot(&mut client, format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{field}\r\n")).await;
    assert_eq!(refused(answer.as_ref(), &[403]), None);
    assert_eq!(origin.connections(), 0);
}

/// Certificate and key of `ca` for `name`, as files.
fn identity(ca: &TestCa, directory: &Path, name: &str) -> (String, String) {
    let (certificate, key) = ca.pem_pair(name);
    let paths = [("pem", certificate), ("key", key)].map(|(kind, text)| {
        let path = directory.join(format!("{name}.{kind}"));
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    });
    paths.into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_listener_admits_only_certificates_of_client_ca() {
    let origin = Origin::tls_site(Alpn::Both, "").await;
    let directory = tempfile::tempdir().unwrap();
    let (clients, strangers) = (TestCa::new("clients"), TestCa::new("strangers"));
    let (certificate, key) = identity(test_ca(), directory.path(), "localhost");
    let client_ca = clients.pem_file().display().to_string();
    let proxy = Proxy::start(&format!(
        "listen: [{{ address: '127.0.0.1:0', tls: {{ certificate: '{certificate}', key: '{key}', client_ca: '{client_ca}' }} }}]"
    ))
    .await;
    let host = origin.authority("a.localhost");
    let mut siege = Siege::default();
    for (name, ca) in [("a stranger's", Some(&strangers)), ("none", None), ("ours", Some(&clients))] {
        let config = match ca {
            Some(ca) => ca.client_config_as("crawler"),
            None => client_config(test_ca().pem_file(), &[]),
        };
        let outcome = async {
            let mut outer = Client::open(proxy.address()).await.tls_with("localhost", config).await.ok()?;
            outer.try_send(format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await.ok()?;
            let head = outer.try_head().await?;
            let mut inner = outer.tls("a.localhost", &proxy.ca_pem_path(), &[b"http/1.1"]).await;
            Some((head.status(), inner.get("/x", &host).await.status()))
        };
        let outcome = outcome.await;
        let expected = (name == "ours").then_some((200, 200));
        siege.tried(name, (outcome != expected).then(|| format!("{outcome:?}")));
    }
    let mut plain = proxy.client().await;
    plain.try_send(format!("GET {} HTTP/1.1\r\nHost: {host}\r\n\r\n", origin.url("/x"))).await.ok();
    let answer = super::siege::rest(&mut plain).await;
    siege.tried("no TLS at all", (!answer.starts_with(b"HTTP/1.1 400 ")).then(|| answer.escape_ascii().to_string()));
    siege.withstood(4);
    assert_eq!(origin.log.pages(), ["/x"]);
}
