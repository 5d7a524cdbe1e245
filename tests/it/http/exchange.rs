//! Both directions at once, and what is said in the middle of an exchange (RFC 9112 §9, RFC 9113 §8.1, RFC 9110 §10.1.1).

use crate::support::client::get;
use crate::support::h2_client::request;
use crate::support::message::Body;
use crate::support::reply::Delimit;
use crate::support::{
    Alpn, Client, Origin, Proxy, RawOrigin, Reply, Seen, assert_refused, at_once, eventually, test_ca, within,
};
use argon2::{Argon2, Params, PasswordHasher};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

fn pages(seen: &Seen) -> Reply {
    match seen.path().as_str() {
        "/robots.txt" => Reply::text("User-agent: *\nDisallow: /no\n").field("ETag", "\"r\""),
        "/early" => Reply::status(413).body("too much").before_the_body(),
        "/huge" => Reply::pattern(1 << 30),
        "/slow" => Reply::text("slowly").after(Duration::from_millis(300)),
        "/trickle" => Reply::drip(&["first", "second"], Duration::from_millis(1500)),
        "/fields" => (0..30).fold(Reply::text("body").field("date", DATE), |reply, number| {
            reply.field(format!("x-{number}"), "v".repeat(1000))
        }),
        "/close" => Reply::text("to the end").framed(Delimit::Close),
        "/hints" => Reply::raw(
            "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nKeep-Alive: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        ),
        "/hints-and-no-more" => Reply::raw("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
        _ => Reply::text("page"),
    }
}

async fn origins() -> [Origin; 3] {
    [Origin::http(pages).await, Origin::https(Alpn::H1, pages).await, Origin::https(Alpn::H2, pages).await]
}

/// A connection on which to ask this origin in HTTP/1, and the target of a path.
async fn asking(proxy: &Proxy, origin: &Origin, path: &str) -> (Client, String) {
    match origin.url("").starts_with("https") {
        true => (proxy.tls(origin, "a.localhost", &[b"http/1.1"]).await, path.to_owned()),
        false => (proxy.client().await, origin.url(path)),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_during_an_upload_reaches_the_client() {
    let proxy = Proxy::start("").await;
    for origin in origins().await {
        let host = origin.authority("a.localhost");
        let (mut client, target) = asking(&proxy, &origin, "/early").await;
        client.send(format!("POST {target} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100000000\r\n\r\nsome")).await;
        assert_eq!(client.response().await.text(), "too much");
        if origin.url("").starts_with("https") {
            let h2 = proxy.h2(&origin, "a.localhost").await;
            let mut pending = h2.send(request("POST", &origin.url("/early")), false).await;
            // The request may be answered already.
            pending.body(b"some").await.ok();
            assert_eq!(pending.response().await.unwrap().status(), 413);
        }
    }
}

/// A site that answers first and then reads on, for example in Node, gets the whole upload.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upload_continues_after_a_complete_answer() {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let origin = RawOrigin::start(move |mut stream, _| {
        let tell = tell.clone();
        async move {
            let mut came = Vec::new();
            while stream.read_buf(&mut came).await.is_ok_and(|length| length > 0) {
                let head = came.windows(4).position(|end| end == b"\r\n\r\n").map(|at| at + 4);
                let Some(head) = head else { continue };
                if came.starts_with(b"GET") {
                    came.drain(..head);
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage").await.ok();
                    continue;
                }
                if came.len() - head == 5 {
                    stream.write_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\nok").await.ok();
                }
                if came.len() - head == 10 {
                    tell.send(came.split_off(head)).ok();
                    came.clear();
                }
            }
        }
    })
    .await;
    let proxy = Proxy::start("hosts: { a.localhost: { robots: ignore } }").await;
    let (url, host) = (origin.url("/upload"), origin.authority("a.localhost"));
    let mut client = proxy.client().await;
    client.send(format!("POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 10\r\n\r\nfirst")).await;
    assert_eq!(client.response().await.status(), 202);
    client.send("again").await;
    assert_eq!(told.recv().await.as_deref(), Some(&b"firstagain"[..]));
    // Both connections are kept.
    client.send(get(&origin.url("/page"), &host)).await;
    assert_eq!(client.response().await.text(), "page");
    assert_eq!(origin.open_connections(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn received_data_is_forwarded_while_the_origin_pauses() {
    at_once(origins().await.map(|origin| async move {
        let proxy = Proxy::start("").await;
        let (mut client, target) = asking(&proxy, &origin, "/trickle").await;
        client.send(get(&target, &origin.authority("a.localhost"))).await;
        within("the first piece", async {
            while !String::from_utf8_lossy(&client.source.ahead).contains("first") {
                assert!(client.source.fill().await);
            }
        })
        .await;
        assert!(!String::from_utf8_lossy(&client.source.ahead).contains("second"), "it comes a second later");
        assert_eq!(client.response().await.text(), "firstsecond");
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_with_a_30_kib_head_keeps_body_and_date() {
    let proxy = Proxy::start("").await;
    for origin in origins().await {
        let (mut client, target) = asking(&proxy, &origin, "/fields").await;
        for _ in 0..2 {
            let response = client.get(&target, &origin.authority("a.localhost")).await;
            assert_eq!((response.text().as_str(), response.field("date")), ("body", Some(DATE)));
            assert_eq!(response.field("x-29").map(str::len), Some(1000));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusal_of_an_expect_100_request_closes_the_connection() {
    let [origin, ..] = origins().await;
    let proxy = Proxy::start("").await;
    let (host, url) = (origin.authority("a.localhost"), origin.url("/no"));
    let expecting =
        format!("POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n");
    let mut client = proxy.client().await;
    client.send(expecting).await;
    let refused = client.response().await;
    assert_eq!(refused.status(), 403);
    // Whether its body or the next request follows, nobody could tell: so nothing does.
    assert!(refused.head.lists("connection", "close"), "{:?}", refused.head);
    client.try_send(get(&origin.url("/next"), &host)).await.ok();
    assert!(client.rest().await.is_empty());
    assert_eq!(origin.log.count("/next"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn origin_refusal_of_an_expect_100_request_closes_the_connection() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => Reply::status(417).body("no").before_the_body(),
    })
    .await;
    let proxy = Proxy::start("").await;
    let (host, url) = (origin.authority("a.localhost"), origin.url("/x"));
    let mut client = proxy.client().await;
    client
        .send(format!("POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n"))
        .await;
    let refused = client.response().await;
    assert!(refused.status() == 417 && refused.head.lists("connection", "close"), "{:?}", refused.head);
    client.rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn origin_silent_to_an_expect_100_request_times_out() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => Reply::silence().before_the_body(),
    })
    .await;
    let proxy = Proxy::start("limits: { read_timeout: 1s }").await;
    let (host, url) = (origin.authority("a.localhost"), origin.url("/x"));
    let mut client = proxy.client().await;
    client
        .send(format!("POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n"))
        .await;
    let answer = client.response().await;
    assert_eq!((answer.status(), answer.head.proxy_error().as_deref()), (504, Some("http_response_timeout")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_is_not_counted_as_a_failure() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => Reply::text("x".repeat(16 << 20)),
    })
    .await;
    let proxy = Proxy::start("").await;
    let mut client = proxy.client().await;
    client.send(get(&origin.url("/film"), &origin.authority("a.localhost"))).await;
    assert_eq!(client.head().await.status(), 200);
    drop(client);
    eventually("it to be noticed", || proxy.counts().client_gone == 1).await;
    assert_eq!(proxy.counts().failed, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_closed_client_is_answered() {
    let proxy = Proxy::start("").await;
    for origin in origins().await {
        let (mut client, target) = asking(&proxy, &origin, "/slow").await;
        client.send(get(&target, &origin.authority("a.localhost"))).await;
        client.half_close().await;
        assert_eq!(client.response().await.text(), "slowly");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_modified_robots_copy_has_no_content_length() {
    let [origin, ..] = origins().await;
    let proxy = Proxy::start("").await;
    let (url, host) = (origin.url("/robots.txt"), origin.authority("a.localhost"));
    let mut client = proxy.client().await;
    client.send(get(&url, &host).replace("Accept", "If-None-Match: \"r\"\r\nAccept")).await;
    let head = client.head().await;
    assert_eq!((head.status(), head.field("content-length")), (304, None));
    assert_eq!(client.get(&origin.url("/x"), &host).await.text(), "page");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_1_0_answers_state_keep_alive_or_close() {
    let [origin, ..] = origins().await;
    let proxy = Proxy::start("").await;
    let old = |path: &str, fields: &str| {
        let host = origin.authority("a.localhost");
        format!("GET {} HTTP/1.0\r\nHost: {host}\r\n{fields}\r\n", origin.url(path))
    };
    let mut client = proxy.client().await;
    for path in ["/x", "/y", "/no"] {
        client.send(old(path, "Connection: keep-alive\r\n")).await;
        assert!(client.response().await.head.lists("connection", "keep-alive"), "{path}");
    }
    client.send(old("/close", "Connection: keep-alive\r\n")).await;
    let head = client.head().await;
    assert!(head.lists("connection", "close") && head.field("transfer-encoding").is_none(), "{head:?}");
    assert_eq!(client.rest().await, b"to the end");
    let mut client = proxy.client().await;
    client.send(old("/x", "")).await;
    assert!(client.head().await.lists("connection", "close"));
    assert_eq!(client.rest().await, b"page");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_delimited_answer_keeps_the_client_connection() {
    let proxy = Proxy::start("").await;
    let [plain, tls, _] = origins().await;
    for origin in [plain, tls] {
        let (mut client, target) = asking(&proxy, &origin, "/close").await;
        for _ in 0..3 {
            assert_eq!(client.get(&target, &origin.authority("a.localhost")).await.text(), "to the end");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interim_answers_lose_hop_by_hop_fields_and_a_later_failure_is_reported() {
    let [origin, ..] = origins().await;
    let proxy = Proxy::start("").await;
    let host = origin.authority("a.localhost");
    let mut client = proxy.client().await;
    client.send(get(&origin.url("/hints"), &host)).await;
    let hints = within("hints", client.source.until(b"\r\n\r\n")).await.unwrap();
    let hints = String::from_utf8(hints).unwrap();
    assert!(hints.starts_with("HTTP/1.1 103 ") && hints.contains("Link: </a>") && !hints.contains("Keep-Alive"));
    assert_eq!(client.response().await.text(), "ok");
    client.send(get(&origin.url("/hints-and-no-more"), &host)).await;
    let failed = client.response().await;
    assert_eq!((failed.status(), failed.head.proxy_error().as_deref()), (502, Some("connection_terminated")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_request_body_is_400_if_not_answered_yet() {
    let [origin, ..] = origins().await;
    let proxy = Proxy::start("").await;
    let (host, url) = (origin.authority("a.localhost"), origin.url("/x"));
    let mut client = proxy.client().await;
    client.send(format!("POST {url} HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")).await;
    let answer = client.response().await;
    assert_eq!((answer.status(), answer.head.proxy_error().as_deref()), (400, Some("http_request_error")));
    assert!(client.rest().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxy_authentication_challenge_keeps_the_connection() {
    let [origin, ..] = origins().await;
    let cheap = Params::new(8, 1, 1, None).unwrap();
    let hash = Argon2::from(cheap).hash_password(b"alice").unwrap();
    let proxy = Proxy::start(&format!("access: {{ users: [{{ name: alice, password: '{hash}' }}] }}")).await;
    let mut client = proxy.client().await;
    for _ in 0..3 {
        let asked = client.get(&origin.url("/x"), &origin.authority("a.localhost")).await;
        assert_refused(&asked, 407, "http_request_denied", "client-denied");
        assert!(!asked.head.lists("connection", "close"));
    }
    let refused = client.ask_connect("a.localhost:443").await;
    assert_eq!(refused.status(), 407);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_never_reads_loses_its_slot() {
    let robots = "User-agent: *\nCrawl-delay: 0.1\n";
    let origin = Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(robots),
        "/huge" => Reply::pattern(1 << 30),
        _ => Reply::text("page"),
    })
    .await;
    let proxy = Proxy::start("limits: { read_timeout: 1s }").await;
    let mut stalled = proxy.client().await;
    stalled.send(get(&origin.url("/huge"), &origin.authority("a.localhost"))).await;
    eventually("its request", || origin.log.count("/huge") == 1).await;
    assert_eq!(proxy.get(&origin.url("/x")).await.text(), "page", "the only turn was given back");
    drop(stalled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_tunnel_outlives_read_timeout_and_holds_no_slot() {
    let origin = Origin::http(pages).await;
    let yaml = "intercept: { default: tunnel }\nlimits: { read_timeout: 500ms }\npace: { max_concurrent: 1 }";
    let proxy = Proxy::start(yaml).await;
    let host = origin.authority("a.localhost");
    let mut idle = Client::connect(proxy.address(), &host).await;
    let mut other = Client::connect(proxy.address(), &host).await;
    assert_eq!(other.get("/x", &host).await.text(), "page");
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(idle.get("/x", &host).await.text(), "page");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_sni_name_gets_a_tls_alert() {
    let origin = Origin::tls_site(Alpn::H1, "").await;
    let proxy = Proxy::start("").await;
    let mut client = Client::connect(proxy.address(), &origin.authority("a.localhost")).await;
    // A ClientHello of TLS 1.2 with the server name `a..b`.
    let name = b"a..b";
    let list = [&[0, 0, name.len() as u8][..], name].concat();
    let entry = [&(list.len() as u16).to_be_bytes()[..], &list].concat();
    let extension = [&[0, 0][..], &(entry.len() as u16).to_be_bytes(), &entry].concat();
    let algorithms = [0, 13, 0, 4, 0, 2, 4, 3];
    let extensions = [&extension[..], &algorithms].concat();
    let body =
        [&[3, 3][..], &[7; 32], &[0, 0, 2, 0xc0, 0x2b, 1, 0], &(extensions.len() as u16).to_be_bytes(), &extensions]
            .concat();
    let hello = [&[1, 0][..], &(body.len() as u16).to_be_bytes(), &body].concat();
    client.send([&[22, 3, 1][..], &(hello.len() as u16).to_be_bytes(), &hello].concat()).await;
    let answer = client.rest().await;
    assert_eq!(answer.first(), Some(&21), "an alert, not an end without a word: {answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn truncated_answer_is_delivered_as_incomplete() {
    let plain = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => Reply::text("some of it").framed(Delimit::Short(5)),
    })
    .await;
    let proxy = Proxy::start("").await;
    let mut client = proxy.client().await;
    client.send(get(&plain.url("/short"), &plain.authority("a.localhost"))).await;
    let head = client.head().await;
    let mut body = Body::default();
    client.read_body(&head, "GET", &mut body).await;
    assert_eq!((body.complete, body.kept.as_slice()), (false, &b"some of it"[..]), "its last bytes are there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dripping_answer_head_times_out_in_total() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let dripping = tokio::spawn(async move {
        use tokio::io::AsyncWriteExt;
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                for byte in b"HTTP/1.1 200 OK\r\nX: ".iter().chain([b'y'; 1000].iter()) {
                    if stream.write_all(&[*byte]).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            });
        }
    });
    let proxy = Proxy::start("limits: { read_timeout: 1s }\nhosts: { '*': { robots: ignore } }").await;
    let began = Instant::now();
    let answer = proxy.get(&format!("http://a.localhost:{port}/x")).await;
    assert_eq!((answer.status(), answer.head.proxy_error().as_deref()), (504, Some("http_response_timeout")));
    assert!(began.elapsed() < Duration::from_secs(10));
    dripping.abort();
}

/// The end of the connection ends such an answer, so an orderly end would mean that it is complete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn truncated_answer_without_a_length_ends_in_a_reset() {
    let answer = |seen: &Seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        "/whole" => Reply::text("all of it").framed(Delimit::Chunked),
        _ => Reply::raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n"),
    };
    let proxy = Proxy::start("").await;
    for origin in [Origin::http(answer).await, Origin::https(Alpn::H1, answer).await] {
        for (path, ends) in [("/whole", Ok(())), ("/cut", Err(std::io::ErrorKind::ConnectionReset))] {
            let (mut client, target) = asking(&proxy, &origin, path).await;
            client.send(format!("GET {target} HTTP/1.0\r\nHost: {}\r\n\r\n", origin.authority("a.localhost"))).await;
            let read = within("the end", async {
                loop {
                    match client.source.inner.read(&mut [0; 1000]).await {
                        Ok(0) => break Ok(()),
                        Ok(_) => {}
                        Err(error) => break Err(error.kind()),
                    }
                }
            });
            assert_eq!(read.await, ends, "{target}");
        }
    }
}

/// Servers that close TLS without close_notify are common. If nothing else marks the end, the close has to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_delimited_tls_answer_without_close_notify_is_complete() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = format!("a.localhost:{}", listener.local_addr().unwrap().port());
    let acceptor = tokio_rustls::TlsAcceptor::from(test_ca().server_config(&["a.localhost"], &[b"http/1.1"]));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut head = vec![0; 4096];
            let read = stream.read(&mut head).await.unwrap_or_default();
            let length = match &head[..read] {
                head if head.starts_with(b"GET /short") => "Content-Length: 20\r\n",
                // A robots.txt without a length would count as truncated.
                head if head.starts_with(b"GET /robots.txt") => "Content-Length: 9\r\n",
                _ => "",
            };
            stream.write_all(format!("HTTP/1.1 200 OK\r\n{length}\r\nDisallow:").as_bytes()).await.ok();
            stream.flush().await.ok();
            // The socket alone is closed.
            drop(stream);
        }
    });
    let proxy = Proxy::start("").await;
    for (path, is_whole) in [("/whole", true), ("/short", false)] {
        let mut client = Client::connect(proxy.address(), &authority).await;
        client = client.tls("a.localhost", &proxy.ca_pem_path(), &[b"http/1.1"]).await;
        client.send(get(path, &authority)).await;
        if is_whole {
            assert_eq!(client.response().await.text(), "Disallow:");
        } else {
            assert_eq!(client.head().await.status(), 200);
            assert_eq!(client.rest().await, b"Disallow:", "and not the twenty that were told");
        }
    }
}
