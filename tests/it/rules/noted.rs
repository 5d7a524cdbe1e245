//! What sites say about use is reported, whatever is declared: licences, prices, signals (docs/usage.md).

use crate::support::binary::open;
use crate::support::binary::politely_with;
use crate::support::{ADMIN_TOKEN, Alpn, Binary, Client, Origin, Proxy, Reply, Seen, eventually};
use serde_json::{Value, json};
use std::net::SocketAddr;

const ROBOTS: &str = "License: https://a.example/license.xml\nUser-agent: *\nContent-Usage: /art train-ai=n\n\
                      Content-Signal: ai-input=no\n";

fn answers(seen: &Seen) -> Reply {
    let page = |name: &str, value: &str| Reply::text("the page").field(name, value);
    match seen.path().as_str() {
        "/robots.txt" => Reply::text(ROBOTS),
        "/tag" => page("X-Robots-Tag", "noai, noindex").field("TDM-Reservation", "1"),
        "/licence" => page("Link", "</style.css>; rel=preload, <https://a.example/l.xml>; rel=\"license\""),
        "/pay" => Reply::status(402).body("pay first").field("crawler-price", "USD 0.01"),
        "/pay-what" => Reply::status(402).field("crawler-price", "much"),
        "/malformed/1" => page("Content-Usage", "train-ai=n, Nonsense!"),
        "/malformed/2" => page("X-Robots-Tag", "unavailable_after: soon").field("TDM-Reservation", "yes"),
        "/malformed/3" => page("Link", "</l; rel=license"),
        _ => Reply::text("the page"),
    }
}

pub async fn asked(admin: SocketAddr, target: &str) -> String {
    let mut client = Client::open(admin).await;
    let token = format!("Authorization: Bearer {ADMIN_TOKEN}\r\n");
    client.send(format!("GET {target} HTTP/1.1\r\nHost: {admin}\r\n{token}\r\n")).await;
    client.response().await.text()
}

pub fn counted(metrics: &str, name: &str) -> u64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}: {metrics}"));
    line.trim().parse().expect("a number")
}

const ADMIN: &str = "admin: { address: '127.0.0.1:0' }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_purpose_signals_are_delivered_logged_and_counted() {
    let (plain, tls) = (Origin::http(answers).await, Origin::https(Alpn::H2, answers).await);
    let proxy = Proxy::start(ADMIN).await;
    let over_http2 = proxy.h2(&tls, "a.localhost").await;
    let direct = proxy.get(&plain.url("/tag")).await;
    let inside = over_http2.get(&tls.url("/tag")).await;
    for response in [direct, inside] {
        assert_eq!((response.status(), response.text().as_str()), (200, "the page"));
        assert_eq!(response.field("x-robots-tag"), Some("noai, noindex"), "as it came");
    }
    let metrics = asked(proxy.admin_address(), "/metrics").await;
    for (signal, count) in [("x-robots-tag", 2), ("tdm-reservation", 2), ("license", 0)] {
        assert_eq!(counted(&metrics, &format!("politely_signals_total{{signal=\"{signal}\"}}")), count, "{signal}");
    }
    assert_eq!(plain.log.count("/.well-known/tdmrep.json"), 0);
    let origin = Origin::http(answers).await;
    let proxy = Binary::serve("log: { access: stdout, format: json }").await;
    let mut client = Client::open(proxy.address()).await;
    client.get(&origin.url("/tag"), &origin.authority("a.localhost")).await;
    let line = || {
        proxy
            .output()
            .lines()
            .find_map(|line| serde_json::from_str::<Value>(line).ok().filter(|it| it["outcome"] == "forwarded"))
    };
    eventually("the log", || line().is_some()).await;
    assert_eq!(line().unwrap()["signals"], "X-Robots-Tag: noai, noindex; TDM-Reservation: 1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn licence_and_price_are_reported_with_the_answer() {
    let origin = Origin::http(answers).await;
    let proxy = Proxy::start(ADMIN).await;
    for (target, status, told) in [
        ("/licence", 200, Some("its licence is at https://a.example/l.xml")),
        ("/pay", 402, Some("it asks for USD 0.01")),
        ("/pay-what", 402, None),
        ("/", 200, None),
    ] {
        let response = proxy.get(&origin.url(target)).await;
        assert_eq!(response.status(), status, "{target}");
        assert_eq!(response.head.proxy_status_parameter("details").as_deref(), told, "{target}");
    }
    let authority = origin.url("").replace(':', "%3A").replace('/', "%2F");
    let known: Value =
        serde_json::from_str(&asked(proxy.admin_address(), &format!("/api/v1/authorities/{authority}")).await).unwrap();
    assert_eq!(
        known["offer"],
        json!({ "license": "https://a.example/l.xml", "price": "USD 0.01", "payment_required": 2 })
    );
    assert_eq!(known["licenses"], json!(["https://a.example/license.xml"]));
    let url = origin.url("/pay");
    let explained: Value =
        serde_json::from_str(&asked(proxy.admin_address(), &format!("/api/v1/explain?url={url}")).await).unwrap();
    assert_eq!(explained["offer"]["price"], "USD 0.01");
    let metrics = asked(proxy.admin_address(), "/metrics").await;
    assert_eq!(counted(&metrics, "politely_signals_total{signal=\"payment-required\"}"), 2);
    assert_eq!(counted(&metrics, "politely_signals_malformed_total{signal=\"payment-required\"}"), 1);
}

/// Nor does it slow requests down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_402_is_neither_retried_nor_a_failure() {
    let origin = Origin::http(answers).await;
    let proxy = Proxy::start(ADMIN).await;
    for _ in 0..20 {
        let response = proxy.get(&origin.url("/pay")).await;
        assert_eq!((response.status(), response.text().as_str()), (402, "pay first"));
    }
    assert_eq!(origin.log.count("/pay"), 20);
    assert_eq!(proxy.get(&origin.url("/")).await.status(), 200);
    eventually("the count", || proxy.counts().forwarded == 21).await;
    assert_eq!((proxy.counts().failed, proxy.counts().refused.len()), (0, 0));
    let authority = origin.url("").replace(':', "%3A").replace('/', "%2F");
    let known: Value =
        serde_json::from_str(&asked(proxy.admin_address(), &format!("/api/v1/authorities/{authority}")).await).unwrap();
    assert_eq!((&known["pace"]["backoff"], &known["failures"]), (&json!(0.0), &json!(0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn robots_txt_answered_402_allows_everything() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::status(402).field("crawler-price", "USD 1"),
        _ => Reply::text("the page"),
    })
    .await;
    let proxy = Proxy::start("").await;
    assert_eq!(proxy.get(&origin.url("/")).await.status(), 200);
    assert_eq!(origin.log.count("/robots.txt"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_preferences_refuse_nothing_and_are_counted() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text("License: nowhere\nUser-agent: *\nContent-Usage: train-ai=never\n"),
        "/.well-known/tdmrep.json" => Reply::text("{"),
        _ => answers(seen),
    })
    .await;
    let proxy = Proxy::start(&format!("{ADMIN}\nidentity: {{ purpose: [search, ai-train, ai-input, tdm] }}")).await;
    for number in 1..=3 {
        let response = proxy.get(&origin.url(&format!("/malformed/{number}"))).await;
        assert_eq!((response.status(), response.text().as_str()), (200, "the page"), "{number}");
    }
    let metrics = asked(proxy.admin_address(), "/metrics").await;
    for (signal, count) in [
        ("content-usage", 1),
        ("x-robots-tag", 1),
        ("tdm-reservation", 1),
        ("license", 1),
        ("robots.txt-usage", 1),
        ("robots.txt-license", 1),
        ("tdmrep.json", 1),
    ] {
        let name = format!("politely_signals_malformed_total{{signal=\"{signal}\"}}");
        assert_eq!(counted(&metrics, &name), count, "{signal}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_shows_preferences_for_undeclared_purposes() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("robots.txt");
    std::fs::write(&file, ROBOTS).unwrap();
    let asked = ["explain", "https://example.com/art/1", "--robots", file.to_str().unwrap()];
    let text = politely_with(&asked, &open()).await;
    assert_eq!(text.code, 0, "nothing is refused for no purpose");
    for line in [
        "  note: line 3, `Content-Usage: /art train-ai=n`, says no to `ai-train`, which is not declared\n",
        "  note: line 4, `Content-Signal: ai-input=no`, says no to `ai-input`, which is not declared\n",
        "  license: https://a.example/license.xml\n",
    ] {
        assert!(text.stdout.contains(line), "{}", text.stdout);
    }
    let told = politely_with(&[&asked[..], &["--format", "json"]].concat(), &open()).await;
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!(
        told["preferences"],
        json!([
            { "line": 4, "kind": "content-signal", "pattern": "ai-input=no", "purpose": "ai-input" },
            { "line": 3, "kind": "content-usage", "pattern": "/art train-ai=n", "purpose": "ai-train" },
        ])
    );
}

/// A running proxy with the same configuration file has received the page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_shows_the_preferences_a_page_stated_and_when() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text("User-agent: *\nDisallow: /private\n"),
        "/page" => Reply::text("page").field("X-Robots-Tag", "noai"),
        "/.well-known/tdmrep.json" => Reply::status(404),
        _ => Reply::text("free"),
    })
    .await;
    let yaml = "admin: { address: '127.0.0.1:0' }\nidentity: { purpose: [ai-train], product_tokens: [ExampleBot] }";
    let proxy = Binary::serve(yaml).await;
    let (page, free) = (origin.url("/page"), origin.url("/free?a=b&c=%20"));
    let explain = async |url: &str, more: &[&str]| proxy.asked(&[&["explain", url], more].concat(), &open()).await;
    let before = explain(&page, &[]).await;
    assert!(before.code == 0 && before.stdout.starts_with("allowed: "), "{before:?}");
    let mut client = Client::open(proxy.address()).await;
    for url in [&page, &free] {
        client.get(url, &origin.authority("a.localhost")).await;
    }
    let told = explain(&page, &[]).await;
    let said = "allowed by robots.txt; refused by the page's own X-Robots-Tag: noai, read at 20";
    assert!(told.code == 1 && told.stdout.starts_with(said), "{told:?}");
    let json = explain(&page, &["--format", "json"]).await;
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&json["allowed"], &json["remembered"]["purpose"]), (&json!(true), &json!("ai-train")), "{json}");
    for (url, more) in [(&free, &[][..]), (&page, &["--purpose", "search"]), (&page, &["--product-token", "OtherBot"])]
    {
        let told = explain(url, more).await;
        assert!(told.code == 0 && told.stdout.starts_with("allowed: "), "{url} {more:?}: {told:?}");
    }
    assert_eq!(origin.log.pages(), ["/page", "/free?a=b&c=%20"]);
    proxy.stop().await;
}

/// A running proxy with the same configuration has seen the answers; without one, the evidence has them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_shows_licences_and_prices_of_answers() {
    let origin = Origin::http(answers).await;
    let proxy = Binary::serve("admin: { address: '127.0.0.1:0' }\nevidence: { directory: evidence }").await;
    let mut client = Client::open(proxy.address()).await;
    for target in ["/licence", "/pay"] {
        client.get(&origin.url(target), &origin.authority("a.localhost")).await;
    }
    let url = origin.url("/licence");
    let lines =
        ["  license: https://a.example/l.xml (named by an answer's Link)\n", "  price: USD 0.01 (named by a 402)\n"];
    let offer = json!({ "license": "https://a.example/l.xml", "price": "USD 0.01" });
    let text = proxy.asked(&["explain", &url], &open()).await;
    assert!(lines.iter().all(|line| text.stdout.contains(line)), "{text:?}");
    let copies = ["  robots.txt: fetched now\n", "  note: the running proxy uses a copy fetched "];
    assert!(copies.iter().all(|line| text.stdout.contains(line)), "{text:?}");
    let told = proxy.asked(&["explain", &url, "--format", "json"], &open()).await;
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!((&told["offer"]["license"], &told["offer"]["price"]), (&offer["license"], &offer["price"]));
    let directory = proxy.stop().await;
    let kept = directory.path().join("evidence");
    let asked = ["explain", &url, "--at", "0s", "--evidence", kept.to_str().unwrap()];
    let text = politely_with(&asked, &open()).await;
    assert!(lines.iter().all(|line| text.stdout.contains(line)), "{text:?}");
    let told = politely_with(&[&asked[..], &["--format", "json"]].concat(), &open()).await;
    assert_eq!(serde_json::from_str::<Value>(&told.stdout).unwrap()["offer"], offer);
}
