//! Watching a running proxy: the refusals of late, the configuration in force, the page for people, and the description
//! of all that for programs.

use super::address::{ON, admin_of, asked, escaped, json};
use crate::life::{KEEP_OUT, origin};
use crate::serving::access::{request, users};
use crate::support::binary::preload;
use crate::support::{ADMIN_TOKEN, Binary, Client, Proxy, Reply, eventually};
use serde_json::Value;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_are_shown_with_their_reasons() {
    let origin = origin(|_| Reply::text(KEEP_OUT)).await;
    let proxy = Proxy::start(ON).await;
    let admin = proxy.admin_address();
    assert_eq!(json(admin, "GET", "/api/v1/decisions").await, Value::Array(Vec::new()));
    proxy.get(&origin.url("/private?q=<script>")).await;
    proxy.get(&origin.url("/open")).await;
    proxy.get("http://169.254.169.254/").await;
    let told = json(admin, "GET", "/api/v1/decisions").await;
    let reasons: Vec<_> = told.as_array().expect("a list").iter().map(|decision| &decision["reason"]).collect();
    assert_eq!(reasons, ["robots-disallowed", "egress-denied"], "what went is not told: {told}");
    let first = &told[0];
    assert_eq!((&first["number"], &first["client"], &first["line"]), (&1.into(), &"127.0.0.1".into(), &2.into()));
    assert_eq!((&first["rule"], &first["enforced"]), (&"Disallow: /private".into(), &true.into()));
    assert!(first["url"].as_str().is_some_and(|url| url.starts_with(&origin.url("/private?q="))), "{first}");
    assert!(first["at"].as_str().is_some_and(|at| at.ends_with('Z')), "{first}");
    let later = json(admin, "GET", "/api/v1/decisions?after=1").await;
    assert_eq!((later.as_array().map(Vec::len), &later[0]["number"]), (Some(1), &2.into()));
    assert_eq!(json(admin, "GET", "/api/v1/decisions?limit=1").await, later, "the newest");
    assert_eq!(asked(admin, "GET", "/api/v1/decisions?after=x", "").await.status(), 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_endpoint_counts_each_users_requests() {
    let origin = origin(|_| Reply::text(KEEP_OUT)).await;
    let proxy = Proxy::start(&format!("{ON}\n{}", users("budget: { requests: 5, per: day }"))).await;
    let admin = proxy.admin_address();
    assert_eq!(json(admin, "GET", "/api/v1/users").await, Value::Array(Vec::new()), "nobody has asked");
    let mut client = proxy.client().await;
    // The last one, on the same connection, is nobody's.
    for (target, user, status) in
        [("/1", "alice", 200), ("/private", "alice", 403), ("/2", "alice", 200), ("/3", "carol", 407)]
    {
        client.send(request(&origin.url(target), user)).await;
        assert_eq!(client.response().await.status(), status, "{target} {user}");
    }
    // Requests for the proxy's own setup pages are not counted for users.
    for target in ["/ca.pem", "/"] {
        client.send(request(&format!("http://politely.invalid{target}"), "alice")).await;
        assert_eq!(client.response().await.status(), 200, "{target}");
    }
    let mut other = proxy.client().await;
    other.send(request(&origin.url("/4"), "bob")).await;
    assert_eq!(other.response().await.status(), 200);
    let all = async || json(admin, "GET", "/api/v1/users").await;
    let mut told = all().await;
    // Forwarded requests are counted after the end of the answer.
    while told.as_array().map(Vec::len) != Some(3) || told[0]["forwarded"] != 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        told = all().await;
    }
    let alice = &told[0];
    assert_eq!((&alice["user"], &alice["requests"], &alice["client"]), (&"alice".into(), &3.into(), &Value::Null));
    assert_eq!(alice["refused"], serde_json::json!({ "robots-disallowed": 1 }), "{alice}");
    assert_eq!(alice["bytes"], 2 * KEEP_OUT.len(), "{alice}");
    assert_eq!((&alice["budget"]["requests"], &alice["budget"]["max_requests"]), (&2.into(), &5.into()), "{alice}");
    let nobody =
        told.as_array().expect("a list").iter().find(|user| user["client"] == "127.0.0.1").expect("who has no user");
    assert_eq!((&nobody["user"], &nobody["refused"]["client-denied"]), (&Value::Null, &1.into()), "{told}");
    let bob = told.as_array().expect("a list").iter().find(|user| user["user"] == "bob").expect("bob");
    assert_eq!((&bob["requests"], &bob["budget"]), (&1.into(), &Value::Null), "{told}");
    let first = json(admin, "GET", "/api/v1/users?limit=1").await;
    assert_eq!((first.as_array().map(Vec::len), &first[0]["user"]), (Some(1), &"alice".into()));
    assert_eq!(json(admin, "GET", "/api/v1/status").await["users"], told);
    assert_eq!(asked(admin, "GET", "/api/v1/users", "Authorization: Bearer x\r\n").await.status(), 401);
    let metrics = async |token: &str| asked(admin, "GET", "/metrics", token).await.text();
    let named = metrics(&format!("Authorization: Bearer {ADMIN_TOKEN}\r\n")).await;
    let bytes = format!("politely_user_bytes_total{{user=\"alice\"}} {}\n", 2 * KEEP_OUT.len());
    assert!(named.contains(&bytes) && named.contains("politely_user_waited_seconds_total{user=\"bob\"} "), "{named}");
    assert!(
        !metrics("Authorization: Bearer x\r\n").await.contains("politely_user_"),
        "users are named to who has the token"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn report_mode_decisions_are_recorded_as_not_enforced() {
    let origin = origin(|_| Reply::text(KEEP_OUT)).await;
    let proxy = Proxy::start(&format!("{ON}\nmode: report")).await;
    let admin = proxy.admin_address();
    assert_eq!(proxy.get(&origin.url("/private")).await.status(), 200);
    let mut told = Value::Null;
    // The decision is published after the end of the answer.
    while told[0].is_null() {
        told = json(admin, "GET", "/api/v1/decisions").await;
    }
    assert_eq!((&told[0]["enforced"], &told[0]["reason"]), (&false.into(), &"robots-disallowed".into()));
    assert_eq!(json(admin, "GET", "/api/v1/status").await["requests"]["reported"]["robots-disallowed"], 1);
    let metrics = asked(admin, "GET", "/metrics", "").await.text();
    assert!(metrics.contains("politely_requests_reported_total{outcome=\"robots-disallowed\"} 1"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_stream_sends_each_refusal_until_shutdown() {
    let origin = origin(|_| Reply::text(KEEP_OUT)).await;
    let proxy = Proxy::start(ON).await;
    let admin = proxy.admin_address();
    proxy.get(&origin.url("/private?1")).await;
    proxy.get(&origin.url("/private?2")).await;
    let mut stream = BufReader::new(TcpStream::connect(admin).await.expect("it listens"));
    let request = format!(
        "GET /api/v1/decisions HTTP/1.1\r\nHost: {admin}\r\nAccept: text/event-stream\r\nLast-Event-ID: 1\r\n\
         Authorization: Bearer {ADMIN_TOKEN}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("it reads");
    for (number, target) in [(2, "/private?2"), (3, "/private?3")] {
        if number == 3 {
            proxy.get(&origin.url(target)).await;
        }
        let told = event(&mut stream).await;
        assert_eq!((&told["number"], &told["url"]), (&number.into(), &origin.url(target).into()));
    }
    let stopped = timeout(Duration::from_secs(20), proxy.shutdown()).await;
    assert!(stopped.is_ok(), "somebody who watches does not keep the proxy from stopping");
}

async fn event(stream: &mut BufReader<TcpStream>) -> Value {
    loop {
        let mut line = String::new();
        let read = timeout(Duration::from_secs(20), stream.read_line(&mut line)).await.expect("an event in time");
        assert!(read.expect("it goes on") > 0, "the stream has ended");
        if let Some(data) = line.strip_prefix("data: ") {
            return serde_json::from_str(data).expect("JSON");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_configuration_in_force_is_shown_without_secrets() {
    let proxy = Proxy::start(&format!(
        "{ON}\npace: {{ max_wait: 7s }}\naccess: {{ users: [{{ name: ann, password: \
         '$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$s3crets3crets3crets3crets3crets3crets3crets' }}] }}"
    ))
    .await;
    let told = json(proxy.admin_address(), "GET", "/api/v1/config").await;
    assert_eq!((&told["pace"]["max_wait"], &told["pace"]["queue"]), (&"7s".into(), &1000.into()));
    assert_eq!(told["access"]["users"][0]["name"], "ann");
    assert!(!told.to_string().contains("s3cret"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dashboard_csp_allows_only_its_own_scripts() {
    let proxy = Proxy::start(ON).await;
    let admin = proxy.admin_address();
    let page = asked(admin, "GET", "/", "").await;
    assert_eq!((page.status(), page.field("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(page.field("content-security-policy").is_some_and(|policy| policy.starts_with("default-src 'none'")));
    let text = page.text();
    for (part, kind) in [("/dashboard/app.js", "text/javascript"), ("/dashboard/style.css", "text/css")] {
        assert!(text.contains(part), "{part}");
        let part = asked(admin, "GET", part, "").await;
        assert!(part.status() == 200 && part.field("content-type").is_some_and(|got| got.starts_with(kind)));
    }
    assert_eq!(asked(admin, "GET", "/", "Host: evil.example\r\n").await.status(), 421);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openapi_description_lists_existing_endpoints() {
    let origin = origin(|_| Reply::text(KEEP_OUT)).await;
    let proxy = Proxy::start(ON).await;
    let admin = proxy.admin_address();
    proxy.get(&origin.url("/private")).await;
    let description = json(admin, "GET", "/api/v1/openapi.json").await;
    assert_eq!(description["info"]["version"], env!("CARGO_PKG_VERSION"));
    let paths = description["paths"].as_object().expect("paths");
    for (path, methods) in paths {
        let target = path.replace("{authority}", &escaped(&origin.url("")));
        let target = if path.ends_with("explain") { format!("{target}?url={}", origin.url("/")) } else { target };
        for method in ["get", "post"] {
            let answer = asked(admin, &method.to_uppercase(), &target, "").await;
            let Some(described) = methods.get(method) else {
                assert_eq!(answer.status(), 405, "{method} {path}");
                continue;
            };
            let response = &described["responses"][answer.status().to_string()];
            let response = match response["$ref"].as_str() {
                Some(reference) => {
                    description.pointer(reference.trim_start_matches('#')).expect("it refers to what is there")
                }
                None => response,
            };
            let kind = answer.field("content-type").expect("a type").split(';').next().expect("a first part");
            let content = &response["content"][kind];
            assert!(content.is_object(), "{method} {path} answered {} as {kind}", answer.status());
            if kind == "application/json" {
                let value = serde_json::from_slice(&answer.body).expect("JSON");
                fits(&description, &content["schema"], &value, path);
            }
        }
    }
    let routes = include_str!("../../../src/admin/mod.rs").matches(".route(").count();
    assert_eq!(routes, paths.len() + 3, "all but the page, its script and its style are described");
}

/// As far as this description goes: `$ref`, `allOf`, `type`, `enum`, `required`, `properties`, `items`.
fn fits(description: &Value, schema: &Value, value: &Value, at: &str) {
    if let Some(reference) = schema["$ref"].as_str() {
        let schema = description.pointer(reference.trim_start_matches('#')).expect("it refers to what is there");
        return fits(description, schema, value, at);
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        fits(description, part, value, at);
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let is = |wanted: &Value| wanted == kind || (wanted == "number" && kind == "integer");
    let right = match &schema["type"] {
        Value::Null => true,
        Value::Array(kinds) => kinds.iter().any(is),
        wanted => is(wanted),
    };
    assert!(right, "{at}: {value} is no {}", schema["type"]);
    if let Some(words) = schema["enum"].as_array() {
        assert!(words.contains(value), "{at}: {value}");
    }
    let required = schema["required"].as_array().filter(|_| value.is_object());
    for name in required.into_iter().flatten().filter_map(Value::as_str) {
        assert!(value.get(name).is_some(), "{at}: `{name}` is missing");
    }
    if let (Some(properties), Some(members)) = (schema["properties"].as_object(), value.as_object()) {
        for (name, member) in members {
            let known = properties.get(name);
            assert!(known.is_some() || schema.get("allOf").is_some() || at.contains("{authority}"), "{at}: `{name}`");
            if let Some(known) = known {
                fits(description, known, member, &format!("{at} {name}"));
            }
        }
    }
    for item in value.as_array().into_iter().flatten() {
        fits(description, &schema["items"], item, at);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_endpoint_applies_the_settings_of_the_host() {
    let origin = origin(|_| Reply::text(format!("{KEEP_OUT}\nUser-agent: OtherBot\nDisallow: /other\n"))).await;
    let proxy = Proxy::start(&format!(
        "{ON}\nhosts: {{ 'b.localhost': {{ robots: ignore }}, 'c.localhost': {{ robots: report, crawl_delay: 2s }}, \
         'd.localhost': {{ allow: ['/private/open'], deny: ['/own'] }}, \
         'e.localhost': {{ product_tokens: [OtherBot] }} }}"
    ))
    .await;
    for (host, target, allowed, reason) in [
        ("a", "/private", false, "robots-disallowed"),
        ("b", "/private", true, "robots-ignored"),
        ("c", "/private", true, "robots-disallowed"),
        ("c", "/open", true, "no-matching-rule"),
        ("d", "/private", false, "robots-disallowed"),
        ("d", "/private/open", true, "allowed-by-operator"),
        ("d", "/own", false, "operator-denied"),
        ("e", "/other", false, "robots-disallowed"),
        ("e", "/private", true, "no-matching-rule"),
    ] {
        let url = origin.url_at(&format!("{host}.localhost"), target);
        let told = json(proxy.admin_address(), "GET", &format!("/api/v1/explain?url={url}")).await;
        assert_eq!((&told["allowed"], &told["reason"]), (&allowed.into(), &reason.into()), "{url}");
        assert_eq!(told["crawl_delay"].as_f64(), (host == "c").then_some(2.0), "{url}");
        assert_eq!(proxy.get(&url).await.status() == 403, !allowed, "what is explained is what is done: {url}");
    }
}

/// Like `politely explain`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_endpoint_fails_if_robots_txt_cannot_be_fetched() {
    let directory = tempfile::tempdir().unwrap();
    let library = preload(directory.path(), "int getaddrinfo(void) { return -3; /* EAI_AGAIN */ }\n");
    let yaml = format!("{ON}\nhosts: {{ ignored.example: {{ robots: ignore }} }}");
    let proxy = Binary::serve_with(&yaml, &[("LD_PRELOAD", library.to_str().unwrap())]).await;
    let told = async |host| asked(admin_of(&proxy), "GET", &format!("/api/v1/explain?url=https://{host}/x"), "").await;
    let none = told("nowhere.example").await;
    assert_eq!(none.status(), 503, "{}", none.text());
    let why =
        "cannot read https://nowhere.example/robots.txt: the proxy has reached a limit of its own (cannot resolve";
    assert!(none.text().contains(why), "{}", none.text());
    // A host with `robots: ignore` needs no robots.txt.
    assert_eq!(told("ignored.example").await.status(), 200);
    proxy.stop().await;
}

/// Like `politely explain --user`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_endpoint_applies_the_users_settings() {
    let origin =
        origin(|_| Reply::text("User-agent: AnnaBot\nDisallow: /anna\n\nUser-agent: *\nDisallow: /all\n")).await;
    let proxy = Proxy::start(&format!(
        "{ON}\naccess: {{ users: [{{ name: anna, certificate: anna, product_tokens: [AnnaBot], egress: {{ hosts: [a.localhost] }}, \
         hosts: {{ '*': {{ deny: [/own] }} }} }}] }}"
    ))
    .await;
    let told = async |host: &str, target: &str, user: &str| {
        let target = format!("/api/v1/explain?url={}{user}", origin.url_at(host, target));
        let told = json(proxy.admin_address(), "GET", &target).await;
        (told["allowed"].as_bool().expect("a verdict"), told["reason"].as_str().expect("a reason").to_owned())
    };
    for (host, target, of_anna, of_all) in [
        ("a.localhost", "/anna", (false, "robots-disallowed"), (true, "no-matching-rule")),
        ("a.localhost", "/all", (true, "no-matching-rule"), (false, "robots-disallowed")),
        ("a.localhost", "/own", (false, "operator-denied"), (true, "no-matching-rule")),
        ("b.localhost", "/x", (false, "egress-denied"), (true, "no-matching-rule")),
    ] {
        for (user, (allowed, reason)) in [("&user=anna", of_anna), ("", of_all)] {
            assert_eq!(told(host, target, user).await, (allowed, reason.to_owned()), "{host}{target}{user}");
        }
    }
    let nobody = format!("/api/v1/explain?url={}&user=bob", origin.url("/"));
    let nobody = asked(proxy.admin_address(), "GET", &nobody, "").await;
    assert_eq!(nobody.status(), 400);
    assert!(nobody.text().contains("there is no user `bob` in access.users"), "{}", nobody.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_of_parse_options_reinterprets_cached_files() {
    // The 1996 reading takes the first rule that matches, RFC 9309 the longest.
    let origin = origin(|_| Reply::text("User-agent: *\nAllow: /\nDisallow: /private\n")).await;
    let proxy = Binary::serve(ON).await;
    eventually("its address", || proxy.output().contains("admin address")).await;
    let admin = admin_of(&proxy);
    let status = async || {
        let mut client = Client::open(proxy.address()).await;
        client.get(&origin.url("/private"), &origin.authority("a.localhost")).await.status()
    };
    assert_eq!(status().await, 403);
    let file = proxy.directory().join("politely.yaml");
    let good = std::fs::read_to_string(&file).expect("it is there");
    std::fs::write(&file, format!("{good}\nrobots: {{ precedence: first-match }}\n")).expect("it is writable");
    assert_eq!(asked(admin, "POST", "/api/v1/reload", "").await.status(), 200);
    let mut told = 403;
    for _ in 0..200 {
        told = status().await;
        if told == 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!((told, origin.log.count("/robots.txt")), (200, 1), "read anew, not fetched anew");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_requests_are_listed_with_client_and_remaining_wait() {
    let origin = origin(|_| Reply::text("User-agent: *\nCrawl-delay: 200\n")).await;
    let proxy = Proxy::start(&format!("{ON}\npace: {{ max_wait: 10m }}")).await;
    let admin = proxy.admin_address();
    assert_eq!(json(admin, "GET", "/api/v1/held").await, Value::Array(Vec::new()));
    assert_eq!(proxy.get(&origin.url("/1")).await.status(), 200);
    let mut clients = Vec::new();
    for path in ["/2", "/3"] {
        let mut client = proxy.client().await;
        let host = origin.authority("a.localhost");
        client.send(format!("GET {} HTTP/1.1\r\nHost: {host}\r\n\r\n", origin.url(path))).await;
        clients.push(client);
        eventually("it is held", || proxy.waiting() == clients.len()).await;
    }
    let held = json(admin, "GET", "/api/v1/held").await;
    let urls: Vec<_> = held.as_array().expect("a list").iter().map(|one| &one["url"]).collect();
    assert_eq!(urls, [&origin.url("/2"), &origin.url("/3")]);
    let left = |at: usize| held[at]["left"].as_f64().expect("a number");
    assert!(left(0) > 100.0 && left(0) <= 200.1 && (left(1) - left(0) - 200.0).abs() < 1.0, "{held}");
    assert_eq!(
        (&held[0]["for"], &held[0]["gap"], &held[0]["client"]),
        (&"gap".into(), &200.0.into(), &"127.0.0.1".into())
    );
    assert_eq!(json(admin, "GET", "/api/v1/authorities").await[0]["crawl_delay"], 200.0);
}

/// A subresource does not wait for the gap of pages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_subresource_is_listed_with_its_reason() {
    let origin = origin(|seen| match seen.path().as_str() {
        "/part1" => Reply::silence(),
        _ => Reply::text("User-agent: *\nCrawl-delay: 200\n"),
    })
    .await;
    let burst = "pace: { max_wait: 10m, subresources: burst, max_concurrent: 2 }";
    let proxy = Proxy::start(&format!("{ON}\n{burst}")).await;
    assert_eq!(proxy.get(&origin.url("/page")).await.status(), 200);
    let (host, mut parts) = (origin.authority("a.localhost"), Vec::new());
    for path in ["/part1", "/part2"] {
        let mut client = proxy.client().await;
        let dest = "Sec-Fetch-Dest: image\r\n\r\n";
        client.send(format!("GET {} HTTP/1.1\r\nHost: {host}\r\n{dest}", origin.url(path))).await;
        parts.push(client);
        eventually("it is there", || origin.log.count("/part1") + proxy.waiting() == parts.len()).await;
    }
    let held = json(proxy.admin_address(), "GET", "/api/v1/held").await;
    assert_eq!((&held[0]["url"], &held[0]["for"]), (&origin.url("/part2").into(), &"in-flight".into()), "{held}");
    assert_eq!(held[0]["left"], Value::Null, "{held}");
}
