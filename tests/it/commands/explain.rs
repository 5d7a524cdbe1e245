//! `politely explain`.

use super::ROBOTS;
use crate::support::binary::open;
use crate::support::binary::{politely, politely_with, preload};
use crate::support::{Alpn, Origin, Protocol, Reply};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_reports_the_verdict_as_exit_code_and_json() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("robots.txt");
    std::fs::write(&file, ROBOTS).unwrap();
    let file = file.to_str().unwrap();
    for (target, token, code, line) in [
        ("/private/x", "BarBot", 1, Some(6)),
        ("/open", "BarBot", 0, None),
        ("/foo", "FooBot", 1, Some(2)),
        ("/private", "FooBot", 0, None),
    ] {
        let url = format!("https://example.com{target}");
        let arguments = ["explain", &url, "--product-token", token, "--robots", file];
        let text = politely(&arguments).await;
        assert_eq!(text.code, code, "{target}: {}{}", text.stdout, text.stderr);
        assert!(
            text.stdout.to_lowercase().contains(if code == 0 { "allowed" } else { "disallowed" }),
            "{}",
            text.stdout
        );
        let json = politely(&[&arguments[..], &["--format", "json"]].concat()).await;
        assert_eq!(json.code, code);
        let answer: serde_json::Value =
            serde_json::from_str(&json.stdout).unwrap_or_else(|error| panic!("{error}: {}", json.stdout));
        assert_eq!((answer["url"].as_str(), answer["allowed"].as_bool()), (Some(url.as_str()), Some(code == 0)));
        assert_eq!(
            (answer["authority"].as_str(), answer["product_tokens"][0].as_str()),
            (Some("https://example.com"), Some(token))
        );
        assert_eq!(answer["rule"]["line"].as_u64(), line, "{answer}");
        if line.is_some() {
            assert_eq!(answer["rule"]["kind"].as_str().map(str::to_lowercase).as_deref(), Some("disallow"));
        }
        assert_eq!(answer["crawl_delay"].as_f64(), (token == "BarBot").then_some(2.0), "{answer}");
        assert_eq!(answer["sitemaps"][0], "http://a.localhost/s.xml");
        assert_eq!(answer["robots"]["access"], "rules");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_names_standard_input_and_rejects_urls_with_spaces() {
    let ended = politely(&["explain", "http://a.example/x", "--robots", "-"]).await;
    assert!(ended.stdout.contains("--> standard input ("), "{}{}", ended.stdout, ended.stderr);
    for command in [&["explain", "http://a.example/x y"][..], &["refresh", "http://a.example/x y"]] {
        let ended = politely(command).await;
        let what = "`http://a.example/x y`: a URL has no spaces or control characters; a space is written %20";
        assert!(ended.code == 2 && ended.stderr.contains(what), "{}: {}", ended.code, ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_fetches_the_file_itself() {
    let origin = Origin::tls_site(Alpn::Both, ROBOTS).await;
    let ended = politely_with(&["explain", &origin.url("/private"), "--format", "json"], &open()).await;
    assert_eq!(ended.code, 1, "{}{}", ended.stdout, ended.stderr);
    let answer: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(
        (answer["robots"]["url"].as_str(), answer["robots"]["status"].as_u64()),
        (Some(origin.url("/robots.txt").as_str()), Some(200))
    );
    assert_eq!(origin.log.targets(), ["/robots.txt"], "the page itself is not fetched");
    let closed = politely(&["explain", &origin.url("/private")]).await;
    assert!(closed.code != 0 && origin.log.targets().len() == 1, "the guard stands here too");
}

/// The complete shape, as scripts rely on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_in_json_has_the_documented_shape() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("robots.txt");
    std::fs::write(
        &file,
        "User-agent: *\nAllow: /a/b\nDisallow: /a\nCrawl-delay: 2.5\nSitemap: https://a.example/s.xml\n",
    )
    .unwrap();
    let file = file.to_str().unwrap();
    for (target, allowed, reason, detail, rule) in [
        (
            "/a/b?c",
            true,
            "allowed-by-rule",
            "a rule allows it",
            json!({ "line": 2, "kind": "allow", "pattern": "/a/b" }),
        ),
        (
            "/a/",
            false,
            "robots-disallowed",
            "https://a.example/robots.txt disallows this URL for FooBot, Foo: line 3, `Disallow: /a`",
            json!({ "line": 3, "kind": "disallow", "pattern": "/a" }),
        ),
        ("/", true, "no-matching-rule", "no rule matches it", Value::Null),
        ("/robots.txt", true, "robots-txt", "robots.txt itself may always be fetched", Value::Null),
    ] {
        let url = format!("https://a.example{target}");
        let tokens = ["--product-token", "FooBot", "--product-token", "Foo"];
        let ended = politely(&[&["explain", &url, "--robots", file, "--format", "json"][..], &tokens].concat()).await;
        assert_eq!((ended.code, ended.stderr.as_str()), (i32::from(!allowed), ""));
        let answer: Value = serde_json::from_str(&ended.stdout).unwrap();
        let expected = json!({
            "url": url,
            "authority": "https://a.example",
            "product_tokens": ["FooBot", "Foo"],
            "purpose": [],
            "allowed": allowed,
            "reason": reason,
            "detail": detail,
            "matched_path": null,
            "rule": rule,
            "robots": {
                "url": file, "status": null, "asked_again": null, "access": "rules", "html": false, "fetched_at": null, "expires_at": null,
            },
            "tdmrep": null,
            "license": null,
            "crawl_delay": 2.5,
            "max_crawl_delay": 300.0,
            "manners": { "adaptive": null, "breaker": null, "budget": null, "min_revisit": null },
            "sitemaps": ["https://a.example/s.xml"],
            "licenses": [],
            "preferences": [],
        });
        assert_eq!(answer, expected, "{target}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_shows_the_fetch_result_of_robots_txt() {
    for (status, code, access, reason) in [
        (200, 0, "rules", "no-matching-rule"),
        (404, 0, "allow-all", "no-robots-txt"),
        (503, 1, "disallow-all", "robots-unreachable"),
    ] {
        let origin =
            Origin::http(move |_| if status == 200 { Reply::text(ROBOTS) } else { Reply::status(status) }).await;
        let ended = politely_with(&["explain", &origin.url("/x"), "--format", "json"], &open()).await;
        let answer: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
        let robots = &answer["robots"];
        assert_eq!((ended.code, &robots["access"], &answer["reason"]), (code, &json!(access), &json!(reason)));
        assert_eq!((&robots["url"], &answer["rule"]), (&json!(origin.url("/robots.txt")), &Value::Null));
        let times = ["fetched_at", "expires_at"].map(|name| robots[name].as_str().map(str::to_owned));
        if status == 503 {
            assert_eq!((&robots["status"], times), (&Value::Null, [None, None]));
            continue;
        }
        assert_eq!(robots["status"], status);
        // RFC 3339, to the second; the same form compares as text.
        let [Some(fetched), Some(expires)] = times else { panic!("{robots}") };
        assert!(fetched.len() == 20 && fetched.ends_with('Z') && fetched < expires, "{robots}");
    }
}

/// An answer 400 or 408 is retried over HTTP/1.1, and both results are reported.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_and_lint_report_the_retry_over_http1() {
    for (second, code) in [(200, 1), (400, 0)] {
        let origin = Origin::https(Alpn::Both, move |seen| match (seen.protocol, second) {
            (Protocol::Http2, _) => Reply::status(400),
            (Protocol::Http1, 200) => Reply::text(ROBOTS),
            (Protocol::Http1, status) => Reply::status(status),
        })
        .await;
        let url = origin.url("/private");
        let ended = politely_with(&["explain", &url, "--format", "json"], &open()).await;
        let answer: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
        assert_eq!((ended.code, &answer["robots"]["status"]), (code, &json!(second)));
        let first = json!({ "first_status": 400, "first_version": "HTTP/2" });
        assert_eq!(answer["robots"]["asked_again"], first);
        let text = politely_with(&["explain", &url], &open()).await;
        let note = format!("status 400 over HTTP/2, retried over HTTP/1.1: status {second}");
        assert!(text.stdout.contains(&note), "{}", text.stdout);
        let lint = politely_with(&["lint", &url], &open()).await;
        assert!(lint.stderr.contains("answered 400 to the request over HTTP/2"), "{}", lint.stderr);
    }
}

/// Exit code 1 would mean "disallowed".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_exits_2_if_robots_txt_cannot_be_fetched() {
    let directory = tempfile::tempdir().unwrap();
    let library = preload(directory.path(), "int getaddrinfo(void) { return -3; /* EAI_AGAIN */ }\n");
    let variables = [&open()[..], &[("LD_PRELOAD", library.to_str().unwrap())]].concat();
    for command in [&["explain"][..], &["explain", "--format", "json"], &["lint"]] {
        let ended = politely_with(&[command, &["https://nowhere.example/x"]].concat(), &variables).await;
        let why = [
            "error: cannot read https://nowhere.example/robots.txt: ",
            "(cannot resolve nowhere.example: ",
            "\nhint: ",
        ];
        assert!(why.iter().all(|part| ended.stderr.contains(part)), "{command:?}: {ended:?}");
        assert_eq!((ended.code, ended.stdout.as_str()), (2, ""), "{command:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_shows_egress_refusals_like_the_proxy() {
    let origin = Origin::site("").await;
    let url = origin.url("/x");
    for (egress, why) in [
        ("allow: [127.0.0.0/8], hosts: [other.example]", "blocked by egress.hosts: the host a.localhost is not listed"),
        ("allow: []", "blocked by egress: "),
    ] {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("politely.yaml");
        std::fs::write(&file, format!("egress: {{ ports: [\"1-65535\"], {egress} }}\n")).unwrap();
        let told = politely(&["explain", &url, "--config", file.to_str().unwrap(), "--format", "json"]).await;
        assert_eq!(told.code, 1, "{}{}", told.stdout, told.stderr);
        let told: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
        assert_eq!(told["reason"], "egress-denied", "{told}");
        assert!(told["detail"].as_str().is_some_and(|detail| detail.starts_with(why)), "{told}");
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_names_the_configuration_key_of_a_refusal() {
    let origin = Origin::site("User-agent: *\nDisallow: /\n").await;
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("politely.yaml");
    let (plain, secure) = (origin.url("/x"), origin.url("/x").replace("http:", "https:"));
    for (url, yaml, reason, key) in [
        (&secure, "intercept: { default: deny }", "operator-denied", "intercept.default"),
        (&secure, "intercept: { hosts: { '*.localhost': deny } }", "operator-denied", "intercept.hosts.*.localhost"),
        (&secure, "hosts: { a.localhost: { intercept: deny } }", "operator-denied", "hosts.a.localhost.intercept"),
        (&plain, "hosts: { a.localhost: { deny: [/] } }", "operator-denied", "hosts.a.localhost.deny"),
        (&plain, "egress: { ports: [443] }", "egress-denied", "egress.ports"),
        (&plain, "egress: { ports: ['1-65535'], hosts: [b.example] }", "egress-denied", "egress.hosts"),
        (&plain, "egress: { ports: ['1-65535'], deny: [a.localhost] }", "egress-denied", "egress.deny"),
        (&plain, "egress: { ports: ['1-65535'] }", "egress-denied", "egress.allow"),
        (&plain, "egress: { ports: ['1-65535'], deny: [127.0.0.0/8, '::1'] }", "egress-denied", "egress.deny"),
    ] {
        let open = "egress: { allow: [127.0.0.0/8, '::1'], ports: ['1-65535'] }\n";
        let open = if yaml.starts_with("egress") { "" } else { open };
        std::fs::write(&file, format!("{open}{yaml}\n")).unwrap();
        let command = ["explain", url.as_str(), "--config", file.to_str().unwrap()];
        let text = politely(&command).await;
        let place = format!("\n  --> {key}, in the configuration\n");
        assert!(text.code == 1 && text.stdout.starts_with("disallowed: "), "{yaml}: {text:?}");
        assert!(text.stdout.contains(&place) && !text.stdout.contains("robots.txt ("), "{yaml}: {text:?}");
        let json = politely(&[&command[..], &["--format", "json"]].concat()).await;
        let told: Value = serde_json::from_str(&json.stdout).unwrap();
        assert_eq!((json.code, &told["allowed"], &told["reason"]), (1, &json!(false), &json!(reason)), "{yaml}");
    }
    assert!(origin.log.targets().iter().all(|target| target == "/robots.txt"), "{:?}", origin.log.targets());
}

/// `deny` applies to https only, and the proxy does not see the requests in a tunnel.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_shows_the_effect_of_intercept() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "User-agent: *\nDisallow: /private\n").unwrap();
    let robots = file.path().to_str().unwrap();
    let told = async |url: &str, set: &str| politely(&["explain", url, "--robots", robots, "--set", set]).await;
    let plain = told("http://a.example/x", "intercept.default=deny").await;
    assert!(plain.code == 0 && plain.stdout.starts_with("allowed: "), "{plain:?}");
    let denied = told("https://a.example/x", "intercept.default=deny").await;
    assert!(denied.code == 1 && denied.stdout.contains("denies https to this host"), "{denied:?}");
    let note = "\n  note: the proxy does not see the requests in a tunnel (`intercept.default: tunnel`)\n";
    for (url, has_note) in [("https://a.example/private", true), ("http://a.example/private", false)] {
        let tunnel = told(url, "intercept.default=tunnel").await;
        assert!(tunnel.code == 1 && tunnel.stdout.contains(note) == has_note, "{tunnel:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_applies_a_users_settings() {
    let directory = tempfile::tempdir().unwrap();
    let (file, robots) = (directory.path().join("politely.yaml"), directory.path().join("robots.txt"));
    std::fs::write(&robots, "User-agent: AnnaBot\nDisallow: /anna\nUser-agent: *\nDisallow: /all\n").unwrap();
    let yaml = "access: { users: [{ name: anna, certificate: anna, user_agent: AnnaBot/1, egress: { hosts: [a.example] },\n\
        hosts: { '*': { deny: [/own] } } }] }";
    std::fs::write(&file, yaml).unwrap();
    let (file, robots) = (file.to_str().unwrap(), robots.to_str().unwrap());
    for (url, of_anna, of_all) in [
        ("http://a.example/anna", "disallowed", "allowed"),
        ("http://a.example/all", "allowed", "disallowed"),
        ("http://a.example/own", "disallowed", "allowed"),
        ("http://b.example/x", "disallowed", "allowed"),
    ] {
        let arguments = ["explain", url, "--config", file, "--robots", robots];
        for (more, verdict) in [(&["--user", "anna"][..], of_anna), (&["--product-token", "OtherBot"], of_all)] {
            let ended = politely(&[&arguments[..], more].concat()).await;
            assert!(
                ended.stdout.starts_with(&format!("{verdict}: {url}\n")),
                "{more:?}: {}{}",
                ended.stdout,
                ended.stderr
            );
        }
    }
    let ended =
        politely(&["explain", "http://b.example/x", "--config", file, "--robots", robots, "--user", "anna"]).await;
    assert!(ended.stdout.contains("access.users[].egress.hosts: the host b.example is not listed"), "{}", ended.stdout);
    let ended =
        politely(&["explain", "http://a.example/", "--config", file, "--robots", robots, "--user", "bob"]).await;
    assert!(ended.code == 2 && ended.stderr.contains("there is no user `bob` in access.users"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn capped_crawl_delay_is_shown_with_its_original() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "User-agent: *\nCrawl-delay: 900\n").unwrap();
    let command = ["explain", "https://a.example/", "--robots", file.path().to_str().unwrap()];
    for (flags, said) in [
        (&[][..], "\n  crawl-delay: 300 s (`pace.max_crawl_delay`), instead of the 900 s asked for\n"),
        (&["--set", "pace.max_crawl_delay=1h"], "\n  crawl-delay: 900 s\n"),
    ] {
        let told = politely(&[&command[..], flags].concat()).await;
        assert!(told.stdout.contains(said), "{}{}", told.stdout, told.stderr);
    }
    let told: Value =
        serde_json::from_str(&politely(&[&command[..], &["--format", "json"]].concat()).await.stdout).unwrap();
    assert_eq!((&told["crawl_delay"], &told["max_crawl_delay"]), (&json!(900.0), &json!(300.0)));
}

/// `explain` judges by the current file, `run` by its stored copy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_shows_the_stored_copy_that_run_would_use() {
    let is_closed = Arc::new(AtomicBool::new(false));
    let closed = is_closed.clone();
    let origin =
        Origin::http(move |_| Reply::text(if closed.load(Relaxed) { "User-agent: *\nDisallow: /\n" } else { "" }))
            .await;
    let home = tempfile::tempdir().unwrap();
    let kept = ["XDG_CACHE_HOME", "STATE_DIRECTORY"].map(|name| (name, home.path().to_str().unwrap()));
    let (variables, url) = ([&open()[..], &kept].concat(), origin.url("/x"));
    let explain = async |flags: &[&str]| politely_with(&[&["explain", &url], flags].concat(), &variables).await.stdout;
    let before = explain(&[]).await;
    assert!(before.contains("\n  robots.txt: fetched now\n") && !before.contains("politely run"), "{before}");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "nothing is made by asking");
    let fetch = ["run", "-q", "curl", "-q", "-s", "-o", "/dev/null", "-w", "%{http_code}", &url];
    assert_eq!(politely_with(&fetch, &variables).await.stdout, "200");
    let same = explain(&[]).await;
    assert!(same.contains("which gives the same verdict on this URL"), "{same}");
    is_closed.store(true, Relaxed);
    let changed = explain(&[]).await;
    let [age, verdict] =
        [" more, `politely run` uses a copy fetched ", " ago, which allows this URL; with `--fresh`, it fetches"];
    assert!(changed.starts_with("disallowed: ") && changed.contains(age) && changed.contains(verdict), "{changed}");
    assert_eq!(politely_with(&fetch, &variables).await.stdout, "200", "as it was told");
    let told: Value = serde_json::from_str(&explain(&["--format", "json"]).await).unwrap();
    assert_eq!((&told["allowed"], &told["run"]["allowed"]), (&json!(false), &json!(true)), "{told}");
    assert!(told["run"]["fetched_at"].as_str() < told["run"]["expires_at"].as_str(), "{told}");
    // While a run is under way.
    let within = ["run", "-q", "sh", "-c", &format!("{} explain {url}; exit 0", env!("CARGO_BIN_EXE_politely"))];
    let open = politely_with(&within, &variables).await.stdout;
    assert!(open.contains(" more, `politely run` uses a copy fetched "), "{open}");
    let fresh = [&fetch[..1], &["--fresh"], &fetch[1..]].concat();
    assert_eq!(politely_with(&fresh, &variables).await.stdout, "403");
}

/// `run` uses its stored copies, and fetches only files without one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_shows_the_stored_tdmrep_and_licence_copies_of_run() {
    let is_reserved = Arc::new(AtomicBool::new(true));
    let reserved = is_reserved.clone();
    let origin = Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        "/.well-known/tdmrep.json" if reserved.load(Relaxed) => {
            Reply::text(r#"[{ "location": "/art/", "tdm-reservation": 1 }]"#)
        }
        "/.well-known/tdmrep.json" => Reply::status(404),
        _ => Reply::text("page"),
    })
    .await;
    let home = tempfile::tempdir().unwrap();
    let kept = ["XDG_CACHE_HOME", "STATE_DIRECTORY"].map(|name| (name, home.path().to_str().unwrap()));
    let mining = [&open()[..], &kept, &[("POLITELY_IDENTITY__PURPOSE", "[tdm]")]].concat();
    let (searching, url) = ([&open()[..], &kept].concat(), origin.url("/art/1"));
    let fetch = ["run", "-q", "curl", "-q", "-s", "-o", "/dev/null", "-w", "%{http_code}", &url];
    // A run without that purpose keeps robots.txt alone.
    assert_eq!(politely_with(&fetch, &searching).await.stdout, "200");
    let before = politely_with(&["explain", &url], &mining).await.stdout;
    assert!(
        before.starts_with("disallowed: ") && before.contains("which gives the same verdict on this URL"),
        "{before}"
    );
    assert_eq!(politely_with(&fetch, &mining).await.stdout, "403");
    is_reserved.store(false, Relaxed);
    let changed = politely_with(&["explain", &url], &mining).await.stdout;
    assert!(changed.starts_with("allowed: ") && changed.contains("which disallows this URL"), "{changed}");
    assert_eq!(politely_with(&fetch, &mining).await.stdout, "403", "as it was told");
}
