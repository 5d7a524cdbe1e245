//! Limits on heads and trailers: the same in both versions of HTTP, from clients and from origins.

use crate::support::client::get;
use crate::support::h2_client::request;
use crate::support::{Alpn, Origin, Proxy, Reply, Seen};

/// Number and length of fields: more than 64 KiB, far more, and more than 1,024 fields.
const HEADS: [(usize, usize); 4] = [(1, 70_000), (80, 1000), (300, 1000), (1100, 9)];
/// More than 16 KiB, more than 64 KiB, and more than 1,024 fields.
const TRAILERS: [(usize, usize); 3] = [(20, 1000), (90, 1000), (1100, 1)];

fn name(number: usize) -> http::HeaderName {
    format!("x-{number}").parse().unwrap()
}

/// The page at a.localhost, and the robots.txt at b.localhost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn origins_have_the_same_limits_in_both_versions() {
    let all = HEADS.map(|limit| (limit, false)).into_iter().chain(TRAILERS.map(|limit| (limit, true)));
    let told = async |alpn, (count, length), trails| {
        let add = move |reply: Reply, number| match trails {
            true => reply.trailer(name(number).as_str(), &"v".repeat(length)),
            false => reply.field(name(number).as_str(), "v".repeat(length)),
        };
        let conduct = move |seen: &Seen| match (&*seen.path(), seen.host.starts_with("a.")) {
            ("/robots.txt", true) => Reply::text(""),
            _ => (0..count).fold(Reply::text("#"), add),
        };
        let (origin, proxy) = (Origin::https(alpn, conduct).await, Proxy::start("").await);
        let client = proxy.h2(&origin, "a.localhost").await;
        let mut pages = Vec::new();
        for _ in 0..4 {
            let page = client.send(request("GET", &origin.url("/x")), true).await.response().await.ok();
            pages.push(page.map(|page| (page.status(), page.field("proxy-status").map(str::to_owned))));
        }
        let refused = proxy.h2(&origin, "b.localhost").await.get(&origin.url_at("b.localhost", "/x")).await.text();
        let (_, why) = refused.split_once("could not be read (").unwrap_or_else(|| panic!("{refused}"));
        ((pages, why.split(')').next().map(str::to_owned)), origin.connections())
    };
    for (limit, trails) in all {
        let (http1, _) = told(Alpn::H1, limit, trails).await;
        let (http2, connections) = told(Alpn::H2, limit, trails).await;
        assert!(connections <= 4, "{limit:?}: one for each host, not for each page: {connections}");
        assert_eq!(http2, http1, "{limit:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_have_the_same_limits_in_both_versions() {
    let origin = Origin::tls_site(Alpn::Both, "").await;
    let proxy = Proxy::start("").await;
    let host = origin.authority("a.localhost");
    let h2 = proxy.h2(&origin, "a.localhost").await;
    for (count, length) in [HEADS[1], HEADS[3]] {
        let lines: String = (0..count).map(|n| format!("X-{n}: {}\r\n", "v".repeat(length))).collect();
        let mut http1 = proxy.tls(&origin, "a.localhost", &[b"http/1.1"]).await;
        http1.try_send(get("/x", &host).replace("Accept: */*\r\n", &lines)).await.ok();
        let mut large = request("GET", &origin.url("/x"));
        for n in 0..count {
            large.headers_mut().insert(name(n), "v".repeat(length).parse().unwrap());
        }
        let (http1, http2) = (http1.head().await, h2.send(large, true).await.response().await.unwrap().head);
        assert_eq!(
            (http2.status(), http2.field("proxy-status"), http2.proxy_error()),
            (http1.status(), http1.field("proxy-status"), http1.proxy_error())
        );
    }
    assert!(origin.log.pages().is_empty());
    for (count, length) in TRAILERS {
        let lines: String = (0..count).map(|n| format!("X-{n}: {}\r\n", "v".repeat(length))).collect();
        let mut http1 = proxy.tls(&origin, "a.localhost", &[b"http/1.1"]).await;
        let chunked = format!("POST /x HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n{lines}\r\n");
        http1.try_send(chunked).await.ok();
        let mut pending = h2.send(request("POST", &origin.url("/x")), false).await;
        let trailer = |n| (name(n), "v".repeat(length).parse().unwrap());
        pending.trailers((0..count).map(trailer).collect()).unwrap();
        let (http1, http2) = (http1.head().await, pending.response().await.unwrap().head);
        assert_eq!(
            (http2.status(), http2.field("proxy-status")),
            (http1.status(), http1.field("proxy-status")),
            "{count} {length}"
        );
        assert_eq!(http1.status(), 400);
    }
}
