//! The harness of the end-to-end tests: origins that log every byte and misbehave on request, raw clients, the real curl, and the proxy
//! itself, in this process or as the built binary. Loopback and port 0 only.

pub mod authority;
mod bad_link;
pub mod binary;
pub mod certs;
pub mod client;
pub mod curl;
pub mod h2_client;
pub mod message;
pub mod origin;
pub mod origin_h1;
pub mod origin_h2;
pub mod origin_log;
pub mod parent;
pub mod pattern;
pub mod proxy;
pub mod raw_origin;
pub mod redis;
pub mod refusal;
pub mod relay;
pub mod reply;
pub mod stamped;
pub mod strict;
mod tests;
pub mod websocket;

pub use authority::{TestCa, test_ca};
pub use binary::Binary;
pub use client::Client;
pub use curl::curl;
pub use h2_client::H2Client;
pub use message::Response;
pub use origin::{Alpn, Origin};
pub use origin_log::{Protocol, Seen};
pub use parent::{Conduct, Parent};
pub use proxy::{ADMIN_TOKEN, Proxy};
pub use raw_origin::RawOrigin;
pub use refusal::{assert_problem, assert_refused};
pub use reply::Reply;

use std::net::TcpListener;
use std::time::Duration;

/// How long anything that is not paced may take before the test counts as hung. Generous, as the machine is noisy.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Awaits `future`; panics with `what` if it takes too long.
pub async fn within<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("nothing after {PATIENCE:?}: {what}"),
    }
}

/// Runs all of these concurrently, so that their waits overlap.
pub async fn at_once<T: Send + 'static>(cases: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>) {
    cases.into_iter().collect::<tokio::task::JoinSet<T>>().join_all().await;
}

/// Polls until `condition` is true.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    within(what, async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// A port that is free at present, for a server that cannot use port 0. Outside the range of ephemeral ports, so that it is still free
/// when the server restarts.
pub fn free_port() -> u16 {
    // The second port is the bus of a Redis cluster node.
    let is_free =
        |port: &u16| [*port, port + 10_000].map(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) == [true; 2];
    std::iter::repeat_with(|| fastrand::u16(20_000..32_000)).find(is_free).expect("they cannot all be taken")
}

/// A port on which nothing listens. An ephemeral port that was closed again does not qualify: another test may get it, and a process
/// being started may hold it open until exec.
pub const CLOSED_PORT: u16 = 1;
