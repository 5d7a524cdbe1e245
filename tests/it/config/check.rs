//! `politely check`, the built command.

use super::*;

/// `politely check` on this file, in an otherwise empty environment: exit code, standard output, standard error.
fn check(file: &Path, variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let home = file.parent().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_politely"));
    command.args(["check", "--config"]).arg(file).env_clear().env("STATE_DIRECTORY", home.join("state"));
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap().replace(&home.display().to_string(), "HOME");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn written(yaml: &str) -> (TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("politely.yaml");
    fs::write(&file, yaml).unwrap();
    if yaml.contains("tls: { certificate: c.pem") {
        write_pair(home.path());
    }
    (home, file)
}

/// A certificate, its key and an authority for clients, which a listener can be opened with.
fn write_pair(home: &Path) {
    let made = tempfile::tempdir().unwrap();
    Ca::open_or_create(made.path()).unwrap();
    for (from, to) in [("ca.pem", "c.pem"), ("ca.key", "k.pem"), ("ca.pem", "clients.pem")] {
        fs::copy(made.path().join(from), home.join(to)).unwrap();
    }
}

#[test]
fn listener_certificate_outside_its_dates_causes_a_warning() {
    let (clock, renew) = ("set this machine's clock", "renew `listen[].tls.");
    for (from, until, said, hint) in [
        (2019, 2020, "expired on 2020-01-01 00:00 UTC", renew),
        (2090, 2091, "is not valid before 2090-01-01 00:00 UTC", clock),
    ] {
        let key = rcgen::KeyPair::generate().unwrap();
        let made = |from, until| {
            let mut params = rcgen::CertificateParams::new(vec!["proxy.example".to_owned()]).unwrap();
            (params.not_before, params.not_after) =
                (rcgen::date_time_ymd(from, 1, 1), rcgen::date_time_ymd(until, 1, 1));
            params.self_signed(&key).unwrap().pem()
        };
        let (good, bad) = (made(2019, 2090), made(from, until));
        for (chain, clients, which, then) in [
            (bad.clone(), &good, "c.pem", "clients refuse it"),
            (format!("{good}{bad}"), &good, "c.pem (number 2)", "clients may refuse it"),
            (good.clone(), &bad, "clients.pem", "clients with its certificates are let in all the same"),
        ] {
            let (home, file) = written(
                "listen: [{ address: '127.0.0.1:3128', tls: { certificate: c.pem, key: k.pem, client_ca: clients.pem } }]\n",
            );
            fs::write(home.path().join("c.pem"), chain).unwrap();
            fs::write(home.path().join("clients.pem"), clients).unwrap();
            fs::write(home.path().join("k.pem"), key.serialize_pem()).unwrap();
            let (code, text, _) = check(&file, &[]);
            let wanted = format!(
                "the certificate HOME/{which} of the listener `127.0.0.1:3128` {said}: {then}\n    hint: {hint}"
            );
            assert!(code == Some(0) && text.contains(&wanted), "{wanted}\n{text}");
            assert_eq!(text.matches(said).count(), 1, "{text}");
        }
    }
}

#[test]
fn check_explains_a_valid_file_and_creates_no_files() {
    let (home, file) = written(
        "listen: [{ address: 127.0.0.1:8080 }, { address: 0.0.0.0:3128 }]\naccess: { clients: [10.0.0.0/8] }\n\
         mode: report\nidentity: { product_tokens: [ExampleBot, OtherBot] }\nintercept: { default: tunnel }\n\
         egress: { allow: [10.1.0.0/16], ports: [443, \"8000-9000\"] }\nlog: { access: /var/log/a.log }\n\
         hosts: { b.example: { verify: off }, a.example: { verify: off } }\n",
    );
    let (code, told, faults) = check(&file, &[("POLITELY_FLEET", "")]);
    assert_eq!((code, faults.as_str()), (Some(0), ""));
    let (told, roots) = told.split_once("  verifies origins against ").unwrap();
    assert_eq!(
        told,
        "\
HOME/politely.yaml is valid
  listens on 127.0.0.1:8080, for this machine only
  listens on 0.0.0.0:3128, for clients allowed by `access`
  admits anybody from 10.0.0.0/8 (access.clients)
  refuses and delays nothing; only reports what it would have done (mode: report)
  matches robots.txt groups as ExampleBot, OtherBot
  tunnels https: robots.txt is not applied to it (intercept.default)
  connects to ports 443, 8000-9000 (egress.ports)
  override: mode: report for all hosts (HOME/politely.yaml:3)
  override: intercept.default: tunnel for all hosts (HOME/politely.yaml:5)
  override: verify: off for a.example (HOME/politely.yaml:8)
  override: verify: off for b.example (HOME/politely.yaml:8)
  may connect to 10.1.0.0/16, although private (egress.allow)
  logs requests to /var/log/a.log (log.access)
  warning: requests for robots.txt do not say how a webmaster can contact you (identity.contact)
    hint: write a URL that explains your crawler, or a mail address
  creates its certificate authority in HOME/state/ca on first use
"
    );
    assert!(roots.contains(" root certificates: "), "{roots}");
    assert!(!home.path().join("state").exists());
}

#[test]
fn check_lists_admitted_clients_and_warns_of_public_suffixes() {
    let hash = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$BmiKRkKhzZ2NX3mIfpTMzA";
    let (_home, file) = written(
        "listen: [{ address: 0.0.0.0:3128, tls: { certificate: c.pem, key: k.pem, client_ca: clients.pem } }]\n\
         hosts: { old.example: { tls: legacy }, '*.bank.example': { intercept: tunnel }, '*.co.uk': { crawl_delay: 1s } }\n\
         egress: { hosts: ['*.com.au', '*.example', '*.internal', '*.bank.example', '*.com', '*.github.io'] }\n",
    );
    let told = |yaml: &str| {
        fs::write(&file, fs::read_to_string(&file).unwrap() + yaml).unwrap();
        let (code, told, faults) = check(&file, &[]);
        assert_eq!((code, faults.as_str()), (Some(0), ""));
        told
    };
    let open = told("");
    for line in [
        "listens on 0.0.0.0:3128, for anyone with a certificate from HOME/clients.pem (client_ca)",
        "override: tls: legacy for old.example (HOME/politely.yaml:2)",
        "override: intercept: tunnel for *.bank.example (HOME/politely.yaml:2)",
        "warning: `*.co.uk` covers every site below a public suffix",
        "warning: `*.com.au` covers every site below a public suffix",
        "warning: `*.com` covers every site below a public suffix",
    ] {
        assert!(open.contains(&format!("  {line}\n")), "{line}: {open}");
    }
    assert_eq!(open.matches("public suffix").count(), 3, "{open}");
    let users = told(&format!(
        "access: {{ clients: [10.0.0.0/8, 192.0.2.1], users: [{{ name: alice, password: \"{hash}\" }}] }}\n"
    ));
    for line in [
        "listens on 0.0.0.0:3128, for clients allowed by `access` with a certificate from HOME/clients.pem (client_ca)",
        "admits clients from 10.0.0.0/8, 192.0.2.1/32 (access.clients)",
        "requires a user name and password: alice (access.users)",
    ] {
        assert!(users.contains(&format!("  {line}\n")), "{line}: {users}");
    }
}

/// A team's file in `conf.d` can set any key.
#[test]
fn check_lists_each_override_with_its_place() {
    let hash = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$BmiKRkKhzZ2NX3mIfpTMzA";
    let (home, file) = written(
        "include: [conf.d]\npace:\n  min_delay: 1s\nidentity: { purpose: [ai-train], contact: 'https://a.example' }\n\
         hosts:\n  agreed.example:\n    crawl_delay: 1s\n    allow: [/open/]\n",
    );
    fs::create_dir(home.path().join("conf.d")).unwrap();
    let team = format!(
        "pace:\n  min_delay: 0\nhosts:\n  \"*\":\n    robots: ignore\n    purpose: []\n  b.example: {{ intercept: tunnel }}\n\
         access:\n  users:\n  - name: anna\n    password: '{hash}'\n    hosts:\n      c.example:\n        usage: {{ page: report }}\n"
    );
    fs::write(home.path().join("conf.d/team.yaml"), team).unwrap();
    let (code, told, faults) = check(&file, &[("POLITELY_USAGE__TDMREP", "ignore")]);
    assert_eq!((code, faults.as_str()), (Some(0), ""));
    let overrides: Vec<_> = told.lines().filter_map(|line| line.strip_prefix("  override: ")).collect();
    assert_eq!(
        overrides,
        [
            "usage.tdmrep: ignore for all hosts (POLITELY_USAGE__TDMREP)",
            "purpose: [] for * (HOME/conf.d/team.yaml:6)",
            "robots: ignore for * (HOME/conf.d/team.yaml:5)",
            "allow: [\"/open/\"] for agreed.example (HOME/politely.yaml:8)",
            "crawl_delay: 1s for agreed.example, in place of a site's own Crawl-delay, which may be longer (HOME/politely.yaml:7)",
            "intercept: tunnel for b.example (HOME/conf.d/team.yaml:7)",
            "usage.page: report for c.example, for the user anna (HOME/conf.d/team.yaml:14)",
        ]
    );
}

/// A team's file can replace any setting of the main file, but not unseen.
#[test]
fn check_lists_replaced_settings_with_both_places() {
    let hash = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$BmiKRkKhzZ2NX3mIfpTMzA";
    let (home, file) = written(&format!(
        "include: [conf.d]\negress:\n  deny: ['*.internal.example']\npace:\n  breaker: {{ after: 3 }}\n  min_revisit: 1h\n\
         \x20 min_delay: 1s\nusage: {{ license: enforce }}\nrobots: {{ on_unavailable: disallow }}\nstore: {{ disk: 1GiB }}\n\
         identity: {{ product_tokens: [MainBot], user_agent: Main/1, contact: 'https://a.example', purpose: [ai-train] }}\nhosts:\n  '*':\n    deny: [/private/]\n\
         \x20 '*.shop.example':\n    purpose: [tdm]\n    usage: {{ page: enforce }}\n  www.shop.example: {{ deny: [/cart] }}\n\
         access: {{ users: [{{ name: main, password: '{hash}' }}] }}\n"
    ));
    fs::create_dir(home.path().join("conf.d")).unwrap();
    let team = format!(
        "egress:\n  deny: []\npace:\n  breaker: {{ after: 0 }}\n  min_revisit: 0\n  min_delay: 1000ms\nusage: {{ license: report }}\n\
         robots: {{ on_unavailable: allow }}\nstore: {{ disk: 0 }}\nhosts:\n  a.shop.example:\n    purpose: []\n    deny: []\n\
         access:\n  users:\n  - name: anna\n    password: '{hash}'\n    product_tokens: [AnnaBot]\n    hosts:\n\
         \x20     '*.shop.example':\n        deny: [/x]\n        breaker: {{ after: 9 }}\n        usage: {{ page: report }}\n"
    );
    fs::write(home.path().join("conf.d/team.yaml"), team).unwrap();
    let (code, told, faults) = check(
        &file,
        &[("POLITELY_PACE__MIN_DELAY", "0"), ("POLITELY_EGRESS__DENY", "[]"), ("POLITELY_LOG__LEVEL", "warn")],
    );
    assert_eq!((code, faults.as_str()), (Some(0), ""));
    let replaced: Vec<_> = told.lines().filter_map(|line| line.strip_prefix("  replaced: ")).collect();
    assert_eq!(
        replaced,
        [
            "egress.deny: [\"*.internal.example\"] (HOME/politely.yaml:3) by [] (HOME/conf.d/team.yaml:2)",
            "pace.breaker.after: 3 (HOME/politely.yaml:5) by 0 (HOME/conf.d/team.yaml:4)",
            "pace.min_revisit: 1h (HOME/politely.yaml:6) by 0 (HOME/conf.d/team.yaml:5)",
            "usage.license: enforce (HOME/politely.yaml:8) by report (HOME/conf.d/team.yaml:7)",
            "robots.on_unavailable: disallow (HOME/politely.yaml:9) by allow (HOME/conf.d/team.yaml:8)",
            "store.disk: 1GiB (HOME/politely.yaml:10) by 0 (HOME/conf.d/team.yaml:9)",
            "hosts[\"*.shop.example\"].purpose: [\"tdm\"] (HOME/politely.yaml:16) by hosts[\"a.shop.example\"].purpose: [] \
             (HOME/conf.d/team.yaml:12)",
            "hosts[\"*\"].deny: [\"/private/\"] (HOME/politely.yaml:14) by hosts[\"a.shop.example\"].deny: [] (HOME/conf.d/team.yaml:13)",
            "identity.product_tokens: [\"MainBot\"] (HOME/politely.yaml:11) by access.users.anna.product_tokens: [\"AnnaBot\"] \
             (HOME/conf.d/team.yaml:18)",
            "hosts[\"*\"].deny: [\"/private/\"] (HOME/politely.yaml:14) by access.users.anna.hosts[\"*.shop.example\"].deny: [\"/x\"] \
             (HOME/conf.d/team.yaml:21)",
            "hosts[\"www.shop.example\"].deny: [\"/cart\"] (HOME/politely.yaml:18) by access.users.anna.hosts[\"*.shop.example\"].deny: [\"/x\"] \
             (HOME/conf.d/team.yaml:21)",
            "hosts[\"*.shop.example\"].usage.page: enforce (HOME/politely.yaml:17) by \
             access.users.anna.hosts[\"*.shop.example\"].usage.page: report (HOME/conf.d/team.yaml:23)",
            "pace.min_delay: 1000ms (HOME/conf.d/team.yaml:6) by 0 (POLITELY_PACE__MIN_DELAY)",
        ]
    );
}

/// These settings apply to every team, but are neither overrides nor replacements: for example, a longer wait for a robots.txt.
#[test]
fn check_lists_global_settings_of_included_files() {
    let hash = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$BmiKRkKhzZ2NX3mIfpTMzA";
    let (home, file) = written(
        "include: [conf.d]\nidentity: { contact: 'https://a.example' }\npace: { min_delay: 1s, queue: }\nusage: { license: enforce }\n",
    );
    fs::create_dir(home.path().join("conf.d")).unwrap();
    let team = format!(
        "robots:\n  on_unavailable: disallow\n  on_auth_error: allow\n  paths: as-sent\npace:\n  queue: 7\n  min_delay: 2s\n  max_wait: 60s\n\
         usage: {{ license: enforce }}\naccess:\n  clients: [10.0.0.0/8]\n  users:\n  - {{ name: anna, password: '{hash}', max_waiting: 5 }}\n\
         hosts:\n  a.example: {{ deny: [/x] }}\n"
    );
    fs::write(home.path().join("conf.d/team.yaml"), team).unwrap();
    let (code, told, faults) = check(&file, &[("POLITELY_PACE__MAX_WAIT", "5s")]);
    assert_eq!((code, faults.as_str()), (Some(0), ""));
    let set: Vec<_> = told.lines().filter_map(|line| line.strip_prefix("  set: ")).collect();
    assert_eq!(
        set,
        [
            "robots.on_unavailable: disallow (HOME/conf.d/team.yaml:2)",
            "pace.queue: 7 (HOME/conf.d/team.yaml:6)",
            "access.clients: [\"10.0.0.0/8\"] (HOME/conf.d/team.yaml:11)",
            "hosts[\"a.example\"].deny: [\"/x\"] (HOME/conf.d/team.yaml:15)",
        ],
        "{told}"
    );
    // The others have lines of their own, or are as by default.
    for line in [
        "override: robots.paths: as-sent for all hosts",
        "replaced: pace.min_delay: 1s",
        "replaced: pace.max_wait: 60s",
    ] {
        assert!(told.contains(&format!("  {line} (HOME/")), "{line}: {told}");
    }
}

/// Each user can replace settings of each host.
#[test]
fn check_counts_settings_replaced_for_many_hosts() {
    let hash = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$BmiKRkKhzZ2NX3mIfpTMzA";
    let hosts: String = (0..300).map(|host| format!("  h{host}.example: {{ deny: [/x] }}\n")).collect();
    let (home, file) = written(&format!("include: [conf.d]\nhosts:\n{hosts}"));
    let user = |number: usize| {
        format!(
            "  - name: u{number}\n    password: '{hash}'\n    hosts: {{ '*': {{ deny: [/y] }}, '*.h7.example': {{ deny: [] }} }}\n"
        )
    };
    fs::create_dir(home.path().join("conf.d")).unwrap();
    let users: String = (0..20).map(user).collect();
    fs::write(home.path().join("conf.d/users.yaml"), format!("access:\n  users:\n{users}")).unwrap();
    let (_, told, _) = check(&file, &[]);
    let first = "  replaced: hosts[\"h0.example\"].deny: [\"/x\"] (HOME/politely.yaml:3) and 299 more by \
        access.users[\"u0\"].hosts[\"*\"].deny: [\"/y\"] (HOME/conf.d/users.yaml:5)\n";
    assert!(told.contains(first), "{told}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_politely"));
    command.args(["check", "--format", "json", "--config"]).arg(&file).env_clear().env("HOME", home.path());
    let json: serde_json::Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    let replaced = json["replaced"].as_array().unwrap();
    assert_eq!(replaced.len(), 20, "{replaced:?}");
    assert!(replaced.iter().all(|one| one["more"] == 299), "{replaced:?}");
}

#[test]
fn section_variable_replaces_the_section_and_set_replaces_the_variable() {
    let (_home, file) = written("pace:\n  min_delay: 1s\n  queue: 7\nfleet: 'redis://u:s3cret@a:1/'\n");
    let mut command = Command::new(env!("CARGO_BIN_EXE_politely"));
    command.args(["check", "--set", "pace.queue=9", "--set", "fleet=redis://u:s4cret@b:1/", "--config"]).arg(&file);
    command.env_clear().env("HOME", file.parent().unwrap()).env("POLITELY_PACE", "{queue: 8}");
    let told = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let told = told.replace(&file.parent().unwrap().display().to_string(), "HOME");
    let replaced: Vec<_> = told.lines().filter_map(|line| line.strip_prefix("  replaced: ")).collect();
    assert_eq!(
        replaced,
        [
            "fleet.url: redis://a:1/ (HOME/politely.yaml:4) by redis://b:1/ (--set fleet)",
            "pace.queue: 8 (POLITELY_PACE) by 9 (--set pace.queue)",
            "pace.min_delay: 1s (HOME/politely.yaml:2) by {\"queue\":8} (POLITELY_PACE)",
            "pace.queue: 7 (HOME/politely.yaml:3) by 8 (POLITELY_PACE)",
        ],
        "{told}"
    );
}

#[test]
fn check_warns_of_a_proxy_that_is_open_to_every_address() {
    let hash = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$BmiKRkKhzZ2NX3mIfpTMzA";
    let users = format!(", users: [{{ name: a, password: '{hash}' }}]");
    let tls = ", tls: { certificate: c.pem, key: k.pem, client_ca: clients.pem }";
    let warning = "  warning: anybody who can reach `0.0.0.0:3128` may use this proxy: ";
    for (address, tls, clients, users, is_warned) in [
        ("0.0.0.0:3128", "", "0.0.0.0/0, '::/0'", "", true),
        ("0.0.0.0:3128", "", "10.0.0.0/8", "", false),
        ("0.0.0.0:3128", "", "0.0.0.0/0", users.as_str(), false),
        ("0.0.0.0:3128", tls, "0.0.0.0/0", "", false),
        ("127.0.0.1:3128", "", "0.0.0.0/0", "", false),
    ] {
        let (_home, file) =
            written(&format!("listen: [{{ address: '{address}'{tls} }}]\naccess: {{ clients: [{clients}]{users} }}\n"));
        let (code, told, faults) = check(&file, &[]);
        assert_eq!((code, told.contains(warning)), (Some(0), is_warned), "{clients}: {told}{faults}");
    }
}

/// `access.clients` is not required then, as nobody is admitted.
#[test]
fn check_warns_if_a_user_is_required_but_none_exists() {
    let hash = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$BmiKRkKhzZ2NX3mIfpTMzA";
    let warning = "  warning: nobody is let in: there is no user, and `access.require_user` is true\n";
    for (access, code, is_warned) in [
        ("require_user: true".to_owned(), 0, true),
        ("require_user: true, clients: [0.0.0.0/0]".to_owned(), 0, true),
        (format!("require_user: true, users: [{{ name: a, password: '{hash}' }}]"), 0, false),
        ("require_user: false".to_owned(), 2, false),
    ] {
        let (_home, file) = written(&format!("listen: [{{ address: '0.0.0.0:3128' }}]\naccess: {{ {access} }}\n"));
        let (ended, told, faults) = check(&file, &[]);
        assert_eq!((ended, told.contains(warning)), (Some(code), is_warned), "{access}: {told}{faults}");
        assert!(!told.contains("anybody"), "{access}: {told}");
    }
}

#[test]
fn check_shows_fleet_servers_without_passwords() {
    for (fleet, told) in [
        ("redis://u:hunter2@a:1/", "paces and copies of robots.txt through redis://a:1/; if that server is lost, each"),
        (
            "{ pace: 'redis://u:hunter2@a:1/', copies: 'redis://u:hunter2@b:2/' }",
            "copies of robots.txt through redis://b:2/, and paces through redis://a:1/; if that server is lost, each",
        ),
    ] {
        let (_home, file) = written(&format!("fleet: {fleet}"));
        let (code, said, faults) = check(&file, &[]);
        assert_eq!(code, Some(0), "{faults}");
        assert!(said.contains(told) && !said.contains("hunter2"), "{said}");
    }
}

#[test]
fn check_lists_the_users() {
    let hash = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$BmiKRkKhzZ2NX3mIfpTMzA";
    let user = |name: &str| format!("{{ name: {name}, password: \"{hash}\" }}");
    let (_home, file) = written(&format!("access: {{ users: [{}, {}] }}", user("alice"), user("bob")));
    let (code, told, _) = check(&file, &[]);
    assert_eq!(code, Some(0));
    assert!(told.contains("  requires a user name and password: alice, bob (access.users)\n"), "{told}");
    assert!(told.contains("  connects to ports 80, 443 (egress.ports)\n"), "{told}");
    assert!(told.contains("  logs no requests (log.access)\n"), "{told}");
}

/// A user with some terms, and one without any.
fn teams() -> String {
    let hash = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$BmiKRkKhzZ2NX3mIfpTMzA";
    format!(
        "identity: {{ contact: 'https://a.example' }}\naccess:\n  users:\n  - name: research\n    password: '{hash}'\n\
         \x20   user_agent: ResearchBot/1 (+https://research.example)\n    egress: {{ hosts: [example.com, '*.example.org'], methods: [GET] }}\n\
         \x20   budget: {{ requests: 50000, bytes: 10GiB, per: day }}\n    max_connections: 100\n    max_waiting: 500\n\
         \x20   hosts: {{ '*': {{ purpose: [tdm] }}, a.example: {{ crawl_delay: 30s, deny: [/x] }} }}\n\
         \x20 - {{ name: other, certificate: other.example }}\n\
         listen: [{{ address: 127.0.0.1:3128, tls: {{ certificate: c.pem, key: k.pem, client_ca: clients.pem }} }}]\n"
    )
}

#[test]
fn check_shows_each_users_settings_with_their_place() {
    let (home, file) = written(&teams());
    let (code, told, faults) = check(&file, &[]);
    assert_eq!((code, faults.as_str()), (Some(0), ""));
    let users: Vec<_> = told.lines().filter(|line| line.starts_with("  user ")).collect();
    assert_eq!(
        users,
        [
            "  user research (HOME/politely.yaml:4): password: yes; egress.hosts: example.com, *.example.org; egress.methods: GET; \
             product_tokens: ResearchBot; user_agent: ResearchBot/1 (+https://research.example); purpose: tdm; \
             budget: 50000 requests and 10737418240 bytes per day; max_connections: 100; max_waiting: 500; \
             hosts: {\"*\":{\"purpose\":[\"tdm\"]},\"a.example\":{\"crawl_delay\":\"30s\",\"deny\":[\"/x\"]}}",
            "  user other (HOME/politely.yaml:12): certificate: other.example; egress.hosts: any host; egress.methods: any method",
        ]
    );
    let one = |name: &str, more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_politely"));
        command.args(["check", "--user", name, "--config"]).arg(&file).args(more).env_clear().env("HOME", home.path());
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(
        one("other", &[]),
        (
            Some(0),
            "other\n  certificate: other.example\n  egress.hosts: any host\n  egress.methods: any method\n".to_owned()
        )
    );
    let (_, json) = one("research", &["--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["max_waiting"], &json["hosts"]["a.example"]["crawl_delay"]), (&500.into(), &"30s".into()));
    let (code, told) = one("reserch", &[]);
    assert!(code == Some(2) && told.contains("there is no user `reserch` in access.users"), "{told}");
}

/// The list may have been lost by mistake.
#[test]
fn check_shows_any_host_for_a_user_without_a_host_list() {
    let (_home, file) = written("");
    for (all, own, hosts, methods) in [
        ("", "egress: { hosts: [], methods: [GET] }", "any host", "GET"),
        ("", "egress: { hosts: [a.example] }", "a.example", "any method"),
        ("", "max_waiting: 1", "any host", "any method"),
        ("egress: { hosts: ['*.example'] }\n", "egress: { hosts: [] }", "*.example", "any method"),
        ("egress: { hosts: ['*.example'] }\n", "egress: { hosts: [a.example] }", "a.example", "any method"),
    ] {
        fs::write(&file, format!("{all}access: {{ users: [{{ name: a, certificate: a, {own} }}] }}\n")).unwrap();
        let (_, told, _) = check(&file, &[]);
        let terms = format!(": certificate: a; egress.hosts: {hosts}; egress.methods: {methods}");
        assert!(told.lines().any(|it| it.starts_with("  user a (") && it.contains(&terms)), "{own}: {told}");
    }
}

#[test]
fn check_strict_exits_1_on_overrides_and_prints_json() {
    let run = |file: &Path, more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_politely"));
        command.args(["check", "--config"]).arg(file).args(more).env_clear();
        let output = command.env("STATE_DIRECTORY", file.parent().unwrap().join("state")).output().unwrap();
        let home = file.parent().unwrap().display().to_string();
        (output.status.code(), String::from_utf8(output.stdout).unwrap().replace(&home, "HOME"))
    };
    let json =
        |file: &Path| -> serde_json::Value { serde_json::from_str(&run(file, &["--format", "json"]).1).unwrap() };
    let (home, file) = written(&format!("include: [conf.d]\npace: {{ min_revisit: 1h }}\n{}", teams()));
    fs::create_dir(home.path().join("conf.d")).unwrap();
    let team = home.path().join("conf.d/team.yaml");
    let strict = || run(&file, &["--strict"]).0;
    fs::write(&team, "{}").unwrap();
    // One user's crawl_delay replaces that of sites.
    assert_eq!((strict(), run(&file, &[]).0), (Some(1), Some(0)));
    fs::write(&file, fs::read_to_string(&file).unwrap().replace("crawl_delay: 30s", "crawl_delay: 5m")).unwrap();
    assert_eq!(strict(), Some(0), "{}", run(&file, &[]).1);
    let clean = json(&file);
    for key in ["faults", "warnings", "overrides", "replaced", "set"] {
        assert_eq!(clean[key], serde_json::json!([]), "{key}");
    }
    assert_eq!(
        (&clean["users"][0]["name"], &clean["users"][0]["place"]),
        (&"research".into(), &"HOME/politely.yaml:6".into())
    );
    fs::write(&team, "pace: { min_revisit: 2m, max_wait: 1s, min_delay: 2s }\nmode: report\n").unwrap();
    assert_eq!(strict(), Some(1));
    let told = json(&file);
    assert_eq!(
        told["overrides"],
        serde_json::json!([{ "hosts": null, "user": null, "setting": "mode: report", "place": "HOME/conf.d/team.yaml:2" }])
    );
    assert_eq!(
        told["replaced"],
        serde_json::json!([{ "key": "pace.min_revisit", "value": "1h", "place": "HOME/politely.yaml:2", "more": 0,
            "by": { "key": "pace.min_revisit", "value": "2m", "place": "HOME/conf.d/team.yaml:1" } }])
    );
    let place = "HOME/conf.d/team.yaml:1";
    assert_eq!(
        told["set"],
        serde_json::json!([{ "key": "pace.max_wait", "value": "1s", "place": place },
            { "key": "pace.min_delay", "value": "2s", "place": place }])
    );
    assert!(told["warnings"][0]["what"].as_str().unwrap().starts_with("pace.min_delay (2s) is longer than"), "{told}");
    fs::write(&team, "pace: { min_delay: 2s }\n").unwrap();
    assert_eq!(strict(), Some(1), "for everybody");
    fs::write(&team, "mode: strict\n").unwrap();
    let (code, told) = run(&file, &["--format", "json"]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let fault = serde_json::json!({ "place": "HOME/conf.d/team.yaml:1:7", "what": "`strict` is not a valid value here",
        "hint": "write `enforce` or `report`" });
    assert_eq!((code, &told["faults"]), (Some(2), &serde_json::json!([fault])));
    fs::write(&team, "egress: { ca_file: none.pem }\n").unwrap();
    let (code, told) = run(&file, &["--format", "json"]);
    assert!(code == Some(2) && told.starts_with("{\"faults\":[{\"hint\":\"correct `egress.ca_file`"), "{told}");
}

#[test]
fn override_in_a_yaml_alias_is_placed_at_the_alias() {
    let (_home, file) = written("hosts:\n  a.example: &fast\n    crawl_delay: 1s\n  b.example: *fast\n");
    let (_, told, _) = check(&file, &[]);
    for (host, line) in [("a", 3), ("b", 4)] {
        let said = told.lines().find(|it| it.contains(&format!("crawl_delay: 1s for {host}.example, ")));
        assert!(said.is_some_and(|it| it.ends_with(&format!(" (HOME/politely.yaml:{line})"))), "{told}");
    }
}

#[test]
fn check_lists_at_most_50_overrides() {
    let hosts: String = (0..60).map(|host| format!("  h{host}.example: {{ crawl_delay: 1s }}\n")).collect();
    let (_home, file) = written(&format!("hosts:\n{hosts}"));
    let (_, told, _) = check(&file, &[]);
    assert_eq!(told.matches("  override: ").count(), 51, "{told}");
    assert!(told.contains("  override: 10 more: `--format json` lists all\n"), "{told}");
}

#[test]
fn check_warns_if_no_listener_requests_client_certificates() {
    let hash = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$BmiKRkKhzZ2NX3mIfpTMzA";
    let users = format!(
        "access: {{ users: [{{ name: alice, password: \"{hash}\", certificate: alice.example }}, {{ name: bob, certificate: Bob }}, \
         {{ name: carol, password: \"{hash}\" }}] }}\n"
    );
    let warning = "  warning: no listener asks for client certificates: `certificate` has no effect for alice, bob\n";
    let tls =
        "listen: [{ address: 127.0.0.1:3128, tls: { certificate: c.pem, key: k.pem, client_ca: clients.pem } }]\n";
    for (listen, is_warned) in [("", true), (tls, false)] {
        let (_home, file) = written(&format!("{listen}{users}"));
        let (code, told, _) = check(&file, &[]);
        assert_eq!((code, told.contains(warning)), (Some(0), is_warned), "{told}");
        for line in [
            "requires a user name and password: alice, carol (access.users)",
            "recognises users by a name in their certificates: alice by alice.example, bob by Bob (access.users)",
        ] {
            assert!(told.contains(&format!("  {line}\n")), "{line}: {told}");
        }
    }
}

#[test]
fn check_shows_every_fault_as_a_compiler_does_and_exits_2() {
    let (_home, file) = written("mode: enforce\npace:\n  max_wiat: 10s\nrobots:\n  timeout: 10\n");
    let (code, told, faults) = check(&file, &[("POLITELY_MODE", "strict")]);
    assert_eq!((code, told.as_str()), (Some(2), ""));
    assert_eq!(
        faults,
        "\
error: unknown key `max_wiat`
 --> HOME/politely.yaml:3:3
  |
3 |   max_wiat: 10s
  |   ^^^^^^^^
hint: did you mean `max_wait`?

error: the duration `10` lacks its unit
 --> HOME/politely.yaml:5:12
  |
5 |   timeout: 10
  |            ^^
hint: write `10s` for seconds or `10ms` for milliseconds

error: `strict` is not a valid value here
  --> POLITELY_MODE
hint: write `enforce` or `report`
"
    );
}

#[test]
fn check_reads_the_files_named_in_the_configuration() {
    let (home, file) = written("egress: { ca_file: roots.pem }");
    let missing = "\
error: the certificates in HOME/roots.pem cannot be read: No such file or directory (os error 2)
  --> HOME/politely.yaml:1:20
hint: correct `egress.ca_file`, or make the file readable
";
    assert_eq!(check(&file, &[]), (Some(2), String::new(), missing.to_owned()));

    fs::write(&file, "").unwrap();
    let directory = home.path().join("state/ca");
    Ca::open_or_create(&directory).unwrap();
    let (code, told, _) = check(&file, &[]);
    assert_eq!(code, Some(0));
    assert!(told.contains("  HTTPS clients have to trust HOME/state/ca/ca.pem, valid until 20"), "{told}");
    fs::set_permissions(directory.join("ca.key"), Permissions::from_mode(0o644)).unwrap();
    let open = "\
error: the key HOME/state/ca/ca.key can be read by others (mode 0644)
hint: if nobody can have read it, chmod 600 HOME/state/ca/ca.key; otherwise delete it and its certificate
";
    assert_eq!(check(&file, &[]), (Some(2), String::new(), open.to_owned()));
}

/// systemd runs `check` before the start, so a file that it accepts must start.
#[test]
fn check_refuses_each_file_that_serve_would_refuse() {
    let listen = "listen: [{ address: 127.0.0.1:0, tls: { certificate: c.pem, key: k.pem } }]";
    let shown = "hosts: { a.localhost: { client_certificate: { certificate: c.pem, key: k.pem } } }";
    let admin = "admin: { address: 127.0.0.1:0, token_file: token }";
    let (home, file) = written("");
    let is_accepted = |yaml: &str| {
        fs::write(&file, yaml).unwrap();
        let (code, _, faults) = check(&file, &[]);
        if code == Some(0) { Ok(()) } else { Err(faults) }
    };
    write_pair(home.path());
    fs::write(home.path().join("token"), "secret\n").unwrap();
    for (yaml, name, hint) in [
        (listen, "c.pem", "listen"),
        (listen, "k.pem", "listen"),
        (shown, "c.pem", "client_certificate"),
        (shown, "k.pem", "client_certificate"),
        (admin, "token", "admin.token_file"),
    ] {
        assert_eq!(is_accepted(yaml), Ok(()));
        let path = home.path().join(name);
        let content = fs::read(&path).unwrap();
        fs::write(&path, "").unwrap();
        let faults = is_accepted(yaml).unwrap_err();
        assert!(faults.contains(&format!("HOME/{name}")) && faults.contains(hint), "{yaml}: {faults}");
        fs::remove_file(&path).unwrap();
        let faults = is_accepted(yaml).unwrap_err();
        assert!(faults.contains(&format!("HOME/{name}")) && faults.contains("No such file"), "{yaml}: {faults}");
        fs::write(&path, content).unwrap();
    }
    fs::remove_file(home.path().join("token")).unwrap();
    assert_eq!(is_accepted(&admin.replace("127.0.0.1:0", "off")), Ok(()), "nobody asks for it");
}

#[test]
fn evidence_and_cache_in_one_directory_are_refused() {
    let (_home, file) = written("cache: { directory: kept }\nevidence: { directory: ./kept/ }\n");
    let (code, _, faults) = check(&file, &[]);
    let is_told = faults.contains("cannot share a directory") && faults.contains("politely.yaml:2:24");
    assert!(code == Some(2) && is_told && faults.contains("\nhint: name another directory"), "{faults}");
}

#[test]
fn the_file_is_found_by_option_then_by_variable() {
    let (home, file) = written("mode: wrong");
    let fine = home.path().join("fine.yaml");
    fs::write(&fine, "mode: report").unwrap();
    let (code, told, _) = check(&fine, &[("POLITELY_CONFIG", file.to_str().unwrap())]);
    assert_eq!(code, Some(0));
    assert!(told.starts_with("HOME/fine.yaml is valid\n"), "{told}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_politely"));
    let output = command.arg("check").env_clear().env("POLITELY_CONFIG", &file).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("politely.yaml:1:7"));
    let (code, _, faults) = check(&home.path().join("none.yaml"), &[]);
    assert_eq!(code, Some(2));
    assert!(faults.starts_with("error: the configuration cannot be read: No such file"), "{faults}");
}

#[test]
fn check_lists_purposes_and_warns_of_unknown_ones() {
    let (_home, file) = written(
        "identity: { purpose: [ai-train, ai_train] }\nhosts: { a.example: { purpose: [train-ai, bots] } }\n\
         pace: { budget: { requests: 7 }, min_revisit: 1h }\negress: { hosts: [\"*.example\"], methods: [GET] }\n",
    );
    let (code, told, _) = check(&file, &[]);
    assert_eq!(code, Some(0));
    for line in [
        "  fetches for ai-train, ai_train: pages that sites reserve from these purposes are refused (identity.purpose)",
        "  applies to each host: 7 requests per day (pace.budget)",
        "  applies to each host: the same page again only after 3600 s (pace.min_revisit)",
        "  refuses all hosts but *.example (egress.hosts)",
        "  refuses all methods but GET (egress.methods)",
        "  warning: `ai_train` is not a purpose that politely knows: only lines with exactly this name can disallow it",
        "    hint: did you mean `ai-train`?",
        "  warning: `bots` is not a purpose that politely knows: only lines with exactly this name can disallow it",
        "    hint: the known purposes are `search`, `ai-input`, `ai-train`, `tdm`",
    ] {
        assert!(told.contains(&format!("{line}\n")), "{line}: {told}");
    }
    assert_eq!(told.matches("is not a purpose").count(), 2, "{told}");
}

#[test]
fn check_shows_the_evidence_directory_and_refuses_an_unusable_one() {
    let (home, file) = written("evidence: { directory: kept/here, keep: 7d }");
    let (code, told, _) = check(&file, &[]);
    assert_eq!(code, Some(0));
    let line = "  records each decision in HOME/kept/here, and keeps the record for 7d (evidence)\n";
    assert!(told.contains(line) && !home.path().join("kept").exists(), "{told}");
    for directory in ["politely.yaml", "politely.yaml/below", "/dev/null"] {
        fs::write(&file, format!("evidence: {{ directory: {directory} }}")).unwrap();
        let (code, _, faults) = check(&file, &[]);
        assert!(code == Some(2) && faults.contains("evidence cannot be stored in "), "{faults}");
        let hint = "let the proxy's user write there, run this as that user, or correct `evidence.directory`";
        let end = format!(" is not a directory\n  --> HOME/politely.yaml:1:24\nhint: {hint}\n");
        assert!(faults.ends_with(&end), "{faults}");
    }
    if rustix::process::geteuid().is_root() {
        return eprintln!("skipped: root may write everywhere");
    }
    let closed = home.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    for (yaml, what) in [
        ("evidence: { directory: closed/below }", "evidence cannot be stored in "),
        ("intercept: { ca: { directory: closed/below } }", "the certificate authority cannot be created in "),
    ] {
        fs::write(&file, yaml).unwrap();
        let (code, _, faults) = check(&file, &[]);
        assert!(code == Some(2) && faults.contains(what) && faults.contains("Permission denied"), "{faults}");
    }
}

#[test]
fn check_shows_the_cache_directory_and_refuses_an_unusable_one() {
    let (home, file) = written("cache: { directory: kept/here, size: 20GiB }");
    let (code, told, _) = check(&file, &[]);
    assert_eq!(code, Some(0));
    let line = "  caches pages in HOME/kept/here, up to 20GiB (cache)\n";
    assert!(told.contains(line) && !home.path().join("kept").exists(), "{told}");
    let closed = home.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    for (directory, why) in [
        ("politely.yaml", "is not a directory"),
        ("politely.yaml/below", "is not a directory"),
        ("/dev/null", "is not a directory"),
        ("closed/below", "Permission denied"),
    ] {
        if directory.starts_with("closed") && is_root {
            continue;
        }
        fs::write(&file, format!("cache: {{ directory: {directory} }}")).unwrap();
        let (code, _, faults) = check(&file, &[]);
        assert!(code == Some(2) && faults.starts_with("error: pages cannot be cached in "), "{faults}");
        assert!(faults.contains("\n  --> HOME/politely.yaml:1:21\n"), "{faults}");
        assert!(faults.contains(why) && faults.contains("\nhint: let the proxy's user write there"), "{faults}");
    }
    fs::write(&file, "cache: { directory: x, size: 1023KiB }").unwrap();
    let (code, _, faults) = check(&file, &[]);
    assert!(code == Some(2) && faults.contains("1:30") && faults.contains("less than 1 MiB is too small"), "{faults}");
}

#[test]
fn fault_of_a_named_file_is_placed_at_its_key() {
    let (home, file) = written("");
    write_pair(home.path());
    let directory = home.path().join("directory");
    fs::create_dir(&directory).unwrap();
    for (yaml, place) in [
        ("egress:\n  ca_file: none.pem\n", "2:12"),
        ("egress:\n  ca_file: directory\n", "2:12"),
        ("log:\n  access: none/a.log\n", "2:11"),
        ("intercept:\n  ca:\n    certificate: none.pem\n    key: k.pem\n", "3:18"),
        ("intercept:\n  ca:\n    certificate: c.pem\n    key: none.pem\n", "4:10"),
        ("intercept:\n  ca:\n    directory: politely.yaml\n", "3:16"),
        ("listen:\n- address: 127.0.0.1:0\n  tls:\n    certificate: none.pem\n    key: k.pem\n", "4:18"),
        ("listen:\n- address: 127.0.0.1:0\n  tls:\n    certificate: c.pem\n    key: none.pem\n", "5:10"),
        (
            "listen:\n- address: 127.0.0.1:0\n  tls:\n    certificate: c.pem\n    key: k.pem\n    client_ca: none.pem\n",
            "6:16",
        ),
        ("admin:\n  address: 127.0.0.1:0\n  token_file: none\n", "3:15"),
        ("evidence:\n  directory: politely.yaml\n", "2:14"),
        ("hosts:\n  a.example:\n    client_certificate:\n      certificate: c.pem\n      key: none.pem\n", "5:12"),
        (
            "access:\n  users:\n  - name: a\n    certificate: a\n    hosts:\n      a.example:\n        client_certificate: \
             { certificate: none.pem, key: k.pem }\n",
            "7:44",
        ),
    ] {
        fs::write(&file, yaml).unwrap();
        let (code, _, faults) = check(&file, &[]);
        let place = format!("HOME/politely.yaml:{place}");
        assert!(code == Some(2) && faults.contains(&format!("\n  --> {place}\nhint: ")), "{yaml}: {faults}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_politely"));
        command.args(["check", "--format", "json", "--config"]).arg(&file).env("STATE_DIRECTORY", home.path());
        let told: serde_json::Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
        let shown = place.replace("HOME", &home.path().display().to_string());
        assert_eq!(told["faults"][0]["place"], shown, "{told}");
    }
}

#[test]
fn fault_of_a_signing_key_file_is_placed_at_its_key() {
    let (home, file) = written("");
    let good = home.path().join("good.pem");
    let keygen = Command::new(env!("CARGO_BIN_EXE_politely")).args(["identity", "keygen"]).arg(&good).output().unwrap();
    assert!(keygen.status.success(), "{keygen:?}");
    fs::write(home.path().join("other.pem"), "s3cret").unwrap();
    fs::set_permissions(home.path().join("other.pem"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let what = "HOME/other.pem does not hold an Ed25519 key: not a PEM file";
    for (keys, fault) in [
        (
            "key: none.pem",
            "cannot read the signing key HOME/none.pem: No such file or directory (os error 2)\n  --> HOME/politely.yaml:3:10\n",
        ),
        ("key: other.pem", &*format!("{what}\n  --> HOME/politely.yaml:3:10\n")),
        ("key: good.pem\n    other_keys: other.pem", &format!("{what}\n  --> HOME/politely.yaml:4:17\n")),
        (
            "key: good.pem\n    other_keys:\n      - good.pem\n      - other.pem",
            &format!("{what}\n  --> HOME/politely.yaml:6:9\n"),
        ),
    ] {
        fs::write(&file, format!("identity:\n  signature:\n    {keys}\n    agent: https://bot.example\n")).unwrap();
        let (code, _, faults) = check(&file, &[]);
        assert!(code == Some(2) && faults.starts_with(&format!("error: {fault}hint: ")), "{keys}: {faults}");
    }
    fs::write(&file, "identity: { signature: { agent: https://bot.example } }").unwrap();
    let (_, _, faults) = check(&file, &[("POLITELY_IDENTITY__SIGNATURE__KEY", "/none.pem")]);
    assert!(faults.contains("\n  --> POLITELY_IDENTITY__SIGNATURE__KEY\n"), "{faults}");
}
