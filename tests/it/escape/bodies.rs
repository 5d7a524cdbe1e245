//! Origins that ignore the body of a request (CL.0) read it as the next request. Its answer must not reach another client.

use super::siege::{Siege, shoot};
use crate::support::{Proxy, RawOrigin};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Answers every head with its target, and takes what follows for the next head.
async fn deaf_to_bodies() -> RawOrigin {
    RawOrigin::start(|mut stream, _| async move {
        let mut heard = Vec::new();
        loop {
            while let Some(end) = heard.windows(4).position(|end| end == b"\r\n\r\n") {
                let head: Vec<u8> = heard.drain(..end + 4).collect();
                let head = String::from_utf8_lossy(&head).into_owned();
                let target = head.split(' ').nth(1).unwrap_or("?");
                let body = if target == "/robots.txt" { "" } else { target };
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
            if !matches!(stream.read_buf(&mut heard).await, Ok(1..)) {
                return;
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_body_taken_for_a_request_does_not_reach_another_client() {
    let mut siege = Siege::default();
    let hidden = "GET /poison HTTP/1.1\r\nX: ";
    let of_length = format!("Content-Length: {}\r\n\r\n{hidden}", hidden.len());
    let chunked = format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{hidden}\r\n0\r\n\r\n", hidden.len());
    for method in ["GET", "POST", "OPTIONS", "DELETE", "PUT"] {
        for (name, rest) in [
            ("a length", of_length.clone()),
            ("chunks", chunked.clone()),
            ("Expect", format!("Expect: 100-continue\r\n{of_length}")),
        ] {
            let origin = deaf_to_bodies().await;
            let proxy = Proxy::start("pace: { max_concurrent: 8 }").await;
            let host = origin.authority("a.localhost");
            let mut attacker = proxy.client().await;
            let asked = format!("{method} {} HTTP/1.1\r\nHost: {host}\r\n{rest}", origin.url("/first"));
            let first = shoot(&mut attacker, asked).await;
            let first = first.filter(|answer| answer.text() != "/first").map(|answer| answer.text());
            // Both while the attacker's connection is there and when it is gone.
            let mut wrong = first;
            for gone in [false, true] {
                if gone {
                    attacker.half_close().await;
                    let _ = tokio::time::timeout(Duration::from_secs(5), attacker.rest()).await;
                }
                let mut victim = proxy.client().await;
                let got = victim.get(&origin.url("/victim"), &host).await.text();
                wrong = wrong.or((got != "/victim").then(|| format!("the victim got {got}, gone: {gone}")));
            }
            siege.tried(format!("{method}, {name}"), wrong);
        }
    }
    siege.withstood(15);
}
