//! A site that sends the proxy's own robots.txt fetch to where it may not go.

use super::siege::Siege;
use crate::support::{Origin, Proxy, Reply};

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
async fn robots_redirects_to_special_addresses_are_not_followed() {
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

/// Following a redirect of robots.txt sends no fields of the client.
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

/// Other redirects of a robots.txt are followed anywhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn robots_redirects_to_denied_urls_are_not_followed() {
    let other = Origin::site("SECRET").await;
    let mut siege = Siege::default();
    for target in
        ["/closed/members", "/%63losed/members", "/robots.txt/../closed/members", "/open/%2e%2e/closed/members"]
    {
        let there = other.url_at("b.localhost", target);
        for location in [target.to_owned(), there] {
            let shown = location.clone();
            let origin = Origin::http(move |seen| match seen.path().as_str() {
                "/robots.txt" => Reply::redirect(location.clone()),
                _ => Reply::text("SECRET"),
            })
            .await;
            let proxy = Proxy::start("hosts: { '*': { deny: [/closed/] } }").await;
            let answer = proxy.get(&origin.url("/robots.txt")).await;
            let handed_out = answer.text().contains("SECRET").then(|| "it was handed out".to_owned());
            let mut asked = origin.log.targets().into_iter().chain(other.log.targets());
            let asked = asked.find(|target| target != "/robots.txt").map(|target| format!("{target} was fetched"));
            let page = proxy.get(&origin.url("/page")).await.status();
            let odd = (page != 503).then(|| format!("status {page}, and not as without rules that can be read"));
            siege.tried(shown, handed_out.or(asked).or(odd));
        }
    }
    siege.withstood(8);
}
