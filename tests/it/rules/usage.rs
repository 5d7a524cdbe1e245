//! Declared purposes (`identity.purpose`) against Content-Signal and Content-Usage (docs/usage.md).

use crate::support::binary::{Ended, politely, politely_with};
use crate::support::{Alpn, H2Client, Origin, Proxy, Reply, Seen, assert_refused};
use serde_json::Value;

/// Both vocabularies: one line for everything, and one with paths.
const WISHES: &str = "\
User-agent: *
Content-Signal: search=yes, ai-input=no
Content-Usage: /art train-ai=n
Content-Usage: /art/free train-ai=y
Disallow: /private
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_preference_refuses_the_declared_purpose_and_no_other() {
    for (purpose, statuses) in [
        // No purpose declared: preferences refuse nothing.
        ("[]", [200, 200, 200, 403]),
        ("[search]", [200, 200, 200, 403]),
        ("[ai-train]", [200, 403, 200, 403]),
        // The other vocabulary's name for it.
        ("[train-ai]", [200, 403, 200, 403]),
        ("[ai-input]", [403, 403, 403, 403]),
        ("[search, ai-train]", [200, 403, 200, 403]),
    ] {
        let origin = Origin::site(WISHES).await;
        let proxy = Proxy::start(&format!("identity: {{ purpose: {purpose} }}")).await;
        for (target, status) in ["/", "/art/1", "/art/free/1", "/private"].into_iter().zip(statuses) {
            assert_eq!(proxy.get(&origin.url(target)).await.status(), status, "{purpose} {target}");
        }
        assert_eq!(origin.log.pages().len(), statuses.iter().filter(|&&status| status == 200).count(), "{purpose}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_refusal_names_purpose_and_line() {
    let origin = Origin::site(WISHES).await;
    let proxy = Proxy::start("identity: { purpose: [ai-train], product_tokens: [ExampleBot] }").await;
    let response = proxy.get(&origin.url("/x/../art/1?y")).await;
    let problem = assert_refused(&response, 403, "http_request_denied", "usage-disallowed");
    assert_eq!(problem["url"], origin.url("/x/../art/1?y"));
    assert_eq!(problem["robots_url"], origin.url("/robots.txt"));
    assert_eq!(problem["product_token"], "ExampleBot");
    assert_eq!((&problem["purpose"], &problem["line"]), (&Value::from("ai-train"), &Value::from(3)));
    assert_eq!(problem["rule"], "Content-Usage: /art train-ai=n");
    let response = proxy.get(&origin.url("/private")).await;
    assert_refused(&response, 403, "http_request_denied", "robots-disallowed");
    assert_eq!(proxy.get(&origin.url("/robots.txt")).await.status(), 200, "or nobody could read the preference");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_preference_is_only_reported_in_report_mode() {
    for yaml in ["mode: report", "hosts: { a.localhost: { robots: report } }"] {
        let origin = Origin::site(WISHES).await;
        let proxy = Proxy::start(&format!("{yaml}\nidentity: {{ purpose: [ai-input] }}")).await;
        let response = proxy.get(&origin.url("/art/1")).await;
        assert_eq!((response.status(), response.text().as_str()), (200, "page /art/1"), "{yaml}");
        let told = response.head.proxy_status_parameter("details").unwrap_or_default();
        assert!(told.contains("`ai-input`") && told.contains("line 2"), "{yaml}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_preferences_apply_per_crawler_group() {
    let origin = Origin::site("User-agent: FooBot\nContent-Signal: ai-train=no\n\nUser-agent: *\nAllow: /\n").await;
    let proxy = Proxy::start("identity: { purpose: [ai-train] }").await;
    for (agent, status) in [("FooBot/1.0", 403), ("BarBot", 200)] {
        assert_eq!(proxy.curl(&["-A", agent, &origin.url("/x")]).await.status(), status, "{agent}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policy_token_group_refuses_although_the_crawlers_group_allows() {
    let site =
        "User-agent: *\nAllow: /\n\nUser-agent: No-Training\nDisallow: /art\n\nUser-agent: GPTBot\nDisallow: /x\n";
    let tokens = "policy_tokens: { train-ai: [no-training, GPTBot] }";
    for (purpose, statuses) in [("[ai-train]", [403, 403, 200]), ("[search]", [200, 200, 200]), ("[]", [200, 200, 200])]
    {
        let origin = Origin::site(site).await;
        let proxy = Proxy::start(&format!("identity: {{ purpose: {purpose}, {tokens} }}")).await;
        for (target, status) in ["/art/1", "/x", "/free"].into_iter().zip(statuses) {
            assert_eq!(proxy.get(&origin.url(target)).await.status(), status, "{purpose} {target}");
        }
        if statuses[0] == 403 {
            let problem =
                assert_refused(&proxy.get(&origin.url("/art")).await, 403, "http_request_denied", "usage-disallowed");
            let named = [&problem["product_token"], &problem["purpose"], &problem["rule"]];
            assert_eq!(named, ["no-training", "ai-train", "Disallow: /art"]);
            assert_eq!(problem["line"], 5);
        }
    }
    let origin = Origin::site(site).await;
    let proxy = Proxy::start("identity: { purpose: [ai-train] }").await;
    assert_eq!(proxy.get(&origin.url("/art")).await.status(), 200, "no token is one of a purpose by default");
}

/// Answers with refusing fields, by path.
fn answers(seen: &Seen) -> Reply {
    let page = |name: &str, value: &str| Reply::text("the page").field(name, value);
    match seen.path().split('?').next().unwrap_or_default() {
        "/robots.txt" => Reply::text(""),
        "/tag" => page("X-Robots-Tag", "otherbot: nofollow, FooBot: noai"),
        "/list" => page("Robots-Tag", "*;nosnippet, FooBot;noai"),
        "/signal" => page("Content-Signal", "search=yes, ai-train=no"),
        "/usage" => page("Content-Usage", "train-ai=n").field("Cache-Control", "max-age=0"),
        "/tdm" => page("TDM-Reservation", "1").field("TDM-Policy", "https://example.com/policy.json"),
        "/error" => Reply::status(404).body("the page").field("TDM-Reservation", "1"),
        "/both" => page("X-Robots-Tag", "noindex, noai"),
        "/mine" => page("TDM-Reservation", "1").field("Cache-Control", "private, max-age=3600"),
        "/varied" => page("TDM-Reservation", "1").field("Vary", "Accept-Encoding, X-Foo"),
        "/coded" => page("TDM-Reservation", "1").field("Vary", "accept-encoding"),
        "/endless" => page("TDM-Reservation", "1").body(vec![b'x'; 10_000_000]),
        "/malformed" => page("Content-Usage", "train-ai=n, Train!").field("X-Robots-Tag", ": ,:noai:"),
        _ => page("X-Robots-Tag", "noindex"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_refusing_the_purpose_is_not_delivered() {
    let (plain, tls) = (Origin::http(answers).await, Origin::https(Alpn::Both, answers).await);
    let proxy = Proxy::start("identity: { purpose: [ai-train], product_tokens: [FooBot] }").await;
    let (direct, inside) = (H2Client::known(proxy.client().await).await, proxy.h2(&tls, "a.localhost").await);
    for (origin, http2) in [(&plain, None), (&plain, Some(&direct)), (&tls, Some(&inside))] {
        for (target, rule) in [
            ("/tag", Some("X-Robots-Tag: otherbot: nofollow, FooBot: noai")),
            ("/list", Some("Robots-Tag: *;nosnippet, FooBot;noai")),
            ("/signal", Some("Content-Signal: search=yes, ai-train=no")),
            ("/usage", Some("Content-Usage: train-ai=n")),
            ("/tdm", Some("TDM-Reservation: 1")),
            ("/endless", Some("TDM-Reservation: 1")),
            ("/error", None),
            ("/malformed", None),
            ("/free", None),
        ] {
            let response = match http2 {
                Some(client) => client.get(&origin.url(target)).await,
                None => proxy.get(&origin.url(target)).await,
            };
            let Some(rule) = rule else {
                assert!(matches!(response.status(), 200 | 404) && response.text() == "the page", "{target}");
                continue;
            };
            let problem = assert_refused(&response, 403, "http_request_denied", "usage-disallowed");
            assert_eq!((&problem["purpose"], &problem["rule"]), (&"ai-train".into(), &rule.into()), "{target}");
            assert!(!response.text().contains("the page"), "{target}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn url_that_refused_the_purpose_is_not_refetched_while_fresh() {
    let origin = Origin::http(answers).await;
    let yaml = "identity: { purpose: [ai-train], product_tokens: [FooBot] }";
    let proxy = Proxy::start(yaml).await;
    for _ in 0..3 {
        for target in ["/tdm", "/usage"] {
            assert_eq!(proxy.get(&origin.url(target)).await.status(), 403);
        }
    }
    assert_eq!((origin.log.count("/tdm"), origin.log.count("/usage")), (1, 3), "`max-age=0` is not kept");
    // For another purpose it says nothing, and once it is not kept to any more it goes.
    for other in ["identity: { purpose: [search] }", &format!("{yaml}\nusage: {{ tdm_reservation: ignore }}")] {
        proxy.reload(other).expect("it is valid");
        assert_eq!(proxy.get(&origin.url("/tdm")).await.text(), "the page", "{other}");
    }
    proxy.reload(yaml).expect("it is valid");
    assert_eq!(proxy.get(&origin.url("/tdm")).await.status(), 403);
    assert_eq!(origin.log.count("/tdm"), 3);
}

/// An answer for one client alone does not apply to others, who may get another answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remembered_refusal_is_per_purpose_and_only_for_shared_answers() {
    let origin = Origin::http(answers).await;
    let proxy = Proxy::start("").await;
    for _ in 0..3 {
        for purpose in ["ai-train", "search"] {
            proxy.reload(&format!("identity: {{ purpose: [{purpose}] }}")).expect("it is valid");
            assert_eq!(proxy.get(&origin.url("/both")).await.status(), 403);
        }
    }
    assert_eq!(origin.log.count("/both"), 2, "one for each purpose");
    proxy.reload("identity: { purpose: [ai-train] }").expect("it is valid");
    let mut client = proxy.client().await;
    for (target, field, count) in [
        ("/mine", "", 2),
        ("/varied", "", 2),
        ("/coded", "", 1),
        ("/tdm?a", "Cookie: a=b\r\n", 2),
        ("/tdm?b", "Authorization: Basic YTpi\r\n", 2),
        ("/tdm?c", "DNT: 1\r\n", 1),
        ("/tdm?e", "X-Foo: bar\r\n", 2),
        ("/tdm?d", "X-Api-Key: k\r\n", 2),
    ] {
        let (url, host) = (origin.url(target), origin.authority("a.localhost"));
        for _ in 0..2 {
            client.send(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{field}\r\n")).await;
            assert_eq!(client.response().await.status(), 403, "{target}");
        }
        assert_eq!(origin.log.count(target), count, "{target} {field}");
    }
}

/// A client that may not fetch the page does not learn what others were told about it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_refusals_precede_a_remembered_usage_refusal() {
    let origin = Origin::http(answers).await;
    let yaml = "identity: { purpose: [ai-train], product_tokens: [FooBot] }";
    let proxy = Proxy::start(yaml).await;
    assert_eq!(proxy.get(&origin.url("/tdm")).await.status(), 403);
    for (own, status, slug) in [
        ("hosts: { a.localhost: { deny: [/tdm] } }", 403, "operator-denied"),
        ("pace: { budget: { requests: 0, per: day } }", 429, "budget-spent"),
    ] {
        proxy.reload(&format!("{yaml}\n{own}")).expect("it is valid");
        assert_refused(&proxy.get(&origin.url("/tdm")).await, status, "http_request_denied", slug);
    }
    assert_eq!(origin.log.count("/tdm"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_request_sees_a_usage_refusal_remembered_meanwhile() {
    let origin = Origin::http(answers).await;
    let hosts = "hosts: { a.localhost: { crawl_delay: 1s, budget: { requests: 2 } } }";
    let proxy = Proxy::start(&format!("identity: {{ purpose: [ai-train] }}\npace: {{ max_wait: 30s }}\n{hosts}")).await;
    let url = origin.url("/tdm");
    let all = futures_util::future::join_all((0..4).map(|_| proxy.get(&url))).await;
    assert!(all.iter().all(|response| response.status() == 403));
    assert_eq!(origin.log.count("/tdm"), 1);
    assert_eq!(proxy.get(&origin.url("/error")).await.status(), 404, "the others have spent nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_refusal_of_a_page_does_not_apply_to_robots_txt_or_other_methods() {
    let origin = Origin::http(|seen| match (seen.path().as_str(), seen.field("content-length")) {
        ("/robots.txt", _) => Reply::text("").field("X-Robots-Tag", "noindex"),
        (_, None) => Reply::text("").field("X-Robots-Tag", format!("noindex, {}", "x".repeat(1000))),
        (_, Some(_)) => Reply::text("taken"),
    })
    .await;
    let proxy = Proxy::start("identity: { purpose: [search] }").await;
    let refused = proxy.get(&origin.url("/x")).await;
    assert_eq!(refused.status(), 403);
    assert!(refused.text().len() < 1000, "as much of it as can be read");
    assert_eq!(proxy.get(&origin.url("/robots.txt")).await.status(), 200);
    let mut client = proxy.client().await;
    let (url, host) = (origin.url("/x"), origin.authority("a.localhost"));
    client.send(format!("POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n")).await;
    assert_eq!(client.response().await.text(), "taken");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_in_report_mode_is_delivered_and_reported() {
    let origin = Origin::http(answers).await;
    let purpose = "identity: { purpose: [ai-train] }";
    for (yaml, is_told) in [
        ("mode: report", true),
        ("usage: { tdm_reservation: report }", true),
        ("hosts: { a.localhost: { usage: { tdm_reservation: report } } }", true),
        ("hosts: { a.localhost: { usage: { tdm_reservation: ignore } } }", false),
        ("hosts: { a.localhost: { purpose: [search] } }", false),
        ("hosts: { a.localhost: { purpose: [] } }", false),
    ] {
        let proxy = Proxy::start(&format!("{purpose}\n{yaml}")).await;
        let response = proxy.get(&origin.url("/tdm")).await;
        assert_eq!((response.status(), response.text().as_str()), (200, "the page"), "{yaml}");
        let told = response.head.proxy_status_parameter("details").unwrap_or_default();
        assert_eq!(told.contains("`TDM-Reservation: 1`"), is_told, "{yaml}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_judges_by_purpose() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("robots.txt");
    std::fs::write(&file, WISHES).unwrap();
    let file = file.to_str().unwrap();
    let url = "https://example.com/art/1";
    let json = |ended: &Ended| -> Value {
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {}{}", ended.stdout, ended.stderr))
    };
    let asked = ["explain", url, "--robots", file, "--format", "json"];
    let allowed = politely(&asked).await;
    assert_eq!((allowed.code, json(&allowed)["reason"].as_str()), (0, Some("no-matching-rule")));
    let refused = politely(&[&asked[..], &["--purpose", "search", "--purpose", "train-ai"]].concat()).await;
    let answer = json(&refused);
    assert_eq!(
        (refused.code, &answer["allowed"], answer["reason"].as_str()),
        (1, &Value::from(false), Some("usage-disallowed"))
    );
    assert_eq!(answer["purpose"], serde_json::json!(["search", "ai-train"]));
    assert_eq!(answer["rule"], serde_json::json!({ "line": 3, "kind": "content-usage", "pattern": "/art train-ai=n" }));
    let configured = politely_with(&asked, &[("POLITELY_IDENTITY__PURPOSE", "[ai-input]")]).await;
    assert_eq!((configured.code, json(&configured)["rule"]["line"].as_u64()), (1, Some(2)));
    let text = politely(&["explain", url, "--robots", file, "--purpose", "ai-train"]).await;
    assert_eq!(
        text.stdout,
        format!(
            "disallowed: {url}\n  for any crawler: https://example.com/robots.txt disallows this URL for the purpose `ai-train`, \
             for every crawler: line 3, `Content-Usage: /art train-ai=n`\n  --> {file}:3\n   |\n  3 | Content-Usage: /art \
             train-ai=n\n   |\n"
        )
    );
    let wrong = politely(&[&asked[..], &["--purpose", "ai train"]].concat()).await;
    assert_eq!(wrong.code, 2, "{}", wrong.stderr);
    assert!(wrong.stderr.contains("such as `ai-train`"), "{}", wrong.stderr);
}
