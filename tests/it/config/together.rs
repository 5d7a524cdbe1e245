//! Keys that have to fit each other, and keys that nothing acts on yet.

use super::*;

#[test]
fn conflicting_keys_are_reported_at_their_places() {
    for (yaml, fault) in [
        (
            "listen: [{ address: 0.0.0.0:3128 }]",
            "1:21 anybody who can reach `0.0.0.0:3128` could use this proxy | set `access`, such as `clients: [10.0.0.0/8]`, or listen on 127.0.0.1",
        ),
        ("listen: []", "1:9 there is no address to listen on | write `listen: [{ address: 127.0.0.1:3128 }]`"),
        (
            "listen: [{ address: 127.0.0.1:3129 }]",
            "`127.0.0.1:3129` is already one of the proxy's listeners | give the admin address another port, or write `off`",
        ),
        (
            "robots:\n  min_ttl: 2d",
            "2:12 `min_ttl` (2d) is longer than `max_ttl` (1d) | lower the first or raise the second",
        ),
        (
            "robots: { max_size: 100KiB }",
            "1:21 at least 500 KiB of a robots.txt have to be read (RFC 9309 §2.5) | write `500KiB` or more",
        ),
        ("robots: { max_size: 18446744073709551615 }", "1:21 this value is too large | write 67108864 or less"),
        ("pace: { queue: 18446744073709551615 }", "1:16 this value is too large | write 10000000 or less"),
        (
            "robots: { unreachable_status: 500 }",
            "1:31 this status does not fit an unreachable robots.txt | write 503 or 403",
        ),
        (
            "robots: { deny_status: 200 }",
            "1:24 this status is not a refusal | write 403 or another status from 400 to 499",
        ),
        (
            "pace: { min_delay: 10m }",
            "1:20 `min_delay` (10m) is longer than `max_crawl_delay` (5m) | lower the first or raise the second",
        ),
        (
            "identity: { signature: { key: k.pem } }",
            "1:31 `key` requires `agent` | add `agent: https://bot.example`, where the directory of keys is published",
        ),
        (
            "identity: { signature: { agent: 'https://bot.example' } }",
            "1:33 `agent` requires `key` | add `key: …`; `politely identity keygen FILE` makes one",
        ),
        (
            "identity: { signature: { other_keys: [a.pem] } }",
            "1:38 `other_keys` requires `key` | add `key: …` and `agent: …`",
        ),
        (
            "identity: { signature: { validity: 2d } }",
            "1:36 the validity of a signature must be from 2 seconds to 24 hours | write `60s`; verifiers advise a minute",
        ),
        (
            "listen: [{ address: 127.0.0.1:1, directory: true }]",
            "1:45 `directory` requires `identity.signature` | add `identity: { signature: { key: …, agent: … } }`, \
             or leave `directory` out",
        ),
        ("egress: { ports: [] }", "1:18 no port is allowed | write `ports: [80, 443]`"),
        (
            "limits: { connect_timeout: 0 }",
            "1:28 the time must be greater than 0 | write how long it may take, such as `10s`",
        ),
        (
            "limits: { max_header_size: 1GiB }",
            "1:28 the maximum size of a header block must be from 4 KiB to 1 MiB | write `64KiB`",
        ),
        ("intercept: { ca: { key: k.pem } }", "1:25 this key lacks its certificate | add `certificate: …` beside it"),
        ("intercept: { ca: { certificate: c.pem } }", "1:33 this certificate lacks its key | add `key: …` beside it"),
        (
            "intercept: { ca: { certificate: c, key: k, directory: d } }",
            "1:33 `certificate` and `directory` exclude each other | leave out `directory` to use this certificate, \
             or `certificate` and `key` to let the proxy create an authority",
        ),
        (
            "hosts: { a.example: { intercept: deny } }\nintercept: { hosts: { A.example: tunnel } }",
            "2:34 `hosts` has another setting for this host | keep one of the two",
        ),
        (
            "egress: { upstream_proxy: 'http://127.0.0.1:3128' }",
            "1:27 this proxy itself listens on this address | name another proxy, or leave the key out",
        ),
        (
            "egress: { upstream_proxy: 'http://localhost:3129' }",
            "1:27 this proxy itself listens on this address | name another proxy, or leave the key out",
        ),
        (
            "egress: { upstream_proxy: 'http://user:pw@proxy.example:3128/path' }",
            "1:27 the URL of a proxy must end after its port | leave out what follows the port",
        ),
        (
            "egress: { upstream_proxy: 'http://proxy.example:0' }",
            "1:27 the port must be a number from 1 to 65535 | write `http://proxy.example:3128` or \
             `https://user:password@proxy.example:3128`",
        ),
        (
            "egress: { upstream_proxy: 'http://a..b:3128' }",
            "1:27 the host name has an empty label, a label over 63 bytes, or more than 253 bytes in all | write \
             `http://proxy.example:3128` or `https://user:password@proxy.example:3128`",
        ),
        (
            "egress: { upstream_proxy: 'http://a!b:3128' }",
            "1:27 the host name has invalid characters | write `http://proxy.example:3128` or \
             `https://user:password@proxy.example:3128`",
        ),
        (
            "hosts: { '*.example.com': { verify: off } }",
            "1:37 `verify: off` for `*.example.com` would accept any certificate from every such host | set it for each host that needs it",
        ),
        (
            "access: { users: [{ name: a, password: '$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$RdescudvJCsgt3ub+b27rA',\n  hosts: { '*.b.example': { verify: off } } }] }",
            "2:37 `verify: off` for `*.b.example` would accept any certificate from every such host | set it for each host that needs it",
        ),
    ] {
        assert_eq!(short(yaml), [fault], "{yaml}");
    }
    good("egress: { upstream_proxy: 'http://127.0.0.1:3130' }");
    good("egress: { upstream_proxy: 'http://127.0.0.2:3128' }");
}

#[test]
fn duplicates_are_reported_with_both_places() {
    let hash = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$BmiKRkKhzZ2NX3mIfpTMzA";
    let user = |name: &str| format!("- {{ name: {name}, password: '{hash}' }}\n");
    let users = format!("access:\n  users:\n  {}  {}  {}", user("u"), user("v"), user("u"));
    let certificate = "{ name: a, certificate: a.example }, { name: c, certificate: A.example }";
    let named = "this certificate would name two users, `a` and `c` | name another certificate, or leave the key out";
    for (yaml, places, fault) in [
        (
            "listen:\n  - address: 127.0.0.1:1\n  - address: 127.0.0.1:1".to_owned(),
            ["2:14", "3:14"],
            "`127.0.0.1:1` appears twice | leave out one of them",
        ),
        (users, ["3:13", "5:13"], "the user `u` appears twice | leave out one of them"),
        (format!("access: {{ users: [{certificate}] }}"), ["1:43", "1:80"], named),
    ] {
        assert_eq!(short(&yaml), places.map(|place| format!("{place} {fault}")), "{yaml}");
    }
}

#[test]
fn listener_beyond_loopback_is_accepted_with_access_rules() {
    good("listen: [{ address: 0.0.0.0:3128 }]\naccess: { clients: [10.0.0.0/8] }");
    good("listen: [{ address: 127.8.8.8:1 }, { address: \"[::ffff:127.0.0.1]:1\" }, { address: fd:any }]");
}

#[test]
fn user_requires_a_password_or_a_certificate_name() {
    for (user, fault) in [
        (
            "{ name: c }",
            "1:56 the user `c` has neither `password` nor `certificate` | add `password`, which `politely hash-password` \
             makes, or `certificate`: a name in a client certificate",
        ),
        (
            "{ name: c, certificate: '' }",
            "1:80 \"\" is not a name in a certificate | write the CN of the certificate, or one of its \
             alternative names: a DNS name, an e-mail address or a URI",
        ),
    ] {
        assert_eq!(short(&format!("access: {{ users: [{{ name: a, certificate: a.example }}, {user}] }}")), [fault]);
    }
}

#[test]
fn plain_password_is_refused_without_repeating_it() {
    for password in ["hunter2", "$argon2id$hunter2", "$2b$12$hunter2hunter2hunter2hunter2hunter2hunter2hunter2hu", "''"]
    {
        let told = short(&format!("access: {{ users: [{{ name: a, password: {password} }}] }}"));
        assert!(told[0].contains("this is not an Argon2 hash of a password"), "{told:?}");
        assert!(!told[0].contains("hunter2"), "{told:?}");
    }
}

#[test]
fn invalid_product_token_is_refused_with_a_suggestion() {
    for (name, hint) in [
        ("ExampleBot/1.0", "write `ExampleBot`"),
        ("'Example Bot'", "write `Example`"),
        ("/1.0", "write the name before `/` in your User-Agent: ExampleBot"),
    ] {
        let name_read = name.trim_matches('\'');
        let fault = format!("1:30 `{name_read}` is not a product token: write the name alone | {hint}");
        assert_eq!(short(&format!("identity: {{ product_tokens: [{name}] }}")), [fault]);
    }
    good("identity: { product_tokens: [360Spider, Mail.Ru, 'Go!Zilla', archive.org_bot] }");
}

#[test]
fn delay_longer_than_max_wait_causes_a_warning() {
    let warned = |yaml: &str| good(yaml).warnings().iter().map(|warning| warning.what.clone()).collect::<Vec<_>>();
    assert_eq!(warned(""), Vec::<String>::new());
    assert_eq!(
        warned("pace: { min_delay: 2m, max_wait: 1m }"),
        ["pace.min_delay (2m) is longer than `pace.max_wait` (1m)"]
    );
    assert_eq!(
        warned("hosts: { a.example: { crawl_delay: 90s } }"),
        ["a host's `crawl_delay` (90s) is longer than `pace.max_wait` (1m)"]
    );
    assert_eq!(warned("pace: { min_delay: 1m }"), Vec::<String>::new());
}
