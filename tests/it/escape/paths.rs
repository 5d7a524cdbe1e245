//! A disallowed URL by another spelling, method, field or identity.

use super::siege::{Siege, WAYS, Way, refused, shoot};
use crate::support::{Alpn, Origin, Proxy, Reply, h2_client};

const ROBOTS: &str = "User-agent: *\nDisallow: /secret\nDisallow: /*.pdf$\nDisallow: /caf\u{e9}\nDisallow: /*?token=\n\
    Disallow: /*?raw[\nDisallow: /pipe%7Cd\n\nUser-agent: GoodBot\nAllow: /\n";

/// Targets that a server may take for a disallowed one.
const TARGETS: &[(&str, &str)] = &[
    ("as it is", "/secret/x"),
    ("its own name", "/secret"),
    ("with a query", "/secret?a=b"),
    ("with an empty query", "/secret?"),
    ("with parameters", "/secret;v=1"),
    ("longer", "/secretary"),
    ("the first letter encoded", "/%73ecret/x"),
    ("a letter in the middle encoded", "/sec%72et/x"),
    ("every letter encoded", "/%73%65%63%72%65%74/x"),
    ("a segment of one dot", "/./secret/x"),
    ("two segments of one dot", "/././secret/x"),
    ("up from the root", "/../secret/x"),
    ("far up from the root", "/../../../../secret/x"),
    ("up from an allowed directory", "/public/../secret/x"),
    ("up from two", "/public/a/../../secret/x"),
    ("up and down", "/public/../public/../secret/x"),
    ("dots encoded, lower case", "/public/%2e%2e/secret/x"),
    ("dots encoded, upper case", "/public/%2E%2E/secret/x"),
    ("the first dot encoded", "/public/%2e./secret/x"),
    ("the second dot encoded", "/public/.%2e/secret/x"),
    ("one dot encoded", "/%2e/secret/x"),
    ("dots and a letter encoded", "/public/%2e%2e/%73ecret"),
    ("out and in again", "/secret/../secret/x"),
    ("out of it, though it is named", "/secret/../public"),
    ("out of it, dots encoded", "/secret/%2e%2e/public"),
    ("two slashes", "//secret/x"),
    ("two slashes later", "/public/..//secret/x"),
    ("an encoded slash", "/%2fsecret/x"),
    ("an encoded slash after the name", "/secret%2fx?y"),
    ("an encoded slash on the way up", "/public/..%2fsecret/x"),
    ("dots and a slash encoded", "/public/%2e%2e%2Fsecret/x"),
    ("after what may be a host", "//public/secret/x"),
    ("parameters on the way up", "/public/..;a=b/secret/x"),
    ("with a fragment", "/secret/x#/public"),
    ("with a fragment that goes up", "/secret#/../public"),
    ("a slash in the query", "/secret?/../public"),
    ("dots in the query", "/secret?../../public"),
    ("the end of a pattern", "/report.pdf"),
    ("the end encoded", "/report.pd%66"),
    ("the dot of the end encoded", "/report%2epdf"),
    ("the end and a fragment", "/report.pdf#page=1"),
    ("the end and an empty fragment", "/report.pdf#"),
    ("bytes beyond ASCII, encoded", "/caf%C3%A9"),
    ("bytes beyond ASCII, encoded in lower case", "/caf%c3%a9"),
    ("bytes beyond ASCII, raw", "/caf\u{e9}"),
    ("bytes beyond ASCII, one of them raw", "/public/../caf\u{e9}"),
    ("a query that is disallowed", "/public?token=1"),
    ("a query that is disallowed, encoded", "/public?%74oken=1"),
    ("a query that is disallowed, dots before it", "/x/../public?token=1"),
    ("a bracket in the query", "/public?raw[0]=1"),
    ("a bracket in the query, encoded", "/public?raw%5B0%5D=1"),
    ("a bar", "/pipe|d"),
    ("a bar, encoded in lower case", "/pipe%7cd"),
    ("a byte that is not UTF-8", "/sec%80ret/x"),
    ("an overlong slash", "/%c0%afsecret/x"),
    ("a slash encoded as UTF-16", "/public/..%u002fsecret/x"),
];

/// Targets that are none at all.
const MALFORMED: &[(&str, &str)] = &[
    ("a tab", "/public\t/../secret/x"),
    ("a space", "/public /secret/x"),
    ("a NUL", "/secret\0x"),
    ("a bell", "/secret\x07x"),
    ("a delete", "/secret\x7fx"),
    ("a bare CR", "/public\r/secret"),
    ("a bare LF", "/public\n/secret"),
    ("a vertical tab", "/public\x0b/secret"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn respelled_disallowed_paths_are_refused() {
    let plain = Origin::site(ROBOTS).await;
    let tls = Origin::tls_site(Alpn::Both, ROBOTS).await;
    let proxy = Proxy::start("").await;
    let mut siege = Siege::default();
    for way in WAYS {
        let origin = if way == Way::Tls { &tls } else { &plain };
        for (tables, status) in [(TARGETS, 403), (MALFORMED, 400)] {
            for (name, path) in tables {
                let mut client = way.open(&proxy, origin).await;
                let host = origin.authority("a.localhost");
                let target = way.target(origin, path);
                let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: TestBot\r\n\r\n");
                let answer = shoot(&mut client, request).await;
                siege.tried(format!("{way:?}, {name}"), refused(answer.as_ref(), &[status]));
            }
        }
    }
    let h2 = proxy.h2(&tls, "a.localhost").await;
    for (name, path) in TARGETS.iter().filter(|(_, path)| path.is_ascii()) {
        let answer = h2.get(&tls.url(path)).await;
        siege.tried(format!("h2, {name}"), refused(Some(&answer), &[403]));
    }
    siege.withstood(170);
    assert_eq!((plain.log.pages(), tls.log.pages()), (vec![], vec![]));
}

/// Only HTTP/1 can carry such bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disallowed_paths_with_non_utf8_bytes_are_refused() {
    let latin = b"User-agent: *\nDisallow: /\xe9tudes/\nDisallow: /%FF/\n";
    let origin = Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(latin),
        _ => Reply::text("page"),
    });
    let (origin, proxy) = (origin.await, Proxy::start("").await);
    let host = origin.authority("a.localhost");
    for path in [&b"/\xe9tudes/x"[..], b"/%E9tudes/x", b"/%e9tudes/x", b"/\xff/x", b"/a/../\xe9tudes/x"] {
        let mut client = Way::Plain.open(&proxy, &origin).await;
        let target = [origin.url("").trim_end_matches('/').as_bytes(), path].concat();
        let request =
            [b"GET ", &target[..], b" HTTP/1.1\r\nHost: ", host.as_bytes(), b"\r\nUser-Agent: TestBot\r\n\r\n"];
        client.send(request.concat()).await;
        assert_eq!(client.response().await.status(), 403, "{}", path.escape_ascii());
    }
    assert!(origin.log.pages().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disallowed_paths_are_refused_for_every_method() {
    let origin = Origin::tls_site(Alpn::Both, ROBOTS).await;
    let proxy = Proxy::start("").await;
    let mut siege = Siege::default();
    for method in [
        "GET",
        "HEAD",
        "POST",
        "PUT",
        "DELETE",
        "OPTIONS",
        "TRACE",
        "PATCH",
        "PROPFIND",
        "PURGE",
        "SEARCH",
        "get",
        "X-ANYTHING",
        "PRI",
        "QUERY",
    ] {
        let mut client = proxy.client().await;
        let (url, host) = (origin.url("/secret"), origin.authority("a.localhost"));
        client.send(format!("{method} {url} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        let answer = client.response_to(method).await;
        siege.tried(method, refused(Some(&answer), &[403, 400]));
        let request = h2_client::request(method, &url);
        let answer = proxy.h2(&origin, "a.localhost").await.exchange(request, b"").await;
        siege.tried(format!("h2, {method}"), answer.ok().and_then(|answer| refused(Some(&answer), &[403, 400])));
    }
    siege.withstood(30);
    assert_eq!(origin.log.pages(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_fields_do_not_lift_a_refusal() {
    let origin = Origin::site(ROBOTS).await;
    let proxy = Proxy::start("").await;
    let mut siege = Siege::default();
    for field in [
        "Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13",
        "Upgrade: h2c\r\nConnection: upgrade, http2-settings\r\nHTTP2-Settings: AAAA",
        "Expect: 100-continue",
        "Range: bytes=0-1",
        "Prefer: wait=0",
        "Cache-Control: no-cache",
        "Pragma: no-cache",
        "If-None-Match: \"x\"",
        "Max-Forwards: 1",
        "Max-Forwards: 0",
        "Connection: host",
        "Connection: user-agent",
        "Connection: content-length",
        "Proxy-Connection: close",
        "X-HTTP-Method-Override: OPTIONS",
        "Purpose: prefetch",
        "Sec-Fetch-Dest: image",
        "Forwarded: for=127.0.0.1;host=b.localhost",
        "Proxy-Status: politely",
        "Via: 1.1 other",
        "Referer: http://a.localhost/robots.txt",
        "Accept: text/plain, */*",
    ] {
        let mut client = proxy.client().await;
        let (url, host) = (origin.url("/secret"), origin.authority("a.localhost"));
        let answer = shoot(&mut client, format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{field}\r\n\r\n")).await;
        siege.tried(field, refused(answer.as_ref(), &[403]));
    }
    siege.withstood(22);
    assert_eq!(origin.log.pages(), Vec::<String>::new());
}

/// Some servers serve the URL in these fields. Method override fields pass, as rules apply to every method.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn url_override_fields_are_removed() {
    let origin = Origin::site(ROBOTS).await;
    let proxy = Proxy::start("").await;
    let mut client = proxy.client().await;
    let (url, host) = (origin.url("/public"), origin.authority("a.localhost"));
    let fields = "X-Original-URL: /secret\r\nX-Rewrite-URL: /secret\r\nX-HTTP-Method-Override: PUT\r\n\
                  X_Original_URL: /secret\r\nX-Rewrite_URL: /secret\r\n";
    client.send(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n")).await;
    assert_eq!(client.response_to("GET").await.status(), 200);
    let seen = origin.log.one("/public");
    assert_eq!((seen.field("x-original-url"), seen.field("x-rewrite-url")), (None, None));
    // To CGI and WSGI these are the same two.
    assert_eq!((seen.field("x_original_url"), seen.field("x-rewrite_url")), (None, None));
    assert_eq!(seen.field("x-http-method-override"), Some("PUT"));
}

/// CGI and WSGI read `User_Agent` as User-Agent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_read_as_user_agent_by_applications_are_removed() {
    let origin = Origin::tls_site(Alpn::Both, ROBOTS).await;
    for settings in ["", "identity: { product_tokens: [TestBot] }"] {
        let proxy = Proxy::start(settings).await;
        let mut request = h2_client::request("GET", &origin.url("/public"));
        request.headers_mut().insert("user_agent", http::HeaderValue::from_static("GoodBot"));
        let answer = proxy.h2(&origin, "a.localhost").await.exchange(request, b"").await;
        assert_eq!(answer.unwrap().status(), 200);
        let mut client = Way::Tls.open(&proxy, &origin).await;
        let (target, host) = (Way::Tls.target(&origin, "/public"), origin.authority("a.localhost"));
        let fields = format!("Host: {host}\r\nUser-Agent: TestBot\r\nUser_Agent: GoodBot\r\n");
        client.send(format!("GET {target} HTTP/1.1\r\n{fields}\r\n")).await;
        assert_eq!(client.response_to("GET").await.status(), 200);
    }
    let seen = origin.log.of("/public");
    assert_eq!(seen.len(), 4);
    assert!(seen.iter().all(|seen| seen.field("user-agent").unwrap().starts_with("TestBot")));
    assert!(seen.iter().all(|seen| seen.field("user_agent").is_none()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configured_product_token_overrides_the_user_agent() {
    let origin = Origin::site(ROBOTS).await;
    let proxy = Proxy::start("identity: { product_tokens: [TestBot] }").await;
    let mut siege = Siege::default();
    for agent in [
        "User-Agent: GoodBot/1.0",
        "User-Agent: goodbot",
        "User-Agent: TestBot GoodBot",
        "User-Agent: GoodBot\r\nUser-Agent: TestBot",
        "User-Agent: TestBot\r\nUser-Agent: GoodBot",
        "User-Agent:",
        "User-Agent: GoodBot\r\nConnection: user-agent",
        "X-Forwarded-For: 1.1.1.1",
    ] {
        let mut client = proxy.client().await;
        let (url, host) = (origin.url("/secret"), origin.authority("a.localhost"));
        let answer = shoot(&mut client, format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{agent}\r\n\r\n")).await;
        siege.tried(agent, refused(answer.as_ref(), &[400, 403]));
    }
    siege.withstood(8);
    assert_eq!(origin.log.pages(), Vec::<String>::new());
}

/// Without a configured name, the User-Agent that is sent is judged, including repeated fields.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_user_agent_fields_are_all_judged() {
    let robots =
        "User-agent: FirstBot\nDisallow:\n\nUser-agent: SecondBot\nDisallow: /secret\n\nUser-agent: *\nDisallow: /\n";
    let origin = Origin::site(robots).await;
    let proxy = Proxy::start("").await;
    for agents in ["User-Agent: FirstBot\r\nUser-Agent: SecondBot", "User-Agent: SecondBot\r\nUser-Agent: FirstBot"] {
        let (url, host) = (origin.url("/secret"), origin.authority("a.localhost"));
        let mut client = proxy.client().await;
        let answer = shoot(&mut client, format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{agents}\r\n\r\n")).await;
        assert_eq!(refused(answer.as_ref(), &[400, 403]), None, "{agents}");
    }
    assert_eq!(origin.log.pages(), Vec::<String>::new());
}
