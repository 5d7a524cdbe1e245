//! Answers of origins that are cut short or cannot be read (RFC 9112 §6.3, §8).

use crate::support::h2_client::request;
use crate::support::message::Body;
use crate::support::reply::Delimit;
use crate::support::{Alpn, Origin, Proxy, Reply};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn truncated_answer_is_truncated_for_the_client() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        "/length" => Reply::text("half").framed(Delimit::Short(4)),
        "/chunks" => Reply::raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nhalf"),
        "/no-last-chunk" => Reply::raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"),
        _ => Reply::raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n"),
    })
    .await;
    let proxy = Proxy::start("").await;
    for target in ["/length", "/chunks", "/no-last-chunk", "/bad-chunk"] {
        let mut client = proxy.client().await;
        client.send(crate::support::client::get(&origin.url(target), &origin.authority("a.localhost"))).await;
        let head = client.head().await;
        if head.status() == 502 {
            continue;
        }
        let mut body = Body::default();
        client.read_body(&head, "GET", &mut body).await;
        assert!(!body.complete, "{target}: {head:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_client_gets_the_data_before_the_reset_of_a_truncated_answer() {
    let origin = Origin::https(Alpn::H1, |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => Reply::text("half").framed(Delimit::Short(4)),
    })
    .await;
    let proxy = Proxy::start("pace: { max_concurrent: 20 }").await;
    let client = proxy.h2(&origin, "a.localhost").await;
    for _ in 0..10 {
        let (status, body, error) = client.send(request("GET", &origin.url("/x")), true).await.begun().await;
        assert_eq!((status, body), (200, b"half".to_vec()));
        assert_eq!(error.and_then(|error| error.reason()), Some(h2::Reason::INTERNAL_ERROR));
    }
}

/// The stream is not reset during the upload: curl 7.88 would lose the answer, and httpx waits for window to send the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn early_answer_over_http2_lets_the_upload_finish() {
    let origin = Origin::https(Alpn::H1, |_| Reply::text("User-agent: *\nDisallow: /private")).await;
    let proxy = Proxy::start("").await;
    let client = proxy.h2(&origin, "a.localhost").await;
    let mut upload = client.send(request("POST", &origin.url("/private")), false).await;
    for _ in 0..300 {
        upload.body(&[b'x'; 100_000]).await.expect("it is taken");
    }
    upload.end().expect("the stream is open");
    assert_eq!(upload.response().await.expect("the refusal").status(), 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_answer_is_502() {
    let bad: [(&str, &str); 11] = [
        ("no HTTP", "SSH-2.0-OpenSSH\r\n\r\n"),
        ("nothing", ""),
        ("half a head", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n"),
        ("no status", "HTTP/1.1 OK\r\nContent-Length: 0\r\n\r\n"),
        ("a long status", "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n"),
        ("another version", "HTTP/3.0 200 OK\r\nContent-Length: 0\r\n\r\n"),
        ("two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nbody"),
        ("no such length", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nbody"),
        ("another coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"),
        ("a NUL", "HTTP/1.1 200 OK\r\nX-A: a\0b\r\nContent-Length: 0\r\n\r\n"),
        ("a bare CR", "HTTP/1.1 200 OK\r\nX-A: a\rX-B: b\r\nContent-Length: 0\r\n\r\n"),
    ];
    let origin = Origin::http(move |seen| {
        let path = seen.path();
        let case = path.strip_prefix("/case/").and_then(|number| number.parse::<usize>().ok());
        case.map_or_else(|| Reply::text(""), |case| Reply::raw(bad[case].1))
    })
    .await;
    let proxy = Proxy::start("").await;
    let mut passed = Vec::new();
    for (number, (name, _)) in bad.iter().enumerate() {
        let response = proxy.get(&origin.url(&format!("/case/{number}"))).await;
        let error = response.head.proxy_error().unwrap_or_default();
        let told = ["http_response_", "http_protocol_", "connection_"].iter().any(|kind| error.starts_with(kind));
        if response.status() != 502 || !told {
            passed.push((name, response.status(), error));
        }
    }
    assert!(passed.is_empty(), "{passed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_with_content_length_and_chunked_loses_its_content_length() {
    let both = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n";
    let origin = Origin::http(move |seen| if seen.path() == "/x" { Reply::raw(both) } else { Reply::text("") }).await;
    let proxy = Proxy::start("").await;
    let response = proxy.get(&origin.url("/x")).await;
    // RFC 9112 §6.3: Transfer-Encoding overrides and Content-Length goes.
    assert_eq!((response.status(), response.text().as_str()), (200, "body"), "{:?}", response.head);
    assert_eq!(response.field("content-length"), None, "{:?}", response.head);
    proxy.get(&origin.url("/x")).await;
    let on: Vec<_> = origin.log.of("/x").iter().map(|seen| seen.connection).collect();
    assert_ne!(on[0], on[1], "its connection is not used again");
}
