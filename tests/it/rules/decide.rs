//! Which rules bind which request, and what the refusal says (RFC 9309 §2.2, RFC 9457, RFC 9209).

use crate::support::client::get;
use crate::support::{Origin, Proxy, assert_problem, assert_refused};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_names_the_rule_and_its_line() {
    let origin = Origin::site("# ours\nUser-agent: *\nAllow: /private/open\nDisallow: /private # keep out\n").await;
    let proxy = Proxy::start("").await;
    let got = proxy.curl(&["-A", "ExampleBot/1.0", &origin.url("/private/x?y")]).await;
    assert_eq!((got.code, got.status()), (0, 403));
    let head = got.head();
    assert_eq!(head.proxy_error().as_deref(), Some("http_request_denied"));
    assert!(head.proxy_status_parameter("details").is_some_and(|details| !details.is_empty()), "{head:?}");
    assert_eq!(head.field("content-type"), Some("application/problem+json"));
    let problem = got.problem();
    assert_problem(&problem, 403, "robots-disallowed");
    assert_eq!(problem["url"], origin.url("/private/x?y"));
    assert_eq!(problem["robots_url"], origin.url("/robots.txt"));
    assert_eq!(problem["line"], 4);
    assert!(problem["rule"].as_str().unwrap().ends_with("/private"), "{problem}");
    assert!(problem["product_token"].as_str().unwrap().eq_ignore_ascii_case("ExampleBot"), "{problem}");
    assert_eq!(origin.log.targets(), ["/robots.txt"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusal_contains_a_hint_in_json_and_html() {
    let origin = Origin::site("User-agent: *\nDisallow: /no\nCrawl-delay: 100\n").await;
    let proxy = Proxy::start("pace: { max_wait: 1s }\negress: { hosts: [localhost, 127.0.0.1, a.localhost] }").await;
    let json = async |url: &str| proxy.curl(&[url]).await.problem()["hint"].as_str().unwrap_or_default().to_owned();
    assert!(json(&origin.url("/no")).await.starts_with("Do not try this URL again, and use another page or source: "));
    assert_eq!(proxy.get(&origin.url("/1")).await.status(), 200);
    let wait = json(&origin.url("/2")).await;
    let seconds = wait.strip_prefix("Wait ").and_then(|rest| rest.split_once(" s, then try again")).expect(&wait).0;
    assert!((90..=100).contains(&seconds.parse().unwrap_or(0)), "{wait}");
    let unlisted = "http://b.example/";
    let told = json(unlisted).await;
    assert!(
        told.ends_with("the operator's allowlist has localhost, 127.0.0.1, a.localhost (`egress.hosts`)."),
        "{told}"
    );
    let page = proxy.curl(&["-H", "Accept: text/html", unlisted]).await.text();
    let shown = told.replace("`egress.hosts`", "<code>egress.hosts</code>");
    assert!(page.contains(&format!("<p>{shown}</p>")), "{page}");
}

/// wget, apt and many others show only the status line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_line_gives_the_reason() {
    let origin = Origin::site("User-agent: *\nDisallow: /no\nCrawl-delay: 100\n").await;
    let proxy = Proxy::start("pace: { max_wait: 1s }").await;
    let line = async |target: &str| {
        let response = proxy.get(&origin.url(target)).await;
        String::from_utf8_lossy(&response.head.start_line).into_owned()
    };
    assert_eq!(line("/no").await, "HTTP/1.1 403 Disallowed by robots.txt");
    assert_eq!(line("/1").await, "HTTP/1.1 200 OK");
    assert_eq!(line("/2").await, "HTTP/1.1 429 Crawl-delay");
    assert_eq!(line("/robots.txt").await, "HTTP/1.1 200 OK");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn browser_gets_an_html_refusal() {
    let origin = Origin::site("User-agent: *\nDisallow: /<b>\n").await;
    let proxy = Proxy::start("").await;
    let url = origin.url("/%3Cb%3E/x?<script>alert(1)</script>").replace('<', "%3C").replace('>', "%3E");
    for (accept, html) in [
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", true),
        ("*/*", false),
        ("application/json", false),
        ("text/html;q=0.5, application/problem+json", false),
        ("text/html;q=0, */*", false),
    ] {
        let got = proxy.curl(&["-H", &format!("Accept: {accept}"), &url]).await;
        assert_eq!(got.status(), 403);
        let kind = got.head().field("content-type").unwrap().to_owned();
        assert_eq!(kind.starts_with("text/html"), html, "{accept}: {kind}");
        assert_eq!(got.head().proxy_error().as_deref(), Some("http_request_denied"));
        if html {
            let page = got.text();
            assert!(page.contains("robots.txt") && !page.contains("<b>/"), "{page}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connection_stays_open_after_refusals() {
    let origin = Origin::site("User-agent: *\nDisallow: /no\n").await;
    let proxy = Proxy::start("").await;
    let host = origin.authority("a.localhost");
    let mut client = proxy.client().await;
    for _ in 0..3 {
        assert_refused(&client.get(&origin.url("/no"), &host).await, 403, "http_request_denied", "robots-disallowed");
        assert_eq!(client.get(&origin.url("/yes"), &host).await.status(), 200);
    }
    client.send(get(&origin.url("/no"), &host).replacen("GET", "HEAD", 1)).await;
    assert_eq!(client.response_to("HEAD").await.status(), 403);
    client.send(format!("POST {} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 3\r\n\r\nabc", origin.url("/no"))).await;
    assert_eq!(client.response().await.status(), 403);
    assert_eq!(client.get(&origin.url("/yes"), &host).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_body_is_refused_without_harm() {
    let origin = Origin::site("User-agent: *\nDisallow: /no\n").await;
    let proxy = Proxy::start("").await;
    let host = origin.authority("a.localhost");
    let mut client = proxy.client().await;
    client
        .send(format!("POST {} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 10000000\r\n\r\n", origin.url("/no")))
        .await;
    client.send(vec![b'x'; 10_000_000]).await;
    assert_refused(&client.response().await, 403, "http_request_denied", "robots-disallowed");
    assert_eq!(client.get(&origin.url("/yes"), &host).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paths_are_compared_as_in_rfc_9309() {
    let origin = Origin::site(
        "User-agent: *\nDisallow: /private/open\nDisallow: /q?secret\nDisallow: /*.pdf$\nDisallow: /\u{fc}ber\nDisallow: /a%2fb\nAllow: /private/open/door\n",
    )
    .await;
    let proxy = Proxy::start("").await;
    let mut client = proxy.client().await;
    let host = origin.authority("a.localhost");
    for (target, status) in [
        ("/private/open", 403),
        ("/private/%6fpen", 403),
        ("/private/%6Fpen/x", 403),
        ("/private/open/door", 200),
        ("/private/Open", 200),
        ("/q?secret=1", 403),
        ("/q?public=1", 200),
        ("/x/y.pdf", 403),
        ("/x/y.pdf?z", 200),
        ("/%C3%BCber", 403),
        ("/%c3%bcber", 403),
        ("/a%2Fb", 403),
        ("/a/b", 200),
        // Servers resolve dot segments, so neither form may be a way around.
        ("/public/../private/open", 403),
        ("/./private/open", 403),
        ("/public/%2e%2E/private/open", 403),
        ("/private/open/../shut", 403),
        ("/private/x/../../private/%6fpen", 403),
    ] {
        let response = client.get(&origin.url(target), &host).await;
        assert_eq!(response.status(), status, "{target}: {}", response.text());
    }
    assert_eq!(origin.log.pages(), ["/private/open/door", "/private/Open", "/q?public=1", "/x/y.pdf?z", "/a/b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_user_agent_chooses_the_group() {
    let origin = Origin::site("User-agent: FooBot\nDisallow: /foo\n\nUser-agent: *\nDisallow: /rest\n").await;
    let proxy = Proxy::start("").await;
    for (agent, foo, rest) in [
        ("FooBot/2.0 (+http://example.com)", 403, 200),
        ("foobot", 403, 200),
        ("Mozilla/5.0 (compatible; FooBot/1.1; +http://example.com)", 403, 200),
        ("FooBotany/1.0", 200, 403),
        ("BarBot/1.0", 200, 403),
        ("", 200, 403),
    ] {
        for (target, status) in [("/foo", foo), ("/rest", rest)] {
            // curl sends no User-Agent field at all when it is empty.
            let got = proxy.curl(&["-A", agent, &origin.url(target)]).await;
            assert_eq!(got.status(), status, "{agent:?} {target}");
        }
    }
    assert_eq!(origin.log.count("/robots.txt"), 1, "one file for all agents");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configured_product_tokens_override_the_user_agent() {
    let origin = Origin::site("User-agent: FooBot\nDisallow: /foo\n\nUser-agent: *\nDisallow: /rest\n").await;
    let proxy = Proxy::start("identity: { product_tokens: [FooBot] }").await;
    for agent in ["Mozilla/5.0", "BarBot/1.0", ""] {
        assert_eq!(proxy.curl(&["-A", agent, &origin.url("/foo")]).await.status(), 403);
        assert_eq!(proxy.curl(&["-A", agent, &origin.url("/rest")]).await.status(), 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configured_user_agent_replaces_the_clients() {
    let origin = Origin::site("User-agent: FooBot\nDisallow: /foo\n").await;
    let proxy = Proxy::start("identity: { user_agent: 'FooBot/1.0 (+https://example.com)' }").await;
    assert_eq!(proxy.get(&origin.url("/x")).await.status(), 200);
    assert_eq!(origin.log.one("/x").field("user-agent"), Some("FooBot/1.0 (+https://example.com)"));
    assert_eq!(proxy.get(&origin.url("/foo")).await.status(), 403, "what goes out is what is judged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn robots_txt_applies_to_every_method() {
    let origin = Origin::site("User-agent: *\nDisallow: /\n").await;
    let proxy = Proxy::start("").await;
    let host = origin.authority("a.localhost");
    let mut client = proxy.client().await;
    for method in ["GET", "POST", "PUT", "DELETE", "OPTIONS", "PROPFIND"] {
        for target in ["/", "", "/x", "?q"] {
            client
                .send(format!("{method} {} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n", origin.url(target)))
                .await;
            assert_eq!(client.response().await.status(), 403, "{method} {target}");
        }
    }
    assert_eq!(origin.log.targets(), ["/robots.txt"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_can_be_overridden_per_host() {
    let origin = Origin::site("User-agent: *\nDisallow: /private\n\nUser-agent: Other\nDisallow: /other\n").await;
    let proxy = Proxy::start(
        "hosts: { 'a.localhost': { robots: ignore }, 'b.localhost': { robots: report }, \
         'c.localhost': { product_tokens: [Other], deny: ['/deny*me'], allow: ['/other/open'] } }",
    )
    .await;
    assert_eq!(proxy.get(&origin.url("/private")).await.status(), 200);
    assert_eq!(origin.log.targets(), ["/private"], "an ignored robots.txt is not even fetched");
    let reported = proxy.get(&origin.url_at("b.localhost", "/private")).await;
    assert_eq!((reported.status(), reported.head.proxy_error()), (200, None));
    assert!(reported.head.proxy_status_parameter("details").is_some(), "{:?}", reported.head);
    for (target, status) in [("/private", 200), ("/other/x", 403), ("/other/open", 200), ("/deny/and/me", 403)] {
        assert_eq!(proxy.get(&origin.url_at("c.localhost", target)).await.status(), status, "{target}");
    }
    assert_eq!(proxy.get(&origin.url_at("localhost", "/private")).await.status(), 403, "the others are bound");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn report_mode_reports_refusals_without_enforcing() {
    let origin = Origin::site("User-agent: *\nDisallow: /private\nCrawl-delay: 30\n").await;
    let proxy = Proxy::start("mode: report").await;
    let first = proxy.get(&origin.url("/private")).await;
    assert_eq!((first.status(), first.text().as_str()), (200, "page /private"));
    assert_eq!(first.head.proxy_error(), None, "nothing failed");
    assert!(first.head.proxy_status_parameter("details").is_some(), "{:?}", first.head);
    // Not delayed either, by the 30 s that the file asks for.
    assert_eq!(proxy.get(&origin.url("/open")).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deny_status_sets_the_status_of_refusals() {
    let origin = Origin::site("User-agent: *\nDisallow: /\n").await;
    let proxy = Proxy::start("robots: { deny_status: 451 }").await;
    assert_refused(&proxy.get(&origin.url("/x")).await, 451, "http_request_denied", "robots-disallowed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_outside_access_are_refused_with_client_denied() {
    let origin = Origin::site("").await;
    let proxy = Proxy::start("access: { clients: [192.0.2.0/24] }").await;
    assert_refused(&proxy.get(&origin.url("/x")).await, 403, "http_request_denied", "client-denied");
    let head = proxy.client().await.ask_connect(&origin.authority("a.localhost")).await;
    assert_eq!((head.status(), head.proxy_error().as_deref()), (403, Some("http_request_denied")));
    assert_eq!(origin.connections(), 0);
    let proxy = Proxy::start("access: { clients: [127.0.0.0/8] }").await;
    assert_eq!(proxy.get(&origin.url("/x")).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn robots_txt_decides_if_no_operator_rule_matches() {
    let origin = Origin::site("User-agent: *\nDisallow: /private\n").await;
    let proxy = Proxy::start("hosts: { a.localhost: { allow: [/private/ours], deny: [/cart] } }").await;
    for (target, status) in [("/", 200), ("/cart", 403), ("/private/ours", 200), ("/private/theirs", 403)] {
        assert_eq!(proxy.get(&origin.url(target)).await.status(), status, "{target}");
    }
    assert_eq!(origin.log.pages(), ["/", "/private/ours"]);
}

/// Only requests to the site whose patterns are expensive to compare are refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_too_complex_refuse_the_request_and_name_the_file() {
    let rules: String = (0..18_000).map(|n| format!("Disallow: /*aaa*{n}\n")).collect();
    let hostile = Origin::site(&format!("User-agent: *\n{rules}")).await;
    let other = Origin::site("User-agent: *\nDisallow: /no\n").await;
    let proxy = Proxy::start("").await;
    let long = hostile.url(&format!("/{}", "a".repeat(50_000)));
    let problem = assert_refused(&proxy.get(&long).await, 403, "http_request_denied", "rules-too-complex");
    assert_eq!(problem["rules"], hostile.url("/robots.txt"));
    for target in ["/a//b%2Fc;p%5B0%5D%u005Ae", "/aaa"] {
        assert_eq!(proxy.get(&hostile.url(target)).await.status(), 200, "{target}");
    }
    assert_eq!(proxy.get(&hostile.url("/aaa17999")).await.status(), 403, "the last rule");
    assert_eq!(proxy.get(&other.url("/yes")).await.status(), 200);
}

/// The limits on a robots.txt do not apply to the operator's own rules.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn last_of_many_operator_rules_is_enforced() {
    let origin = Origin::site("").await;
    let long = format!("/{}", "x".repeat(20 << 10));
    let many: String = (0..40_000).map(|n| format!("/secret/{n:06}, ")).collect();
    assert!(many.len() > 600_000);
    let proxy = Proxy::start(&format!("hosts: {{ a.localhost: {{ deny: [{many} {long}, /last] }} }}")).await;
    for (target, status) in
        [("/secret/039999", 403), ("/last", 403), (&*long, 403), (&long[..20_000], 200), ("/secret/040000", 200)]
    {
        assert_eq!(proxy.get(&origin.url(target)).await.status(), status, "{}", &target[..target.len().min(20)]);
    }
}

/// Only a GET or HEAD of it is answered by the proxy's copy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_requests_for_robots_txt_are_decided_and_paced_like_pages() {
    let upgrade = "Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
    for (method, fields) in [("POST", "Content-Length: 0\r\n"), ("GET", upgrade)] {
        let origin = Origin::site("User-agent: *\nCrawl-delay: 100\nDisallow: /\n").await;
        let proxy = Proxy::start("pace: { max_wait: 0 }").await;
        let (url, host) = (origin.url("/robots.txt"), origin.authority("a.localhost"));
        let mut statuses = Vec::new();
        for _ in 0..2 {
            let mut client = proxy.client().await;
            client.send(format!("{method} {url} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n")).await;
            statuses.push(client.response().await.status());
        }
        assert_eq!(statuses, [200, 429], "{method}");
        assert_eq!(origin.log.count("/robots.txt"), 2, "{method}: the file, and the first request");
    }
}
