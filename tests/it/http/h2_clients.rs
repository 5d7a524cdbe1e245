//! Clients that speak HTTP/2 to the proxy itself, or without TLS inside a CONNECT, and what their streams may hold: requests,
//! connections (RFC 9113 §8.5), WebSockets (RFC 8441).

use crate::support::h2_client::request;
use crate::support::websocket::WebSocket;
use crate::support::{
    Alpn, CLOSED_PORT, Client, H2Client, Origin, Proxy, Reply, assert_refused, curl, eventually, test_ca, within,
};
use argon2::{Argon2, Params, PasswordHasher};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const ROBOTS: &str = "User-agent: *\nDisallow: /no\n";

/// A proxy with TLS of its own, and with `yaml`.
async fn tls_proxy(yaml: &str) -> (Proxy, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let files = ["certificate.pem", "key.pem"].map(|name| directory.path().join(name));
    let (certificate, key) = test_ca().pem_pair("proxy.localhost");
    files.iter().zip([certificate, key]).for_each(|(file, text)| std::fs::write(file, text).unwrap());
    let tls = format!("{{ certificate: '{}', key: '{}' }}", files[0].display(), files[1].display());
    (Proxy::start(&format!("listen: [{{ address: '127.0.0.1:0', tls: {tls} }}]\n{yaml}")).await, directory)
}

async fn over_tls(proxy: &Proxy) -> H2Client {
    H2Client::over(proxy.client().await.tls("proxy.localhost", test_ca().pem_file(), &[b"h2", b"http/1.1"]).await).await
}

fn websocket(url: &str) -> http::Request<()> {
    let mut asked = request("CONNECT", url);
    asked.headers_mut().insert("sec-websocket-version", "13".parse().unwrap());
    asked.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
    asked
}

/// Over HTTP/1.1, as most clients use a proxy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_uses_a_tls_listener() {
    let (proxy, _files) = tls_proxy("").await;
    let (url, ca) = (format!("https://proxy.localhost:{}", proxy.address().port()), proxy.ca_pem_path());
    let own = test_ca().pem_file().to_str().expect("UTF-8");
    let trust = ["--proxy", &url, "--proxy-cacert", own, "--cacert", ca.to_str().expect("UTF-8")];
    for origin in [Origin::site(ROBOTS).await, Origin::tls_site(Alpn::Both, ROBOTS).await] {
        for version in ["--http1.1", "--http2"] {
            let page = curl(&[&trust[..], &[version, &origin.url("/x")]].concat()).await;
            assert_eq!((page.code, page.text().as_str()), (0, "page /x"), "{version}: {}", page.stderr);
            let refused = curl(&[&trust[..], &[version, &origin.url("/no")]].concat()).await;
            assert_eq!((refused.code, refused.status()), (0, 403), "{version}: {}", refused.stderr);
        }
        assert_eq!(origin.log.pages(), ["/x", "/x"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_and_connects_share_one_h2_connection_to_the_proxy() {
    let (plain, tls) = (Origin::site(ROBOTS).await, Origin::tls_site(Alpn::Both, ROBOTS).await);
    let (encrypted, _files) = tls_proxy("").await;
    let open = Proxy::start("").await;
    for (proxy, client) in
        [(&encrypted, over_tls(&encrypted).await), (&open, H2Client::known(open.client().await).await)]
    {
        for origin in [&plain, &tls] {
            assert_eq!(client.get(&origin.url("/x")).await.text(), "page /x");
            assert_refused(&client.get(&origin.url("/no")).await, 403, "http_request_denied", "robots-disallowed");
        }
        // TLS inside a stream is intercepted like TLS inside a connection, in both HTTP versions.
        let host = tls.authority("a.localhost");
        for alpn in [&b"h2"[..], b"http/1.1"] {
            let inside = client.connect(&host).await.expect("200");
            let mut inside = inside.tls("a.localhost", &proxy.ca_pem_path(), &[alpn]).await;
            if alpn == b"h2" {
                let inside = H2Client::over(inside).await;
                assert_eq!(inside.get(&tls.url("/x")).await.text(), "page /x");
                assert_eq!(inside.get(&tls.url("/no")).await.status(), 403);
                assert_eq!(inside.connect(&host).await.err(), Some(400), "no CONNECT inside a CONNECT");
            } else {
                for _ in 0..3 {
                    assert_eq!(inside.get("/x", &host).await.text(), "page /x");
                    assert_eq!(inside.get("/no", &host).await.status(), 403);
                }
            }
        }
        let host = plain.authority("a.localhost");
        let mut inside = client.connect(&host).await.expect("200");
        assert_eq!(inside.get("/x", &host).await.text(), "page /x");
        assert_eq!(inside.get("/no", &host).await.status(), 403);
        inside.half_close().await;
        assert!(inside.rest().await.is_empty(), "its end is told");
    }
    for origin in [&plain, &tls] {
        assert!(!origin.log.pages().iter().any(|path| path == "/no"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tunnel_in_an_h2_stream_carries_data_both_ways() {
    let origin = Origin::tls_site(Alpn::H1, ROBOTS).await;
    let proxy = Proxy::start("intercept: { default: tunnel }").await;
    let client = H2Client::known(proxy.client().await).await;
    let host = origin.authority("a.localhost");
    for _ in 0..3 {
        let mut inside = client.connect(&host).await.expect("200").tls("a.localhost", test_ca().pem_file(), &[]).await;
        assert_eq!(inside.get("/x", &host).await.text(), "page /x", "it is the origin's own certificate");
    }
    assert_eq!(client.connect(&format!("a.localhost:{CLOSED_PORT}")).await.err(), Some(502));
    eventually("the ends of the tunnels", || proxy.counts().tunnels == 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_h2_stream_needs_credentials() {
    let origin = Origin::https(Alpn::H1, crate::serving::access::holding).await;
    let hash = Argon2::from(Params::new(8, 1, 1, None).unwrap()).hash_password(b"right").unwrap();
    let user = format!("{{ name: alice, password: '{hash}', max_connections: 2 }}");
    let proxy = Proxy::start(&format!("access: {{ users: [{user}] }}")).await;
    let client = H2Client::known(proxy.client().await).await;
    assert_refused(&client.get(&origin.url("/x")).await, 407, "http_request_denied", "client-denied");
    assert_eq!(client.connect(&origin.authority("a.localhost")).await.err(), Some(407));
    let sign = |mut request: http::Request<()>| {
        let credentials = format!("Basic {}", BASE64_STANDARD.encode("alice:right"));
        request.headers_mut().insert("proxy-authorization", credentials.parse().unwrap());
        request
    };
    // All at once: they are one connection of hers, and what she opens in one of them is another.
    let mut pending = Vec::new();
    for number in 0..20 {
        pending.push(client.send(sign(request("GET", &origin.url(&format!("/{number}")))), true).await);
    }
    for pending in pending {
        assert_eq!(pending.response().await.unwrap().status(), 200);
    }
    let connect = || sign(http::Request::connect(origin.authority("a.localhost")).body(()).unwrap());
    let inside = client.open(connect()).await.expect("200");
    let mut inside = inside.tls("a.localhost", &proxy.ca_pem_path(), &[]).await;
    assert_eq!(inside.get("/x", &origin.authority("a.localhost")).await.status(), 200);
    inside.send(crate::support::client::get("/held", &origin.authority("a.localhost"))).await;
    eventually("its request", || origin.log.count("/held") == 1).await;
    assert_eq!(client.open(connect()).await.err(), Some(503));
    assert!(origin.log.all().iter().all(|seen| seen.field("proxy-authorization").is_none()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2_connection_without_a_stream_does_not_count_for_its_user() {
    let origin = Origin::http(crate::serving::access::holding).await;
    let hash = Argon2::from(Params::new(8, 1, 1, None).unwrap()).hash_password(b"right").unwrap();
    let user = format!("{{ name: alice, password: '{hash}', max_connections: 1 }}");
    let proxy = Proxy::start(&format!("access: {{ users: [{user}] }}")).await;
    let sign = |path: &str| {
        let mut request = request("GET", &origin.url(path));
        let credentials = format!("Basic {}", BASE64_STANDARD.encode("alice:right"));
        request.headers_mut().insert("proxy-authorization", credentials.parse().unwrap());
        request
    };
    let [first, second] = [H2Client::known(proxy.client().await).await, H2Client::known(proxy.client().await).await];
    let get = async |client: &H2Client| client.exchange(sign("/x"), b"").await.unwrap().status();
    assert_eq!(get(&first).await, 200);
    let mut status = 503;
    while status == 503 {
        // The end of the stream may be on its way.
        status = get(&second).await;
    }
    assert_eq!(status, 200, "the other is idle");
    let _held = first.send(sign("/held"), true).await;
    eventually("its request", || origin.log.count("/held") == 1).await;
    assert_eq!(get(&second).await, 503);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_excluded_by_reload_is_refused_inside_its_h2_connection() {
    let origin = Origin::tls_site(Alpn::Both, ROBOTS).await;
    let proxy = Proxy::start("").await;
    let inside = proxy.h2(&origin, "a.localhost").await;
    assert_eq!(inside.get(&origin.url("/x")).await.status(), 200);
    proxy.reload("access: { clients: [192.0.2.0/24] }").expect("it is valid");
    assert_refused(&inside.get(&origin.url("/x")).await, 403, "http_request_denied", "client-denied");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2_request_with_an_ambiguous_or_invalid_target_is_refused() {
    let proxy = Proxy::start("").await;
    let client = H2Client::known(proxy.client().await).await;
    let mut two = request("GET", "http://a.localhost/x");
    two.headers_mut().insert("host", "b.localhost".parse().unwrap());
    for asked in [two, request("GET", "ftp://a.localhost/x"), request("GET", "http://u:p@a.localhost/x")] {
        let answer = client.send(asked, true).await.response().await;
        // h2 itself turns down some.
        assert!(answer.as_ref().map_or(true, |answer| answer.status() == 400), "{answer:?}");
    }
    assert_eq!(client.connect("a.localhost").await.err(), Some(400), "no port");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2c_inside_connect_obeys_robots_txt() {
    let origin = Origin::site(ROBOTS).await;
    let proxy = Proxy::start("").await;
    for host in ["a.localhost", "127.0.0.1"] {
        let client = Client::connect(proxy.address(), &origin.authority(host)).await;
        let client = H2Client::known(client).await;
        assert_refused(&client.get(&origin.url("/no")).await, 403, "http_request_denied", "robots-disallowed");
        if host == "a.localhost" {
            let other = client.get(&origin.url_at("b.localhost", "/x")).await;
            assert_refused(&other, 421, "http_request_error", "authority-mismatch");
        }
    }
    assert_eq!(origin.log.count("/no") + origin.log.count("/x"), 0);
}

/// An origin that speaks HTTP/2 without TLS and nothing else, as gRPC servers do: pieces go back as they come, then a trailer.
async fn http2_alone() -> (u16, tokio::task::JoinHandle<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    tokio::spawn(async move {
                        let is_robots = request.uri().path() == "/robots.txt";
                        let Ok(mut answer) = respond.send_response(http::Response::new(()), false) else { return };
                        if is_robots {
                            return drop(answer.send_data(ROBOTS.into(), true));
                        }
                        let mut body = request.into_body();
                        while let Some(Ok(piece)) = body.data().await {
                            body.flow_control().release_capacity(piece.len()).ok();
                            answer.send_data(piece, false).ok();
                        }
                        let mut trailers = http::HeaderMap::new();
                        trailers.insert("grpc-status", "0".parse().unwrap());
                        answer.send_trailers(trailers).ok();
                    });
                }
            });
        }
    });
    (port, serving)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2c_inside_connect_reaches_an_h2c_only_origin() {
    let (port, _serving) = http2_alone().await;
    let proxy = Proxy::start("pace: { max_concurrent: 8 }").await;
    let host = format!("a.localhost:{port}");
    let client = H2Client::known(Client::connect(proxy.address(), &host).await).await;
    let url = |path: &str| format!("http://{host}{path}");
    for _ in 0..3 {
        let answer = client.exchange(request("POST", &url("/x")), b"ping").await.expect("an answer");
        assert_eq!((answer.status(), answer.text().as_str()), (200, "ping"));
        assert_eq!(answer.trailers, [("grpc-status".to_owned(), "0".to_owned())]);
    }
    assert_eq!(client.exchange(request("POST", &url("/no")), b"ping").await.unwrap().status(), 403);
}

/// An HTTP/1 origin would read the client's bytes as requests that were not checked against robots.txt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2c_request_is_not_sent_before_the_origin_confirms_http2() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = format!("a.localhost:{}", listener.local_addr().unwrap().port());
    let heard = tokio::spawn(async move {
        let (mut stream, mut heard) = (listener.accept().await.unwrap().0, Vec::new());
        while let Ok(1..) = stream.read_buf(&mut heard).await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
        }
        heard
    });
    let proxy = Proxy::start("hosts: { '*': { robots: ignore } }").await;
    let client = H2Client::known(Client::connect(proxy.address(), &host).await).await;
    let hidden = b"GET /no HTTP/1.1\r\nHost: a.localhost\r\n\r\n";
    let answer = client.exchange(request("POST", &format!("http://{host}/x")), hidden).await.expect("an answer");
    assert_eq!(answer.status(), 502);
    assert!(answer.text().contains("does not speak HTTP/2 without TLS"), "{}", answer.text());
    let heard = within("the end", heard).await.unwrap();
    assert!(!String::from_utf8_lossy(&heard).contains("/no"), "{heard:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2c_origin_without_http2_still_serves_robots_txt_over_http1() {
    let (proxy, origin) = (Proxy::start("").await, Origin::site("").await);
    let client = H2Client::known(Client::connect(proxy.address(), &origin.authority("b.localhost")).await).await;
    assert_eq!(client.get(&origin.url_at("b.localhost", "/x")).await.status(), 502);
    assert_eq!(origin.log.count("/robots.txt"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websocket_in_an_h2_stream_works() {
    let handler = |seen: &crate::support::Seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(ROBOTS),
        "/page" => Reply::text("no WebSocket"),
        "/gone" => Reply::status(410),
        "/wrong" => Reply::raw(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n",
        ),
        _ => Reply::websocket().field("X-Origin", "yes"),
    };
    let (plain, tls) = (Origin::http(handler).await, Origin::https(Alpn::Both, handler).await);
    let proxy = Proxy::start("").await;
    let (inside, direct) = (proxy.h2(&tls, "a.localhost").await, H2Client::known(proxy.client().await).await);
    for (client, origin) in [(&inside, &tls), (&direct, &plain), (&direct, &tls)] {
        client.takes_protocols().await;
        for _ in 0..2 {
            let mut socket = WebSocket::over(client.open(websocket(&origin.url("/ws"))).await.expect("200"));
            for length in [1, 126, 65_536, 300_000] {
                let message: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
                assert!(socket.echo(&message).await == message, "{length}");
            }
            assert!(socket.close().await, "nothing after the close frame");
        }
        for (path, status) in [("/no", 403), ("/gone", 410), ("/page", 502), ("/robots.txt", 502), ("/wrong", 502)] {
            let answer = within(path, client.open(websocket(&origin.url(path)))).await;
            assert_eq!(answer.err(), Some(status), "{path}");
        }
        let mut other = websocket(&origin.url("/ws"));
        other.extensions_mut().insert(h2::ext::Protocol::from_static("connect-udp"));
        assert_eq!(client.open(other).await.err(), Some(400));
        assert_eq!(client.get(&origin.url("/page")).await.status(), 200, "the connection goes on");
    }
    assert_eq!((plain.log.count("/no"), tls.log.count("/no")), (0, 0));
}
