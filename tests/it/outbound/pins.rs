//! Hosts with which TLS is spoken on terms of their own: `pin`, `client_certificate`, `verify: off`.

use crate::support::certs::{key_pin, server_config_asking};
use crate::support::origin::NAMES;
use crate::support::websocket::WebSocket;
use crate::support::{Alpn, Origin, Protocol, Proxy, Reply, TestCa, assert_refused, test_ca};
use argon2::{Argon2, Params, PasswordHasher};

const ROBOTS: &str = "User-agent: *\nDisallow: /no\n";

async fn get(proxy: &Proxy, origin: &Origin, host: &str, path: &str) -> crate::support::Response {
    let mut client = proxy.tls(origin, host, &[b"http/1.1"]).await;
    client.get(path, &origin.authority(host)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_pinned_key_is_accepted() {
    let origin = Origin::tls_site(Alpn::Both, ROBOTS).await;
    let right = key_pin(test_ca(), &origin).await;
    let wrong = "sha256/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let yaml = format!(
        "hosts: {{ a.localhost: {{ pin: '{right}' }}, b.localhost: {{ pin: ['{wrong}', '{right}'] }}, \
         c.localhost: {{ pin: '{wrong}' }} }}"
    );
    let proxy = Proxy::start(&yaml).await;
    let before = origin.connections();
    for host in ["a.localhost", "b.localhost"] {
        assert_eq!(get(&proxy, &origin, host, "/x").await.text(), "page /x");
        assert_eq!(get(&proxy, &origin, host, "/no").await.status(), 403);
    }
    assert_eq!(origin.connections() - before, 2, "one for robots.txt and the pages of each");
    // Not even robots.txt is read from who shows another key.
    let problem = assert_refused(
        &get(&proxy, &origin, "c.localhost", "/x").await,
        503,
        "destination_unavailable",
        "robots-unreachable",
    );
    assert!(problem["detail"].as_str().unwrap().contains("pinned"), "{problem}");
    proxy.reload(&format!("hosts: {{ c.localhost: {{ pin: '{wrong}', robots: ignore }} }}")).unwrap();
    let problem = assert_refused(
        &get(&proxy, &origin, "c.localhost", "/x").await,
        502,
        "tls_certificate_error",
        "tls_certificate_error",
    );
    assert!(problem["detail"].as_str().unwrap().contains("pinned"), "{problem}");
    assert!(origin.log.all().iter().all(|seen| !seen.host.starts_with("c.")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pinned_key_does_not_replace_certificate_verification() {
    let other = TestCa::new("an authority that nobody trusts");
    let origin = Origin::https_as(&other, &["a.localhost"], Alpn::H1, |_| Reply::text("")).await;
    let pin = key_pin(&other, &origin).await;
    let proxy = Proxy::start(&format!("hosts: {{ a.localhost: {{ pin: '{pin}', robots: ignore }} }}")).await;
    let response = get(&proxy, &origin, "a.localhost", "/x").await;
    assert_refused(&response, 502, "tls_certificate_error", "tls_certificate_error");
    assert!(origin.log.all().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_certificate_is_sent_only_to_its_host() {
    let clients = TestCa::new("who may ask the origin");
    let origin =
        Origin::https_with(server_config_asking(&clients, &NAMES), crate::support::origin::pages(ROBOTS)).await;
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = clients.pem_pair("the crawler");
    let (certificate_file, key_file) = (directory.path().join("us.pem"), directory.path().join("us.key"));
    std::fs::write(&certificate_file, certificate).unwrap();
    std::fs::write(&key_file, key).unwrap();
    let own = format!(
        "client_certificate: {{ certificate: '{}', key: '{}' }}",
        certificate_file.display(),
        key_file.display()
    );
    let proxy =
        Proxy::start(&format!("hosts: {{ a.localhost: {{ {own} }}, b.localhost: {{ robots: ignore }} }}")).await;
    assert_eq!(get(&proxy, &origin, "a.localhost", "/x").await.text(), "page /x");
    assert_eq!(get(&proxy, &origin, "a.localhost", "/no").await.status(), 403, "robots.txt came that way too");
    let response = get(&proxy, &origin, "b.localhost", "/x").await;
    assert_eq!(response.status(), 502, "{:?}", response.head);
    assert!(origin.log.all().iter().all(|seen| seen.host.starts_with("a.")));

    // A reload whose files are not there changes nothing.
    std::fs::remove_file(&key_file).unwrap();
    let told = proxy.reload(&format!("hosts: {{ a.localhost: {{ {own} }} }}")).unwrap_err();
    assert!(told.contains("us.key cannot be read as a PEM key"), "{told}");
    assert_eq!(get(&proxy, &origin, "a.localhost", "/x").await.text(), "page /x");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_off_applies_only_to_its_host_and_is_shown_in_each_answer() {
    let other = TestCa::new("an authority that nobody trusts");
    let handler = |seen: &crate::support::Seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(ROBOTS),
        "/ws" => Reply::websocket(),
        _ => Reply::text("page"),
    };
    // Not even the name is right.
    let origin = Origin::https_as(&other, &["elsewhere.example"], Alpn::Both, handler).await;
    let proxy = Proxy::start("hosts: { a.localhost: { verify: off }, b.localhost: { robots: ignore } }").await;
    for _ in 0..2 {
        let page = get(&proxy, &origin, "a.localhost", "/x").await;
        assert_eq!(page.text(), "page");
        let details = page.head.proxy_status_parameter("details").expect("it is told");
        assert!(details.contains("not verified"), "{details}");
    }
    assert_eq!(get(&proxy, &origin, "a.localhost", "/no").await.status(), 403);
    let client = proxy.tls(&origin, "a.localhost", &[b"http/1.1"]).await;
    let (mut socket, _) = WebSocket::open(client, "/ws", &origin.authority("a.localhost")).await.expect("101");
    assert_eq!(socket.echo(b"hello").await, b"hello");
    assert_eq!(proxy.counts().unverified, 3);
    let page = proxy.h2(&origin, "a.localhost").await.get(&origin.url("/h2")).await;
    assert_eq!((page.text().as_str(), origin.log.one("/h2").protocol), ("page", Protocol::Http2));
    let response = get(&proxy, &origin, "b.localhost", "/x").await;
    assert_refused(&response, 502, "tls_certificate_error", "tls_certificate_error");
    // The word is taken back: connections of before are not used for it.
    proxy.reload("hosts: { a.localhost: { robots: ignore } }").unwrap();
    let response = get(&proxy, &origin, "a.localhost", "/x").await;
    assert_refused(&response, 502, "tls_certificate_error", "tls_certificate_error");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloaded_pin_is_not_bypassed_by_an_old_connection() {
    let origin = Origin::tls_site(Alpn::Both, ROBOTS).await;
    let proxy = Proxy::start("").await;
    for _ in 0..2 {
        assert_eq!(get(&proxy, &origin, "a.localhost", "/x").await.status(), 200);
    }
    let pin = "sha256/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    proxy.reload(&format!("hosts: {{ a.localhost: {{ pin: '{pin}' }} }}")).unwrap();
    let response = get(&proxy, &origin, "a.localhost", "/x").await;
    assert_refused(&response, 502, "tls_certificate_error", "tls_certificate_error");
    assert_eq!(origin.log.of("/x").len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_settings_apply_per_user() {
    let clients = TestCa::new("who may ask the origin");
    let asking =
        Origin::https_with(server_config_asking(&clients, &NAMES), crate::support::origin::pages(ROBOTS)).await;
    let other = TestCa::new("an authority that nobody trusts");
    let untrusted = Origin::https_as(&other, &["b.localhost"], Alpn::Both, |_| Reply::text("b")).await;
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = clients.pem_pair("alice");
    let files = ["us.pem", "us.key"].map(|name| directory.path().join(name));
    std::fs::write(&files[0], certificate).unwrap();
    std::fs::write(&files[1], key).unwrap();
    let pair =
        format!("client_certificate: {{ certificate: '{}', key: '{}' }}", files[0].display(), files[1].display());
    let hash = Argon2::from(Params::new(8, 1, 1, None).unwrap()).hash_password(b"pw").unwrap().to_string();
    let yaml = |own: &str| {
        format!(
            "hosts: {{ '*.localhost': {{ robots: ignore }} }}\n\
             access: {{ users: [{{ name: alice, password: '{hash}', hosts: {{ a.localhost: {{ {own} }}, \
             b.localhost: {{ verify: off }} }} }}, {{ name: bob, password: '{hash}' }}] }}"
        )
    };
    let proxy = Proxy::start(&yaml(&pair)).await;
    let status = |user: &'static str, url: String| {
        let proxy = &proxy;
        async move { proxy.curl(&["-U", &format!("{user}:pw"), &url]).await.status() }
    };
    // Nobody is served over another's connection.
    for _ in 0..2 {
        for (user, expected) in [("alice", 200), ("bob", 502)] {
            assert_eq!(status(user, asking.url("/x")).await, expected, "{user}");
            let url = untrusted.url_at("b.localhost", "/x");
            assert_eq!(status(user, url).await, expected, "{user}");
        }
    }
    proxy.reload(&yaml("robots: ignore")).unwrap();
    assert_eq!(status("alice", asking.url("/x")).await, 502, "no longer");
}
