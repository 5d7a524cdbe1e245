//! The cache that all clients share (docs/cache.md), end to end.

mod disk;
mod never;
mod record;
mod served;
mod together;
mod usage;

use crate::support::{Client, Origin, Proxy, Reply, Response, Seen};
use std::path::Path;

/// A proxy with a cache, in a directory that stays.
async fn caching(yaml: &str) -> (Proxy, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    (Proxy::start(&with_cache(directory.path(), yaml)).await, directory)
}

fn with_cache(directory: &Path, yaml: &str) -> String {
    format!("cache: {{ directory: '{}', size: 100MiB }}\n{yaml}", directory.display())
}

/// Pages by `page`, and an empty robots.txt.
async fn pages(page: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Origin {
    Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => page(seen),
    })
    .await
}

fn fresh(body: &str) -> Reply {
    Reply::text(body).field("Cache-Control", "max-age=600").field("ETag", "\"a\"")
}

/// On one connection, where each is over before the next begins.
async fn with(client: &mut Client, origin: &Origin, method: &str, path: &str, fields: &str) -> Response {
    let (url, host) = (origin.url(path), origin.authority("a.localhost"));
    client.send(format!("{method} {url} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n")).await;
    client.response_to(method).await
}

fn is_hit(response: &Response) -> bool {
    let all = response.head.all("cache-status");
    all.last().is_some_and(|said| said.starts_with("politely; hit"))
}
