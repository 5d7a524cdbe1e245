//! RFC 9309 §2.3.1: what each status means, and how long an origin without an answer is left alone.

use super::{KEEP_OUT, Means, meaning, origin};
use crate::support::{Proxy, Reply};
use std::time::{Duration, SystemTime};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_classes_of_robots_txt_follow_rfc_9309() {
    let proxy = Proxy::start("").await;
    for (status, means) in [
        (200, Means::Rules),
        (201, Means::Rules),
        // A download that succeeds (RFC 9309 §2.3.1.1), though "accepted" may mean that there will be another file.
        (202, Means::Rules),
        (203, Means::Rules),
        // These statuses have no content, whatever follows the head.
        (204, Means::AllowAll),
        // A part of nothing in particular; what some requests of WebDAV have done; a difference from something (RFC 3229).
        (206, Means::Unreachable),
        (207, Means::Unreachable),
        (208, Means::Unreachable),
        (226, Means::Unreachable),
        // Unknown ones are as 200 (RFC 9110 §15).
        (209, Means::Rules),
        (299, Means::Rules),
        // Redirects that name no place.
        (300, Means::AllowAll),
        (301, Means::AllowAll),
        (302, Means::AllowAll),
        (399, Means::AllowAll),
        // Nobody asked whether a copy still holds.
        (304, Means::Unreachable),
        (400, Means::AllowAll),
        (401, Means::AllowAll),
        (403, Means::AllowAll),
        (404, Means::AllowAll),
        (410, Means::AllowAll),
        (451, Means::AllowAll),
        (499, Means::AllowAll),
        (429, Means::Unreachable),
        (500, Means::Unreachable),
        (503, Means::Unreachable),
        (599, Means::Unreachable),
        (600, Means::Unreachable),
        (999, Means::Unreachable),
    ] {
        let origin = origin(move |_| Reply::status(status).body(KEEP_OUT)).await;
        assert_eq!(meaning(&proxy, &origin).await, means, "status {status}");
        // An answer that may be caused by the form of the request is retried.
        assert_eq!(origin.log.count("/robots.txt"), if status == 400 { 2 } else { 1 }, "status {status}");
    }
}

/// A challenge page contains no rules, whatever its status.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn challenge_in_place_of_robots_txt_is_unreachable() {
    let proxy = Proxy::start("").await;
    for (field, value) in
        [("cf-mitigated", "challenge"), ("X-Amzn-Waf-Action", "challenge"), ("x-amzn-waf-action", "Captcha ")]
    {
        for status in [200, 202, 302, 403, 404, 405] {
            let origin = origin(move |seen| match seen.path().as_str() {
                "/robots.txt" => {
                    Reply::status(status).body(KEEP_OUT).field(field, value).field("Location", "/elsewhere")
                }
                _ => Reply::text(KEEP_OUT),
            })
            .await;
            assert_eq!(meaning(&proxy, &origin).await, Means::Unreachable, "{field}: {value}, status {status}");
            let refused = proxy.get(&origin.url("/open")).await;
            assert!(refused.text().contains("challenge"), "{}", refused.text());
            assert_eq!(origin.log.targets(), ["/robots.txt"], "{field}: {value}, status {status}");
        }
    }
    let origin = origin(|_| Reply::text(KEEP_OUT).field("cf-mitigated", "log")).await;
    assert_eq!(meaning(&proxy, &origin).await, Means::Rules);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partial_content_counts_only_if_it_is_the_whole_file() {
    let proxy = Proxy::start("").await;
    let length = KEEP_OUT.len();
    for (range, means) in [
        (format!("bytes 0-{}/{length}", length - 1), Means::Rules),
        (format!("Bytes  0-{}/{length}", length - 1), Means::Rules),
        (format!("bytes 0-{}/{}", length - 1, length + 1), Means::Unreachable),
        (format!("bytes 0-{}/*", length - 1), Means::Unreachable),
        (format!("bytes 1-{length}/{}", length + 1), Means::Unreachable),
        (format!("bytes */{length}"), Means::Unreachable),
        (format!("lines 0-{}/{length}", length - 1), Means::Unreachable),
        ("bytes 0-18446744073709551615/0".to_owned(), Means::Unreachable),
        ("bytes 0-/".to_owned(), Means::Unreachable),
        // The stated length is longer or shorter than the body.
        (format!("bytes 0-{length}/{}", length + 1), Means::Unreachable),
        ("bytes 0-9/10".to_owned(), Means::Unreachable),
    ] {
        let field = range.clone();
        let origin = origin(move |_| Reply::status(206).field("Content-Range", field.as_str()).body(KEEP_OUT)).await;
        assert_eq!(meaning(&proxy, &origin).await, means, "{range}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interim_answers_before_robots_txt_are_skipped() {
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n";
    let length = KEEP_OUT.len();
    let answer = format!("{hints}{hints}HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{KEEP_OUT}");
    let hinting = origin(move |_| Reply::raw(&answer)).await;
    let switching = origin(|_| Reply::raw("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n")).await;
    let proxy = Proxy::start("robots: { timeout: 2s }").await;
    assert_eq!(meaning(&proxy, &hinting).await, Means::Rules);
    assert_eq!(meaning(&proxy, &switching).await, Means::Unreachable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_is_obeyed_as_seconds_and_as_date_up_to_an_hour() {
    let date = |ahead: u64| httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(ahead));
    let proxy = Proxy::start("").await;
    for status in [429, 500, 503] {
        for (field, wait) in [
            (Some("120".to_owned()), 115..=120),
            (Some(date(300)), 290..=300),
            (Some("86400".to_owned()), 3590..=3600),
            (Some(date(100_000)), 3590..=3600),
            // Without advice, or with none that can be followed: a minute, less up to a fifth.
            (None, 43..=60),
            (Some("soon".to_owned()), 43..=60),
            (Some("0".to_owned()), 43..=60),
            (Some("Mon, 01 Jan 2001 00:00:00 GMT".to_owned()), 43..=60),
        ] {
            let value = field.clone();
            let origin = origin(move |_| match &value {
                Some(value) => Reply::status(status).field("Retry-After", value.as_str()),
                None => Reply::status(status),
            })
            .await;
            let refused = proxy.get(&origin.url("/open")).await;
            let told: u64 = refused.field("retry-after").expect("when to come back").parse().expect("seconds");
            assert!(wait.contains(&told), "{status} {field:?}: {told}");
            assert_eq!(origin.log.targets(), ["/robots.txt"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_without_an_address_is_unreachable() {
    let proxy = Proxy::start("").await;
    let refused = proxy.get("http://nowhere.invalid/open").await;
    assert_eq!(refused.status(), 503, "{}", refused.text());
    assert!(refused.text().contains("robots-unreachable"), "{}", refused.text());
}
