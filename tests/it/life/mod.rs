//! The life of a robots.txt, end to end: how it is had from origins that do their worst, how it grows old, and how it
//! outlives the process.

mod answers;
mod bodies;
mod copies;
mod fetching;
mod full_disk;
mod hops;
mod memory;
mod refresh;
mod restart;
mod robots;
mod sharing;
mod silent;
mod slow_disk;
mod swap;
mod unreachable;

use crate::support::{Origin, Proxy, Reply, Seen};

pub const KEEP_OUT: &str = "User-agent: *\nDisallow: /private\n";

/// An origin whose robots.txt is answered by `robots`, and every page with 200.
pub async fn origin(robots: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Origin {
    Origin::http(site(robots)).await
}

fn site(robots: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> impl Fn(&Seen) -> Reply + Send + Sync + 'static {
    move |seen| match seen.path().as_str() {
        "/open" | "/private" | "/late" => Reply::text("page"),
        _ => robots(seen),
    }
}

/// The effect of the answer to robots.txt on pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Means {
    /// [`KEEP_OUT`] was read.
    Rules,
    AllowAll,
    Unreachable,
}

async fn meaning(proxy: &Proxy, origin: &Origin) -> Means {
    let [private, open] = [origin.url("/private"), origin.url("/open")];
    let (private, open) = if private.starts_with("https:") {
        // Over HTTP/2, if the origin speaks it.
        let client = proxy.h2(origin, "a.localhost").await;
        (client.get(&private).await, client.get(&open).await)
    } else {
        (proxy.get(&private).await, proxy.get(&open).await)
    };
    match (private.status(), open.status()) {
        (403, 200) => Means::Rules,
        (200, 200) => Means::AllowAll,
        (503, 503) => {
            assert!(private.text().contains("robots-unreachable"), "{}", private.text());
            let pages = origin.log.targets().into_iter().filter(|page| page == "/private" || page == "/open");
            assert_eq!(pages.count(), 0, "an unreachable robots.txt disallows everything");
            Means::Unreachable
        }
        other => panic!("{other:?}: {} {}", private.text(), open.text()),
    }
}
