//! The access log: one line for each answered request.

use crate::support::{Alpn, Binary, Client, H2Client, Origin, Reply, eventually, h2_client};
use argon2::password_hash::PasswordHasher;
use argon2::{Argon2, Params};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use std::time::Duration;

/// A proxy that logs to its standard output, as JSON.
async fn logging(yaml: &str) -> Binary {
    Binary::serve(&format!("log: {{ access: stdout, format: json }}\n{yaml}")).await
}

fn lines(proxy: &Binary) -> Vec<Value> {
    let output = proxy.output();
    let objects = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    objects.filter(|line| !line["outcome"].is_null()).collect()
}

/// The lines, when there are so many.
async fn logged(proxy: &Binary, count: usize) -> Vec<Value> {
    eventually("the log", || lines(proxy).len() >= count).await;
    assert_eq!(lines(proxy).len(), count, "{}", proxy.output());
    lines(proxy)
}

/// The values of these fields; null for a missing one.
fn told<const N: usize>(line: &Value, names: [&str; N]) -> [Value; N] {
    names.map(|name| line[name].clone())
}

async fn get(proxy: &Binary, url: &str, fields: &str) -> u16 {
    let mut client = Client::open(proxy.address()).await;
    let host = url.split('/').nth(2).unwrap_or("a.example");
    client.send(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n")).await;
    client.response().await.status()
}

const RULES: &str = "User-agent: *\nDisallow: /private\nAllow: /private/open\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_log_of_a_forwarded_request_has_rule_and_route() {
    let origin = Origin::site(RULES).await;
    let proxy = logging("").await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let fields = format!("User-Agent: ExampleBot/1.0 (+\"http://a\")\r\ntraceparent: {trace}\r\n");
    let url = origin.url("/private/open?q=a%20b");
    assert_eq!(get(&proxy, &url, &fields).await, 200);
    // The origin connection is pooled by then.
    logged(&proxy, 1).await;
    assert_eq!(get(&proxy, &origin.url("/x"), "traceparent: 00-nonsense-00-00\r\n").await, 200);
    let lines = logged(&proxy, 2).await;
    let line = &lines[0];
    assert_eq!(told(line, ["client", "method", "url", "http"]), ["127.0.0.1", "GET", &url, "1.1"]);
    assert_eq!(told(line, ["authority", "agent"]), [&origin.url(""), "ExampleBot/1.0 (+\"http://a\")"]);
    assert_eq!(told(line, ["token", "traceparent", "outcome"]), ["ExampleBot", trace, "forwarded"]);
    assert_eq!(told(line, ["decision", "rule"]), ["allowed-by-rule", "Allow: /private/open"]);
    assert_eq!(told(line, ["line", "status", "bytes_in"]), [3, 200, 0]);
    assert_eq!(line["upstream"], origin.address().to_string());
    assert!(line["bytes_out"].as_u64() > Some(0) && line["origin_ms"].is_u64(), "{line}");
    assert!(line["ms"].as_u64() >= line["held_ms"].as_u64(), "robots.txt was waited for: {line}");
    assert!(line["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{line}");
    assert_eq!(told(line, ["user", "error", "detail", "enforced"]), [const { Value::Null }; 4]);
    assert_eq!(told(&lines[1], ["traceparent", "reused"]), [Value::Null, true.into()]);
    assert_ne!(line["id"], lines[1]["id"]);
    // Passed on, good or not.
    let seen = |path: &str| origin.log.one(path).field("traceparent").map(str::to_owned);
    assert_eq!(seen("/private/open?q=a%20b").as_deref(), Some(trace));
    assert_eq!(seen("/x").as_deref(), Some("00-nonsense-00-00"));
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_log_shows_the_reason_of_each_refusal() {
    let origin = Origin::site(RULES).await;
    let proxy = logging("").await;
    let gone = "http://127.0.0.1:1";
    assert_eq!(get(&proxy, &origin.url("/private?\"x\""), "").await, 403);
    assert_eq!(get(&proxy, &origin.url("/robots.txt"), "").await, 200);
    assert_eq!(get(&proxy, "http://10.0.0.1/", "").await, 403);
    assert_eq!(get(&proxy, &format!("{gone}/"), "").await, 503);
    assert_eq!(get(&proxy, "/", "").await, 400);
    assert_eq!(get(&proxy, "http://u:p@a.example/", "").await, 400);
    let lines = logged(&proxy, 6).await;
    let names = ["outcome", "decision", "status"];
    let all: Vec<_> = lines.iter().map(|line| told(line, names).map(|it| it.to_string()).join(" ")).collect();
    let wanted = [
        "\"refused\" \"robots-disallowed\" 403",
        "\"answered\" \"robots-txt\" 200",
        "\"refused\" \"egress-denied\" 403",
        "\"refused\" \"robots-unreachable\" 503",
        "\"refused\" \"bad-request\" 400",
        "\"refused\" \"bad-request\" 400",
    ];
    assert_eq!(all, wanted);
    assert_eq!(told(&lines[0], ["rule", "line"]), [Value::from("Disallow: /private"), 2.into()]);
    assert!(lines[0]["detail"].as_str().is_some_and(|why| why.contains("line 2")), "{}", lines[0]);
    assert!(lines[0]["upstream"].is_null() && lines[0]["bytes_out"].as_u64() > Some(100), "{}", lines[0]);
    assert!(lines[4]["url"].is_null() && lines[4]["method"].is_null(), "it could not be read: {}", lines[4]);
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_log_shows_options_asterisk_without_a_path() {
    let origin = Origin::site("").await;
    let proxy = logging("").await;
    let host = origin.authority("a.localhost");
    let mut client = Client::open(proxy.address()).await;
    client.send(format!("OPTIONS http://{host} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
    client.response().await;
    assert_eq!(origin.log.count("*"), 1);
    assert_eq!(logged(&proxy, 1).await[0]["url"], format!("http://{host}"));
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_leaving_after_an_early_answer_is_logged_as_forwarded() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::status(404),
        _ => Reply::status(413).body("no").before_the_body(),
    })
    .await;
    let proxy = logging("").await;
    let mut client = Client::open(proxy.address()).await;
    let (url, host) = (origin.url("/upload"), origin.authority("a.localhost"));
    client.send(format!("POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100\r\n\r\nfirst")).await;
    assert_eq!(client.response().await.status(), 413);
    drop(client);
    let line = &logged(&proxy, 1).await[0];
    assert_eq!(told(line, ["outcome", "status", "bytes_out"]), [Value::from("forwarded"), 413.into(), 2.into()]);
}

/// Including bytes that arrived in the same read as the inspected head.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_log_counts_all_bytes_of_an_inspected_page() {
    let page = format!("<head></head><body>{}", "x".repeat(200_000));
    let length = page.len();
    let origin = Origin::http(move |_| Reply::status(200).field("Content-Type", "text/html").body(&page)).await;
    let proxy = logging("identity: { purpose: [ai-train] }").await;
    for number in 0..5 {
        assert_eq!(get(&proxy, &origin.url(&format!("/{number}")), "").await, 200);
    }
    for line in logged(&proxy, 5).await {
        assert_eq!(line["bytes_out"], length, "{line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_log_records_connect_with_its_bytes() {
    let origin = Origin::tls_site(Alpn::H1, "").await;
    let proxy = logging("intercept: { hosts: { b.localhost: tunnel } }").await;
    let curl = |host: &str| {
        let url = format!("https://{}/x", origin.authority(host));
        let ca = crate::support::test_ca().pem_file().to_str().expect("UTF-8").to_owned();
        let (proxied, own) = (proxy.url(), proxy.ca_pem_path().display().to_string());
        let roots = if host.starts_with('b') { ca } else { own };
        async move { crate::support::curl(&["-x", &proxied, "--cacert", &roots, "-A", "Bot/1", &url]).await.code }
    };
    assert_eq!((curl("a.localhost").await, curl("b.localhost").await), (0, 0));
    let lines = logged(&proxy, 3).await;
    let [connect, inside, tunnel] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(told(connect, ["method", "outcome", "decision"]), ["CONNECT", "intercepted", "intercept"]);
    assert_eq!(told(connect, ["agent", "authority"]), ["Bot/1", &origin.url("")]);
    assert_eq!(told(inside, ["method", "outcome", "url"]), ["GET", "forwarded", &origin.url("/x")]);
    assert_eq!(told(tunnel, ["method", "outcome", "decision"]), ["CONNECT", "tunnelled", "tunnel"]);
    let bytes = |name: &str| tunnel[name].as_u64().expect("a number");
    assert!(bytes("bytes_in") > 200 && bytes("bytes_out") > 500, "TLS and all: {tunnel}");
    assert_eq!(tunnel["upstream"], origin.address().to_string());
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_log_names_the_user_even_if_refused() {
    let origin = Origin::site("").await;
    let cheap = Params::new(8, 1, 1, None).expect("the least there is");
    let hash = Argon2::from(cheap).hash_password(b"correct horse").expect("it is hashed").to_string();
    let proxy = logging(&format!("access: {{ users: [{{ name: alice, password: '{hash}' }}] }}")).await;
    // A line may come later than the answer.
    assert_eq!(get(&proxy, &origin.url("/x"), "").await, 407);
    logged(&proxy, 1).await;
    let field = format!("Proxy-Authorization: Basic {}\r\n", BASE64_STANDARD.encode("alice:correct horse"));
    assert_eq!(get(&proxy, &origin.url("/x"), &field).await, 200);
    let lines = logged(&proxy, 2).await;
    assert_eq!(told(&lines[0], ["outcome", "decision", "method"]), ["refused", "client-denied", "GET"]);
    assert_eq!(told(&lines[0], ["user", "status"]), [Value::Null, 407.into()]);
    assert_eq!(told(&lines[1], ["outcome", "user"]), ["forwarded", "alice"]);
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_log_counts_the_wait_of_a_retry_as_held() {
    let origin = Origin::resetting("User-agent: *\nCrawl-delay: 2\n").await;
    let proxy = logging("").await;
    assert_eq!(get(&proxy, &origin.url("/page1"), "").await, 200);
    // The gap is over, so that the first attempt does not wait.
    tokio::time::sleep(Duration::from_millis(2100)).await;
    assert_eq!(get(&proxy, &origin.url("/page2"), "").await, 200);
    let lines = logged(&proxy, 2).await;
    assert_eq!(origin.log.count("/page2"), 2);
    assert!(lines[1]["held_ms"].as_u64() > Some(100), "{}", lines[1]);
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_log_marks_held_and_reported_requests() {
    let origin = Origin::site("User-agent: *\nDisallow: /private\nCrawl-delay: 2\n").await;
    let proxy = logging("").await;
    let [first, second] = ["/1", "/2"].map(|target| origin.url(target));
    assert_eq!(tokio::join!(get(&proxy, &first, ""), get(&proxy, &second, "")), (200, 200));
    let lines = logged(&proxy, 2).await;
    assert!(lines[1]["held_ms"].as_u64() > Some(0) && lines[1]["ms"].as_u64() >= lines[1]["held_ms"].as_u64());
    proxy.stop().await;
    let proxy = logging("mode: report").await;
    assert_eq!(get(&proxy, &origin.url("/private"), "").await, 200);
    let line = &logged(&proxy, 1).await[0];
    assert_eq!(told(line, ["outcome", "decision", "rule"]), ["forwarded", "robots-disallowed", "Disallow: /private"]);
    assert_eq!(told(line, ["enforced", "line"]), [Value::from(false), 2.into()]);
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_log_records_h2_streams_lost_with_their_connection() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        _ => Reply::silence(),
    })
    .await;
    let proxy = logging("").await;
    let client = H2Client::known(Client::open(proxy.address()).await).await;
    let mut stream = client.send(h2_client::request("POST", &origin.url("/x")), false).await;
    stream.body(&[b'x'; 10_000]).await.expect("it is taken");
    stream.end().expect("it may end");
    eventually("the request at the origin", || origin.log.count("/x") == 1).await;
    drop((stream, client));
    let line = &logged(&proxy, 1).await[0];
    assert_eq!(told(line, ["outcome", "http", "url"]), ["client-gone", "2", &origin.url("/x")]);
    assert_eq!(told(line, ["status", "bytes_in"]), [0, 10_000], "what went until then");
    proxy.stop().await;
}

/// Any program of this machine can read the metrics.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_name_users_only_with_the_token() {
    let origin = Origin::site(RULES).await;
    let cheap = Params::new(8, 1, 1, None).expect("the least there is");
    let hash = Argon2::from(cheap).hash_password(b"alice").expect("it is hashed").to_string();
    let admin = "admin: { address: '127.0.0.1:0' }";
    let proxy = logging(&format!("{admin}\naccess: {{ users: [{{ name: alice, password: '{hash}' }}] }}")).await;
    let field = format!("Proxy-Authorization: Basic {}\r\n", BASE64_STANDARD.encode("alice:alice"));
    let asked = [("/x", &*field, 200), ("/private", &field, 403), ("/x", "", 407)];
    for (target, fields, status) in asked {
        assert_eq!(get(&proxy, &origin.url(target), fields).await, status);
    }
    logged(&proxy, asked.len()).await;
    let metrics = async |token: &[&str]| {
        let url = format!("http://{}/metrics", proxy.admin());
        let text = crate::support::curl(&[token, &[&url]].concat()).await.text();
        let mut lines: Vec<_> = text.lines().filter(|line| line.starts_with("politely_requests_total")).collect();
        lines.retain(|line| !line.ends_with(" 0"));
        lines.sort_unstable();
        lines.join("\n").replace("politely_requests_total", "")
    };
    let names = "{outcome=\"client-denied\"} 1\n{outcome=\"forwarded\",user=\"alice\"} 1\n{outcome=\"robots-disallowed\",user=\"alice\"} 1";
    let token = ["--oauth2-bearer", crate::support::ADMIN_TOKEN];
    assert_eq!(metrics(&token).await, names);
    assert_eq!(metrics(&[]).await, names.replace(",user=\"alice\"", ""));
    proxy.stop().await;
}
