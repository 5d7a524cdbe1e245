//! What a client sends on behind a CONNECT before it is answered (RFC 9931 §8): a client that trusts its CONNECT to succeed hands
//! on bytes of somebody it does not trust. Where the CONNECT is refused, they must not become requests.

use super::siege::{Siege, rest};
use crate::support::{CLOSED_PORT, Client, Origin, Proxy, curl};
use argon2::{Argon2, Params, PasswordHasher};

const TUNNEL: &str = "intercept: { default: tunnel }\negress: { deny: ['denied.localhost'] }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_after_a_refused_connect_are_not_read_as_requests() {
    let origin = Origin::site("").await;
    let hash = Argon2::from(Params::new(8, 1, 1, None).unwrap()).hash_password(b"right").unwrap();
    let open = Proxy::start(TUNNEL).await;
    let closed = Proxy::start(&format!("access: {{ users: [{{ name: alice, password: '{hash}' }}] }}")).await;
    let hidden = format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", origin.url("/hidden"), origin.authority("a.localhost"));
    // alice:right, which the proxy would take as her own request.
    let hidden_hers = hidden.replace("\r\n\r\n", "\r\nProxy-Authorization: Basic YWxpY2U6cmlnaHQ=\r\n\r\n");
    let wrong = "Proxy-Authorization: Basic YWxpY2U6d3Jvbmc=\r\n";
    let mut siege = Siege::default();
    for (name, proxy, target, more, status) in [
        ("a closed address", &open, "10.0.0.1:443".to_owned(), "", 403),
        ("a denied host", &open, "denied.localhost:443".to_owned(), "", 403),
        ("nobody there", &open, format!("a.localhost:{CLOSED_PORT}"), "", 502),
        ("no password", &closed, origin.authority("a.localhost"), "", 407),
        ("a wrong password", &closed, origin.authority("a.localhost"), wrong, 407),
        ("a body", &open, origin.authority("a.localhost"), "Content-Length: 3\r\n", 400),
    ] {
        for version in ["1.1", "1.0"] {
            for kept in ["", "Connection: keep-alive\r\n", "Proxy-Connection: keep-alive\r\n", "Connection: close\r\n"]
            {
                let name = format!("{name}, HTTP/{version}, {kept:?}");
                let mut client = proxy.client().await;
                let head = format!("CONNECT {target} HTTP/{version}\r\nHost: {target}\r\n{kept}{more}\r\n");
                let row = if status == 407 { &hidden_hers } else { &hidden };
                client.send(head + row + row).await;
                let answer = client.response().await;
                let more = rest(&mut client).await;
                let wrong = match () {
                    () if answer.status() != status => Some(format!("status {}", answer.status())),
                    () if !answer.head.lists("connection", "close") => {
                        Some("it does not say that it closes".to_owned())
                    }
                    () => (!more.is_empty()).then(|| format!("{} bytes more", more.len())),
                };
                siege.tried(name, wrong);
            }
        }
    }
    siege.withstood(48);
    assert_eq!(origin.log.all().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_after_a_refused_socks5_connect_are_not_read_as_requests() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start(TUNNEL).await;
    let mut client = Client::open(proxy.address()).await;
    let hidden = format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", origin.url("/hidden"), origin.authority("a.localhost"));
    let connect = [&b"\x05\x01\0"[..], b"\x05\x01\0\x01\x0a\0\0\x01\x01\xbb", hidden.as_bytes()].concat();
    client.send(connect).await;
    let answer = rest(&mut client).await;
    assert_eq!((answer.len(), &answer[..2], answer[3] == 0), (12, &b"\x05\0"[..], false), "{answer:?}");
    assert_eq!(origin.log.all().len(), 0);
}

/// The proxy also closes after a 407. curl first asks without its password here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_retries_a_407_to_connect_on_a_new_connection() {
    let (tls, plain) = (Origin::tls_site(crate::support::Alpn::Both, "").await, Origin::site("").await);
    let hash = Argon2::from(Params::new(8, 1, 1, None).unwrap()).hash_password(b"right").unwrap();
    let proxy = Proxy::start(&format!("access: {{ users: [{{ name: alice, password: '{hash}' }}] }}")).await;
    let ca = proxy.ca_pem_path();
    for (version, way) in [("1.1", "-x"), ("1.0", "--proxy1.0")] {
        for origin in [&tls, &plain] {
            let connect = format!("> CONNECT {} HTTP/{version}", origin.authority("a.localhost"));
            for (terms, statuses, connections) in [
                (&["--proxy-anyauth", "--proxy-user", "alice:right"][..], &[407, 200, 200][..], 2),
                (&["--proxy-basic", "--proxy-user", "alice:right"], &[200, 200], 1),
                (&["--proxy-ntlm", "--proxy-user", "alice:right"], &[407], 1),
                (&[], &[407], 1),
            ] {
                let (own, ca, url) = (proxy.url(), ca.to_str().unwrap(), origin.url("/x"));
                let all = [&["-v", way, &own, "--proxytunnel", "--cacert", ca], terms, &[&url]].concat();
                let page = curl(&all).await;
                let what = format!("{way} {url} {terms:?}: {}", page.stderr);
                assert!(page.stderr.contains(&connect), "{what}");
                assert_eq!(page.heads.iter().map(|head| head.status()).collect::<Vec<_>>(), statuses, "{what}");
                assert_eq!(page.heads[0].lists("connection", "close"), statuses[0] == 407, "{what}");
                assert_eq!(page.stderr.matches("* Connected to ").count(), connections, "{what}");
                assert_eq!(page.text() == "page /x", statuses.len() > 1, "{what}");
            }
        }
    }
}
