//! `politely explain`.

use super::commands::{ROBOTS, open};
use crate::support::binary::{politely, politely_with};
use crate::support::{Alpn, Origin};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_answers_by_its_exit_code_and_in_json() {
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
