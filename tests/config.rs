//! The configuration from outside: what an operator writes, and what each slip is answered with.
#![cfg(feature = "proxy")]

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use politely::config::{
    AccessLog, CaSource, HostPolicy, InterceptMode, ListenAddress, Mode, Place, PortRange, RobotsOverride, Settings,
};
use politely::policy::own_rules::OwnVerdict;
use politely::policy::{Host, KeyBy};

const CONF: &str = include_str!("../conf/politely.yaml");

fn good(yaml: &str) -> Settings {
    Settings::parse("politely.yaml", yaml).unwrap_or_else(|errors| panic!("{errors}"))
}

fn faults(yaml: &str) -> String {
    Settings::parse("politely.yaml", yaml)
        .expect_err("this has faults")
        .to_string()
}

/// Each fault as `line:column what | hint`.
fn short(yaml: &str) -> Vec<String> {
    let errors = Settings::parse("politely.yaml", yaml).expect_err("this has faults");
    let line = |fault: &politely::config::Fault| {
        let place = match &fault.place {
            Place::Line { line, column } => format!("{line}:{column} "),
            Place::Variable(name) => format!("{name} "),
            Place::File => String::from("file "),
            Place::Unwritten => String::new(),
        };
        format!("{place}{} | {}", fault.complaint.what, fault.complaint.hint)
    };
    errors.faults().iter().map(line).collect()
}

fn with_environment(file: Option<&Path>, variables: &[(&str, &str)]) -> Result<Settings, String> {
    let variables = variables
        .iter()
        .map(|(name, value)| (OsString::from(name), OsString::from(value)));
    Settings::load(file, variables).map_err(|errors| errors.to_string())
}

#[test]
fn the_file_we_ship_says_the_defaults() {
    assert_eq!(good(CONF), Settings::default());
}

/// The keys that a section has, by what it offers in place of one that it has not.
fn keys(at: impl Fn(&str) -> String) -> BTreeSet<String> {
    let hint = short(&at("qqqqqqqqqqqqqqqq: 1")).remove(0);
    let (_, list) = hint.split_once("the keys here are ").expect("all keys are listed");
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_file_we_ship_has_every_key_there_is() {
    let shipped: serde_yaml::Mapping = serde_yaml::from_str(CONF).unwrap();
    let names = |map: &serde_yaml::Mapping| -> BTreeSet<String> {
        map.keys().map(|key| key.as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&shipped), keys(|key| key.to_owned()));
    let plain = ["listen", "mode", "fleet", "on_fleet_loss", "hosts"];
    for (section, value) in shipped
        .iter()
        .filter(|(key, _)| !plain.contains(&key.as_str().unwrap()))
    {
        let section = section.as_str().unwrap();
        assert_eq!(
            names(value.as_mapping().unwrap()),
            keys(|key| format!("{section}: {{ {key} }}")),
            "{section}"
        );
    }
    let ca = shipped["intercept"]["ca"].as_mapping().unwrap();
    assert_eq!(names(ca), keys(|key| format!("intercept: {{ ca: {{ {key} }} }}")));
    // These stand there as examples.
    for keys in [
        keys(|key| format!("listen: [{{ {key} }}]")),
        keys(|key| format!("listen: [{{ address: 127.0.0.1:1, tls: {{ {key} }} }}]")),
        keys(|key| format!("access: {{ users: [{{ {key} }}] }}")),
        keys(|key| format!("hosts: {{ a.example: {{ {key} }} }}")),
    ] {
        for key in keys {
            assert!(CONF.contains(&format!("{key}: ")), "{key}");
        }
    }
}

#[test]
fn a_file_without_keys_is_the_defaults() {
    for yaml in [
        "",
        "# nothing\n",
        "---\n",
        "pace:\nrobots: null\n",
        "{}",
        "\u{feff}mode: enforce\r\n",
        "hosts:\n",
    ] {
        assert_eq!(good(yaml), Settings::default(), "{yaml:?}");
    }
}

#[test]
fn what_is_written_is_what_is_meant() {
    let settings = good(
        r#"
listen: [{ address: 127.0.0.1:8080 }, { address: "fd:proxy" }, { address: "[::1]:8080" }]
mode: report
identity: { product_tokens: [ExampleBot, 360Spider], contact: "https://example.com/bot", purpose: [search] }
robots: { min_ttl: 1m, max_ttl: 12h, max_size: 1MiB, on_auth_error: disallow, precedence: first-match }
pace: { key: site, min_delay: 500ms, max_concurrent: 2, queue: 0 }
intercept: { default: tunnel, ca: { directory: /etc/ca }, leaf_cache: 10 }
egress: { allow: [10.1.2.3/8, "::1"], deny: [192.0.2.1], ports: [80, "8000-9000", "443"] }
access: { clients: [10.0.0.0/8] }
limits: { header_timeout: 5s, max_header_size: 65536 }
log: { level: debug, format: json, access: /var/log/access.log }
"#,
    );
    assert_eq!(
        settings.listen[0].address,
        ListenAddress::Socket(SocketAddr::from(([127, 0, 0, 1], 8080)))
    );
    assert_eq!(
        settings.listen[1].address,
        ListenAddress::Inherited(String::from("proxy"))
    );
    assert_eq!(settings.mode, Mode::Report);
    let tokens: Vec<&str> = settings.identity.product_tokens.iter().map(AsRef::as_ref).collect();
    assert_eq!(tokens, ["ExampleBot", "360Spider"]);
    assert_eq!(settings.robots.max_ttl, Duration::from_secs(43_200));
    assert_eq!(settings.robots.parse_options().max_size, 1 << 20);
    assert_eq!(settings.pace.key, KeyBy::Site);
    assert_eq!((settings.pace.max_concurrent.get(), settings.pace.queue), (2, 0));
    assert_eq!(
        settings.intercept.ca,
        CaSource::Directory(Some(PathBuf::from("/etc/ca")))
    );
    let allowed: Vec<String> = settings
        .egress
        .allow
        .iter()
        .map(|network| network.0.to_string())
        .collect();
    assert_eq!(allowed, ["10.0.0.0/8", "::1/128"]);
    assert_eq!(
        settings.egress.ports[1],
        PortRange {
            first: 8000,
            last: 9000
        }
    );
    assert_eq!(settings.limits.max_header_size, 65_536);
    assert_eq!(
        settings.log.access,
        AccessLog::File(PathBuf::from("/var/log/access.log"))
    );
}

#[test]
fn an_unknown_key_is_shown_in_its_line_with_the_one_that_was_meant() {
    assert_eq!(
        faults("mode: enforce\nhosts:\n  example.com:\n    crawl_dely: 2s   # slow\n"),
        "\
error: unknown key `crawl_dely`
 --> politely.yaml:4:5
  |
4 |     crawl_dely: 2s   # slow
  |     ^^^^^^^^^^
hint: did you mean `crawl_delay`?"
    );
}

#[test]
fn every_fault_of_a_file_is_told_in_its_order() {
    let yaml = "\
pace: { max_wait: 10, queue: -1, queue: 3, max_concurrent: 0 }
mode: enforced
identity:
  product_tokens: Foo
  contact: 'büro'
egress:
  ports: [80, 0, \"9-8\", https]
  allow: [10.0.0.0/33]
robot: {}
listen:
  - address: localhost:3128
  - adress: 127.0.0.1:1
";
    assert_eq!(
        short(yaml),
        [
            "1:19 the duration `10` lacks its unit | write `10s` for seconds or `10ms` for milliseconds",
            "1:30 expected a whole number, found `-1` | ",
            "1:34 duplicate key `queue` | it stands in line 1 already; keep one of them",
            "1:60 expected a whole number from 1, found `0` | ",
            "2:7 `enforced` is not one of the words that can stand here | did you mean `enforce`?",
            "4:19 expected a list, found `Foo` | a list is written in brackets: [Foo]",
            "5:12 the character 'ü' cannot stand in a header field | use printable ASCII; percent-encode the rest of a URL",
            "7:15 `0` is not a port | a port is a number from 1 to 65535, a range of them \"8000-9000\"",
            "7:18 `9-8` is not a port | a port is a number from 1 to 65535, a range of them \"8000-9000\"",
            "7:25 `https` is not a port | a port is a number from 1 to 65535, a range of them \"8000-9000\"",
            "8:11 `10.0.0.0/33` is not a network | a network is written `10.0.0.0/8`, `2001:db8::/32`, or as one address",
            "9:1 unknown key `robot` | did you mean `robots`?",
            "11:14 `localhost:3128` is not an address to listen on | write `127.0.0.1:3128`; names are not looked up here",
            "12:5 unknown key `adress` | did you mean `address`?",
        ]
    );
}

#[test]
fn a_value_of_the_wrong_kind_is_told_what_should_stand_there() {
    for (yaml, fault) in [
        (
            "pace: 3",
            "1:7 expected a map of keys, found `3` | write the keys of this section below it, indented",
        ),
        (
            "pace: [a]",
            "1:7 expected a map of keys, found a list | write the keys of this section below it, indented",
        ),
        (
            "listen: {address: x}",
            "1:9 expected a list, found a map of keys | a list is written `[one, two]`, or line by line, each begun with `- `",
        ),
        (
            "mode: [enforce]",
            "1:7 expected one word, found a list | write `enforce` or `report`",
        ),
        (
            "mode: true",
            "1:7 expected one word, found `true` | write `enforce` or `report`",
        ),
        (
            "robots: { timeout: [] }",
            "1:20 expected a duration, found a list | a duration is a whole number and its unit: `500ms`, `10s`, `5m`, `24h`, `30d`, or `0`",
        ),
        (
            "robots: { timeout: true }",
            "1:20 expected a duration, found `true` | a duration is a whole number and its unit: `500ms`, `10s`, `5m`, `24h`, `30d`, or `0`",
        ),
        (
            "robots: { unreachable_status: 70000 }",
            "1:31 expected a whole number from 0 to 65535, found `70000` | ",
        ),
        (
            "- mode",
            "1:1 expected a map of keys, found a list | write the keys of this section below it, indented",
        ),
        (
            "mode",
            "1:1 expected a map of keys, found `mode` | write the keys of this section below it, indented",
        ),
    ] {
        assert_eq!(short(yaml), [fault], "{yaml}");
    }
}

#[test]
fn what_is_not_yaml_is_told_with_a_way_out() {
    for (yaml, fault) in [
        (
            "pace:\n\tqueue: 3",
            "2:1 found character that cannot start any token | YAML allows no tabs: indent with spaces",
        ),
        (
            "a: b: c",
            "1:5 mapping values are not allowed in this context | a text with a colon and a space needs quotes; keys of one section stand in one column",
        ),
        (
            "hosts:\n  *.example.com: {}",
            "2:4 did not find expected alphabetic or numeric character | a text that begins with `*` or `&` needs quotes: \"*.example.com\"",
        ),
        (
            "egress: { ports: [80, 443 }",
            "1:27 did not find expected ',' or ']' | check the indentation, the quotes and the brackets here and in the line before",
        ),
        (
            "mode: !x enforce",
            "1:7 a tag such as `!x` cannot stand here | leave out the word that begins with `!`, or put the text in quotes",
        ),
        (
            "mode: report\n---\nmode: enforce",
            "file there is more than one document in it | leave out the line `---` and what follows",
        ),
    ] {
        assert_eq!(short(yaml), [fault], "{yaml}");
    }
}

#[test]
fn alias_bombs_go_off_harmlessly() {
    let mut yaml = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for level in 1..12 {
        let before = level - 1;
        let list = vec![format!("*a{before}"); 10].join(",");
        yaml.push_str(&format!("a{level}: &a{level} [{list}]\n"));
    }
    let faults = short(&yaml);
    assert_eq!(faults.len(), 1);
    assert!(
        faults[0].ends_with("write the values out instead of repeating aliases"),
        "{faults:?}"
    );
    assert!(short("a: &a [*a, *a]")[0].contains("unfolds") || short("a: &a [*a, *a]")[0].contains("limit"));
}

#[test]
fn an_alias_in_moderation_is_fine() {
    let settings = good("access: { clients: &ours [10.0.0.0/8] }\negress: { allow: *ours }\n");
    assert_eq!(settings.egress.allow, settings.access.clients);
}

#[test]
fn a_file_full_of_faults_shows_the_first_fifty() {
    let yaml: String = (0..1000).map(|number| format!("key{number}: 1\n")).collect();
    assert_eq!(short(&yaml).len(), 50);
}

#[test]
fn keys_that_do_not_fit_each_other_are_told_where_they_are_written() {
    for (yaml, fault) in [
        (
            "listen: [{ address: 0.0.0.0:3128 }]",
            "1:21 anybody who reaches `0.0.0.0:3128` could use this proxy | say in `access` who may, such as `clients: [10.0.0.0/8]`, or listen on 127.0.0.1",
        ),
        (
            "listen: []",
            "1:9 there is no address to listen on | write `listen: [{ address: 127.0.0.1:3128 }]`",
        ),
        (
            "listen:\n  - address: 127.0.0.1:1\n  - address: 127.0.0.1:1",
            "3:14 `127.0.0.1:1` is listened on twice | leave out one of them",
        ),
        (
            "listen: [{ address: 127.0.0.1:3129 }]",
            "`127.0.0.1:3129` is a listener of the proxy's already | give it a port of its own, or write `off`",
        ),
        (
            "robots:\n  min_ttl: 2d",
            "2:12 `min_ttl` (2d) is longer than `max_ttl` (1d) | lower the one or raise the other",
        ),
        (
            "robots: { max_size: 100KiB }",
            "1:21 at least 500 KiB of a robots.txt have to be read (RFC 9309 §2.5) | write `500KiB` or more",
        ),
        (
            "robots: { unreachable_status: 500 }",
            "1:31 this status does not fit an unreachable robots.txt | write 503 or 403",
        ),
        (
            "robots: { deny_status: 200 }",
            "1:24 this status is no refusal | write 403 or another from 400 to 499",
        ),
        (
            "pace: { min_delay: 10m }",
            "1:20 `min_delay` (10m) is longer than `max_crawl_delay` (5m) | lower the one or raise the other",
        ),
        (
            "egress: { ports: [] }",
            "1:18 no port is left to go to | write `ports: [80, 443]`",
        ),
        (
            "limits: { connect_timeout: 0 }",
            "1:28 with a time of 0 nothing could ever succeed | write how long it may take, such as `10s`",
        ),
        (
            "limits: { max_header_size: 1GiB }",
            "1:28 the bound on a header block is from 4 KiB to 1 MiB | write `64KiB`",
        ),
        (
            "intercept: { ca: { key: k.pem } }",
            "1:25 this key lacks its certificate | add `certificate: …` beside it",
        ),
        (
            "intercept: { ca: { certificate: c.pem } }",
            "1:33 this certificate lacks its key | add `key: …` beside it",
        ),
        (
            "intercept: { ca: { certificate: c, key: k, directory: d } }",
            "1:33 a certificate of your own and a directory exclude each other | leave out `directory` to use this certificate, or `certificate` and `key` to have one made",
        ),
        (
            "hosts: { a.example: { intercept: deny } }\nintercept: { hosts: { A.example: tunnel } }",
            "2:21 `hosts` says otherwise for this host | say it in one of the two places",
        ),
    ] {
        assert_eq!(short(yaml), [fault], "{yaml}");
    }
}

#[test]
fn a_listener_beyond_loopback_is_fine_with_access_rules() {
    good("listen: [{ address: 0.0.0.0:3128 }]\naccess: { clients: [10.0.0.0/8] }");
    good("listen: [{ address: 127.8.8.8:1 }, { address: \"[::ffff:127.0.0.1]:1\" }, { address: fd:any }]");
}

#[test]
fn a_key_that_nothing_acts_on_yet_is_not_ignored_in_silence() {
    for (yaml, key) in [
        (
            "listen: [{ address: 127.0.0.1:1, tls: { certificate: c, key: k } }]",
            "1:39 `listen.*.tls`",
        ),
        ("robots: { visit_time: enforce }", "1:23 `robots.visit_time`"),
        ("pace: { key: address }", "1:14 `pace.key`"),
        ("pace: { subresources: burst }", "1:23 `pace.subresources`"),
        (
            "egress: { upstream_proxy: 'http://proxy.example:3128' }",
            "1:27 `egress.upstream_proxy`",
        ),
        ("access: { users: [{ name: a, password: x }] }", "1:18 `access.users`"),
        ("fleet: redis://127.0.0.1:6379/0", "1:8 `fleet`"),
    ] {
        assert_eq!(
            short(yaml),
            [format!("{key} is not supported by this version | leave it out")],
            "{yaml}"
        );
    }
}

#[test]
fn secrets_are_never_shown() {
    for yaml in [
        "egress: { upstream_proxy: 'ftp://user:hunter2@proxy.example' }",
        "fleet: redis://user:hunter2@127.0.0.1:port",
        "fleet: redis://user:hunter2@127.0.0.1",
        "access: { users: [{ name: 'a:b', password: hunter2 }] }",
        "access: { users: [{ name: 'a', password: [hunter2] }] }",
    ] {
        let shown = faults(yaml);
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.contains("politely.yaml:1:"), "{shown}");
    }
}

fn policy<'a>(settings: &'a Settings, host: &str) -> &'a HostPolicy {
    settings.hosts.get(&Host::parse(host).unwrap())
}

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
    assert_eq!(
        (www.robots, www.crawl_delay),
        (RobotsOverride::Ignore, Some(Duration::from_secs(3)))
    );
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

#[test]
fn the_environment_goes_before_the_file() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("politely.yaml");
    fs::write(
        &file,
        "pace: { max_wait: 5s, queue: 7 }\nhosts: { a.example: { robots: ignore } }\n",
    )
    .unwrap();
    let settings = with_environment(
        Some(&file),
        &[
            ("POLITELY_PACE__MAX_WAIT", "10s"),
            ("POLITELY_EGRESS__PORTS", "[80, 443, \"8000-9000\"]"),
            ("POLITELY_IDENTITY__CONTACT", "https://example.com/bot#who: me"),
            ("POLITELY_INTERCEPT__CA__DIRECTORY", "ca"),
            ("POLITELY_FLEET", ""),
            ("POLITELY_PORT", "tcp://10.0.0.1:3128"),
            ("PACE__MAX_WAIT", "1s"),
        ],
    )
    .unwrap();
    assert_eq!(settings.pace.max_wait, Duration::from_secs(10));
    assert_eq!(settings.pace.queue, 7);
    assert_eq!(settings.egress.ports.len(), 3);
    assert_eq!(settings.identity.contact, "https://example.com/bot#who: me");
    assert_eq!(settings.intercept.ca, CaSource::Directory(Some(home.path().join("ca"))));
    assert_eq!(policy(&settings, "a.example").robots, RobotsOverride::Ignore);
}

#[test]
fn a_variable_at_fault_is_named_in_place_of_a_line() {
    assert_eq!(
        with_environment(
            None,
            &[
                ("POLITELY_PACE__MAX_WIAT", "10s"),
                ("POLITELY_PACE__MIN_DELAY", "10"),
                ("POLITELY_LISTEN", "[{ address: 0.0.0.0:1 "),
                ("POLITELY_MODE", "off"),
            ]
        )
        .unwrap_err(),
        "\
error: did not find expected ',' or '}'
  --> POLITELY_LISTEN
hint: lists and maps are written `[80, 443]` and `{key: value}`; other values as they are

error: `off` is not one of the words that can stand here
  --> POLITELY_MODE
hint: write `enforce` or `report`

error: unknown key `max_wiat`
  --> POLITELY_PACE__MAX_WIAT
hint: did you mean `max_wait`?

error: the duration `10` lacks its unit
  --> POLITELY_PACE__MIN_DELAY
hint: write `10s` for seconds or `10ms` for milliseconds"
    );
    let fault = with_environment(None, &[("POLITELY_ROBOTS__MIN_TTL", "3d")]).unwrap_err();
    assert!(fault.contains("--> POLITELY_ROBOTS__MIN_TTL"), "{fault}");
    let fault = with_environment(None, &[("POLITELY_MODE__X", "1"), ("POLITELY_ROBOT", "1")]).unwrap_err();
    assert!(
        fault.contains("--> POLITELY_MODE__X") && fault.contains("--> POLITELY_ROBOT"),
        "{fault}"
    );
}

#[test]
fn relative_paths_start_at_the_files_directory() {
    let yaml = "intercept: { ca: { certificate: ca.pem, key: /k.pem } }\negress: { ca_file: roots.pem }\nlog: { access: ./a.log }";
    let settings = Settings::parse("/etc/politely/politely.yaml", yaml).unwrap();
    let (certificate, key) = (PathBuf::from("/etc/politely/ca.pem"), PathBuf::from("/k.pem"));
    assert_eq!(settings.intercept.ca, CaSource::Files { certificate, key });
    assert_eq!(settings.egress.ca_file, Some(PathBuf::from("/etc/politely/roots.pem")));
    assert_eq!(
        settings.log.access,
        AccessLog::File(PathBuf::from("/etc/politely/./a.log"))
    );
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    assert_eq!(
        with_environment(Some(Path::new("/nowhere/politely.yaml")), &[]).unwrap_err(),
        "\
error: the configuration cannot be read: No such file or directory (os error 2)
  --> /nowhere/politely.yaml
hint: give the path of a readable file; without one the defaults hold"
    );
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("politely.yaml");
    fs::write(&file, b"mode: report\n# caf\xe9\n").unwrap();
    let fault = with_environment(Some(&file), &[]).unwrap_err();
    assert!(fault.starts_with("error: line 2 is not UTF-8\n"), "{fault}");
}
