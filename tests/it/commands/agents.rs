//! conf/agent.yaml, the preset for AI agents: as docs/agents.md says.

use crate::support::binary::politely_with;
use crate::support::{Client, Origin, Proxy, assert_refused};

const PRESET: &str = include_str!("../../../conf/agent.yaml");

#[tokio::test]
async fn agent_preset_passes_check_strict() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/agent.yaml");
    let checked = politely_with(&["check", "--strict", "--config", file], &[]).await;
    assert_eq!(checked.code, 0, "{}{}", checked.stdout, checked.stderr);
    for line in [
        "matches robots.txt groups as ExampleAgent",
        "refuses all hosts but docs.example.com, *.example.org (egress.hosts)",
        "refuses all methods but GET, HEAD (egress.methods)",
    ] {
        assert!(checked.stdout.contains(&format!("  {line}\n")), "{}", checked.stdout);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_preset_allows_listed_hosts_and_explains_refusals() {
    let robots =
        "User-agent: ExampleAgent\nDisallow: /private/\nContent-Usage: /art/ ai-use=n\n\nUser-agent: *\nDisallow: /\n";
    let origin = Origin::site(robots).await;
    let preset = PRESET.replace("docs.example.com", "docs.localhost").replace("example.org", "pages.localhost");
    let proxy = Proxy::start(&preset).await;
    let ask = async |method: &str, host: &str, path: &str| {
        let (url, host) = (origin.url_at(host, path), origin.authority(host));
        let mut client = Client::open(proxy.address()).await;
        let head = format!("{method} {url} HTTP/1.1\r\nHost: {host}\r\nAccept: application/problem+json\r\n");
        client.send(format!("{head}Content-Length: 4\r\n\r\ndata")).await;
        client.response().await
    };
    for (host, path) in [("docs.localhost", "/open"), ("a.pages.localhost", "/open")] {
        assert_eq!(ask("GET", host, path).await.status(), 200, "{host}");
    }
    for (method, host, path, kind, hint) in [
        (
            "POST",
            "docs.localhost",
            "/open",
            "egress-denied",
            "Use another method: the operator's allowlist has GET, HEAD",
        ),
        (
            "GET",
            "other.localhost",
            "/open",
            "egress-denied",
            "Ask for a URL on another host: the operator's allowlist has docs.localhost",
        ),
        ("GET", "docs.localhost", "/private/x", "robots-disallowed", "Do not try this URL again"),
        ("GET", "docs.localhost", "/art/x", "usage-disallowed", "Do not try this URL again"),
    ] {
        let refused = ask(method, host, path).await;
        let problem = assert_refused(&refused, 403, "http_request_denied", kind);
        assert_eq!(refused.field("content-type"), Some("application/problem+json"), "{method} {host}{path}");
        assert!(problem["hint"].as_str().is_some_and(|told| told.contains(hint)), "{method} {host}{path}: {problem}");
    }
    let pages = origin.log.count("/open");
    assert_eq!((pages, origin.log.count("/private/x"), origin.log.count("/art/x")), (2, 0, 0));
}
