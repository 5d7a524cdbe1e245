//! Hosts by name and pattern.

use super::*;
use politely::policy::Paths;

#[test]
fn most_specific_host_entry_with_a_key_wins() {
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
    let delay = |host: &str| policy(&settings, host).rules.crawl_delay.map(|delay| delay.as_secs());
    assert_eq!(delay("other.example"), Some(1));
    assert_eq!(delay("example.com"), Some(1), "a pattern is for what is below the name");
    assert_eq!(delay("a.example.com"), Some(2));
    assert_eq!(delay("a.b.example.com"), Some(2));
    assert_eq!(delay("shop.example.com"), Some(2));
    assert_eq!(delay("a.shop.example.com"), Some(3));
    assert_eq!(delay("notexample.com"), Some(1));
    assert_eq!(delay("example.org"), Some(4));
    assert_eq!(delay("192.0.2.1"), Some(1));

    let www = &policy(&settings, "www.shop.example.com").rules;
    assert_eq!((www.robots, www.crawl_delay), (RobotsOverride::Ignore, Some(Duration::from_secs(3))));
    let own_rules = www.own_rules.as_ref().unwrap();
    assert_eq!(own_rules.judge(b"/open/a", Paths::AsServed), OwnVerdict::Allow, "from the pattern");
    assert!(matches!(own_rules.judge(b"/a.pdf", Paths::AsServed), OwnVerdict::Deny(_)));
    assert!(policy(&settings, "example.com").rules.own_rules.is_none());
    assert_eq!(www.product_tokens.as_ref().unwrap()[0].as_str(), "ShopBot");
    assert_eq!(policy(&settings, "a.shop.example.com").rules.robots, RobotsOverride::Report);

    let intercept = |host: &str| policy(&settings, host).intercept;
    assert_eq!(intercept("bank.example"), InterceptMode::Intercept);
    assert_eq!(intercept("www.bank.example"), InterceptMode::Tunnel);
    assert_eq!(intercept("shop.bank.example"), InterceptMode::Intercept);
    assert_eq!(intercept("192.0.2.1"), InterceptMode::Deny);
}

#[test]
fn invalid_and_duplicate_hosts_are_reported() {
    let hint =
        "write `www.example.com`, `*.example.com` for all hosts below it, `192.0.2.1`, or `*`; without scheme and port";
    for none in ["https://a.example", "*.1.2.3.4", "a.*.example"] {
        let yaml = format!("hosts:\n  '{none}': {{}}\n  a.example: {{}}\n  A.EXAMPLE: {{}}\n");
        assert_eq!(
            short(&yaml),
            [
                format!("2:3 `{none}` is not a host or a pattern of hosts | {hint}"),
                "4:3 the host `a.example` appears twice | merge it with the entry in line 3".to_owned(),
            ]
        );
    }
}

#[test]
fn tls_settings_apply_per_host() {
    let pin = "sha256/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let yaml = format!(
        "hosts:\n  '*.example.com': {{ client_certificate: {{ certificate: us.pem, key: /us.key }} }}\n  \
         a.example.com: {{ pin: '{pin}' }}\n  b.example.com: {{ pin: ['{pin}', '{pin}'], verify: off }}\n  \
         c.example.com: {{ verify: on }}\n"
    );
    let settings = Settings::parse("/etc/politely/politely.yaml", &yaml).unwrap();
    let tls = |host: &str| policy(&settings, host).tls.clone();
    let both = tls("a.example.com").unwrap();
    assert_eq!((both.pins.len(), both.verify), (1, true));
    let pair = both.client_certificate.as_ref().unwrap();
    assert_eq!(pair.certificate, PathBuf::from("/etc/politely/us.pem"), "from the pattern");
    assert_eq!(pair.key, PathBuf::from("/us.key"));
    let off = tls("b.example.com").unwrap();
    assert_eq!((off.pins.len(), off.verify), (2, false));
    assert!(tls("c.example.com").unwrap().verify && tls("other.example").is_none());
    assert_eq!(settings.hosts.unverified(), ["b.example.com"]);
    for (yaml, fault) in [
        ("pin: sha256/AAAA", "`sha256/AAAA` is not a pin"),
        ("pin: [x]", "`x` is not a pin"),
        ("verify: maybe", "`maybe` is neither `on` nor `off`"),
        ("tls: old", "`old`"),
        ("client_certificate: { certificate: c }", "the key `key` is missing"),
    ] {
        let told = short(&format!("hosts: {{ a.example: {{ {yaml} }} }}"));
        assert!(told[0].contains(fault), "{told:?}");
    }
    for own in ["verify: off", "tls: legacy"] {
        let told = short(&format!("hosts: {{ a.example: {{ {own} }}, '*': {{ {own} }} }}"));
        assert!(told.len() == 1 && told[0].contains(&format!(" `{own}` for `*`")), "{told:?}");
    }
    let settings = good("hosts: { a.example: { tls: legacy, verify: off }, b.example: { tls: current } }");
    let old = policy(&settings, "a.example").tls.clone().unwrap();
    assert!(old.legacy && !old.verify && policy(&settings, "b.example").tls.is_none());
}

#[test]
fn host_settings_of_a_user_override_the_global_ones() {
    let hash = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$RdescudvJCsgt3ub+b27rA";
    let settings = good(&format!(
        r#"
hosts:
  "*.example.com": {{ crawl_delay: 1s, deny: [/all/] }}
  www.example.com: {{ crawl_delay: 2s, robots: report }}
  www.example.org: {{ crawl_delay: 3s }}
access:
  users:
    - {{ name: alice, password: "{hash}", max_connections: 3, max_waiting: 0, hosts: {{
          "*.example.com": {{ crawl_delay: 9s }}, a.example.com: {{ robots: ignore }}, new.example: {{ intercept: tunnel }} }} }}
    - {{ name: bob, password: "{hash}" }}
"#
    ));
    let [alice, bob] = &settings.access.users[..] else { panic!() };
    assert!(bob.hosts.is_none() && bob.max_connections.is_none());
    assert_eq!((alice.max_connections.map(|most| most.get()), alice.max_waiting), (Some(3), Some(0)));
    let hers = alice.hosts.as_ref().unwrap();
    let policy = |host: &str| hers.get(&Host::parse(host).unwrap());
    let delay = |host: &str| policy(host).rules.crawl_delay.map(|delay| delay.as_secs());
    assert_eq!(delay("www.example.com"), Some(9), "however specific the entry for all is");
    assert_eq!(policy("www.example.com").rules.robots, RobotsOverride::Report, "what she says nothing of stays");
    assert_eq!((delay("a.example.com"), policy("a.example.com").rules.robots), (Some(9), RobotsOverride::Ignore));
    assert!(policy("a.example.com").rules.own_rules.is_some());
    assert_eq!((delay("b.example.com"), delay("www.example.org"), delay("example.com")), (Some(9), Some(3), None));
    assert_eq!(policy("new.example").intercept, InterceptMode::Tunnel);
    assert_eq!(
        settings.hosts.get(&Host::parse("www.example.com").unwrap()).rules.crawl_delay,
        Some(Duration::from_secs(2))
    );
}

#[test]
fn most_specific_user_host_entry_wins_over_all_global_ones() {
    let hash = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$RdescudvJCsgt3ub+b27rA";
    let settings = good(&format!(
        r#"
hosts:
  "*.a.example.com": {{ intercept: tunnel }}
  www.example.com: {{ crawl_delay: 2s }}
  192.0.2.1: {{ robots: ignore }}
access:
  users:
    - {{ name: alice, password: "{hash}", hosts: {{
          "*": {{ crawl_delay: 9s }}, "*.com": {{ crawl_delay: 8s }}, "*.example.com": {{ robots: report }},
          x.a.example.com: {{ crawl_delay: 7s }} }} }}
"#
    ));
    let hers = settings.access.users[0].hosts.as_ref().unwrap();
    for (host, delay, robots, intercept) in [
        ("www.example.com", 8, RobotsOverride::Report, InterceptMode::Intercept),
        ("example.com", 8, RobotsOverride::Enforce, InterceptMode::Intercept),
        ("b.a.example.com", 8, RobotsOverride::Report, InterceptMode::Tunnel),
        ("x.a.example.com", 7, RobotsOverride::Report, InterceptMode::Tunnel),
        ("192.0.2.1", 9, RobotsOverride::Ignore, InterceptMode::Intercept),
        ("example.org", 9, RobotsOverride::Enforce, InterceptMode::Intercept),
    ] {
        let policy = hers.get(&Host::parse(host).unwrap());
        let found = (policy.rules.crawl_delay.map(|delay| delay.as_secs()), policy.rules.robots, policy.intercept);
        assert_eq!(found, (Some(delay), robots, intercept), "{host}");
    }
}

#[test]
fn one_host_in_two_spellings_is_reported_with_both_places() {
    for (first, second, host) in [
        ("example.com", "Example.COM", "example.com"),
        ("example.com.", "example.com", "example.com"),
        ("xn--bcher-kva.example", "B\u{fc}cher.example", "xn--bcher-kva.example"),
        ("'*.example.com'", "'*.EXAMPLE.com.'", "*.example.com"),
        ("192.0.2.1", "'0xC0.0.2.1'", "192.0.2.1"),
        ("'2001:db8::1'", "'[2001:DB8:0::1]'", "[2001:db8::1]"),
    ] {
        let fault = format!("the host `{host}` appears twice | merge it with the entry in line 2");
        let yaml = format!("hosts:\n  {first}: {{ robots: ignore }}\n  {second}: {{ robots: report }}\n");
        assert_eq!(short(&yaml), [format!("3:3 {fault}")]);
        let yaml = format!("intercept: {{ hosts: {{\n  {first}: tunnel,\n  {second}: deny }} }}\n");
        assert_eq!(short(&yaml), [format!("3:3 {fault}")]);
        let user = "name: a, password: '$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$RdescudvJCsgt3ub+b27rA'";
        let yaml = format!("access: {{ users: [{{ {user}, hosts: {{\n  {first}: {{}},\n  {second}: {{}} }} }}] }}");
        assert_eq!(short(&yaml), [format!("3:3 {fault}")]);
    }
}
