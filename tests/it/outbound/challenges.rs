//! Sites that ask for a signature (`Accept-Signature`).

use super::signing::{Keys, is_signed};
use crate::rules::{asked, counted};
use crate::support::{Alpn, Origin, PATIENCE, Proxy, Reply, Seen, eventually, within};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

const CHALLENGE: &str = r#"sig1=("@authority" "signature-agent";key="sig1");tag="web-bot-auth""#;

/// Answers 403 to unsigned requests, including robots.txt, and always to `/never`.
fn asks(seen: &Seen) -> Reply {
    let is_good = is_signed(seen) && seen.path() != "/never";
    match seen.path().as_str() {
        _ if !is_good => Reply::status(403).field("Accept-Signature", CHALLENGE).body("who are you?"),
        "/robots.txt" => Reply::text("User-agent: *\nDisallow: /no\n"),
        _ => Reply::text("page"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signature_challenge_is_answered_with_one_signed_retry() {
    let keys = Keys::make(&["a"]).await;
    for (origin, flag) in [
        (Origin::http(asks).await, "--http1.1"),
        (Origin::https(Alpn::H1, asks).await, "--http1.1"),
        (Origin::https(Alpn::H2, asks).await, "--http2"),
    ] {
        let proxy = Proxy::start(&keys.settings("a", "when: on-challenge")).await;
        assert_eq!(proxy.curl(&[flag, &origin.url("/no")]).await.status(), 403, "its robots.txt was read");
        let fetches: Vec<_> = origin.log.of("/robots.txt").iter().map(is_signed).collect();
        assert_eq!(fetches, [false, true]);
        assert_eq!(proxy.curl(&[flag, &origin.url("/x")]).await.text(), "page");
        assert_eq!(origin.log.of("/x").iter().map(is_signed).collect::<Vec<_>>(), [true], "it is remembered");
        keys.verify(&origin.log.one("/x"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signature_challenge_is_retried_only_for_safe_methods() {
    let keys = Keys::make(&["a"]).await;
    let more = "\nhosts: { '*.localhost': { robots: ignore } }";
    let settings = format!("{}{more}", keys.settings("a", "when: on-challenge"));
    for (method, statuses, seen) in [
        ("GET", [200, 200], vec![false, true, true]),
        ("HEAD", [200, 200], vec![false, true, true]),
        ("POST", [403, 200], vec![false, true]),
        ("DELETE", [403, 200], vec![false, true]),
    ] {
        let origin = Origin::http(asks).await;
        let proxy = Proxy::start(&settings).await;
        for status in statuses {
            let host = origin.authority("a.localhost");
            let mut client = proxy.client().await;
            client.send(format!("{method} {} HTTP/1.1\r\nHost: {host}\r\n\r\n", origin.url("/x"))).await;
            assert_eq!(client.response_to(method).await.status(), status, "{method}");
        }
        assert_eq!(origin.log.of("/x").iter().map(is_signed).collect::<Vec<_>>(), seen, "{method}");
    }
    let origin = Origin::https(Alpn::H1, asks).await;
    let proxy = Proxy::start(&settings).await;
    let got = proxy.curl(&["--http2", &origin.url("/x")]).await;
    assert_eq!(got.text(), "page", "a stream without a body is repeated on another connection");
}

/// The next request is signed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signature_challenge_is_forwarded_if_a_retry_would_wait_too_long() {
    let (keys, origin) = (Keys::make(&["a"]).await, Origin::http(asks).await);
    let more = "\nhosts: { '*.localhost': { robots: ignore } }\npace: { min_delay: 60s, max_wait: 5s }";
    let proxy = Proxy::start(&format!("{}{more}", keys.settings("a", "when: on-challenge"))).await;
    let got = proxy.get(&origin.url("/x")).await;
    assert_eq!((got.status(), got.text().as_str()), (403, "who are you?"));
    assert_eq!(origin.log.count("/x"), 1);
}

/// The site's answer takes most of the gap, so that the rest may be waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signature_challenge_is_answered_if_the_rest_of_the_gap_may_be_waited_for() {
    let keys = Keys::make(&["a"]).await;
    let origin = Origin::http(|seen| asks(seen).after(Duration::from_secs(2))).await;
    let more = "\nhosts: { '*.localhost': { robots: ignore } }\npace: { min_delay: 3s, max_wait: 2s }";
    let proxy = Proxy::start(&format!("{}{more}", keys.settings("a", "when: on-challenge"))).await;
    assert_eq!(proxy.get(&origin.url("/x")).await.text(), "page");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signature_challenge_is_forwarded_if_the_queue_is_full() {
    let keys = Keys::make(&["a"]).await;
    let (arrived, (answers, held)) = (Arc::new(AtomicUsize::new(0)), mpsc::channel::<()>());
    let origin = Origin::http({
        let (arrived, held) = (arrived.clone(), Mutex::new(held));
        move |seen| {
            arrived.fetch_add(1, Relaxed);
            // Until the other end is dropped.
            let _ = held.lock().map(|held| held.recv_timeout(PATIENCE));
            asks(seen)
        }
    })
    .await;
    let more = "\nhosts: { '*.localhost': { robots: ignore, crawl_delay: 1s } }\npace: { queue: 1 }";
    let proxy = Arc::new(Proxy::start(&format!("{}{more}", keys.settings("a", "when: on-challenge"))).await);
    let ask = |page: &str| {
        let (proxy, url) = (proxy.clone(), origin.url(page));
        tokio::spawn(async move { proxy.get(&url).await.status() })
    };
    let first = ask("/x");
    eventually("the request", || arrived.load(Relaxed) == 1).await;
    let second = ask("/y");
    eventually("one that waits", || proxy.waiting() == 1).await;
    drop(answers);
    assert_eq!((within("one", first).await.unwrap(), within("two", second).await.unwrap()), (403, 200));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_to_report_mode_releases_a_waiting_retry() {
    let (keys, origin) = (Keys::make(&["a"]).await, Origin::http(asks).await);
    let more = "\nhosts: { '*.localhost': { robots: ignore } }\npace: { min_delay: 60s, max_wait: 5m }";
    let settings = format!("{}{more}", keys.settings("a", "when: on-challenge"));
    let proxy = Arc::new(Proxy::start(&settings).await);
    let asking = tokio::spawn({
        let (proxy, url) = (proxy.clone(), origin.url("/x"));
        async move { proxy.get(&url).await }
    });
    eventually("the retry", || origin.log.count("/x") == 1 && proxy.waiting() == 1).await;
    proxy.reload(&format!("mode: report\n{settings}")).expect("a good configuration");
    let page = within("the page", asking).await.unwrap();
    let held = page.head.proxy_status_parameter("details").expect("it would have waited");
    assert!(page.text() == "page" && held.starts_with("it would have waited "), "{held}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn useless_signature_is_not_retried_again() {
    let keys = Keys::make(&["a"]).await;
    let origin = Origin::http(asks).await;
    let more = "\nhosts: { '*.localhost': { robots: ignore } }";
    let proxy = Proxy::start(&format!("{}{more}", keys.settings("a", "when: on-challenge"))).await;
    for _ in 0..3 {
        let got = proxy.get(&origin.url("/never")).await;
        assert_eq!((got.status(), got.text().as_str()), (403, "who are you?"), "the client has the site's answer");
        assert!(got.field("accept-signature").is_some());
    }
    assert_eq!(origin.log.count("/never"), 4, "one more, the first time");
}

/// The draft lets a site ask for more components than the authority. The client gets the site's answer then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signature_challenge_we_cannot_meet_is_not_retried() {
    let keys = Keys::make(&["a"]).await;
    for asked_for in [
        r#"sig1=("@authority" "@path");tag="web-bot-auth""#,
        r#"sig1=("@method");tag="web-bot-auth""#,
        r#"sig1=("@authority");tag="another""#,
        r#"sig1=("@authority";req);tag="web-bot-auth""#,
        r#"sig1=("@authority");alg="rsa-pss-sha512""#,
        "nonsense=(",
    ] {
        let origin = Origin::http(move |seen| match seen.path().as_str() {
            "/robots.txt" => Reply::text(""),
            _ => Reply::status(401).field("Accept-Signature", asked_for).body("who are you?"),
        })
        .await;
        for (when, signed) in [("on-challenge", false), ("always", true)] {
            let yaml = format!("admin: {{ address: '127.0.0.1:0' }}\n{}", keys.settings("a", &format!("when: {when}")));
            let proxy = Proxy::start(&yaml).await;
            let path = format!("/{when}");
            for _ in 0..2 {
                let got = proxy.get(&origin.url(&path)).await;
                assert_eq!((got.status(), got.text().as_str()), (401, "who are you?"), "{asked_for}");
                assert_eq!(got.field("accept-signature"), Some(asked_for));
            }
            let seen = origin.log.of(&path);
            assert_eq!(seen.iter().map(is_signed).collect::<Vec<_>>(), [signed; 2], "{asked_for}: once each");
            let metrics = asked(proxy.admin_address(), "/metrics").await;
            let count =
                |name: &str| counted(&metrics, &format!("politely_signature_challenges_total{{result=\"{name}\"}}"));
            assert_eq!([count("met"), count("unmet"), count("rejected")], [0, 2, 0], "{asked_for}");
            assert_eq!(counted(&metrics, "politely_requests_signed_total"), if signed { 3 } else { 0 });
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_satisfiable_accept_signature_line_is_used() {
    let keys = Keys::make(&["a"]).await;
    let origin = Origin::http(|seen| match (seen.path().as_str(), is_signed(seen)) {
        ("/robots.txt", _) => Reply::text(""),
        (_, true) => Reply::text("page"),
        (_, false) => {
            let other = r#"sig2=("@method");tag="web-bot-auth""#;
            Reply::status(401).field("Accept-Signature", other).field("Accept-Signature", CHALLENGE)
        }
    })
    .await;
    let proxy = Proxy::start(&keys.settings("a", "when: on-challenge")).await;
    assert_eq!(proxy.get(&origin.url("/x")).await.text(), "page");
    assert_eq!(origin.log.count("/x"), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn challenge_to_a_signature_of_the_client_is_forwarded() {
    let keys = Keys::make(&["a"]).await;
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" | "/plain" => Reply::text(""),
        _ => Reply::status(401).field("Accept-Signature", CHALLENGE),
    })
    .await;
    let proxy = Proxy::start(&keys.settings("a", "when: on-challenge")).await;
    let (mut client, host) = (proxy.client().await, origin.authority("a.localhost"));
    let own = "Signature: x=:AA==:\r\nSignature-Input: x=()\r\nSignature-Agent: \"https://me\"";
    client.send(format!("GET {} HTTP/1.1\r\nHost: {host}\r\n{own}\r\n\r\n", origin.url("/own"))).await;
    assert_eq!(client.response().await.status(), 401);
    assert_eq!(proxy.get(&origin.url("/plain")).await.status(), 200);
    assert!(!is_signed(&origin.log.one("/plain")), "nobody has asked us");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonce_of_the_site_is_used_once() {
    let keys = Keys::make(&["a"]).await;
    let nonce = |seen: &Seen| {
        let input = seen.field("signature-input")?;
        Some(input.split_once(";nonce=\"")?.1.split('"').next()?.to_owned())
    };
    let given = std::sync::atomic::AtomicUsize::new(0);
    let origin = Origin::http(move |seen| {
        if seen.path() == "/robots.txt" {
            return Reply::text("");
        }
        if nonce(seen).is_some() {
            return Reply::text("page");
        }
        let number = given.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let asked = format!("sig1=(\"@authority\");nonce=\"n{number}\";tag=\"web-bot-auth\"");
        Reply::status(401).field("Accept-Signature", &asked).body("who are you?")
    })
    .await;
    let proxy = Proxy::start(&keys.settings("a", "when: on-challenge")).await;
    for page in ["/1", "/2", "/3"] {
        assert_eq!(proxy.get(&origin.url(page)).await.text(), "page");
        let nonces: Vec<_> = origin.log.of(page).iter().map(nonce).collect();
        assert_eq!(nonces.len(), 2, "{page}: {nonces:?}");
        assert!(nonces[0].is_none() && nonces[1].is_some(), "{page}: {nonces:?}");
    }
    // A request that may not be retried leaves its nonce to the client's next request.
    let host = origin.authority("a.localhost");
    for status in [401, 200] {
        let mut client = proxy.client().await;
        client
            .send(format!("POST {} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n", origin.url("/post")))
            .await;
        assert_eq!(client.response().await.status(), status);
    }
    let mut all: Vec<_> = ["/1", "/2", "/3", "/post"]
        .iter()
        .flat_map(|page| origin.log.of(page))
        .filter_map(|seen| nonce(&seen))
        .collect();
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!((all.len(), count), (4, 4), "each once: {all:?}");
}
