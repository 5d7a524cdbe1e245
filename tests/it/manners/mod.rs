//! Manners beyond the letter (docs/pace.md), end to end: at one instance, at several processes of a machine, in a fleet.

mod adaptive;
mod breaker;
mod budget;
mod money;
mod revisit;

use crate::support::redis::Redis;
use crate::support::{ADMIN_TOKEN, Binary, Client, Origin, Reply, Response, Seen};
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

const ADMIN: &str = "admin: { address: '127.0.0.1:0' }";

/// Pages by `page`, and an empty robots.txt.
async fn pages(page: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Origin {
    Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => page(seen),
    })
    .await
}

/// An origin whose pages have this status, until it is given another.
async fn with_status(status: u16) -> (Origin, Arc<AtomicU16>) {
    let status = Arc::new(AtomicU16::new(status));
    let now = status.clone();
    let origin = pages(move |_| match now.load(Ordering::Relaxed) {
        200 => Reply::text("page"),
        status => Reply::status(status),
    })
    .await;
    (origin, status)
}

async fn get(proxy: SocketAddr, url: &str) -> Response {
    let host = url.split('/').nth(2).expect("an absolute URL");
    Client::open(proxy).await.get(url, host).await
}

/// The slug and Retry-After of a refusal.
#[track_caller]
fn refusal(response: &Response) -> (String, u64) {
    let problem = response.problem();
    let slug = problem["type"].as_str().unwrap_or_default().trim_start_matches("urn:politely:").to_owned();
    let after = response.field("retry-after").expect("when to come back").parse().expect("seconds");
    assert_eq!(problem["retry_after"], after);
    (slug, after)
}

async fn asked(admin: SocketAddr, target: &str) -> Response {
    let mut client = Client::open(admin).await;
    client.send(format!("GET {target} HTTP/1.1\r\nHost: {admin}\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\n\r\n")).await;
    client.response().await
}

async fn json(admin: SocketAddr, target: &str) -> Value {
    let response = asked(admin, target).await;
    serde_json::from_slice(&response.body).unwrap_or_else(|_| panic!("{target}: {}", response.text()))
}

/// Instances of one fleet.
async fn fleet(redis: &Redis, count: usize, yaml: &str) -> Vec<Binary> {
    let mut instances = Vec::new();
    for _ in 0..count {
        instances.push(Binary::serve(&format!("fleet: '{}'\n{yaml}", redis.url())).await);
    }
    instances
}

/// Processes of one machine that share a store.
async fn processes(directory: &std::path::Path, count: usize, yaml: &str) -> Vec<Binary> {
    let mut processes = Vec::new();
    for _ in 0..count {
        processes.push(Binary::serve(&format!("store: {{ directory: '{}' }}\n{yaml}", directory.display())).await);
    }
    processes
}
