//! Hosts by name and pattern.

use super::*;

#[test]
fn the_most_specific_entry_that_has_a_key_counts() {
    let settings = good(
        r#"
intercept: { default: intercept, hosts: { "*.bank.example": tunnel, "shop.bank.example": intercept } }
hosts:
  "*": { crawl_delay: 1s }
  "*.example.com": { crawl_delay: 2s, robots: report, allow: [/open/] }
  "*.shop.example.com": { crawl_delay: 3s }
  www.shop.example.com: { robots: ignore, product_tokens: [ShopBot], deny: ["/*.pdf$"] }
  EXAMPLE.org.: { crawl_delay: 4s }
  192.0.2.1: { intercept: deny }
"#,
    );
    let delay = |host: &str| policy(&settings, host).crawl_delay.map(|delay| delay.as_secs());
    assert_eq!(delay("other.example"), Some(1));
    assert_eq!(delay("example.com"), Some(1), "a pattern is for what is below the name");
    assert_eq!(delay("a.example.com"), Some(2));
    assert_eq!(delay("a.b.example.com"), Some(2));
    assert_eq!(delay("shop.example.com"), Some(2));
    assert_eq!(delay("a.shop.example.com"), Some(3));
    assert_eq!(delay("notexample.com"), Some(1));
    assert_eq!(delay("example.org"), Some(4));
    assert_eq!(delay("192.0.2.1"), Some(1));

    let www = policy(&settings, "www.shop.example.com");
    assert_eq!((www.robots, www.crawl_delay), (RobotsOverride::Ignore, Some(Duration::from_secs(3))));
    let own_rules = www.own_rules.as_ref().unwrap();
    assert_eq!(own_rules.judge(b"/open/a"), OwnVerdict::Allow, "from the pattern");
    assert!(matches!(own_rules.judge(b"/a.pdf"), OwnVerdict::Deny(_)));
    assert!(policy(&settings, "example.com").own_rules.is_none());
    assert_eq!(www.product_tokens.as_ref().unwrap()[0].as_str(), "ShopBot");
    assert_eq!(policy(&settings, "a.shop.example.com").robots, RobotsOverride::Report);

    let intercept = |host: &str| policy(&settings, host).intercept;
    assert_eq!(intercept("bank.example"), InterceptMode::Intercept);
    assert_eq!(intercept("www.bank.example"), InterceptMode::Tunnel);
    assert_eq!(intercept("shop.bank.example"), InterceptMode::Intercept);
    assert_eq!(intercept("192.0.2.1"), InterceptMode::Deny);
}

#[test]
fn hosts_that_are_none_or_twice_there_are_told() {
    assert_eq!(
        short(
            "hosts:\n  https://a.example: {}\n  a.example: {}\n  A.EXAMPLE: {}\n  '*.1.2.3.4': {}\n  'a.*.example': {}\n"
        ),
        [
            "2:3 `https://a.example` is not a host or a pattern of hosts | write `www.example.com`, `*.example.com` for all below it, `192.0.2.1`, or `*`; no scheme, no port",
            "4:3 the host `a.example` is there twice | make one entry of the two",
            "5:3 `*.1.2.3.4` is not a host or a pattern of hosts | write `www.example.com`, `*.example.com` for all below it, `192.0.2.1`, or `*`; no scheme, no port",
            "6:3 `a.*.example` is not a host or a pattern of hosts | write `www.example.com`, `*.example.com` for all below it, `192.0.2.1`, or `*`; no scheme, no port",
        ]
    );
}
