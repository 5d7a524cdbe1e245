//! RFC 9309 §2.3.1.2: where redirects of robots.txt lead.

use super::{KEEP_OUT, Means, meaning, origin, site};
use crate::serving::access::{request, users};
use crate::support::{Alpn, Origin, Proxy, Reply, TestCa, eventually};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_location_may_be_relative_in_every_way() {
    let proxy = Proxy::start("").await;
    for location in ["rules", "./x/../rules", "/rules", "/rules#part", "?which", "//HOST/rules", "http://HOST/rules"] {
        let origin = origin(move |seen| match seen.path().as_str() {
            "/rules" | "/robots.txt?which" => Reply::text(KEEP_OUT),
            _ => Reply::redirect(location.replace("HOST", &seen.host)),
        })
        .await;
        assert_eq!(meaning(&proxy, &origin).await, Means::Rules, "{location}");
        assert_eq!(origin.log.all().len(), 3, "robots.txt, where it led, and one page: {location}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_location_that_is_no_place_for_a_robots_txt_is_as_good_as_none() {
    let proxy = Proxy::start("").await;
    let nowhere =
        ["", "#here", "ftp://a.localhost/robots.txt", "http://", "http://[::1", "data:,Disallow", "caf\u{e9}://x"];
    for location in nowhere {
        let origin = origin(move |_| Reply::redirect(location)).await;
        assert_eq!(meaning(&proxy, &origin).await, Means::AllowAll, "{location:?}");
        assert_eq!(origin.log.count("/robots.txt"), 1, "{location:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_circle_through_another_authority_ends() {
    let home = Arc::new(OnceLock::<String>::new());
    let other = Origin::http({
        let home = home.clone();
        move |_| Reply::redirect(home.get().cloned().unwrap_or_default())
    })
    .await;
    let away = other.url_at("b.localhost", "/robots.txt");
    let origin = origin(move |_| Reply::redirect(away.clone())).await;
    home.set(origin.url("/robots.txt")).expect("it is set once");
    let proxy = Proxy::start("").await;
    assert_eq!(meaning(&proxy, &origin).await, Means::AllowAll);
    assert_eq!((origin.log.count("/robots.txt"), other.log.all().len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_http_to_https_and_no_credentials_on_the_way() {
    let secure = Origin::https(Alpn::Both, site(|_| Reply::text(KEEP_OUT))).await;
    let target = secure.url_at("user:secret@b.localhost", "/robots.txt");
    let plain = origin(move |_| Reply::redirect(target.clone()).field("Set-Cookie", "a=b")).await;
    let proxy = Proxy::start("").await;
    assert_eq!(meaning(&proxy, &plain).await, Means::Rules);
    let hop = secure.log.one("/robots.txt");
    assert_eq!(hop.host, secure.authority("b.localhost"));
    assert!(hop.fields.iter().all(|(_, value)| !value.contains("secret") && !value.contains("a=b")), "{hop:?}");
    // What was found there is the first authority's alone.
    assert_eq!(proxy.get(&secure.url_at("b.localhost", "/private")).await.status(), 403);
    assert_eq!(secure.log.count("/robots.txt"), 2, "the other authority is asked for its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_answer_decides() {
    let stranger = Origin::https_as(&TestCa::new("a stranger"), &["b.localhost"], Alpn::H1, |_| Reply::text("")).await;
    let untrusted = stranger.url_at("b.localhost", "/robots.txt");
    let proxy = Proxy::start("").await;
    let answers: [(&str, Reply, Means); 5] = [
        ("gone", Reply::status(410), Means::AllowAll),
        ("broken", Reply::status(500), Means::Unreachable),
        ("slow down", Reply::status(429), Means::Unreachable),
        ("reset", Reply::reset(), Means::Unreachable),
        ("untrusted", Reply::redirect(untrusted), Means::Unreachable),
    ];
    for (name, last, means) in answers {
        let origin = origin(move |seen| match seen.path().as_str() {
            "/robots.txt" => Reply::redirect("/last"),
            _ => last.clone(),
        })
        .await;
        assert_eq!(meaning(&proxy, &origin).await, means, "{name}");
    }
    assert!(stranger.log.all().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_deadline_is_for_all_hops_together() {
    let origin = origin(|seen| {
        let path = seen.path();
        let hop: u32 = path.strip_prefix("/hop").map_or(0, |hop| hop.parse().expect("ours"));
        match hop {
            5 => Reply::text(KEEP_OUT),
            hop => Reply::redirect(format!("/hop{}", hop + 1)).after(Duration::from_millis(600)),
        }
    })
    .await;
    let proxy = Proxy::start("robots: { timeout: 1500ms }").await;
    let start = Instant::now();
    assert_eq!(meaning(&proxy, &origin).await, Means::Unreachable);
    assert!(start.elapsed() < Duration::from_millis(2900), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn robots_txt_of_any_host_and_what_that_host_gives_for_it_are_had_without_another_request() {
    let other = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::redirect("/static/robots.txt"),
        "/static/robots.txt" => Reply::text(format!("{KEEP_OUT}Disallow: /static/\n")),
        _ => Reply::text("page"),
    })
    .await;
    let target = other.url_at("b.localhost", "/robots.txt");
    let origin = origin(move |_| Reply::redirect(target.clone())).await;
    let proxy = Proxy::start("").await;
    assert_eq!(meaning(&proxy, &origin).await, Means::Rules);
    assert_eq!(other.log.targets(), ["/robots.txt", "/static/robots.txt"]);
    let shown = proxy.get(&origin.url("/robots.txt")).await;
    assert_eq!((shown.status(), shown.text().starts_with(KEEP_OUT)), (200, true), "{}", shown.text());
    assert_eq!(origin.log.count("/robots.txt"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elsewhere_it_is_had_as_far_as_the_rules_there_allow() {
    for (rules, means) in [("", Means::Rules), ("User-agent: *\nDisallow: /sites/", Means::Unreachable)] {
        let other = Origin::http(move |seen| match seen.path().as_str() {
            "/robots.txt" => Reply::text(rules),
            _ => Reply::text(KEEP_OUT),
        })
        .await;
        let target = other.url_at("b.localhost", "/sites/a.txt");
        let origin = origin(move |_| Reply::redirect(target.clone())).await;
        let proxy = Proxy::start("").await;
        assert_eq!(meaning(&proxy, &origin).await, means, "{rules:?}");
        assert_eq!(other.log.count("/robots.txt"), 1, "{rules:?}");
        assert_eq!(other.log.count("/sites/a.txt"), usize::from(means == Means::Rules), "{rules:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hop_to_another_host_waits_there_like_a_request_of_its_client_and_goes_with_it() {
    let other = Origin::site("User-agent: *\nCrawl-delay: 1\n").await;
    let (target, page) = (other.url_at("b.localhost", "/robots.txt"), other.url_at("b.localhost", "/page"));
    let site = origin(move |_| Reply::redirect(target.clone())).await;
    let proxy = Proxy::start(&users("max_connections: 100")).await;
    let as_user = async |url: &str, user: &str| {
        let mut client = proxy.client().await;
        client.send(request(url, user)).await;
        client
    };
    assert_eq!(as_user(&page, "bob").await.response().await.status(), 200);
    let mut waiting = Vec::new();
    for number in 0..8 {
        waiting.push(as_user(&site.url_at(&format!("s{number}.localhost"), "/open"), "alice").await);
    }
    eventually("all to be redirected", || site.log.count("/robots.txt") == 8).await;
    assert_eq!(as_user(&page, "bob").await.response().await.status(), 200);
    let asked = |other: &Origin| other.log.count("/robots.txt");
    assert!(asked(&other) <= 5, "its own, and turn by turn: {}", asked(&other));
    drop(waiting);
    eventually("nobody to wait any more", || proxy.waiting() == 0).await;
    let before = asked(&other);
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert!(asked(&other) <= before + 1, "the one that was on its way: {} after {before}", asked(&other));
}
