//! A site that sends the proxy's own robots.txt fetch to where it may not go.

use super::siege::Siege;
use crate::support::{Origin, Proxy, Reply, within};
use futures_util::future::join_all;
use std::time::Duration;

/// Where the redirect points; `{p}` is the port of an origin that nobody opened.
const LOCATIONS: &[(&str, &str)] = &[
    ("an address", "http://127.0.0.2:{p}/robots.txt"),
    ("an address as a number", "http://2130706434:{p}/robots.txt"),
    ("an address in hexadecimal", "http://0x7f000002:{p}/robots.txt"),
    ("an address in octal", "http://0177.0.0.2:{p}/robots.txt"),
    ("a short address", "http://127.2:{p}/robots.txt"),
    ("an address with a dot", "http://127.0.0.2.:{p}/robots.txt"),
    ("an encoded address", "http://%31%32%37.0.0.2:{p}/robots.txt"),
    ("a full-width address", "http://\u{ff11}27.0.0.2:{p}/robots.txt"),
    ("a mapped address", "http://[::ffff:127.0.0.2]:{p}/robots.txt"),
    ("a mapped address, hexadecimal", "http://[::ffff:7f00:2]:{p}/robots.txt"),
    ("a NAT64 address", "http://[64:ff9b::7f00:2]:{p}/robots.txt"),
    ("without a scheme", "//127.0.0.2:{p}/robots.txt"),
    ("with backslashes", "http:\\\\127.0.0.2:{p}\\robots.txt"),
    ("with userinfo", "http://a.localhost@127.0.0.2:{p}/robots.txt"),
    ("with a tab", "ht\ttp://127.0.0.2:{p}/robots.txt"),
    ("over TLS", "https://127.0.0.2:{p}/robots.txt"),
    ("any address of ours", "http://0.0.0.0:{p}/robots.txt"),
    ("metadata", "http://169.254.169.254/latest/meta-data/"),
    ("metadata, mapped", "http://[::ffff:a9fe:a9fe]/latest/meta-data/"),
    ("a file", "file:///etc/passwd"),
    ("data", "data:text/plain,User-agent:*%0AAllow:/"),
    ("ftp", "ftp://127.0.0.2:{p}/robots.txt"),
    ("gopher", "gopher://127.0.0.2:{p}/1robots.txt"),
    ("javascript", "javascript:1"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_redirect_leads_to_a_closed_address() {
    let Ok(closed) = Origin::try_http_on("127.0.0.2:0", |_| Reply::text("User-agent: *\nAllow: /\n")).await else {
        return;
    };
    let mut siege = Siege::default();
    for (name, location) in LOCATIONS {
        let location = location.replace("{p}", &closed.port().to_string());
        let origin = Origin::http(move |seen| match seen.path().as_str() {
            "/robots.txt" => Reply::redirect(location.clone()),
            _ => Reply::text("page"),
        })
        .await;
        let proxy = Proxy::start("egress: { allow: [127.0.0.1/32, '::1/128'] }").await;
        let answer = proxy.get(&origin.url("/x")).await;
        let reached = (closed.connections() > 0).then(|| "the closed origin was connected to".to_owned());
        // A redirect that leads nowhere is a file that is unavailable (RFC 9309 §2.3.1.2); a denied one is out of
        // reach (§2.3.1.4).
        let odd = (!matches!(answer.status(), 200 | 503)).then(|| format!("status {}", answer.status()));
        siege.tried(*name, reached.or(odd));
    }
    siege.withstood(24);
}

/// A redirect that is followed carries nothing of the client's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redirect_carries_no_credentials() {
    let second = Origin::site("User-agent: *\nDisallow: /secret\n").await;
    let location = second.url_at("b.localhost", "/robots.txt");
    let first = Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::redirect(location.clone()).field("Set-Cookie", "a=b; Domain=localhost"),
        _ => Reply::text("page"),
    })
    .await;
    let proxy = Proxy::start("").await;
    let (url, host) = (first.url("/secret"), first.authority("a.localhost"));
    let mut client = proxy.client().await;
    client
        .send(format!(
            "GET {url} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Basic eDp5\r\nCookie: c=d\r\n\
             Proxy-Authorization: Basic eDp5\r\n\r\n"
        ))
        .await;
    assert_eq!(client.response().await.status(), 403);
    for seen in first.log.all().iter().chain(&second.log.all()) {
        for field in ["authorization", "cookie", "proxy-authorization", "referer"] {
            assert!(seen.all(field).is_empty(), "{field}: {seen:?}");
        }
    }
}

/// The operator denies what is under `/closed/`.
const DENIES: &str = "hosts: { '*': { deny: [/closed/] } }";

/// A site that redirects its robots.txt would otherwise have pages fetched that may not be, and handed out as rules.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_redirect_of_a_robots_txt_leads_to_a_page_that_may_not_be_fetched() {
    let victim = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" if seen.target == b"/robots.txt" => {
            Reply::text("User-agent: *\nDisallow: /private/\nDisallow: /*?")
        }
        "/forward" => Reply::redirect("/private/members"),
        _ => Reply::text("SECRET"),
    })
    .await;
    let mut siege = Siege::default();
    for target in [
        "/private/members",
        "/private/robots.txt",
        "/robots.txt/../private/robots.txt",
        "/robots.txt?page=1",
        "/%70rivate/members",
        "/forward",
        "/closed/members",
    ] {
        let location = victim.url_at("b.localhost", target);
        let origin = Origin::http(move |seen| match seen.path().as_str() {
            "/robots.txt" => Reply::redirect(location.clone()),
            _ => Reply::text("page"),
        })
        .await;
        let proxy = Proxy::start(DENIES).await;
        let answer = proxy.get(&origin.url("/robots.txt")).await;
        let shown = answer.text().contains("SECRET").then(|| "it was handed out".to_owned());
        let asked = victim.log.targets().into_iter().find(|target| !["/robots.txt", "/forward"].contains(&&**target));
        let page = proxy.get(&origin.url("/page")).await.status();
        let odd = (page != 503).then(|| format!("status {page}, and not as without rules that can be read"));
        siege.tried(target, shown.or(asked.map(|target| format!("{target} was fetched"))).or(odd));
    }
    siege.withstood(7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_does_one_within_a_host_lead_to_what_the_operator_denies() {
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::redirect("/closed/robots.txt"),
        _ => Reply::text("page"),
    })
    .await;
    let proxy = Proxy::start(DENIES).await;
    assert_eq!(proxy.get(&origin.url("/page")).await.status(), 503);
    assert_eq!(origin.log.targets(), ["/robots.txt"]);
}

/// Each waits for the rules of the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn robots_txts_that_wait_for_one_another_end() {
    let origin = Origin::http(|seen| {
        let there =
            if seen.host.starts_with("a.") { seen.host.replacen('a', "b", 1) } else { seen.host.replacen('b', "a", 1) };
        match seen.path().as_str() {
            "/robots.txt" => Reply::redirect(format!("http://{there}/rules")).after(Duration::from_millis(200)),
            _ => Reply::text("page"),
        }
    })
    .await;
    let proxy = Proxy::start("pace: { max_wait: 500ms }\nrobots: { timeout: 500ms }").await;
    let (a, b) = (origin.url_at("a.localhost", "/page"), origin.url_at("b.localhost", "/page"));
    let (a, b) = within("both", async { tokio::join!(proxy.get(&a), proxy.get(&b)) }).await;
    for refused in [a, b] {
        assert!(matches!(refused.status(), 429 | 503), "{}", refused.status());
    }
    // And the fetches have ended: this is what is known since.
    within("the end of both fetches", async {
        while !proxy.get(&origin.url_at("a.localhost", "/page")).await.text().contains("robots-unreachable") {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(origin.log.count("/page"), 0);
}

/// A fetch may take longer than anybody waits here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn robots_txts_that_wait_for_one_another_end_at_once() {
    for asked in [&["a"][..], &["a", "b"], &["a", "b", "c"]] {
        let origin = Origin::http(|seen| {
            let (first, rest) = seen.host.split_once('.').expect("it is one of these");
            let next = ["b", "c", "a"][usize::from(first.as_bytes()[0] - b'a')];
            match seen.path().as_str() {
                "/robots.txt" => {
                    Reply::redirect(format!("http://{next}.{rest}/rules")).after(Duration::from_millis(200))
                }
                _ => Reply::text("page"),
            }
        })
        .await;
        let proxy = Proxy::start("robots: { timeout: 10m }").await;
        let get = async |host: &&str| proxy.get(&origin.url_at(&format!("{host}.localhost"), "/page")).await;
        for refused in within("all", join_all(asked.iter().map(get))).await {
            assert_eq!(refused.status(), 503);
            assert!(refused.text().contains("robots-unreachable"), "{}", refused.text());
        }
        assert_eq!(origin.log.targets(), ["/robots.txt"; 3], "each once");
        // It is a failure of theirs, after which they are left alone.
        assert_eq!(get(&"a").await.status(), 503);
        assert_eq!(origin.log.all().len(), 3);
    }
}

/// Who waits for one that waits for a third waits for both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_who_waits_is_no_circle() {
    let origin = Origin::http(|seen| {
        let (first, rest) = seen.host.split_once('.').expect("it is one of these");
        match (first, seen.path().as_str()) {
            ("a", "/robots.txt") => Reply::redirect(format!("http://b.{rest}/rules")),
            ("b", "/robots.txt") => Reply::redirect(format!("http://c.{rest}/rules")),
            ("c", "/robots.txt") => Reply::text("").after(Duration::from_millis(300)),
            _ => Reply::text("User-agent: *\nDisallow: /page\n"),
        }
    })
    .await;
    let proxy = Proxy::start("").await;
    let get = async |host: &&str| proxy.get(&origin.url_at(&format!("{host}.localhost"), "/page")).await;
    for (host, answer) in ["b", "a", "c"].iter().zip(within("all", join_all(["b", "a", "c"].iter().map(get))).await) {
        assert_eq!(answer.status(), if *host == "c" { 200 } else { 403 }, "{host}");
    }
}
