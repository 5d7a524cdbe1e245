//! Each side of the proxy frames messages anew (RFC 9112 §7): the sender's framing is not forwarded.

use crate::support::client::get;
use crate::support::message::{find, lossy};
use crate::support::{Alpn, H2Client, Origin, Proxy, RawOrigin, assert_refused};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const CHUNKS: &str =
    "00000003;name=\"a;b\"\r\nabc\r\n0004 ;x\r\ndefg\r\nA;y\r\n0123456789\r\n000;last=1\r\nX-Sum: 9\r\n\r\n";

/// Notes all that comes, and answers with these bytes once a request is whole as far as `end`.
async fn noting(end: &'static str, answer: &'static str) -> (RawOrigin, Arc<Mutex<Vec<u8>>>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let noted = heard.clone();
    let origin = RawOrigin::start(move |mut stream, _| {
        let noted = noted.clone();
        async move {
            let mut bytes = Vec::new();
            while let Ok(1..) = stream.read_buf(&mut bytes).await {
                if bytes.ends_with(end.as_bytes()) {
                    noted.lock().unwrap().append(&mut bytes);
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            }
        }
    })
    .await;
    (origin, heard)
}

const FREE: &str = "hosts: { '*': { robots: ignore } }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_bodies_are_rechunked() {
    let (origin, heard) = noting("\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let proxy = Proxy::start(FREE).await;
    let host = origin.authority("a.localhost");
    let mut client = proxy.client().await;
    let strict = CHUNKS.replace(" ;x", ";x");
    client
        .send(format!(
            "POST {} HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n{strict}",
            origin.url("/x")
        ))
        .await;
    // The origin answers behind the head already.
    assert_eq!(client.response().await.text(), "ok");
    crate::support::eventually("the body", || {
        find(&heard.lock().unwrap(), b"X-Sum").is_some() || find(&heard.lock().unwrap(), b"x-sum").is_some()
    })
    .await;
    let heard = lossy(&heard.lock().unwrap());
    let (_, body) = heard.split_once("\r\n\r\n").unwrap();
    assert!(!body.contains(';') && !body.contains("00000003") && !body.contains("0004"), "{body:?}");
    assert_eq!(body.to_ascii_lowercase(), "3\r\nabc\r\n4\r\ndefg\r\na\r\n0123456789\r\n0\r\nx-sum: 9\r\n\r\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_bodies_are_rechunked() {
    let answer = Box::leak(format!("HTTP/1.1 200 OK\r\ntransfer-encoding:  Chunked\r\n\r\n{CHUNKS}").into_boxed_str());
    let (origin, _) = noting("\r\n\r\n", answer).await;
    let proxy = Proxy::start(FREE).await;
    let mut client = proxy.client().await;
    let asked = get(&origin.url("/x"), &origin.authority("a.localhost"));
    client.send(asked.replace("Accept", "Connection: close\r\nAccept")).await;
    let all = lossy(&client.rest().await);
    let (head, body) = all.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("Transfer-Encoding: chunked"), "{head}");
    assert_eq!(body.to_ascii_lowercase(), "3\r\nabc\r\n4\r\ndefg\r\na\r\n0123456789\r\n0\r\nx-sum: 9\r\n\r\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_length_is_normalised() {
    let (origin, _) = noting("\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0002\r\n\r\nok").await;
    let proxy = Proxy::start(FREE).await;
    let host = origin.authority("a.localhost");
    for asked in [get(&origin.url("/x"), &host), get(&origin.url("/x"), &host).replace("GET", "HEAD")] {
        let mut client = proxy.client().await;
        client.send(asked).await;
        assert_eq!(client.head().await.field("content-length"), Some("2"));
    }
}

/// Chunks that arrive together are sent together, counted by the bytes that the receiver has to read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_body_in_small_chunks_is_complete() {
    let body: String = (0..20_000).map(|number| format!("a;e={number}\r\n{number:010}\r\n")).collect();
    let answer =
        Box::leak(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}0\r\n\r\n").into_boxed_str());
    let (origin, _) = noting("\r\n\r\n", answer).await;
    let proxy = Proxy::start(FREE).await;
    let got = proxy.get(&origin.url("/x")).await;
    assert_eq!(got.text(), (0..20_000).map(|number| format!("{number:010}")).collect::<String>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_expectation_except_a_single_100_continue_is_417() {
    let (origin, tls) = (Origin::site("").await, Origin::tls_site(Alpn::Both, "").await);
    let proxy = Proxy::start("").await;
    let host = origin.authority("a.localhost");
    for fields in [
        "Expect: 100-continue, 100-continue",
        "Expect: 100-continue\r\nExpect: 100-continue",
        "Expect: 200-ok",
        "Expect: 100-continue;q=1",
        "Expect: \"100-continue\"",
        "Expect: 100-continue, x",
        "Expect: 100-continu",
        "Expect:",
    ] {
        let mut client = proxy.client().await;
        let url = origin.url("/x");
        client.send(format!("POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1\r\n{fields}\r\n\r\nx")).await;
        assert_refused(&client.response().await, 417, "http_request_error", "expectation-failed");
        assert!(client.rest().await.is_empty(), "{fields}: it closes");
    }
    for (client, url) in [
        (H2Client::known(proxy.client().await).await, origin.url("/x")),
        (proxy.h2(&tls, "a.localhost").await, tls.url("/x")),
    ] {
        for values in [&["200-ok"][..], &["100-continue", "100-continue"], &["100-continue, x"]] {
            let mut asked = crate::support::h2_client::request("POST", &url);
            for value in values {
                asked.headers_mut().append("expect", value.parse().unwrap());
            }
            let answer = client.exchange(asked, b"x").await.expect("an answer");
            assert_refused(&answer, 417, "http_request_error", "expectation-failed");
        }
    }
    assert_eq!((origin.log.count("/x"), tls.log.count("/x")), (0, 0));
}

/// RFC 9110 §10.1.1: without a body, or in HTTP/1.0, Expect has no effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expectation_without_effect_is_not_forwarded() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start("").await;
    let host = origin.authority("a.localhost");
    for (version, fields, body) in [
        ("1.1", "Expect: 100-Continue\r\nContent-Length: 1\r\n", "x"),
        ("1.0", "Expect: 100-continue\r\nContent-Length: 1\r\n", "x"),
        ("1.1", "Expect: 100-continue\r\n", ""),
        ("1.1", "Expect: 100-continue\r\nContent-Length: 0\r\n", ""),
    ] {
        let mut client = proxy.client().await;
        let url = origin.url("/x");
        client.send(format!("POST {url} HTTP/{version}\r\nHost: {host}\r\n{fields}\r\n{body}")).await;
        assert_eq!(client.response().await.text(), "page /x", "{version} {fields:?}");
    }
    let went_on: Vec<_> = origin.log.of("/x").iter().map(|seen| seen.field("expect").map(str::to_owned)).collect();
    assert_eq!(went_on, [Some("100-continue".to_owned()), None, None, None]);
}

/// Applications get fields as variables with `_` for `-`: some take the variants for the fields that frame the request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn underscore_variants_of_framing_fields_are_removed() {
    let (origin, tls) = (Origin::site("").await, Origin::tls_site(Alpn::H2, "").await);
    let proxy = Proxy::start("").await;
    let twins = [
        "Content_Length: 9",
        "content_length: 9",
        "Transfer_Encoding: chunked",
        "TRANSFER_ENCODING: x",
        "Content.Length: 9",
    ];
    let host = origin.authority("a.localhost");
    let mut client = proxy.client().await;
    client
        .send(format!(
            "POST {} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1\r\nX_Other: y\r\n{}\r\n\r\nx",
            origin.url("/x"),
            twins.join("\r\n")
        ))
        .await;
    assert_eq!(client.response().await.text(), "page /x");
    let h2 = proxy.h2(&tls, "a.localhost").await;
    let mut asked = crate::support::h2_client::request("POST", &tls.url("/x"));
    for name in ["content_length", "transfer_encoding"] {
        asked.headers_mut().insert(name, "9".parse().unwrap());
    }
    assert_eq!(h2.exchange(asked, b"x").await.expect("an answer").status(), 200);
    for seen in [origin.log.one("/x"), tls.log.one("/x")] {
        let names: Vec<_> = seen.fields.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
        let twins =
            names.iter().filter(|name| name.contains("ntent_l") || name.contains("fer_e") || name.contains("t.l"));
        assert_eq!(twins.count(), 0, "{names:?}");
    }
    assert_eq!(origin.log.one("/x").field("x_other"), Some("y"), "others pass");
}
