//! Tests of each refusal's slug and sentence.

use super::*;
use crate::policy::Period;

fn example() -> Authority {
    Authority::from_url("https://example.com").unwrap()
}

fn disallowed(rule: Option<LineEvidence>) -> Refusal {
    Refusal::Disallowed { authority: example(), product_tokens: "FooBot, Foo".into(), rule }
}

#[test]
fn each_refusal_is_one_sentence_with_its_evidence() {
    let rule = LineEvidence { line: 14, key: "Disallow", value: "/private*".into(), matched_path: None };
    let second = Duration::from_millis(1001);
    for (refusal, slug, sentence) in [
        (
            disallowed(Some(rule)),
            "robots-disallowed",
            "https://example.com/robots.txt disallows this URL for FooBot, Foo: line 14, `Disallow: /private*`",
        ),
        (
            disallowed(None),
            "robots-disallowed",
            "https://example.com/robots.txt is missing or denied, which disallows everything for FooBot, Foo, as configured",
        ),
        (
            Refusal::UsageDisallowed {
                authority: example(),
                product_tokens: "".into(),
                purpose: "ai-train".into(),
                preference: LineEvidence {
                    line: 3,
                    key: "Content-Usage",
                    value: "/ train-ai=n".into(),
                    matched_path: None,
                },
            },
            "usage-disallowed",
            "https://example.com/robots.txt disallows this URL for the purpose `ai-train`, for every crawler: line 3, \
             `Content-Usage: / train-ai=n`",
        ),
        (
            Refusal::UsageUnreadable { of: "the page".into(), why: "the gzip body is damaged or cut short".into() },
            "usage-unreadable",
            "the usage preferences of the page cannot be read: the gzip body is damaged or cut short",
        ),
        (
            Refusal::RobotsUnreachable { retry_after: second, authority: example(), why: "status 503".into() },
            "robots-unreachable",
            "https://example.com/robots.txt could not be read (status 503), so nothing is allowed; next \
             attempt in 1.1 s",
        ),
        (
            Refusal::CrawlDelay { retry_after: Duration::from_secs(300), max_wait: Some(Duration::from_secs(60)) },
            "crawl-delay",
            "crawl-delay: next slot in 300 s, over max_wait 60 s",
        ),
        (
            Refusal::CrawlDelay { retry_after: second, max_wait: Some(Duration::from_secs(25)) },
            "crawl-delay",
            "crawl-delay: no slot within max_wait 25 s: other requests are in flight or ahead; try again in 1.1 s",
        ),
        (
            Refusal::CrawlDelay { retry_after: second, max_wait: None },
            "crawl-delay",
            "crawl-delay: waited too long for robots.txt; try again in 1.1 s",
        ),
        (
            Refusal::HostPaused { retry_after: second, refusals: 5 },
            "host-paused",
            "host paused after 5 refusals in a row; try again in 1.1 s",
        ),
        (
            Refusal::RevisitTooSoon { retry_after: second },
            "revisit-too-soon",
            "this page was fetched less than `min_revisit` ago; try again in 1.1 s",
        ),
        (
            Refusal::BudgetSpent {
                retry_after: Some(second),
                of: "example.com".into(),
                budget: Budget { requests: Some(100), bytes: Some(1024), per: Period::Hour, money: None },
            },
            "budget-spent",
            "budget of example.com spent: 100 requests and 1024 bytes per hour (UTC); try again in 1.1 s",
        ),
        (
            Refusal::Closed {
                retry_after: second,
                authority: example(),
                hours: VisitTime { from: 22 * 60, to: 6 * 60 + 5 },
            },
            "crawl-delay",
            "https://example.com/robots.txt allows crawling only during `Visit-time: 2200-0605` (UTC); the site opens in 1.1 s",
        ),
        (
            Refusal::QueueFull { retry_after: Duration::from_secs(60) },
            "queue-full",
            "too many requests are waiting for this host, in all, or of this user; try again in 60 s",
        ),
        (
            Refusal::EgressDenied {
                why: EgressReason::Address {
                    address: [10, 0, 0, 1].into(),
                    range: "Private-Use".into(),
                    source: "RFC 1918".into(),
                },
            },
            "egress-denied",
            "blocked by egress: 10.0.0.1 is in the range Private-Use (RFC 1918)",
        ),
        (
            Refusal::EgressDenied { why: EgressReason::Port(25) },
            "egress-denied",
            "blocked by egress.ports: port 25 is not allowed",
        ),
        (
            Refusal::EgressDenied { why: EgressReason::Host { host: "a.example".into(), pattern: "*.example".into() } },
            "egress-denied",
            "blocked by egress: the host a.example is denied by `*.example`",
        ),
        (
            Refusal::ClientDenied { credentials: true, why: "no credentials".into() },
            "client-denied",
            "this client is not allowed to use the proxy: no credentials",
        ),
        (
            Refusal::AuthorityMismatch { connection: "https://a".into(), request: "https://b".into() },
            "authority-mismatch",
            "the connection was opened for https://a, but the request inside it is for https://b",
        ),
        (
            Refusal::BadRequest { detail: "two Host fields".into() },
            "bad-request",
            "the request is malformed: two Host fields",
        ),
        (Refusal::Loop, "loop", "the request is for the proxy itself, or would come back to it"),
        (Refusal::Draining { retry_after: Duration::ZERO }, "draining", "the proxy is shutting down; try again in 0 s"),
        (
            Refusal::OwnLimit { retry_after: Duration::from_secs(1), why: "Too many open files".into() },
            "out-of-resources",
            "the proxy has reached a limit of its own (Too many open files); try again in 1 s",
        ),
        (
            Refusal::FleetLost { retry_after: Duration::from_secs(2), is_uncounted: false },
            "fleet-lost",
            "the server through which this fleet of proxies shares its paces is out of reach (`on_fleet_loss: refuse`); \
             try again in 2 s",
        ),
        (
            Refusal::OperatorDenied { host: "*.example".into(), pattern: "/admin".into(), matched_path: None },
            "operator-denied",
            "the operator of this proxy denies this URL: `deny: /admin` for the host *.example",
        ),
        (
            Refusal::OperatorDenied {
                host: "*.example".into(),
                pattern: "/admin".into(),
                matched_path: Some("/admin/x".into()),
            },
            "operator-denied",
            "the operator of this proxy denies this URL: `deny: /admin` for the host *.example, which matches `/admin/x`: \
             servers may serve that path for this URL",
        ),
        (
            Refusal::InterceptDenied { key: "intercept.default".into() },
            "operator-denied",
            "the operator of this proxy denies https to this host: `intercept.default: deny`",
        ),
        (
            Refusal::RulesTooComplex { rules: "https://example.com/robots.txt".into() },
            "rules-too-complex",
            "comparing this URL with https://example.com/robots.txt takes too many steps: the URL is very long or has many \
             forms, or patterns have many stars, almost match, or are in thousands of groups. What cannot be compared is not allowed",
        ),
    ] {
        assert_eq!((refusal.slug(), refusal.to_string().as_str()), (slug, sentence));
    }
}

#[test]
fn only_temporary_refusals_have_retry_after() {
    let second = Duration::from_secs(1);
    assert_eq!(Refusal::CrawlDelay { retry_after: second, max_wait: None }.retry_after(), Some(second));
    assert_eq!(Refusal::Draining { retry_after: second }.retry_after(), Some(second));
    assert_eq!(Refusal::FleetLost { retry_after: second, is_uncounted: true }.retry_after(), Some(second));
    assert_eq!(disallowed(None).retry_after(), None);
    assert_eq!(Refusal::Loop.retry_after(), None);
}
