//! Clients that do not speak HTTP: SOCKS5 is served like CONNECT; others get an error and are closed at once.

use crate::support::binary::politely;
use crate::support::{Alpn, Binary, CLOSED_PORT, Client, Origin, Proxy, curl, eventually, test_ca};
use argon2::{Argon2, Params, PasswordHasher};
use std::time::Duration;
use tokio::time::timeout;

const ROBOTS: &str = "User-agent: *\nDisallow: /private\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn socks5_requests_obey_robots_txt() {
    let (plain, tls) = (Origin::site(ROBOTS).await, Origin::tls_site(Alpn::H1, ROBOTS).await);
    let proxy = Proxy::start("").await;
    let ca = proxy.ca_pem_path();
    for scheme in ["socks5h", "socks5"] {
        let through = format!("{scheme}://{}", proxy.address());
        for origin in [&plain, &tls] {
            for (path, status) in [("/page", 200), ("/private", 403)] {
                let url = origin.url_at("a.localhost", path);
                let address = format!("a.localhost:{}:127.0.0.1", origin.port());
                let asked = ["--proxy", &through, "--cacert", ca.to_str().unwrap(), "--resolve", &address, &url];
                let answer = curl(&asked).await;
                assert_eq!(answer.status(), status, "{scheme} {url}: {}", answer.stderr);
            }
        }
    }
    for origin in [&plain, &tls] {
        assert_eq!(origin.log.count("/private"), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn socks5_requires_a_password_if_users_are_configured() {
    let origin = Origin::site(ROBOTS).await;
    let hash = Argon2::from(Params::new(8, 1, 1, None).unwrap()).hash_password(b"right").unwrap();
    let proxy = Proxy::start(&format!("access: {{ users: [{{ name: alice, password: '{hash}' }}] }}")).await;
    for (credentials, code) in [("alice:right@", 0), ("alice:wrong@", 97), ("bob:right@", 97), ("", 97)] {
        let through = format!("socks5h://{credentials}{}", proxy.address());
        let answer = curl(&["--proxy", &through, &origin.url("/page")]).await;
        assert_eq!(answer.code, code, "{credentials:?}: {}", answer.stderr);
    }
}

/// A password waits for its check for five seconds after a wrong one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn socks5_header_timeout_excludes_the_password_check() {
    let origin = Origin::site(ROBOTS).await;
    let hash = Argon2::from(Params::new(8, 1, 1, None).unwrap()).hash_password(b"right").unwrap();
    let users = format!("access: {{ users: [{{ name: alice, password: '{hash}' }}] }}");
    let proxy = Proxy::start(&format!("limits: {{ header_timeout: 3s }}\n{users}")).await;
    for (password, code) in [("wrong", 97), ("right", 0)] {
        let through = format!("socks5h://alice:{password}@{}", proxy.address());
        let answer = curl(&["--proxy", &through, &origin.url("/page")]).await;
        assert_eq!(answer.code, code, "{password}: {}", answer.stderr);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn socks5_reply_code_tells_the_reason() {
    let proxy = Proxy::start("intercept: { default: tunnel }\naccess: { clients: [127.0.0.0/8] }").await;
    let nobody = CLOSED_PORT.to_be_bytes();
    let name = |host: &str, port: [u8; 2]| [&[5, 1, 0, 3, host.len() as u8], host.as_bytes(), &port[..]].concat();
    let bad_kind = vec![5, 1, 0, 9];
    let bind = [&[5, 2, 0, 1, 127, 0, 0, 1], &nobody[..]].concat();
    for (asked, code) in [(name("a.localhost", nobody), 4), (bind, 7), (bad_kind, 8), (name("a b", nobody), 1)] {
        let mut client = proxy.client().await;
        client.send([&[5, 1, 0], &asked[..]].concat()).await;
        assert_eq!(client.rest().await, [5, 0, 5, code, 0, 1, 0, 0, 0, 0, 0, 0], "{asked:?}");
    }
    let mut client = proxy.client().await;
    client.send([5, 1, 1]).await;
    assert_eq!(client.rest().await, [5, 0xff], "GSSAPI alone");
}

/// The reply of SOCKS has no body.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_socks5_client_is_logged_without_bytes_of_an_answer() {
    for (yaml, status) in
        [("intercept: { hosts: { a.localhost: deny } }", 403), ("access: { clients: [192.0.2.0/24] }", 403)]
    {
        let proxy = Binary::serve(&format!("log: {{ access: stdout, format: json }}\n{yaml}")).await;
        let mut client = Client::open(proxy.address()).await;
        client.send([&[5, 1, 0, 5, 1, 0, 3, 11], &b"a.localhost"[..], &[1, 187]].concat()).await;
        assert_eq!(client.rest().await, [5, 0, 5, 2, 0, 1, 0, 0, 0, 0, 0, 0], "{yaml}");
        let line = || proxy.output().lines().find(|line| line.contains("\"outcome\":\"refused\"")).map(str::to_owned);
        eventually("the line", || line().is_some()).await;
        let line: serde_json::Value = serde_json::from_str(&line().unwrap()).unwrap();
        assert_eq!((&line["status"], &line["bytes_out"]), (&status.into(), &0.into()), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_socks_clients_are_logged_and_counted_once_each() {
    let hash = Argon2::from(Params::new(8, 1, 1, None).unwrap()).hash_password(b"right").unwrap();
    let users = format!("access: {{ users: [{{ name: alice, password: '{hash}' }}] }}");
    let wrong = [&[5, 1, 2, 1, 5][..], b"alice\x05wrong"].concat();
    let to_here = |command| vec![5, 1, 0, 5, command, 0, 1, 127, 0, 0, 1, 1, 187];
    let cases = [
        (&*users, vec![(vec![5, 1, 0], 407, "client-denied"), (wrong, 407, "client-denied")]),
        ("access: { clients: [192.0.2.0/24] }", vec![(to_here(1), 403, "client-denied")]),
        ("limits: { header_timeout: 1s }", vec![(vec![5, 1, 0, 5, 1, 0], 408, "head-timeout")]),
        (
            "",
            vec![
                (to_here(2), 400, "bad-request"),
                (to_here(3), 400, "bad-request"),
                (vec![5, 1, 1], 400, "bad-request"),
                (vec![4, 1, 0, 80, 127, 0, 0, 1, 0], 400, "bad-request"),
            ],
        ),
    ];
    for (yaml, clients) in cases {
        let logged = "log: { access: stdout, format: json }\nadmin: { address: '127.0.0.1:0' }";
        let proxy = Binary::serve(&format!("{logged}\n{yaml}")).await;
        let lines = || -> Vec<serde_json::Value> {
            proxy.output().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
        };
        let begun = lines().len();
        for (number, (said, status, decision)) in clients.iter().enumerate() {
            let mut client = Client::open(proxy.address()).await;
            client.send(said).await;
            client.rest().await;
            let refused = || lines().into_iter().filter(|line| line["outcome"] == "refused").collect::<Vec<_>>();
            eventually("the line", || refused().len() > number).await;
            let line = &refused()[number];
            let told = (line["status"].clone(), line["decision"].clone(), line["bytes_out"].clone());
            assert_eq!(told, ((*status).into(), (*decision).into(), 0.into()), "{said:?}: {line}");
        }
        let events = lines().len() - begun - clients.len();
        assert!(events <= clients.len(), "none is logged twice: {}", proxy.output());
        let metrics = curl(&[&format!("http://{}/metrics", proxy.admin())]).await.text();
        for (.., decision) in &clients {
            let count = clients.iter().filter(|(.., it)| it == decision).count();
            let line = format!("politely_requests_total{{outcome=\"{decision}\"}} {count}\n");
            assert!(metrics.contains(&line), "{line}{metrics}");
        }
        proxy.stop().await;
    }
}

/// They do not wait for the 30 seconds of `header_timeout`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_other_protocols_are_answered_at_once() {
    let proxy = Binary::serve("").await;
    let address = proxy.address();
    let ends = async |said: &[u8]| {
        let mut client = Client::open(address).await;
        client.send(said).await;
        timeout(Duration::from_secs(15), client.rest()).await.expect("it is not left to wait")
    };
    assert_eq!(ends(&[4, 1, 0, 80, 127, 0, 0, 1, 0]).await, [0, 91, 0, 0, 0, 0, 0, 0]);
    let answer = curl(&["--proxy", &format!("https://{address}"), "http://a.localhost/"]).await;
    assert_eq!(answer.code, 35, "curl knows that it is no TLS: {}", answer.stderr);
    let lines = ["SOCKS4 is not served", "TLS on a listener without `tls`"];
    eventually("both lines", || lines.iter().all(|told| proxy.output().contains(told))).await;
    let output = proxy.output();
    for told in lines {
        assert_eq!(output.matches(told).count(), 1, "{told}: {output}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_http_on_a_tls_listener_is_answered_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let files = ["certificate.pem", "key.pem"].map(|name| directory.path().join(name));
    let (certificate, key) = test_ca().pem_pair("proxy.localhost");
    files.iter().zip([certificate, key]).for_each(|(file, text)| std::fs::write(file, text).unwrap());
    let tls = format!("{{ certificate: '{}', key: '{}' }}", files[0].display(), files[1].display());
    let proxy = Proxy::start(&format!("listen: [{{ address: '127.0.0.1:0', tls: {tls} }}]")).await;
    let answer = curl(&["--proxy", &format!("http://{}", proxy.address()), "http://a.localhost/"]).await;
    assert_eq!((answer.status(), answer.code), (400, 0), "{}", answer.stderr);
    assert!(answer.text().contains("https://"), "{}", answer.text());
}

/// More programs can use a plain listener.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxy_pac_prefers_a_plain_listener_and_ca_env_needs_one() {
    let directory = tempfile::tempdir().unwrap();
    let files = ["certificate.pem", "key.pem"].map(|name| directory.path().join(name));
    let (certificate, key) = test_ca().pem_pair("proxy.localhost");
    files.iter().zip([certificate, key]).for_each(|(file, text)| std::fs::write(file, text).unwrap());
    let tls = format!("{{ certificate: '{}', key: '{}' }}", files[0].display(), files[1].display());
    for plain in [false, true] {
        let more = if plain { ", { address: '127.0.0.1:0' }" } else { "" };
        let listen =
            format!("listen: [{{ address: '127.0.0.1:0', tls: {tls} }}{more}]\nadmin: {{ address: '127.0.0.1:0' }}");
        let proxy = Proxy::start(&listen).await;
        let admin = format!("http://{}", proxy.admin_address());
        let pac = curl(&[&format!("{admin}/proxy.pac")]).await.text();
        assert_eq!(pac.contains(&format!("HTTPS {}", proxy.address())), !plain, "{pac}");
        assert_eq!(pac.contains("PROXY "), plain, "{pac}");
        let env = politely(&["ca", "env", "--from", &admin]).await;
        assert_eq!((env.code, env.stdout.contains("https_proxy")), (0, plain), "{}{}", env.stdout, env.stderr);
    }
}
