//! Fields that end here and fields that are ours (RFC 9110 §7.6.1, §7.6.3; RFC 9209).

use crate::support::client::get;
use crate::support::h2_client::request;
use crate::support::{Alpn, Origin, Proxy, Reply, Seen};

const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "upgrade",
    "x-hop",
    "x-drop",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hop_by_hop_request_fields_are_removed() {
    let plain = Origin::site("").await;
    let tls = Origin::tls_site(Alpn::H1, "").await;
    let h2 = Origin::tls_site(Alpn::H2, "").await;
    let proxy = Proxy::start("").await;
    let fields = "Connection: x-hop, close, X-Drop\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\n\
                  Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic c2VjcmV0\r\nProxy-Authenticate: Basic\r\n\
                  Upgrade: h2c, foo/2\r\nTE: trailers, deflate\r\nX-Hop: 1\r\nX-Drop: 2\r\nX-Stay: 3\r\nAccept";
    let send =
        |target: String, origin: &Origin| get(&target, &origin.authority("a.localhost")).replace("Accept", fields);
    let mut client = proxy.client().await;
    client.send(send(plain.url("/x"), &plain)).await;
    assert_eq!(client.response().await.status(), 200);
    for origin in [&tls, &h2] {
        let mut client = proxy.tls(origin, "a.localhost", &[b"http/1.1"]).await;
        client.send(send("/x".to_owned(), origin)).await;
        assert_eq!(client.response().await.status(), 200);
    }
    for origin in [&plain, &tls, &h2] {
        let seen = origin.log.one("/x");
        assert_eq!(seen.field("x-stay"), Some("3"));
        let left: Vec<_> = HOP_BY_HOP.iter().filter(|name| is_left(&seen, name)).collect();
        assert!(left.is_empty(), "{left:?} reached the origin: {:?}", seen.fields);
        // The only member that a proxy may pass, and that h2 allows (RFC 9113 §8.2.2).
        assert!(seen.field("te").is_none_or(|te| te == "trailers"), "{:?}", seen.fields);
    }
}

/// RFC 7838: for a client of a proxy, Alt-Svc is a way around it, to another authority or HTTP/3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alt_svc_is_removed_in_both_directions() {
    let answer = |_: &Seen| {
        let answer = Reply::text("x").field("Alt-Svc", "h3=\":443\"; ma=86400").field("X-Stay", "3");
        answer.trailer("alt-svc", "h2=\"other.example:443\"").trailer("x-sum", "9")
    };
    let plain = Origin::http(answer).await;
    let tls = [Origin::https(Alpn::H1, answer).await, Origin::https(Alpn::H2, answer).await];
    let proxy = Proxy::start("hosts: { '*': { robots: ignore } }").await;
    let mut answers = Vec::new();
    let with = |target: &str, origin: &Origin| {
        get(target, &origin.authority("a.localhost"))
            .replace("Accept", "Alt-Used: a.localhost\r\nTE: trailers\r\nAccept")
    };
    let mut client = proxy.client().await;
    client.send(with(&plain.url("/x"), &plain)).await;
    answers.push(client.response().await);
    for origin in &tls {
        let mut client = proxy.tls(origin, "a.localhost", &[b"http/1.1"]).await;
        client.send(with("/x", origin)).await;
        answers.push(client.response().await);
        let mut asked = request("GET", &origin.url("/x"));
        asked.headers_mut().append("alt-used", "a.localhost".parse().unwrap());
        let client = proxy.h2(origin, "a.localhost").await;
        answers.push(client.send(asked, true).await.response().await.unwrap());
    }
    for answer in answers {
        assert_eq!((answer.status(), answer.field("x-stay")), (200, Some("3")));
        assert!(answer.head.all("alt-svc").is_empty(), "{:?}", answer.head);
        assert!(answer.trailers.iter().all(|(name, _)| name == "x-sum"), "{:?}", answer.trailers);
    }
    for origin in tls.iter().chain([&plain]) {
        assert!(origin.log.all().iter().all(|seen| seen.all("alt-used").is_empty()));
    }
}

/// `Connection: keep-alive` of the proxy's own is its business.
fn is_left(seen: &Seen, name: &str) -> bool {
    let all = seen.all(name);
    let ours = name == "connection" && all == ["keep-alive"];
    !all.is_empty() && !ours
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hop_by_hop_response_fields_are_removed() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => Reply::text("x")
            .field("Connection", "keep-alive, X-Hop")
            .field("Keep-Alive", "timeout=5")
            .field("Proxy-Connection", "keep-alive")
            .field("Proxy-Authenticate", "Basic realm=\"not ours\"")
            .field("Upgrade", "h2,h2c")
            .field("Cache-Status", "other; hit, politely; hit")
            .field("X-Hop", "1")
            .field("X-Stay", "3"),
    })
    .await;
    let proxy = Proxy::start("").await;
    let response = proxy.get(&origin.url("/x")).await;
    assert_eq!((response.status(), response.field("x-stay")), (200, Some("3")));
    assert_eq!(response.head.all("cache-status"), ["other; hit"], "what is said in our name is ours to say");
    for name in HOP_BY_HOP {
        let all = response.head.all(name);
        let ours = name == "connection" && all == ["keep-alive"] || name == "keep-alive" && !all.contains(&"timeout=5");
        assert!(all.is_empty() || ours, "{name}: {all:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_fields_do_not_reach_h2_clients() {
    let origin =
        Origin::https(Alpn::H1, |_| Reply::text("x").field("Connection", "keep-alive, X-Hop").field("X-Hop", "1"))
            .await;
    let proxy = Proxy::start("").await;
    let response = proxy.h2(&origin, "a.localhost").await.get(&origin.url("/x")).await;
    assert_eq!((response.status(), response.text().as_str()), (200, "x"));
    for name in ["connection", "keep-alive", "transfer-encoding", "x-hop"] {
        assert!(response.head.all(name).is_empty(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxy_authorization_is_never_forwarded() {
    let origin = Origin::tls_site(Alpn::Both, "").await;
    let proxy = Proxy::start("").await;
    let authority = origin.authority("a.localhost");
    let mut client = proxy.client().await;
    client
        .send(format!(
            "CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\nProxy-Authorization: Basic c2VjcmV0\r\n\r\n"
        ))
        .await;
    assert_eq!(client.head().await.status(), 200);
    let mut client = client.tls("a.localhost", &proxy.ca_pem_path(), &[b"http/1.1"]).await;
    client.send(get("/1", &authority).replace("Accept", "Proxy-Authorization: Basic c2VjcmV0\r\nAccept")).await;
    assert_eq!(client.response().await.status(), 200);
    let mut inside = request("GET", &origin.url("/2"));
    inside.headers_mut().append("proxy-authorization", "Basic c2VjcmV0".parse().unwrap());
    let h2 = proxy.h2(&origin, "a.localhost").await;
    assert_eq!(h2.send(inside, true).await.response().await.unwrap().status(), 200);
    assert_eq!(origin.log.pages(), ["/1", "/2"]);
    for seen in origin.log.all() {
        assert!(!format!("{:?}", seen.fields).contains("c2VjcmV0"), "{:?}", seen.fields);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn via_is_added_and_no_field_identifies_the_client() {
    let plain = Origin::http(|_| Reply::text("x").field("Via", "1.1 cdn")).await;
    let tls = Origin::https(Alpn::Both, |_| Reply::text("x").field("via", "1.1 cdn")).await;
    let proxy = Proxy::start("").await;
    let mut client = proxy.client().await;
    client
        .send(get(&plain.url("/x"), &plain.authority("a.localhost")).replace("Accept", "Via: 1.0 fred\r\nAccept"))
        .await;
    let over_plain = client.response().await;
    let over_h2 = proxy.h2(&tls, "a.localhost").await.get(&tls.url("/x")).await;
    assert_eq!(over_h2.status(), 200);
    for response in [over_plain, over_h2] {
        let via = response.head.all("via").join(", ");
        assert!(via.starts_with("1.1 cdn, ") || via.starts_with("2 cdn, "), "{via}");
    }
    let sent = plain.log.one("/x").all("via").join(", ");
    assert!(sent.starts_with("1.0 fred, 1.1 "), "{sent}");
    assert!(tls.log.one("/x").all("via").join(", ").starts_with("2"), "the client spoke h2");
    for seen in plain.log.all().into_iter().chain(tls.log.all()) {
        for name in ["x-forwarded-for", "forwarded", "x-real-ip", "x-forwarded-proto", "x-forwarded-host"] {
            assert!(seen.all(name).is_empty(), "{name} on {}", seen.path());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn origin_proxy_status_in_our_name_is_removed() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => Reply::status(403)
            .field("Proxy-Status", "politely; error=http_request_denied, cdn.example; error=dns_error")
            .field("Proxy-Status", "\"politely\"; error=http_request_denied"),
    })
    .await;
    let proxy = Proxy::start("").await;
    let response = proxy.get(&origin.url("/x")).await;
    assert_eq!((response.status(), response.head.proxy_error()), (403, None), "{:?}", response.head);
    assert!(response.head.all("proxy-status").join(", ").contains("cdn.example"), "{:?}", response.head);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_fields_are_forwarded() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start("").await;
    let url = origin.url("/x");
    let got = proxy
        .curl(&[
            "-A",
            "Mine/2.0 (+https://example.com)",
            "-H",
            "Authorization: Bearer x",
            "-H",
            "Cookie: a=1; b=2",
            "-H",
            "Accept-Encoding: gzip",
            "-H",
            "Range: bytes=0-3",
            "-H",
            "X-Forwarded-For: 192.0.2.1",
            &url,
        ])
        .await;
    assert_eq!(got.status(), 200);
    let seen = origin.log.one("/x");
    let fields = ["user-agent", "authorization", "cookie", "accept-encoding", "range", "x-forwarded-for"];
    let values = fields.map(|name| seen.field(name).unwrap_or_default());
    assert_eq!(values, ["Mine/2.0 (+https://example.com)", "Bearer x", "a=1; b=2", "gzip", "bytes=0-3", "192.0.2.1"]);
}
