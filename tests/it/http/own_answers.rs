//! The proxy's own answers to clients that do not read them: they go out as windows open and sockets take them, and are held once.

use crate::support::client::get;
use crate::support::h2_client::request;
use crate::support::{Alpn, Binary, Client, H2Client, Origin, Proxy, eventually};

/// A robots.txt near the size limit.
fn large_robots() -> String {
    let mut text = "User-agent: *\nDisallow: /no\n".to_owned();
    while text.len() < 490_000 {
        text += "# a comment that nobody has to read, but that has to be held and sent all the same\n";
    }
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_unread_robots_copies_share_one_buffer_over_h2() {
    let robots = large_robots();
    let origin = Origin::tls_site(Alpn::Both, &robots).await;
    let binary = Binary::serve("").await;
    let host = origin.authority("a.localhost");
    let open = async || {
        let client = Client::connect(binary.address(), &host).await;
        H2Client::over(client.tls("a.localhost", &binary.ca_pem_path(), &[b"h2"]).await).await
    };
    assert_eq!(open().await.get(&origin.url("/robots.txt")).await.text(), robots);
    let before = binary.peak_kib();
    let mut clients = Vec::new();
    let mut answers = Vec::new();
    for _ in 0..10 {
        let client = open().await;
        for _ in 0..100 {
            answers.push(client.send(request("GET", &origin.url("/robots.txt")), true).await);
        }
        clients.push(client);
    }
    let mut held = Vec::new();
    for answer in answers {
        held.push(answer.head().await);
    }
    let grown = (binary.peak_kib() - before) / 1024;
    assert!(grown < 100, "{grown} MiB more for 1,000 answers that nobody reads");
    assert_eq!(open().await.get(&origin.url("/robots.txt")).await.text(), robots, "another client has it whole");
    drop((held, clients));
    binary.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_robots_copies_share_one_buffer_over_http1() {
    let robots = large_robots();
    let origin = Origin::site(&robots).await;
    let binary = Binary::serve("").await;
    let host = origin.authority("a.localhost");
    assert_eq!(Client::open(binary.address()).await.get(&origin.url("/robots.txt"), &host).await.text(), robots);
    let before = binary.peak_kib();
    let mut clients = Vec::new();
    for _ in 0..200 {
        let mut client = Client::open(binary.address()).await;
        for _ in 0..8 {
            client.send(get(&origin.url("/robots.txt"), &host)).await;
        }
        clients.push(client);
    }
    for client in &mut clients {
        assert_eq!(client.head().await.status(), 200);
    }
    let grown = (binary.peak_kib() - before) / 1024;
    assert!(grown < 60, "{grown} MiB more for 200 that do not read");
    // A client that reads gets all answers.
    let mut reader = clients.pop().expect("there are some");
    let mut rest = 0;
    reader
        .stream_body(crate::support::message::Framing::Length(robots.len() as u64), |piece| rest += piece.len())
        .await;
    assert_eq!(rest, robots.len());
    for _ in 1..8 {
        assert_eq!(reader.response().await.text(), robots);
    }
    drop((reader, clients));
    binary.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_does_not_read_a_robots_copy_loses_its_stream() {
    let origin = Origin::tls_site(Alpn::Both, &large_robots()).await;
    let proxy = Proxy::start("limits: { read_timeout: 1s }").await;
    let client = proxy.h2(&origin, "a.localhost").await;
    let mut held = Vec::new();
    for _ in 0..20 {
        held.push(client.send(request("GET", &origin.url("/robots.txt")), true).await);
    }
    let mut bodies = Vec::new();
    for answer in held {
        bodies.push(answer.head().await.into_body());
    }
    // The connection's window is less than all of them: some wait for it, and are given up.
    let mut ended = 0;
    for body in &mut bodies {
        while let Some(piece) = crate::support::within("data, or a reset", body.data()).await {
            if piece.is_err() {
                ended += 1;
                break;
            }
        }
    }
    assert!(ended > 5, "{ended}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusal_body_obeys_h2_flow_control() {
    let origin = Origin::site("User-agent: *\nDisallow: /no\n").await;
    let proxy = Proxy::start("").await;
    let mut client = proxy.client().await;
    // A window of nothing, for all streams.
    use crate::escape::frames::{END_HEADERS, END_STREAM, HEADERS, SETTINGS, block, frame};
    let authority = origin.authority("a.localhost");
    let fields = [(":method", "GET"), (":scheme", "http"), (":authority", authority.as_str()), (":path", "/no")];
    let hello = [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
        &frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]),
        &frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&fields)),
    ];
    client.send(hello.concat()).await;
    assert!(matches!(crate::escape::frames::taken(&mut client, 1).await, crate::escape::frames::Taken::Answered(_)));
    let more = client.glance(std::time::Duration::from_millis(300)).await.to_vec();
    assert!(!more.windows(4).any(|word| word == b"urn:"), "no content comes without a window");
    client.send(frame(crate::escape::frames::WINDOW_UPDATE, 0, 1, &[0, 1, 0, 0])).await;
    let mut got = Vec::new();
    while !got.windows(4).any(|word| word == b"urn:") {
        got.extend_from_slice(client.glance(std::time::Duration::from_millis(50)).await);
    }
    eventually("the count", || proxy.counts().refused.len() == 1).await;
}
