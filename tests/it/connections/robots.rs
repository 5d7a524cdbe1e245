//! robots.txt and pages go over the same connections.

use super::{page, route, settings, upstream};
use crate::support::{Alpn, Origin, Reply};
use politely::gate::Gate;
use politely::policy::{Authority, HostRules, Request};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Has the gate learn the rules of an origin.
async fn learn(gate: &Gate, url: &str) -> Option<u16> {
    let authority = Authority::from_url(url).unwrap();
    gate.explain(&Request::new(&authority, b"/"), &HostRules::new(Arc::default()), None)
        .await
        .expect("an explanation")
        .robots
        .status
}

fn gate(upstream: &Arc<politely::upstream::Upstream>) -> Gate {
    Gate::new(Arc::new(arc_swap::ArcSwap::new(settings(""))), upstream.clone())
}

#[tokio::test]
async fn connection_opened_for_robots_txt_carries_the_first_page() {
    let rules = "User-agent: *\nDisallow: /no\n";
    let missing = || {
        |seen: &crate::support::Seen| match seen.path().as_str() {
            "/robots.txt" => Reply::status(404).body("<p>not here</p>"),
            target => Reply::text(format!("page {target}")),
        }
    };
    for (origin, status) in [
        (Origin::site(rules).await, 200),
        (Origin::tls_site(Alpn::H1, rules).await, 200),
        (Origin::tls_site(Alpn::Both, rules).await, 200),
        (Origin::http(missing()).await, 404),
        (Origin::https(Alpn::Both, missing()).await, 404),
    ] {
        let upstream = Arc::new(upstream(""));
        assert_eq!(learn(&gate(&upstream), &origin.url("")).await, Some(status));
        assert!(page(&route(&upstream, &origin.url("")).await, "/page").await, "{}", origin.url(""));
        assert_eq!(origin.connections(), 1);
    }
}

/// An origin that closes a reused connection at the next request has not failed.
#[tokio::test]
async fn robots_fetch_on_a_dead_reused_connection_is_retried() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let origin = Origin::http(move |seen| match (count.fetch_add(1, Ordering::Relaxed), seen.path().as_str()) {
        (0, target) => Reply::text(format!("page {target}")),
        (1, _) => Reply::reset(),
        _ => Reply::text("User-agent: *\nDisallow: /no\n"),
    })
    .await;
    let upstream = Arc::new(upstream(""));
    page(&route(&upstream, &origin.url("")).await, "/").await;
    assert_eq!(learn(&gate(&upstream), &origin.url("")).await, Some(200));
    assert_eq!((asked.load(Ordering::Relaxed), origin.connections()), (3, 2));
}
