//! TLS on both sides of us: leaves for the client, verified certificates of origins, HTTP/1.1 and h2 on either side.

use crate::support::certs::client_config;
use crate::support::client::get;
use crate::support::h2_client::request;
use crate::support::{Alpn, Client, H2Client, Origin, Protocol, Proxy, Reply, TestCa, assert_refused, test_ca};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

const H1: &[&[u8]] = &[b"http/1.1"];
const NO_ROBOTS: &str = "hosts: { '*.localhost': { robots: ignore }, '127.0.0.1': { robots: ignore } }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_over_https_gets_allowed_pages_only() {
    let origin = Origin::tls_site(Alpn::Both, "User-agent: *\nDisallow: /private/open\n").await;
    let proxy = Proxy::start("").await;
    for flags in [&["--http1.1"][..], &["--http2"], &["--http2", "--tls-max", "1.2"]] {
        let url = origin.url("/a%7eb/../c?x=%2f");
        let allowed = proxy.curl(&[flags, &["--path-as-is", &url]].concat()).await;
        assert_eq!((allowed.code, allowed.status()), (0, 200), "{}", allowed.stderr);
        assert_eq!(allowed.text(), "page /a%7eb/../c?x=%2f");
        let refused = proxy.curl(&[flags, &[&origin.url("/private/%6fpen")]].concat()).await;
        assert_eq!((refused.code, refused.status()), (0, 403), "the refusal is inside the tunnel, so curl sees it");
        assert_eq!(refused.head().proxy_error().as_deref(), Some("http_request_denied"));
        assert_eq!((refused.problem()["line"].clone(), refused.problem()["status"].clone()), (2.into(), 403.into()));
    }
    let refused = proxy.curl(&["-f", &origin.url("/private/open")]).await;
    assert_eq!(refused.code, 22);
    assert_eq!(origin.log.count("/robots.txt"), 1);
    assert!(origin.log.pages().iter().all(|target| target == "/a%7eb/../c?x=%2f"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_side_negotiates_its_own_http_version() {
    for (alpn, from_h1, from_h2) in [
        (Alpn::Both, Protocol::Http1, Protocol::Http2),
        (Alpn::H2, Protocol::Http2, Protocol::Http2),
        (Alpn::H1, Protocol::Http1, Protocol::Http1),
        (Alpn::None, Protocol::Http1, Protocol::Http1),
    ] {
        let origin = Origin::tls_site(alpn, "User-agent: *\nDisallow: /no\n").await;
        let proxy = Proxy::start("").await;
        let h2 = proxy.h2(&origin, "a.localhost").await;
        assert_eq!(h2.get(&origin.url("/h2")).await.text(), "page /h2");
        assert_refused(&h2.get(&origin.url("/no")).await, 403, "http_request_denied", "robots-disallowed");
        for protocols in [H1, &[]] {
            let mut h1 = proxy.tls(&origin, "a.localhost", protocols).await;
            assert_eq!(h1.get("/h1", &origin.authority("a.localhost")).await.text(), "page /h1");
            let refused = h1.get("/no", &origin.authority("a.localhost")).await;
            assert_refused(&refused, 403, "http_request_denied", "robots-disallowed");
            // The refusal does not end the connection.
            assert_eq!(h1.get("/h1", &origin.authority("a.localhost")).await.text(), "page /h1");
        }
        for seen in origin.log.all().into_iter().filter(|seen| seen.path() != "/robots.txt") {
            let spoken = if seen.path() == "/h1" { from_h1 } else { from_h2 };
            let told = (seen.protocol, seen.sni.as_deref());
            assert_eq!(told, (spoken, Some("a.localhost")), "{alpn:?} {}", seen.path());
            assert_eq!(seen.host, origin.authority("a.localhost"));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_h2_streams_share_one_client_connection() {
    let origin = Origin::tls_site(Alpn::Both, "").await;
    let proxy = Proxy::start("").await;
    let client = proxy.h2(&origin, "a.localhost").await;
    let urls: Vec<String> = (0..40).map(|number| origin.url(&format!("/{number}"))).collect();
    let mut pending = Vec::new();
    for url in &urls {
        pending.push(client.send(request("GET", url), true).await);
    }
    for (number, pending) in pending.into_iter().enumerate() {
        assert_eq!(pending.response().await.unwrap().text(), format!("page /{number}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ip_address_gets_its_own_leaf() {
    let origin = Origin::tls_site(Alpn::H1, "").await;
    let proxy = Proxy::start("").await;
    let got = proxy.curl(&[&origin.url_at("127.0.0.1", "/x")]).await;
    assert_eq!((got.code, got.text().as_str()), (0, "page /x"), "{}", got.stderr);
    assert_eq!(origin.log.one("/x").sni, None, "RFC 6066 §3: no address in the server name");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sni_name_replaces_an_address_in_connect() {
    let origin = Origin::tls_site(Alpn::H1, "User-agent: *\nDisallow: /no\n").await;
    let proxy = Proxy::start("").await;
    let client = Client::connect(proxy.address(), &origin.authority("127.0.0.1")).await;
    let mut client = client.tls("a.localhost", &proxy.ca_pem_path(), H1).await;
    let host = origin.authority("a.localhost");
    assert_eq!(client.get("/x", &host).await.text(), "page /x");
    let problem = assert_refused(&client.get("/no", &host).await, 403, "http_request_denied", "robots-disallowed");
    assert_eq!(problem["robots_url"], origin.url("/robots.txt"));
    assert_eq!(origin.log.one("/x").sni.as_deref(), Some("a.localhost"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sni_that_differs_from_connect_is_421() {
    let origin = Origin::tls_site(Alpn::H1, "").await;
    let proxy = Proxy::start("").await;
    for host in ["a.localhost", "b.localhost"] {
        let client = Client::connect(proxy.address(), &origin.authority("a.localhost")).await;
        let mut client = client.tls("b.localhost", &proxy.ca_pem_path(), H1).await;
        let response = client.get("/x", &origin.authority(host)).await;
        assert_refused(&response, 421, "http_request_error", "authority-mismatch");
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_without_a_server_name_gets_the_leaf_of_the_connect() {
    let origin = Origin::tls_site(Alpn::H1, "").await;
    let proxy = Proxy::start("").await;
    let mut config = client_config(&proxy.ca_pem_path(), H1);
    Arc::make_mut(&mut config).enable_sni = false;
    let client = Client::connect(proxy.address(), &origin.authority("a.localhost")).await;
    let mut client = client.tls_with("a.localhost", config).await.expect("a leaf for a.localhost");
    assert_eq!(client.get("/x", &origin.authority("a.localhost")).await.text(), "page /x");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaves_differ_and_the_authority_s_key_is_private() {
    let origin = Origin::tls_site(Alpn::H1, "").await;
    let proxy = Proxy::start("").await;
    let mut leaves = BTreeSet::new();
    for host in ["a.localhost", "b.localhost", "localhost"] {
        let client = proxy.tls(&origin, host, H1).await;
        leaves.insert(client.peer_certificates()[0].to_vec());
    }
    assert_eq!(leaves.len(), 3);
    let directory = proxy.ca_pem_path().parent().unwrap().to_owned();
    for entry in std::fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        let secret = std::fs::read_to_string(&path).is_ok_and(|text| text.contains("PRIVATE KEY"));
        let mode = path.metadata().unwrap().permissions().mode() & 0o777;
        assert!(!secret || mode == 0o600, "{} {mode:o}", path.display());
    }
    assert_eq!(directory.metadata().unwrap().permissions().mode() & 0o077, 0, "the directory is its owner's alone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn untrusted_origin_is_502() {
    let stranger = TestCa::new("nobody trusts this");
    let proxy = Proxy::start(NO_ROBOTS).await;
    let other_name = "the certificate is not valid for a.localhost, only for b.localhost";
    let untrusted = "the certificate's issuer is not trusted; `egress.ca_file` adds an authority of your own";
    for (ca, names, why) in
        [(&stranger, &["a.localhost", "127.0.0.1"][..], untrusted), (test_ca(), &["b.localhost"], other_name)]
    {
        let origin = Origin::https_as(ca, names, Alpn::Both, |_| Reply::text("secret")).await;
        let mut client = proxy.tls(&origin, "a.localhost", H1).await;
        let response = client.get("/x", &origin.authority("a.localhost")).await;
        assert_refused(&response, 502, "tls_certificate_error", "tls_certificate_error");
        let details = response.head.proxy_status_parameter("details").expect("it says why");
        assert_eq!(details, format!("TLS handshake failed: {why}"));
        let response = proxy.h2(&origin, "a.localhost").await.get(&origin.url("/x")).await;
        assert_refused(&response, 502, "tls_certificate_error", "tls_certificate_error");
        assert_refused(&proxy.get(&origin.url("/x")).await, 502, "tls_certificate_error", "tls_certificate_error");
        assert!(origin.log.all().is_empty(), "not a request was sent to it");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_certificate_is_a_502() {
    let origin = Origin::https_expired(|_| Reply::text("secret")).await;
    let proxy = Proxy::start(NO_ROBOTS).await;
    let response = proxy.get(&origin.url("/x")).await;
    assert_refused(&response, 502, "tls_certificate_error", "tls_certificate_error");
    let details = response.head.proxy_status_parameter("details").expect("it says why");
    assert!(details.starts_with("TLS handshake failed: the certificate expired on 20"), "{details}");
    assert!(origin.log.all().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificate_of_an_ip_address_is_verified() {
    // Without a server name to send, verification must not be left out.
    let origin = Origin::https_as(test_ca(), &["a.localhost"], Alpn::H1, |_| Reply::text("secret")).await;
    let proxy = Proxy::start(NO_ROBOTS).await;
    let url = origin.url_at("127.0.0.1", "/x");
    assert_refused(&proxy.get(&url).await, 502, "tls_certificate_error", "tls_certificate_error");
    let got = proxy.curl(&[&url]).await;
    assert_eq!((got.code, got.status()), (0, 502));
    assert!(origin.log.all().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verified_connection_is_not_reused_for_another_name() {
    let origin = Origin::https_as(test_ca(), &["a.localhost"], Alpn::H1, |_| Reply::text("x")).await;
    let proxy = Proxy::start(NO_ROBOTS).await;
    assert_eq!(proxy.get(&origin.url("/x")).await.status(), 200);
    let other = proxy.get(&origin.url_at("b.localhost", "/y")).await;
    assert_refused(&other, 502, "tls_certificate_error", "tls_certificate_error");
    assert_eq!(origin.log.pages(), ["/x"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_http_origin_for_an_https_url_is_a_gateway_error() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start(&format!("{NO_ROBOTS}\nlimits: {{ connect_timeout: 1s }}")).await;
    let response = proxy.get(&format!("https://{}/x", origin.authority("a.localhost"))).await;
    // This origin waits for the end of a head that never comes; others would answer in plain text.
    assert!(matches!(response.status(), 502 | 504), "{:?}", response.head);
    let error = response.head.proxy_error().unwrap();
    assert!(error.starts_with("tls_") || error.starts_with("connection_"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_connections_to_origins_are_pooled() {
    let origin = Origin::tls_site(Alpn::H1, "").await;
    let proxy = Proxy::start("").await;
    for number in 0..5 {
        // A connection of the client's own each time; that to the origin may still be on its way back to the pool.
        let mut client = proxy.tls(&origin, "a.localhost", H1).await;
        assert_eq!(client.get(&format!("/{number}"), &origin.authority("a.localhost")).await.status(), 200);
    }
    assert!(origin.connections() <= 4, "{} connections for six requests", origin.connections());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_without_our_authority_fails_its_handshake() {
    let origin = Origin::tls_site(Alpn::H1, "").await;
    let proxy = Proxy::start("").await;
    let client = Client::connect(proxy.address(), &origin.authority("a.localhost")).await;
    assert!(client.try_tls("a.localhost", test_ca().pem_file(), H1).await.is_err(), "it must trust our authority");
    // Other clients are not affected.
    let mut client = proxy.tls(&origin, "a.localhost", H1).await;
    client.send(get("/x", &origin.authority("a.localhost"))).await;
    assert_eq!(client.response().await.status(), 200);
    H2Client::over(proxy.tls(&origin, "a.localhost", &[b"h2"]).await).await;
}
