//! Files that are included.

use super::*;

/// A directory with these files.
fn files(all: &[(&str, &str)]) -> (TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    for (name, text) in all {
        let path = home.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let main = home.path().join("politely.yaml");
    (home, main)
}

fn user(name: &str) -> String {
    format!("{{ name: {name}, password: \"{HASH}\", product_tokens: [{name}Bot] }}")
}

#[test]
fn purpose_spellings_merge_across_included_files() {
    let (_home, main) = files(&[
        ("politely.yaml", "include: more.yaml\nidentity: { policy_tokens: { train-ai: [A], search: [S] } }\n"),
        ("more.yaml", "identity: { policy_tokens: { ai-train: [B] } }\n"),
    ]);
    let settings = with_environment(Some(&main), &[]).unwrap();
    let tokens = settings.identity.policy_tokens.each();
    let tokens: Vec<String> = tokens.map(|(purpose, token)| format!("{purpose} {}", token.as_str())).collect();
    assert_eq!(tokens, ["ai-train B", "search S"], "a list is overridden");
}

const HASH: &str = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$BmiKRkKhzZ2NX3mIfpTMzA";

#[test]
fn included_files_override_the_main_file_and_append_users() {
    let (_home, main) = files(&[
        (
            "politely.yaml",
            &format!(
                "include: [users.yaml, conf.d]\npace: {{ max_wait: 5s, queue: 7 }}\negress: {{ ports: [80, 443] }}\n\
                 hosts: {{ a.example: {{ robots: ignore }} }}\naccess: {{ users: [{}] }}\n",
                user("a")
            ),
        ),
        ("users.yaml", &format!("access: {{ users: [{}] }}\n", user("b"))),
        (
            "conf.d/20-team.yaml",
            &format!(
                "hosts: {{ b.example: {{ crawl_delay: 3s }} }}\naccess: {{ users: [{}], clients: [10.2.0.0/16] }}\n",
                user("c")
            ),
        ),
        (
            "conf.d/10-site.yml",
            "pace: { max_wait: 9s }\nhosts: { a.example: { crawl_delay: 2s } }\negress: { ports: [8080] }\n\
             access: { clients: [10.1.0.0/16] }\nlog: { access: ./a.log }\nfleet:\n",
        ),
        ("conf.d/README", "not: read"),
        ("conf.d/.hidden.yaml", "not: read"),
    ]);
    let settings = with_environment(Some(&main), &[]).unwrap();
    assert_eq!((settings.pace.max_wait, settings.pace.queue), (Duration::from_secs(9), 7));
    let rules = &policy(&settings, "a.example").rules;
    assert_eq!((rules.robots, rules.crawl_delay), (RobotsOverride::Ignore, Some(Duration::from_secs(2))));
    assert_eq!(policy(&settings, "b.example").rules.crawl_delay, Some(Duration::from_secs(3)));
    assert_eq!(settings.egress.ports, [PortRange { first: 8080, last: 8080 }], "a list is overridden");
    let clients: Vec<String> = settings.access.clients.iter().map(|network| network.0.to_string()).collect();
    assert_eq!(clients, ["10.1.0.0/16", "10.2.0.0/16"], "in the order of the files' names");
    let users: Vec<&str> = settings.access.users.iter().map(|user| user.name.as_ref()).collect();
    assert_eq!(users, ["a", "b", "c"]);
    assert_eq!(settings.log.access, AccessLog::File(main.parent().unwrap().join("./a.log")));
    assert_eq!(settings.shown()["pace"]["max_wait"], "9s");

    let settings = with_environment(Some(&main), &[("POLITELY_INCLUDE", "users.yaml")]).unwrap();
    assert_eq!((settings.pace.max_wait, settings.access.users.len()), (Duration::from_secs(5), 2));
    let settings = with_environment(Some(&main), &[("POLITELY_PACE__MAX_WAIT", "1s")]).unwrap();
    assert_eq!(settings.pace.max_wait, Duration::from_secs(1));
}

#[test]
fn faults_of_all_included_files_are_shown_with_their_places() {
    let (home, main) = files(&[
        ("politely.yaml", "include: [conf.d, none]\nmode: strict\n"),
        ("conf.d/a.yaml", "pace:\n  max_wiat: 1s\n  queue: 3\nlisten: [{ address: 0.0.0.0:3128 }]\n"),
        ("conf.d/b.yaml", "include: x\npace:\n  queue: 4\n"),
        ("conf.d/c.yaml", "pace: [\n"),
        ("conf.d/d.yaml", &format!("access: {{ users: [{}, {}] }}", user("a"), user("a"))),
        ("conf.d/e.yaml", "# The team\n"),
        ("conf.d/f.yaml", ""),
    ]);
    let told = with_environment(Some(&main), &[]).unwrap_err().replace(&home.path().display().to_string(), "HOME");
    let places: Vec<&str> = told.lines().filter_map(|line| line.trim().strip_prefix("--> HOME/")).collect();
    let expected = [
        "politely.yaml:1:11",
        "politely.yaml:1:11",
        "politely.yaml:1:19",
        "politely.yaml:2:7",
        "conf.d/a.yaml:2:3",
        "conf.d/b.yaml:1:10",
        "conf.d/b.yaml:3:3",
        "conf.d/c.yaml:1:9",
        "conf.d/d.yaml:1:",
        "conf.d/d.yaml:1:",
    ];
    for (place, expected) in places.iter().zip(expected) {
        assert!(place.starts_with(expected), "{told}");
    }
    assert_eq!(places.len(), expected.len(), "{told}");
    assert!(told.contains("error: `none` cannot be included: No such file or directory"), "{told}");
    for file in ["e", "f"] {
        assert!(told.contains(&format!("HOME/conf.d/{file}.yaml: it is empty")), "being written: {told}");
    }
    assert!(told.contains("3 |   queue: 4\n  |   ^^^^^\nhint: already set in HOME/conf.d/a.yaml:3; keep one of them"));
    assert!(told.contains("an included file must not include others"), "{told}");
    assert!(told.contains("the user `a` appears twice"), "{told}");
}

#[test]
fn fault_in_an_included_file_is_reported_although_a_variable_overrides_it() {
    let (_home, main) = files(&[("politely.yaml", "include: conf.d"), ("conf.d/a.yaml", "pace: { queue: -1 }")]);
    let told = with_environment(Some(&main), &[("POLITELY_PACE__QUEUE", "5")]).unwrap_err();
    assert_eq!(told.matches("conf.d/a.yaml:1:16").count(), 1, "{told}");
    let (_home, main) = files(&[("politely.yaml", "include: ."), ("own.yaml", "mode: report")]);
    assert_eq!(with_environment(Some(&main), &[]).unwrap().mode, Mode::Report, "its own directory");
}

/// A file may include its own directory, which contains other files.
#[test]
fn a_file_that_includes_itself_is_an_error() {
    for name in ["politely.yaml", "./politely.yaml", "conf.d/../politely.yaml"] {
        let text = format!("include:\n  - {name}\nmode: report\n");
        let (home, main) = files(&[("politely.yaml", &text), ("conf.d/a.yaml", "{}")]);
        let told = with_environment(Some(&main), &[]).unwrap_err().replace(&home.path().display().to_string(), "HOME");
        let expected = format!("error: `{name}` is this file itself\n --> HOME/politely.yaml:2:5\n");
        assert!(told.starts_with(&expected), "{told}");
        assert!(told.ends_with("hint: leave it out, or name another file"), "{told}");
    }
}

#[test]
fn fault_without_a_line_names_its_included_file() {
    let (home, main) =
        files(&[("politely.yaml", "include: conf.d"), ("conf.d/a.yaml", "mode: report\n---\nmode: enforce\n")]);
    let told = Settings::load(Some(&main), []).unwrap_err().to_string();
    assert!(told.contains("the file has more than one document"), "{told}");
    assert!(told.contains(&format!("--> {}", home.path().join("conf.d/a.yaml").display())), "{told}");
    assert!(!told.contains("politely.yaml"), "{told}");
}

#[test]
fn a_file_may_begin_with_a_byte_order_mark() {
    let (_home, main) = files(&[
        ("politely.yaml", "\u{feff}include: conf.d\nmode: report\n"),
        ("conf.d/a.yaml", "\u{feff}---\npace: { queue: 5 }\n"),
    ]);
    let settings = with_environment(Some(&main), &[]).unwrap_or_else(|told| panic!("{told}"));
    assert_eq!((settings.mode, settings.pace.queue), (Mode::Report, 5));
}

#[test]
fn host_spellings_merge_across_included_files() {
    let user = |hosts: &str| format!("access: {{ users: [{{ name: a, password: \"{HASH}\", hosts: {hosts} }}] }}");
    let (_home, main) = files(&[
        (
            "politely.yaml",
            "include: conf.d\nhosts:\n  example.com: { robots: ignore, crawl_delay: 1s }\n  \
             xn--bcher-kva.example: { robots: report, crawl_delay: 1s }\n  '*.Example.org': { crawl_delay: 1s }\n\
             intercept: { hosts: { Bank.example: tunnel } }\n",
        ),
        (
            "conf.d/a.yaml",
            &format!(
                "hosts: {{ Example.COM.: {{ crawl_delay: 2s }}, B\u{fc}cher.example: {{ crawl_delay: 3s }} }}\n\
                 intercept: {{ hosts: {{ bank.example.: deny }} }}\n{}\n",
                user("{ A.example: { robots: ignore } }")
            ),
        ),
        (
            "conf.d/b.yaml",
            "hosts: { '*.example.org.': { crawl_delay: 4s }, EXAMPLE.com: { product_tokens: [ShopBot] } }\n",
        ),
    ]);
    let settings = with_environment(Some(&main), &[]).unwrap_or_else(|told| panic!("{told}"));
    let rules = |host: &str| {
        let rules = &policy(&settings, host).rules;
        (rules.robots, rules.crawl_delay.map(|delay| delay.as_secs()))
    };
    assert_eq!(rules("example.com"), (RobotsOverride::Ignore, Some(2)));
    assert_eq!(policy(&settings, "example.com").rules.product_tokens.as_ref().unwrap()[0].as_str(), "ShopBot");
    assert_eq!(rules("b\u{fc}cher.example"), (RobotsOverride::Report, Some(3)));
    assert_eq!(rules("www.example.org").1, Some(4));
    assert_eq!(policy(&settings, "bank.example").intercept, InterceptMode::Deny);
    let hers = settings.access.users[0].hosts.as_ref().unwrap();
    assert_eq!(hers.get(&Host::parse("a.example").unwrap()).rules.robots, RobotsOverride::Ignore);
    assert_eq!(settings.shown()["hosts"]["example.com"]["crawl_delay"], "2s", "one entry is shown, as it is in force");
}

#[test]
fn same_host_key_in_two_included_files_is_a_duplicate_in_any_spelling() {
    let (home, main) = files(&[
        ("politely.yaml", "include: conf.d\n"),
        ("conf.d/a.yaml", "hosts:\n  Example.com:\n    crawl_delay: 1s\n"),
        ("conf.d/b.yaml", "hosts:\n  example.com.: { robots: ignore, crawl_delay: 2s }\n"),
    ]);
    let told = with_environment(Some(&main), &[]).unwrap_err().replace(&home.path().display().to_string(), "HOME");
    assert!(told.starts_with("error: duplicate key `crawl_delay`\n --> HOME/conf.d/b.yaml:2:35\n"), "{told}");
    assert!(told.ends_with("hint: already set in HOME/conf.d/a.yaml:3; keep one of them"), "{told}");
}

/// Merging looks each key up once.
#[test]
fn included_files_with_many_hosts_are_merged() {
    let many = |from: usize| {
        let entries = (from..from + 20_000).map(|number| format!("  h{number}.example: {{ crawl_delay: 1s }}\n"));
        format!("hosts:\n{}", entries.collect::<String>())
    };
    let (_home, main) = files(&[
        ("politely.yaml", &format!("include: [a.yaml, b.yaml]\n{}", many(0))),
        ("a.yaml", &many(10_000)),
        ("b.yaml", &many(30_000)),
    ]);
    let settings = with_environment(Some(&main), &[]).unwrap();
    assert_eq!(settings.shown()["hosts"].as_object().unwrap().len(), 50_000);
}

/// The empty key could mean the main file's value or the default.
#[test]
fn empty_key_in_an_included_file_is_an_error_if_the_main_file_sets_it() {
    let (home, main) = files(&[
        ("politely.yaml", "include: conf.d\npace:\n  budget: { requests: 5 }\n  min_delay: 1s\n"),
        ("conf.d/a.yaml", "pace: { budget: null, min_delay: , breaker: null }\nfleet:\n"),
    ]);
    let told = with_environment(Some(&main), &[]).unwrap_err().replace(&home.path().display().to_string(), "HOME");
    assert_eq!(told.matches("error: ").count(), 2, "{told}");
    assert!(
        told.starts_with(
            "error: `budget` has no value here, but has one in HOME/politely.yaml:3\n --> HOME/conf.d/a.yaml:1:17\n"
        ),
        "{told}"
    );
    assert!(told.contains("error: `min_delay` has no value here, but has one in HOME/politely.yaml:4\n"), "{told}");
    assert!(told.contains("\nhint: leave the key out to keep that value; "), "{told}");
    let settings = with_environment(Some(&home.path().join("conf.d/a.yaml")), &[]).unwrap();
    assert_eq!(settings.pace.budget, None, "alone it is the default");
}

/// An empty list would set no limit.
#[test]
fn empty_list_of_a_user_in_an_included_file_is_an_error() {
    let place = |keys: &str| {
        let team =
            format!("access:\n  users:\n  - {{ name: a, certificate: a }}\n  - name: b\n    certificate: b\n{keys}");
        let (home, main) = files(&[("politely.yaml", "include: conf.d\n"), ("conf.d/a.yaml", &team)]);
        let told = with_environment(Some(&main), &[]).map(drop).err()?;
        Some(told.replace(&home.path().display().to_string(), "HOME"))
    };
    for (keys, key, at) in [
        ("    egress: { hosts: , methods: [GET] }\n", "hosts", "6:"),
        ("    egress:\n      methods: null\n", "methods", "7:"),
        ("    egress:\n", "egress", "6:"),
        ("    product_tokens: ~\n", "product_tokens", "6:"),
    ] {
        let told = place(keys).unwrap_or_else(|| panic!("{keys} is accepted"));
        let expected = format!("error: `{key}` has no value\n --> HOME/conf.d/a.yaml:{at}");
        assert!(told.starts_with(&expected) && told.matches("error: ").count() == 1, "{told}");
    }
    for keys in ["    egress: { hosts: [], methods: [GET] }\n", "    egress: {}\n", "    budget:\n", ""] {
        assert_eq!(place(keys), None, "{keys}");
    }
}
