//! Answers that are never shared, and clients to whom hits are refused.

use super::{caching, fresh, is_hit, pages, with};
use crate::support::client::get;
use crate::support::{Alpn, Client, Origin, Reply, Response, Seen, assert_refused};
use argon2::password_hash::PasswordHasher;
use argon2::{Algorithm, Argon2, Params, Version};
use base64::prelude::{BASE64_STANDARD, Engine};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_with_credentials_or_private_fields_bypass_the_cache() {
    let origin = pages(|_| fresh("page")).await;
    let (proxy, _directory) = caching("").await;
    let client = &mut proxy.client().await;
    for (number, field) in [
        "Authorization: Basic YTpi",
        "Cookie: a=b",
        "Range: bytes=0-1,3-4",
        "If-Match: \"a\"",
        "Signature-Input: sig1=()",
        "crawler-max-price: USD 1",
        "X-Api-Key: a",
        "X-Forwarded-Host: b.example",
        "X-SSO: a",
        "X-Requested-With: XMLHttpRequest",
        "Cache-Control: No-Store",
    ]
    .into_iter()
    .enumerate()
    {
        let (path, field) = (format!("/{number}"), format!("{field}\r\n"));
        for _ in 0..2 {
            let own = with(client, &origin, "GET", &path, &field).await;
            assert!(own.status() == 200 && own.head.all("cache-status").is_empty(), "{field}");
        }
        assert!(!is_hit(&with(client, &origin, "GET", &path, "").await), "{field}: it was not kept");
        assert!(is_hit(&with(client, &origin, "GET", &path, "").await));
        assert!(!is_hit(&with(client, &origin, "GET", &path, &field).await), "{field}: it is not answered by others'");
        assert_eq!(origin.log.count(&path), 4, "{field}");
    }
    for method in ["POST", "PUT"] {
        for _ in 0..2 {
            with(client, &origin, method, "/post", "Content-Length: 0\r\n").await;
        }
        assert!(!is_hit(&with(client, &origin, "GET", "/post", "").await), "{method}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_forbid_storing_are_not_stored() {
    let fields = [
        ("Set-Cookie", "a=b"),
        ("Cache-Control", "Private"),
        ("Cache-Control", "NO-STORE"),
        ("Vary", "*"),
        ("Vary: *\r\nConnection", "Vary"),
        ("Set-Cookie: a=b\r\nConnection", "set-cookie"),
        ("crawler-charged", "USD 1"),
        ("X-Robots-Tag", "noai"),
        ("Content-Usage", "train-ai=n"),
        ("Content-Signal", "ai-train=no"),
        ("TDM-Reservation", "1"),
    ];
    let site = move |seen: &Seen| {
        let path = seen.path();
        let (number, status) = path[1..].split_once('/').unwrap_or((&path[1..], "200"));
        let (name, value) = fields.get(number.parse::<usize>().unwrap()).copied().unwrap_or(("X-Y", "z"));
        Reply { status: status.parse().unwrap(), ..fresh("page") }.field(name, value)
    };
    let origin = pages(site).await;
    let (proxy, _directory) = caching("").await;
    let client = &mut proxy.client().await;
    let paths = (0..fields.len()).map(|number| format!("/{number}"));
    let statuses = [206, 401, 402, 429, 511].map(|status| format!("/99/{status}"));
    for path in paths.chain(statuses) {
        for _ in 0..2 {
            let response = with(client, &origin, "GET", &path, "").await;
            assert!(!is_hit(&response), "{path}: {response:?}");
            assert!(!response.head.all("cache-status").join("").contains("stored"), "{path}");
        }
        assert_eq!(origin.log.count(&path), 2, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn truncated_and_close_delimited_answers_are_not_stored() {
    let site = |seen: &Seen| match seen.path().as_str() {
        "/short" => fresh("page").framed(crate::support::reply::Delimit::Short(5)),
        _ => fresh("page").framed(crate::support::reply::Delimit::Close),
    };
    let origin = pages(site).await;
    let (proxy, _directory) = caching("").await;
    for path in ["/short", "/close"] {
        for _ in 0..2 {
            let curl = proxy.curl(&[&origin.url(path)]).await;
            assert!(!curl.head().field("cache-status").unwrap().contains("hit"), "{path}");
        }
        assert_eq!(origin.log.count(path), 2, "{path}");
    }
}

fn users(alice: &str) -> String {
    let cheap = Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::new(8, 1, 1, None).unwrap());
    let hash = cheap.hash_password(b"p").unwrap().to_string();
    format!(
        "access: {{ users: [{{ name: alice, password: '{hash}', {alice} }}, {{ name: bob, password: '{hash}' }}, {{ name: carol, password: '{hash}' }}] }}"
    )
}

fn login(name: &str) -> String {
    format!("Proxy-Authorization: Basic {}\r\n", BASE64_STANDARD.encode(format!("{name}:p")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_with_their_own_terms_do_not_share_the_cache() {
    for terms in ["product_tokens: [AliceBot]", "user_agent: AliceBot/1", "hosts: { a.localhost: { crawl_delay: 0s } }"]
    {
        let origin = pages(|_| fresh("page")).await;
        let (proxy, _directory) = caching(&users(terms)).await;
        let client = &mut proxy.client().await;
        let mut hits = Vec::new();
        for name in ["alice", "bob", "alice", "carol", "alice"] {
            let response = with(client, &origin, "GET", "/page", &login(name)).await;
            assert_eq!(response.status(), 200);
            hits.push(is_hit(&response));
        }
        assert_eq!(hits, [false, false, false, true, false], "{terms}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disallowed_request_is_refused_although_the_page_is_stored() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text("User-agent: kept-out\nDisallow: /page\n"),
        _ => fresh("page"),
    })
    .await;
    let (proxy, _directory) = caching(&users("egress: { hosts: [b.localhost] }")).await;
    let client = &mut proxy.client().await;
    let (bob, alice) = (login("bob"), login("alice"));
    let kept_out = format!("{bob}User-Agent: kept-out\r\n");
    for is_stored in [false, true] {
        let refused = with(client, &origin, "GET", "/page", &kept_out).await;
        assert_refused(&refused, 403, "http_request_denied", "robots-disallowed");
        let unlisted = with(client, &origin, "GET", "/page", &alice).await;
        assert_eq!(unlisted.status(), 403);
        for response in [&refused, &unlisted] {
            assert!(response.head.all("cache-status").is_empty() && response.head.all("age").is_empty());
        }
        assert_eq!(is_hit(&with(client, &origin, "GET", "/page", &bob).await), is_stored);
    }
    let only = format!("{kept_out}Cache-Control: only-if-cached\r\n");
    assert_eq!(with(client, &origin, "GET", "/page", &only).await.status(), 403);
    assert_eq!(with(client, &origin, "GET", "/never", &only.replace("kept-out", "other")).await.status(), 504);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_robots_txt_stops_cache_hits() {
    let is_closed = Arc::new(AtomicBool::new(false));
    let closed = is_closed.clone();
    let origin = Origin::http(move |seen| match (seen.path().as_str(), closed.load(Ordering::Relaxed)) {
        ("/robots.txt", true) => Reply::text("User-agent: *\nDisallow: /\n"),
        ("/robots.txt", false) => Reply::text(""),
        _ => fresh("page"),
    })
    .await;
    let (proxy, _directory) = caching("robots: { min_ttl: 1s, max_ttl: 1s }").await;
    let client = &mut proxy.client().await;
    assert_eq!(with(client, &origin, "GET", "/page", "").await.status(), 200);
    assert!(is_hit(&with(client, &origin, "GET", "/page", "").await));
    is_closed.store(true, Ordering::Relaxed);
    let refused = loop {
        let response = with(client, &origin, "GET", "/page", "").await;
        if !is_hit(&response) {
            break response;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_refused(&refused, 403, "http_request_denied", "robots-disallowed");
    assert_eq!(origin.log.count("/page"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloaded_rules_apply_to_stored_pages() {
    let origin = pages(|_| fresh("page")).await;
    let (proxy, directory) = caching("").await;
    let client = &mut proxy.client().await;
    with(client, &origin, "GET", "/page", "").await;
    assert!(is_hit(&with(client, &origin, "GET", "/page", "").await));
    let closed = super::with_cache(directory.path(), "egress: { hosts: [b.localhost] }");
    proxy.reload(&closed).unwrap();
    assert_eq!(with(client, &origin, "GET", "/page", "").await.status(), 403);
    assert_eq!(origin.log.count("/page"), 1);
}

/// A site that lets in connections (NTLM): whoever asks on one that has shown a response is alice from then on.
fn inbox() -> impl Fn(&Seen) -> Reply + Send + Sync + 'static {
    let alices = Mutex::new(HashSet::new());
    move |seen| {
        let mut alices = alices.lock().unwrap();
        if seen.field("authorization").is_some() {
            alices.insert(seen.connection);
        }
        match (seen.path().as_str(), alices.contains(&seen.connection)) {
            ("/robots.txt", _) => Reply::text(""),
            (_, true) => fresh("alice's"),
            (_, false) => fresh("anybody's"),
        }
    }
}

async fn ask(client: &mut Client, origin: &Origin, path: &str, fields: &str, body: &str) -> Response {
    let target = if origin.url("").starts_with("https") { path.to_owned() } else { origin.url(path) };
    let method = if body.is_empty() { "GET" } else { "POST" };
    let head = get(&target, &origin.authority("a.localhost")).replacen("GET", method, 1);
    client.send(head.replacen("\r\n\r\n", &format!("\r\n{fields}\r\n{body}"), 1)).await;
    client.response().await
}

/// After authentication, the next request on the connection does not name its user.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn authenticated_connections_bypass_the_cache() {
    for is_https in [false, true] {
        let origin = match is_https {
            true => Origin::https(Alpn::Both, inbox()).await,
            false => Origin::http(inbox()).await,
        };
        let (proxy, _directory) = caching("").await;
        let client = async || match is_https {
            true => proxy.tls(&origin, "a.localhost", &[b"http/1.1"]).await,
            false => proxy.client().await,
        };
        let (mut alice, mut bob) = (client().await, client().await);
        assert_eq!(ask(&mut bob, &origin, "/public", "", "").await.text(), "anybody's");
        let login = "Authorization: NTLM response\r\n";
        assert_eq!(ask(&mut alice, &origin, "/login", login, "").await.text(), "alice's");
        for path in ["/inbox", "/public"] {
            let own = ask(&mut alice, &origin, path, "", "").await;
            assert_eq!((own.text().as_str(), is_hit(&own)), ("alice's", false), "{path}");
            assert!(own.head.all("cache-status").is_empty(), "{path}");
        }
        for (path, was_stored) in [("/inbox", false), ("/public", true), ("/inbox", true)] {
            let page = ask(&mut bob, &origin, path, "", "").await;
            assert_eq!((page.text().as_str(), is_hit(&page)), ("anybody's", was_stored), "{path}");
        }
    }
}

/// The site may read part of the body as the next request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_to_store_do_not_use_connections_that_carried_a_body() {
    let origin = pages(|_| fresh("page")).await;
    let (proxy, _directory) = caching("").await;
    let client = &mut proxy.client().await;
    let posted = ask(client, &origin, "/form", "Content-Length: 4\r\n", "body").await;
    assert_eq!(posted.status(), 200);
    for is_stored in [false, true] {
        assert_eq!(is_hit(&ask(client, &origin, "/page", "", "").await), is_stored);
    }
    assert_ne!(origin.log.one("/form").connection, origin.log.one("/page").connection);
    ask(client, &origin, "/own", "Cookie: a=b\r\n", "").await;
    assert_eq!(origin.log.one("/form").connection, origin.log.one("/own").connection);
}

/// Connection may remove fields, and the configuration may replace them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vary_compares_the_fields_sent_to_the_site() {
    let site = |seen: &Seen| {
        let name = seen.path()[1..].to_owned();
        fresh(seen.field(&name).unwrap_or("none")).field("Vary", name)
    };
    let origin = pages(site).await;
    let (proxy, _directory) = caching("").await;
    let client = &mut proxy.client().await;
    for (name, value) in [("accept-language", "de"), ("accept", "text/x"), ("user-agent", "ABot/1"), ("referer", "/x")]
    {
        let (path, field) = (format!("/{name}"), format!("{name}: {value}\r\n"));
        let removed = format!("{field}Connection: keep-alive, {name}\r\n");
        for (fields, text, was_stored) in
            [(&removed, "none", false), (&field, value, false), (&removed, "none", true), (&field, value, true)]
        {
            let page = with(client, &origin, "GET", &path, fields).await;
            assert_eq!((page.text().as_str(), is_hit(&page)), (text, was_stored), "{fields}");
        }
    }
    let (proxy, _directory) = caching("identity: { user_agent: OurBot/1 }").await;
    let client = &mut proxy.client().await;
    for (agent, was_stored) in [("ABot/1", false), ("OtherBot/1", true)] {
        let page = with(client, &origin, "GET", "/user-agent", &format!("User-Agent: {agent}\r\n")).await;
        assert_eq!((page.text().as_str(), is_hit(&page)), ("OurBot/1", was_stored), "{agent}");
    }
}
