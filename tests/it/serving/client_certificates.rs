//! Users whom a client certificate names (`access.users[].certificate`), with curl and openssl.

use crate::support::curl::Curl;
use crate::support::{
    ADMIN_TOKEN, Alpn, Binary, Client, H2Client, Origin, Proxy, TestCa, assert_refused, curl, eventually, h2_client,
    test_ca,
};
use argon2::{Argon2, Params, PasswordHasher};
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;

const ROBOTS: &str = "User-agent: AnnBot\nDisallow:\n\nUser-agent: *\nDisallow: /ann\n";

/// Key pairs in a directory: `proxy` of the tests' authority, the authority `clients`, and others that openssl makes.
struct Pairs(tempfile::TempDir);

impl Pairs {
    async fn new() -> Self {
        let pairs = Pairs(tempfile::tempdir().unwrap());
        let (certificate, key) = test_ca().pem_pair("127.0.0.1");
        std::fs::write(pairs.path("proxy.pem"), certificate).unwrap();
        std::fs::write(pairs.path("proxy.key"), key).unwrap();
        pairs.openssl(&["-subj", "/CN=clients"], "clients").await;
        pairs
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// Creates a certificate with the commands of docs/team.md.
    async fn openssl(&self, arguments: &[&str], name: &str) {
        let mut command = tokio::process::Command::new("openssl");
        command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-utf8"]);
        command.args(arguments).args(["-keyout", &self.path(&format!("{name}.key"))]);
        let made = command.args(["-out", &self.path(&format!("{name}.pem"))]).output().await.expect("openssl");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    /// A client's, of this authority. `alternative`: as openssl writes it, or "".
    async fn client(&self, name: &str, authority: &str, subject: &str, alternative: &str) {
        let (ca, key) = (self.path(&format!("{authority}.pem")), self.path(&format!("{authority}.key")));
        let alternative = format!("subjectAltName={alternative}");
        let mut arguments = vec!["-subj", subject, "-CA", &ca, "-CAkey", &key];
        arguments.extend(["-addext", "basicConstraints=critical,CA:FALSE", "-addext", "extendedKeyUsage=clientAuth"]);
        if !alternative.ends_with('=') {
            arguments.extend(["-addext", &alternative]);
        }
        self.openssl(&arguments, name).await;
    }

    /// The settings of a listener that wants certificates of `clients`.
    fn listener(&self) -> String {
        let [certificate, key, ca] = ["proxy.pem", "proxy.key", "clients.pem"].map(|name| self.path(name));
        format!(
            "{{ address: '127.0.0.1:0', tls: {{ certificate: '{certificate}', key: '{key}', client_ca: '{ca}' }} }}"
        )
    }

    /// Runs curl through this listener, with the certificate `name`.
    async fn curl(&self, proxy: SocketAddr, name: &str, arguments: &[&str]) -> Curl {
        let (certificate, key) = (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
        let (through, roots) = (format!("https://{proxy}"), test_ca().pem_file().display().to_string());
        let shown = ["--proxy-cert", &certificate, "--proxy-key", &key];
        curl(&[&["-x", &through, "--proxy-cacert", &roots], &shown[..], arguments].concat()).await
    }
}

fn hash(password: &str) -> String {
    Argon2::from(Params::new(8, 1, 1, None).unwrap()).hash_password(password.as_bytes()).unwrap().to_string()
}

/// The users in the access log's lines about this URL, `-` for none.
async fn users_of(proxy: &Binary, url: &str) -> Vec<String> {
    let users = || -> Vec<String> {
        let output = proxy.output();
        let lines = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let lines = lines.filter(|line| !line["outcome"].is_null() && line["url"] == url);
        lines.map(|line| line["user"].as_str().unwrap_or("-").to_owned()).collect()
    };
    eventually("the lines of the access log", || !users().is_empty()).await;
    users()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificate_identifies_its_user_by_cn_dns_mail_or_uri() {
    let (plain, tls, pairs) = (Origin::site("").await, Origin::tls_site(Alpn::Both, "").await, Pairs::new().await);
    pairs.openssl(&["-subj", "/CN=strangers"], "strangers").await;
    let proxy = Binary::serve(&format!(
        "log: {{ access: stdout, format: json }}\nadmin: {{ address: '127.0.0.1:0' }}\nlisten: [{}]\naccess: {{ users: [\
         {{ name: ann, certificate: Forschung Köln }}, {{ name: bob, certificate: team.example }}, \
         {{ name: carol, certificate: Carol@example.com }}, {{ name: dave, certificate: 'spiffe://example.com/dave' }}] }}",
        pairs.listener()
    ))
    .await;
    for (name, authority, subject, alternative, user) in [
        ("cn", "clients", "/O=x/CN=Forschung Köln", "", Some("ann")),
        ("dns", "clients", "/CN=b", "DNS:other.example,DNS:Team.EXAMPLE", Some("bob")),
        ("email", "clients", "/CN=c", "email:Carol@example.com", Some("carol")),
        ("uri", "clients", "/O=x", "URI:spiffe://example.com/dave", Some("dave")),
        ("same-twice", "clients", "/CN=team.example", "DNS:team.example", Some("bob")),
        ("nobody", "clients", "/CN=eve", "", None),
        ("below", "clients", "/CN=x", "DNS:a.team.example", None),
        ("case", "clients", "/CN=forschung köln", "email:carol@example.com", None),
        ("organization", "clients", "/O=Forschung Köln", "", None),
        ("two", "clients", "/CN=Forschung Köln", "DNS:team.example", None),
    ] {
        pairs.client(name, authority, subject, alternative).await;
        let url = plain.url(&format!("/{name}"));
        let asked = pairs.curl(proxy.address(), name, &[&url]).await;
        let expected = if user.is_some() { 200 } else { 407 };
        assert_eq!(asked.status(), expected, "{name}: {}", asked.text());
        assert_eq!(users_of(&proxy, &url).await, [user.unwrap_or("-")], "{name}");
        let (url, ca) = (tls.url(&format!("/{name}")), proxy.ca_pem_path().display().to_string());
        let asked = pairs.curl(proxy.address(), name, &["--cacert", &ca, &url]).await;
        assert_eq!(asked.status(), expected, "{name}, by CONNECT");
        if let Some(user) = user {
            assert_eq!(users_of(&proxy, &url).await, [user], "{name}, by CONNECT");
        }
    }
    assert!(pairs.curl(proxy.address(), "two", &[&plain.url("/x")]).await.text().contains("more than one user"));
    pairs.client("stranger", "strangers", "/CN=Forschung Köln", "").await;
    let refused = pairs.curl(proxy.address(), "stranger", &[&plain.url("/stranger")]).await;
    assert!(refused.code != 0 && refused.heads.is_empty(), "{refused:?}");
    assert_eq!(plain.log.pages(), ["/cn", "/dns", "/email", "/uri", "/same-twice"]);
    let counts =
        curl(&["--oauth2-bearer", ADMIN_TOKEN, &format!("http://{}/api/v1/users", proxy.admin())]).await.text();
    assert!(["ann", "bob", "carol", "dave"].iter().all(|user| counts.contains(&format!("\"{user}\""))), "{counts}");
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_override_the_client_certificate() {
    let (origin, pairs, right) = (Origin::site("").await, Pairs::new().await, hash("right"));
    let proxy = Binary::serve(&format!(
        "log: {{ access: stdout, format: json }}\nlisten: [{}, {{ address: '127.0.0.1:0' }}]\naccess: {{ users: [\
         {{ name: ann, certificate: ann, password: '{right}' }}, {{ name: bob, password: '{right}' }}, \
         {{ name: carol, certificate: carol }}, {{ name: dave, password: '{right}', certificate: dave }}] }}",
        pairs.listener()
    ))
    .await;
    for name in ["ann", "carol", "nobody"] {
        pairs.client(name, "clients", &format!("/CN={name}"), "").await;
    }
    for (number, (certificate, credentials, user)) in [
        ("ann", None, Some("ann")),
        ("ann", Some("ann:right"), Some("ann")),
        ("ann", Some("bob:right"), Some("bob")),
        ("carol", Some("dave:right"), Some("dave")),
        ("nobody", Some("ann:right"), Some("ann")),
        ("nobody", None, None),
        // A user without a password cannot log in with one.
        ("carol", Some("carol:"), None),
        ("ann", Some("bob:wrong"), None),
        ("carol", None, Some("carol")),
    ]
    .into_iter()
    .enumerate()
    {
        let url = origin.url(&format!("/{number}"));
        let arguments = [credentials.map_or(&[][..], |_| &["-U"]), credentials.as_slice(), &[&url]].concat();
        let asked = pairs.curl(proxy.address(), certificate, &arguments).await;
        let expected = if user.is_some() { 200 } else { 407 };
        assert_eq!(asked.status(), expected, "{certificate}, {credentials:?}");
        assert_eq!(users_of(&proxy, &url).await, [user.unwrap_or("-")], "{certificate}, {credentials:?}");
    }
    // Without a certificate.
    let plain = format!("http://{}", proxy.listening()[1]);
    for (credentials, status) in [("dave:right", 200), ("carol:x", 407)] {
        let asked = curl(&["-x", &plain, "-U", credentials, &origin.url("/plain")]).await;
        assert_eq!(asked.status(), status, "{credentials}");
    }
    proxy.stop().await;
}

/// A client that shows a certificate for this DNS name, and offers these protocols.
async fn open(proxy: SocketAddr, ca: &TestCa, name: &str, alpn: &[&[u8]]) -> Client {
    let mut config = Arc::unwrap_or_clone(ca.client_config_as(name));
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Client::open(proxy).await.tls_with("127.0.0.1", Arc::new(config)).await.expect("it is let in")
}

/// A listener that wants certificates of this authority, with these users.
fn settings(pairs: &Pairs, ca: &TestCa, users: &str) -> String {
    let listener = pairs.listener().replace(&pairs.path("clients.pem"), &ca.pem_file().display().to_string());
    format!("listen: [{listener}]\naccess: {{ users: [{users}] }}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificate_user_applies_to_streams_and_tunnels_until_reload() {
    let origin = Origin::tls_site(Alpn::Both, ROBOTS).await;
    let (pairs, ca) = (Pairs::new().await, TestCa::new("clients"));
    let right = hash("right");
    let users = |ann: &str| {
        let ann = format!("{{ name: ann, {ann}, product_tokens: [AnnBot] }}");
        settings(&pairs, &ca, &format!("{ann}, {{ name: bob, certificate: bob.example }}"))
    };
    let proxy = Proxy::start(&users("certificate: ann.example")).await;
    let (url, host) = (origin.url("/ann"), origin.authority("a.localhost"));
    for (name, status) in [("ann.example", 200), ("bob.example", 403), ("eve.example", 407)] {
        let client = H2Client::over(open(proxy.address(), &ca, name, &[b"h2"]).await).await;
        assert_eq!(client.get(&url).await.status(), status, "{name}");
        let mut client = open(proxy.address(), &ca, name, &[]).await;
        for _ in 0..2 {
            assert_eq!(client.get(&url, &host).await.status(), status, "{name}");
        }
    }
    let client = H2Client::over(open(proxy.address(), &ca, "ann.example", &[b"h2"]).await).await;
    let inside = client.connect(&host).await.expect("200");
    let inside = H2Client::over(inside.tls("a.localhost", &proxy.ca_pem_path(), &[b"h2"]).await).await;
    // Idle connections of such a listener end at a reload.
    let _held = inside.send(h2_client::request("POST", &origin.url("/held")), false).await;
    assert_eq!(inside.get(&url).await.status(), 200);
    // Another way to be let in takes none away.
    proxy.reload(&users(&format!("certificate: ann.example, password: '{right}'"))).expect("it is valid");
    assert_eq!((inside.get(&url).await.status(), client.get(&url).await.status()), (200, 200));
    for ann in [format!("certificate: a.example, password: '{right}'"), format!("password: '{right}'")] {
        proxy.reload(&users(&ann)).expect("it is valid");
        assert_refused(&inside.get(&url).await, 403, "http_request_denied", "client-denied");
        assert_refused(&client.get(&url).await, 407, "http_request_denied", "client-denied");
    }
    let other = settings(&pairs, &ca, "{ name: carol, certificate: ann.example }");
    proxy.reload(&other).expect("it is valid");
    assert_refused(&inside.get(&url).await, 403, "http_request_denied", "client-denied");
    assert_eq!(client.get(&url).await.status(), 403, "it is carol's now, by robots.txt");
    // Without users, whoever has a certificate is let in, as nobody.
    proxy.reload(&settings(&pairs, &ca, "")).expect("it is valid");
    assert_eq!(client.get(&url).await.status(), 403, "by robots.txt");
    assert_eq!(client.get(&origin.url("/x")).await.status(), 200);
    // Names are read when they are first needed, also of a connection from before.
    proxy.reload(&users("certificate: ann.example")).expect("it is valid");
    assert_eq!(client.get(&url).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_before_its_handshake_makes_room_for_its_client() {
    let (pairs, ca) = (Pairs::new().await, TestCa::new("clients"));
    let limits = "limits: { max_connections_per_client: 1, header_timeout: 1h }";
    let ann = "{ name: ann, certificate: ann.example }";
    let proxy = Proxy::start(&format!("{}\n{limits}", settings(&pairs, &ca, ann))).await;
    let mut silent = Client::open(proxy.address()).await;
    let second = Client::open(proxy.address()).await;
    assert!(second.tls_with("127.0.0.1", ca.client_config_as("ann.example")).await.is_ok());
    assert!(silent.rest().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resumed_tls_session_keeps_certificate_user_and_limits() {
    let origin = Origin::http(super::access::holding).await;
    let (pairs, ca) = (Pairs::new().await, TestCa::new("clients"));
    let ann = "{ name: ann, certificate: ann.example, max_connections: 1, egress: { hosts: [a.localhost] } }";
    let proxy = Proxy::start(&settings(&pairs, &ca, ann)).await;
    let (url, host) = (origin.url("/x"), origin.authority("a.localhost"));
    let config = ca.client_config_as("ann.example");
    let open = async || Client::open(proxy.address()).await.tls_with("127.0.0.1", config.clone()).await.unwrap();
    let mut first = open().await;
    assert_eq!(first.get(&url, &host).await.status(), 200);
    first.send(crate::support::client::get(&origin.url("/held"), &host)).await;
    eventually("it is in use", || origin.log.count("/held") == 1).await;
    let mut second = open().await;
    assert_refused(&second.get(&url, &host).await, 503, "connection_limit_reached", "connection-limit");
    drop((first, second));
    let elsewhere = origin.url_at("b.localhost", "/x");
    for _ in 0..3 {
        let (mut status, mut is_resumed) = (503, false);
        while status == 503 {
            let mut client = open().await;
            is_resumed = client.is_resumed();
            status = client.get(&elsewhere, &origin.authority("b.localhost")).await.status();
        }
        assert_eq!((status, is_resumed), (403, true), "not one of her hosts");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn socks5_needs_no_password_with_a_certificate() {
    let (pairs, ca) = (Pairs::new().await, TestCa::new("clients"));
    let right = hash("right");
    let users = format!("{{ name: ann, certificate: ann.example }}, {{ name: bob, password: '{right}' }}");
    let proxy = Proxy::start(&settings(&pairs, &ca, &users)).await;
    for (name, methods, chosen) in [
        ("ann.example", &[5, 1, 0][..], 0),
        ("eve.example", &[5, 1, 0], 0xff),
        // Credentials decide.
        ("ann.example", &[5, 2, 0, 2], 2),
        ("eve.example", &[5, 2, 0, 2], 2),
    ] {
        let mut client = open(proxy.address(), &ca, name, &[]).await;
        client.send(methods).await;
        let answer = client.glance(std::time::Duration::from_secs(5)).await;
        assert_eq!(answer, [5, chosen], "{name}, {methods:?}");
    }
}
