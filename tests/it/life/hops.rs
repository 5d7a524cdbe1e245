//! RFC 9309 §2.3.1.2: where redirects of robots.txt lead.

use super::{KEEP_OUT, Means, meaning, origin, site};
use crate::serving::access::{request, users};
use crate::support::{Alpn, Origin, Proxy, Reply, TestCa, eventually, within};
use futures_util::future::join_all;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relative_locations_are_resolved() {
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
async fn invalid_location_of_robots_txt_allows_everything() {
    let proxy = Proxy::start("").await;
    let nowhere =
        ["", "#here", "ftp://a.localhost/robots.txt", "http://", "http://[::1", "data:,Disallow", "caf\u{e9}://x"];
    for location in nowhere {
        let origin = origin(move |_| Reply::redirect(location)).await;
        assert_eq!(meaning(&proxy, &origin).await, Means::AllowAll, "{location:?}");
        assert_eq!(origin.log.count("/robots.txt"), 1, "{location:?}");
    }
}

/// RFC 9309 does not distinguish redirects by host (§2.3.1.2): the file is unavailable (§2.3.1.3).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirect_loop_over_one_or_several_hosts_allows_everything() {
    for (hosts, path, requests) in [
        (1, "/robots.txt", 1),
        (2, "/robots.txt", 2),
        (3, "/robots.txt", 3),
        (1, "/rules", 2),
        (2, "/rules", 3),
        (3, "/rules", 4),
    ] {
        let origin = Origin::http(move |seen| {
            let (first, rest) = seen.host.split_once('.').expect("it is one of these");
            let next = ["a", "b", "c"][(usize::from(first.as_bytes()[0] - b'a') + 1) % hosts];
            match seen.path().as_str() {
                "/open" | "/private" => Reply::text("page"),
                _ => Reply::redirect(format!("http://{next}.{rest}{path}")),
            }
        })
        .await;
        let proxy = Proxy::start("").await;
        assert_eq!(meaning(&proxy, &origin).await, Means::AllowAll, "{hosts} hosts by way of {path}");
        let asked = origin.log.all().iter().filter(|seen| !["/open", "/private"].contains(&&*seen.path())).count();
        assert_eq!(asked, requests, "{hosts} hosts by way of {path}: {:?}", origin.log.targets());
        proxy.reload("robots: { on_unavailable: disallow }").expect("a valid configuration");
        assert_eq!(proxy.get(&origin.url("/open")).await.status(), 403, "{hosts} hosts by way of {path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn robots_txt_of_two_hosts_redirecting_to_each_other_do_not_deadlock() {
    let origin = Origin::http(|seen| {
        let (first, rest) = seen.host.split_once('.').expect("it is a or b");
        let there = if first == "a" { "b" } else { "a" };
        match seen.path().as_str() {
            "/robots.txt" => Reply::redirect(format!("http://{there}.{rest}/rules")).after(Duration::from_millis(100)),
            "/rules" => Reply::text(KEEP_OUT),
            _ => Reply::text("page"),
        }
    })
    .await;
    let proxy = Proxy::start("").await;
    let (a, b) = (origin.url_at("a.localhost", "/private"), origin.url_at("b.localhost", "/private"));
    let (a, b) = tokio::join!(proxy.get(&a), proxy.get(&b));
    assert_eq!((a.status(), b.status()), (403, 403));
    assert_eq!((origin.log.count("/robots.txt"), origin.log.count("/rules")), (2, 2));
}

/// A site could otherwise pause any host by redirecting to a URL there that is answered 429.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_on_a_redirect_hop_does_not_pause_the_other_host() {
    for (status, path) in [(429, "/search"), (503, "/search"), (429, "/robots.txt?all")] {
        let origin = Origin::http(move |seen| {
            let (first, rest) = seen.host.split_once('.').expect("it is a or b");
            match (first, seen.path().as_str()) {
                ("a", "/robots.txt") => Reply::redirect(format!("http://b.{rest}{path}")),
                ("b", at) if at == path => Reply::status(status).field("Retry-After", "600"),
                (_, "/robots.txt") => Reply::status(404),
                _ => Reply::text("page"),
            }
        })
        .await;
        let proxy = Proxy::start("").await;
        assert_eq!(proxy.get(&origin.url_at("a.localhost", "/")).await.status(), 503, "its robots.txt is unreachable");
        assert_eq!(origin.log.count(path), 1);
        assert_eq!(proxy.get(&origin.url_at("b.localhost", "/")).await.text(), "page", "{status} {path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn robots_redirect_to_https_drops_credentials_and_cookies() {
    let secure = Origin::https(Alpn::Both, site(|_| Reply::text(KEEP_OUT))).await;
    let target = secure.url_at("user:secret@b.localhost", "/robots.txt");
    let plain = origin(move |_| Reply::redirect(target.clone()).field("Set-Cookie", "a=b")).await;
    let proxy = Proxy::start("").await;
    assert_eq!(meaning(&proxy, &plain).await, Means::Rules);
    let hop = secure.log.one("/robots.txt");
    assert_eq!(hop.host, secure.authority("b.localhost"));
    assert!(hop.fields.iter().all(|(_, value)| !value.contains("secret") && !value.contains("a=b")), "{hop:?}");
    // The file found there applies only to the first authority.
    assert_eq!(proxy.get(&secure.url_at("b.localhost", "/private")).await.status(), 403);
    assert_eq!(secure.log.count("/robots.txt"), 2, "the other authority is asked for its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn final_answer_after_robots_redirects_decides() {
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
async fn robots_timeout_covers_all_redirect_hops() {
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
    // No hop alone takes as long.
    assert_eq!(meaning(&proxy, &origin).await, Means::Unreachable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn robots_redirect_to_another_robots_txt_reuses_its_cached_copy() {
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

/// Following a redirect of robots.txt is not crawling (RFC 9309 §2.3.1.2).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn robots_redirect_target_is_fetched_regardless_of_its_hosts_rules() {
    for rules in [Reply::text("User-agent: *\nDisallow: /"), Reply::status(503), Reply::silence()] {
        let other = Origin::http(move |seen| match seen.path().as_str() {
            "/robots.txt" => rules.clone(),
            _ => Reply::text(KEEP_OUT),
        })
        .await;
        let target = other.url_at("b.localhost", "/sites/a.txt");
        let origin = origin(move |_| Reply::redirect(target.clone())).await;
        let proxy = Proxy::start("").await;
        assert_eq!(meaning(&proxy, &origin).await, Means::Rules);
        assert_eq!(other.log.targets(), ["/sites/a.txt"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirect_hop_queues_at_the_other_host_like_a_request_of_its_client() {
    let other = Origin::site("User-agent: *\nCrawl-delay: 1\n").await;
    let (target, page) = (other.url_at("b.localhost", "/robots.txt"), other.url_at("b.localhost", "/page"));
    let site = origin(move |seen| Reply::redirect(format!("{target}?{}", seen.host))).await;
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
    let asked = |other: &Origin| other.log.starts("/robots.txt").len();
    assert!(asked(&other) <= 5, "its own, and turn by turn: {}", asked(&other));
    drop(waiting);
    eventually("each to end", || asked(&other) == 9).await;
    let starts = other.log.gaps("/");
    assert!(starts.iter().skip(1).all(|gap| *gap >= Duration::from_millis(950)), "{starts:?}");
}

/// The next request continues at the redirect's target.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirect_answer_is_kept_while_the_next_hop_waits_for_its_slot() {
    let other = Origin::site("User-agent: *\nCrawl-delay: 1000\nDisallow: /private\n").await;
    let (target, page) = (other.url_at("b.localhost", "/robots.txt"), other.url_at("b.localhost", "/page"));
    let site = origin(move |_| Reply::redirect(target.clone())).await;
    let proxy = Proxy::start("pace: { max_wait: 100ms, max_crawl_delay: 1h }").await;
    assert_eq!(proxy.get(&page).await.status(), 200);
    for _ in 0..5 {
        let refused = proxy.get(&site.url("/open")).await;
        assert_eq!(refused.status(), 429, "{}", refused.text());
    }
    assert_eq!((site.log.count("/robots.txt"), other.log.count("/robots.txt")), (1, 1), "b's own alone");
    proxy.reload("hosts: { b.localhost: { crawl_delay: 0s } }").expect("a valid configuration");
    assert_eq!(meaning(&proxy, &site).await, Means::Rules);
    assert_eq!((site.log.count("/robots.txt"), other.log.count("/robots.txt")), (1, 2));
}

/// Any number of sites may redirect there, to answers that take arbitrarily long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirected_fetches_leave_a_hosts_slots_to_its_own_clients() {
    let origin = Origin::http(|seen| match (seen.host.split_once('.'), seen.path().as_str()) {
        (Some(("good", _)), "/robots.txt") => Reply::text(""),
        (Some(("good", _)), slow) if slow.starts_with("/slow") => Reply::silence(),
        (Some(("apex", rest)), "/robots.txt") => Reply::redirect(format!("http://good.{rest}/robots.txt")),
        (Some((bad, rest)), "/robots.txt") => Reply::redirect(format!("http://good.{rest}/slow/{bad}")),
        _ => Reply::text("page"),
    })
    .await;
    let proxy = Proxy::start("robots: { timeout: 60s }").await;
    let get = async |host: String, path: String| {
        proxy.client().await.get(&origin.url_at(&host, &path), &origin.authority(&host)).await.status()
    };
    let bad = join_all((0..24).map(|number| get(format!("bad{number}.localhost"), "/".to_owned())));
    let slow = || origin.log.starts("/slow").len();
    let good = async {
        eventually("all that lead there", || origin.log.count("/robots.txt") == 24 && slow() > 0).await;
        for round in 0..5 {
            let pages =
                join_all((0..7).map(|number| get("good.localhost".to_owned(), format!("/{round}/{number}")))).await;
            assert!(pages.iter().all(|status| *status == 200), "{pages:?}");
        }
        let apex = get("apex.localhost".to_owned(), "/".to_owned());
        assert_eq!(within("one whose file is the host's own", apex).await, 200);
        assert!(slow() < 8, "of eight places one at a time");
    };
    tokio::select! {
        _ = bad => panic!("nobody has answered"),
        () = good => {}
    }
}

/// Redirects to unanswered URLs occupy a guest's place for seconds, not for the whole time of a fetch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unanswered_redirected_fetches_make_room_for_others() {
    let origin = Origin::http(|seen| match (seen.host.split_once('.'), seen.path().as_str()) {
        (Some(("good", _)), "/robots.txt") => Reply::text(""),
        (Some(("good", _)), slow) if slow.starts_with("/slow") => Reply::silence(),
        (Some(("honest", rest)), "/robots.txt") => Reply::redirect(format!("http://good.{rest}/honest.txt")),
        (Some((bad, rest)), "/robots.txt") => Reply::redirect(format!("http://good.{rest}/slow/{bad}")),
        _ => Reply::text("page"),
    })
    .await;
    let proxy = Proxy::start("robots: { timeout: 10m }\npace: { max_wait: 10m }").await;
    let get =
        async |host: &str| proxy.client().await.get(&origin.url_at(host, "/"), &origin.authority(host)).await.status();
    // A site can use any number of names.
    let bad = join_all((0..4).map(async |number| {
        loop {
            assert_eq!(get(&format!("bad{number}.evil.localhost")).await, 503);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }));
    let honest = async {
        eventually("all to be led there", || origin.log.count("/robots.txt") == 4).await;
        eventually("one of them to be there", || !origin.log.starts("/slow").is_empty()).await;
        assert_eq!(within("the honest one's", get("honest.localhost")).await, 200);
        assert!(origin.log.starts("/slow").len() <= 3, "it had the next turn but one at most");
        eventually("one that was given up to be asked for again", || origin.log.starts("/slow").len() > 4).await;
    };
    tokio::select! {
        _ = bad => unreachable!(),
        () = honest => {}
    }
}
