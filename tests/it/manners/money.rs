//! Pay per crawl (Cloudflare): price offers are signed and counted against a budget of money, and charges are reported.

use super::budget::not_at_midnight;
use super::{ADMIN, json};
use crate::rules::{asked, counted};
use crate::support::{Binary, Client, Origin, Proxy, Reply, Response, assert_refused, eventually, within};
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;

/// A site that charges a cent where that is offered.
async fn shop() -> Origin {
    Origin::http(|seen| {
        match (seen.path().as_str(), seen.field("crawler-max-price").or(seen.field("crawler-exact-price"))) {
            ("/robots.txt", _) => Reply::text("User-agent: *\nDisallow: /private\n"),
            ("/free", _) => Reply::text("the page"),
            (_, Some("USD 0.001")) => {
                Reply::status(402).field("crawler-price", "USD 0.01").field("crawler-error", "InvalidCrawlerMaxPrice")
            }
            (_, Some(_)) => Reply::text("the page").field("crawler-charged", "USD 0.01"),
            _ => Reply::status(402).field("crawler-price", "USD 0.01").field("crawler-error", "MissingCrawlerPrice"),
        }
    })
    .await
}

async fn offer(proxy: SocketAddr, url: &str, fields: &str) -> Response {
    let mut client = Client::open(proxy).await;
    let host = url.split('/').nth(2).unwrap();
    client.send(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n")).await;
    client.response().await
}

fn max(price: &str) -> String {
    format!("crawler-max-price: {price}\r\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promises_stay_within_the_budget_and_uncharged_amounts_are_released() {
    not_at_midnight().await;
    let origin = shop().await;
    let yaml = format!("pace: {{ budget: {{ money: {{ USD: 0.05, per: day }} }} }}\n{ADMIN}");
    let proxy = Proxy::start(&yaml).await;
    let (at, url) = (proxy.address(), origin.url("/page"));
    let settled = async |sum: &str| {
        while json(proxy.admin_address(), "/api/v1/status").await["budgets"][0]["promised"] != sum {
            tokio::task::yield_now().await;
        }
    };
    // Each promises two cents and is charged one.
    for sum in ["USD 0.01", "USD 0.02", "USD 0.03", "USD 0.04"] {
        assert_eq!(offer(at, &url, &max("USD 0.02")).await.status(), 200, "{sum}");
        settled(sum).await;
        assert_eq!(offer(at, &url, &max("USD 0.001")).await.status(), 402, "that costs nothing");
        settled(sum).await;
    }
    let refused = offer(at, &url, &max("USD 0.02")).await;
    let problem = assert_refused(&refused, 429, "http_request_denied", "budget-spent");
    assert_eq!(problem["budget"], "USD 0.05 per day");
    assert_eq!(problem["budget_of"], format!("{} in USD", origin.authority("a.localhost")));
    assert_eq!(offer(at, &url, "crawler-exact-price: USD 0.01\r\n").await.status(), 200, "there is a cent left");
    settled("USD 0.05").await;
    assert_eq!(offer(at, &url, &max("USD 0.000001")).await.status(), 429);
    assert!(refused.field("retry-after").is_some());
    for (what, fields, status) in [
        ("nothing is promised", String::new(), 402),
        ("another currency is not within it", max("EUR 0.01"), 429),
        ("more than there ever is", max("USD 999999999999"), 429),
        ("zero is nothing", max("USD 0"), 200),
    ] {
        let answer = offer(at, &url, &fields).await;
        assert_eq!((answer.status(), answer.field("retry-after")), (status, None), "{what}: no wait helps");
    }
    assert_eq!(origin.log.all().iter().filter(|seen| seen.field("crawler-max-price") == Some("USD 0.02")).count(), 4);
    let budgets = json(proxy.admin_address(), "/api/v1/status").await["budgets"].clone();
    assert_eq!((&budgets[0]["promised"], &budgets[0]["max_promised"]), (&"USD 0.05".into(), &"USD 0.05".into()));
}

/// The charge is the site's own claim.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn site_cannot_charge_more_than_was_offered() {
    not_at_midnight().await;
    let origin = Origin::http(|seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(""),
        "/much" => Reply::text("the page").field("crawler-charged", "USD 5000"),
        "/twice" => Reply::text("the page").field("crawler-charged", "USD 0").field("crawler-charged", "USD 0.50"),
        "/unreadable" => Reply::text("the page").field("crawler-charged", "much"),
        "/abroad" => Reply::text("the page").field("crawler-charged", "ABC 7"),
        _ => Reply::text("the page").field("crawler-charged", "USD 0.40"),
    })
    .await;
    let proxy = Proxy::start(&format!("pace: {{ budget: {{ money: {{ USD: 1, per: day }} }} }}\n{ADMIN}")).await;
    let (at, url) = (proxy.address(), |path: &str| origin.url(path));
    let settled = async |sum: &str| {
        while json(proxy.admin_address(), "/api/v1/status").await["budgets"][0]["promised"] != sum {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    for (path, offered, sum) in [
        ("/much", "USD 0.01", "USD 0.01"),
        ("/page", "USD 0.40", "USD 0.41"),
        ("/unreadable", "USD 0.01", "USD 0.42"),
        ("/abroad", "USD 0.01", "USD 0.43"),
        ("/twice", "USD 0.40", "USD 0.83"),
    ] {
        assert_eq!(offer(at, &url(path), &max(offered)).await.status(), 200, "{path}");
        within(&format!("{path}: {sum}"), settled(sum)).await;
    }
    assert_eq!(offer(at, &url("/twice"), &max("USD 0.40")).await.status(), 429);
    assert_eq!(offer(at, &url("/free"), "").await.status(), 200, "nothing is offered");
    let metrics = asked(proxy.admin_address(), "/metrics").await;
    assert!(metrics.contains("politely_charged_total{currency=\"USD\"} 0.41\n"), "{metrics}");
    assert!(!metrics.contains("politely_charged_total{currency=\"ABC\"}"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_price_offer_is_refused() {
    let origin = shop().await;
    let proxy = Proxy::start("").await;
    let url = origin.url("/page");
    for fields in [
        max("0.01"),
        max("usd 0.01"),
        max("USD 0.01") + "crawler-exact-price: USD 0.01\r\n",
        max("USD 0.01") + &max("USD 0.01"),
    ] {
        let refused = offer(proxy.address(), &url, &fields).await;
        assert_refused(&refused, 400, "http_request_error", "bad-request");
    }
    assert_eq!(origin.log.count("/page"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paid_page_is_exempt_from_min_revisit_and_its_charge_is_shown() {
    let origin = shop().await;
    let proxy = Proxy::start(&format!("pace: {{ min_revisit: 1h }}\n{ADMIN}")).await;
    let (at, url) = (proxy.address(), origin.url("/page"));
    for _ in 0..2 {
        let paid = offer(at, &url, &max("USD 0.02")).await;
        assert_eq!((paid.status(), paid.field("crawler-charged")), (200, Some("USD 0.01")), "as it came");
    }
    // On one connection: a visit is noted once all has been sent, and a client may have read that sooner.
    let mut client = Client::open(at).await;
    for (status, what) in [(200, "the first"), (429, "others' visits are remembered")] {
        assert_eq!(client.get(&origin.url("/free"), "a.localhost").await.status(), status, "{what}");
    }
    let metrics = asked(proxy.admin_address(), "/metrics").await;
    assert!(metrics.contains("politely_charged_total{currency=\"USD\"} 0.02"), "{metrics}");
    for (signal, count) in [("crawler-charged", 2), ("crawler-error", 0)] {
        assert_eq!(counted(&metrics, &format!("politely_signals_total{{signal=\"{signal}\"}}")), count, "{signal}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_log_and_evidence_contain_promise_charge_and_price_error() {
    let origin = shop().await;
    let home = tempfile::tempdir().unwrap();
    let yaml =
        format!("log: {{ access: stdout, format: json }}\nevidence: {{ directory: '{}' }}", home.path().display());
    let proxy = Binary::serve(&yaml).await;
    let url = origin.url("/page");
    let lines = || -> Vec<Value> {
        let output = proxy.output();
        let all = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        all.filter(|line| line["url"] == url).collect()
    };
    // A line is written when its answer has been: the next request is not to be faster.
    for (number, price) in [(1, "USD 0.02"), (2, "USD 0.001")] {
        offer(proxy.address(), &url, &max(price)).await;
        eventually("the log", || lines().len() == number).await;
    }
    let lines = lines();
    drop(proxy.stop().await);
    let of = |name: &str| -> Vec<String> {
        lines.iter().map(|line| line[name].as_str().unwrap_or("-").to_owned()).collect()
    };
    assert_eq!(of("promised"), ["USD 0.02", "USD 0.001"]);
    assert_eq!(of("charged"), ["USD 0.01", "-"]);
    assert_eq!(of("crawler_error"), ["-", "InvalidCrawlerMaxPrice"]);
    let kept: String = std::fs::read_dir(home.path())
        .unwrap()
        .filter_map(|file| std::fs::read(file.unwrap().path()).ok())
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .collect();
    for piece in [r#""promised":"USD 0.02""#, r#""charged":"USD 0.01""#, r#""crawler_error":"InvalidCrawlerMaxPrice""#]
    {
        assert!(kept.contains(piece), "{piece}: {kept}");
    }
}
