//! Messages about mistakes in the configuration.

use super::*;

#[test]
fn unknown_key_is_shown_in_its_line_with_a_suggestion() {
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

/// A slip may name a device without an end.
#[test]
fn endless_file_named_in_the_configuration_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let [main, key] = ["politely.yaml", "key.pem"].map(|name| home.path().join(name));
    // The mode is right, so the file is read.
    let made = Command::new("sh").args(["-c", "umask 077; head -c 20M /dev/zero > \"$0\""]).arg(&key).status().unwrap();
    assert!(made.success());
    let key = key.display();
    for yaml in [
        String::from("include: [/dev/zero]"),
        String::from("egress: { ca_file: /dev/zero }"),
        String::from("admin: { address: '127.0.0.1:0', token_file: /dev/zero }"),
        format!("intercept: {{ ca: {{ certificate: /dev/zero, key: {key} }} }}"),
        format!("intercept: {{ ca: {{ certificate: /dev/null, key: {key} }} }}"),
        String::from("listen: [{ address: '127.0.0.1:0', tls: { certificate: /dev/zero, key: /dev/null } }]"),
        String::from("listen: [{ address: '127.0.0.1:0', tls: { certificate: /dev/null, key: /dev/zero } }]"),
        String::from("hosts: { a.example: { client_certificate: { certificate: /dev/zero, key: /dev/null } } }"),
        String::from("hosts: { a.example: { client_certificate: { certificate: /dev/null, key: /dev/zero } } }"),
    ] {
        let listen = free_ports(&yaml);
        fs::write(&main, format!("store: {{ directory: s }}\n{listen}{yaml}\n")).unwrap();
        let told = serve_that_fails(&main, home.path());
        let is_told = ["it is larger than 16 MiB", "it is not a regular file"].iter().any(|what| told.contains(what));
        assert!(is_told && told.contains("hint: "), "{yaml}: {told}");
    }
    let told = serve_that_fails(Path::new("/dev/zero"), home.path());
    assert!(told.contains("it is larger than 16 MiB\n  --> /dev/zero\nhint: check that"), "{told}");
}

/// Nobody may ever write to the pipe.
#[test]
fn pipe_named_in_the_configuration_is_refused_without_waiting() {
    let home = tempfile::tempdir().unwrap();
    let [main, pipe] = ["politely.yaml", "pipe"].map(|name| home.path().join(name));
    assert!(Command::new("mkfifo").args(["-m", "600"]).arg(&pipe).status().unwrap().success());
    let pipe = pipe.display();
    for yaml in [
        format!("include: [{pipe}]"),
        format!("egress: {{ ca_file: {pipe} }}"),
        format!("admin: {{ address: '127.0.0.1:0', token_file: {pipe} }}"),
        format!("intercept: {{ ca: {{ certificate: {pipe}, key: {pipe} }} }}"),
        format!("identity: {{ signature: {{ key: {pipe}, agent: 'https://a.example' }} }}"),
        format!("listen: [{{ address: '127.0.0.1:0', tls: {{ certificate: {pipe}, key: {pipe} }} }}]"),
        format!("hosts: {{ a.example: {{ client_certificate: {{ certificate: {pipe}, key: {pipe} }} }} }}"),
    ] {
        let listen = free_ports(&yaml);
        fs::write(&main, format!("store: {{ directory: s }}\n{listen}{yaml}\n")).unwrap();
        let told = serve_that_fails(&main, home.path());
        assert!(told.contains("it is not a regular file") && told.contains("hint: "), "{yaml}: {told}");
    }
}

#[test]
fn pipe_in_the_state_directory_does_not_block_start_or_shutdown() {
    let home = tempfile::tempdir().unwrap();
    let main = home.path().join("politely.yaml");
    for name in [
        "s/instance",
        "s/admin-token",
        "s/robots.index",
        "s/robots.copies.1",
        "s/ca/ca.pem",
        "s/ca/ca.key",
        "s/ca/.lock",
    ] {
        let _ = fs::remove_dir_all(home.path().join("s"));
        let script = "umask 077; mkdir -p \"$0/s/ca\" && mkfifo \"$0/$1\"";
        assert!(Command::new("sh").args(["-c", script]).arg(home.path()).arg(name).status().unwrap().success());
        let yaml = "store: { directory: s }\nintercept: { ca: { directory: s/ca } }\nadmin: { address: '127.0.0.1:0' }\n\
                    listen: [{ address: '127.0.0.1:0' }]\n";
        fs::write(&main, yaml).unwrap();
        // SIGTERM once it listens; where it does not, it has to end by itself.
        let script = "\"$0\" serve --config \"$1\" 2>&1 | while read -r line; do echo \"$line\"; case $line in \
                      *'have to trust'*) pkill -TERM -P $$ politely;; esac; done";
        let mut command = Command::new("timeout");
        command.args(["-k", "1", "50", "bash", "-c", script, env!("CARGO_BIN_EXE_politely")]).arg(&main);
        command.env("HOME", home.path()).env("STATE_DIRECTORY", home.path().join("state"));
        let ended = command.output().unwrap();
        let told = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success(), "{name} hangs: {told}");
        assert!(told.contains("stopped") || told.contains("error: "), "{name}: {told}");
    }
}

/// The standard error of `serve` with limited memory and time.
fn serve_that_fails(file: &Path, home: &Path) -> String {
    let mut command = Command::new("sh");
    let bounded = "ulimit -v 4000000; exec timeout -k 1 50 \"$0\" serve --config \"$1\"";
    command.args(["-c", bounded, env!("CARGO_BIN_EXE_politely")]).arg(file).env("STATE_DIRECTORY", home.join("state"));
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stderr).unwrap()
}

/// For example, `<(…)` in a shell.
#[test]
fn configuration_can_be_read_from_a_pipe() {
    let script = "\"$0\" check --config <(echo 'pace: { max_wait: 7s }'; echo 'include: [/dev/null]')";
    let output = Command::new("bash").args(["-c", script, env!("CARGO_BIN_EXE_politely")]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Later faults of a section may follow from its first: a missing key from a misspelt one.
#[test]
fn the_first_fault_of_each_section_is_shown_in_the_order_of_the_file() {
    let yaml = "\
pace: { max_wait: 10, queue: -1, queue: 3, max_concurrent: 0 }
mode: enforced
identity:
  product_tokens: Foo
  contact: 'büro'
egress:
  ports: [80, 0, \"9-8\", https]
robot: {}
listen:
  - adress: 127.0.0.1:1
  - tls: null
hosts:
  b.example: { crawl_dely: 1s, robots: ignor }
";
    assert_eq!(
        short(yaml),
        [
            "1:19 the duration `10` lacks its unit | write `10s` for seconds or `10ms` for milliseconds",
            "1:34 duplicate key `queue` | already set in line 1; keep one of them",
            "2:7 `enforced` is not a valid value here | did you mean `enforce`?",
            "4:19 expected a list, found `Foo` | a list is written in brackets: [Foo]",
            "7:15 `0` is not a port | a port is a number from 1 to 65535, a range is written \"8000-9000\"",
            "8:1 unknown key `robot` | did you mean `robots`?",
            "10:5 unknown key `adress` | did you mean `address`?",
            "13:16 unknown key `crawl_dely` | did you mean `crawl_delay`?",
        ]
    );
    let told = with_environment(None, &[("POLITELY_EGRESS__PORTS", "[0, 70000]")]).unwrap_err();
    assert_eq!(told.matches("is not a port").count(), 1, "{told}");
}

#[test]
fn invalid_value_is_reported_with_the_allowed_values() {
    let ports = "a port is a number from 1 to 65535, a range is written \"8000-9000\"";
    let purposes = "write `search`, `ai-input`, `ai-train`, or another name of letters, digits, `-`, `_`, `.` and `*`";
    for (yaml, fault) in [
        ("pace: { queue: -1 }", "1:16 expected a whole number, found `-1` | write 0 or more"),
        (
            "limits: { header_timeout: 0s }",
            "1:27 the time must be greater than 0 | write how long it may take, such as `10s`",
        ),
        ("limits: { max_connections: 99999999 }", "1:28 this value is too large | write 10000000 or less"),
        (
            "robots: { deny_status: 200 }",
            "1:24 this status is not a refusal | write 403 or another status from 400 to 499",
        ),
        ("pace: { max_concurrent: 0 }", "1:25 expected a whole number from 1, found `0` | write 1 or more"),
        (
            "identity: { contact: 'büro' }",
            "1:22 the character 'ü' is not allowed in a header field | use printable ASCII; percent-encode the rest of a URL",
        ),
        ("identity: { purpose: [ai-train, ai train] }", &format!("1:33 `ai train` is not a purpose | {purposes}")),
        (
            "identity: { purpose: [ai-train, {}] }",
            &format!("1:33 expected a purpose, found a map of keys | {purposes}"),
        ),
        ("egress: { ports: [80, \"9-8\"] }", &format!("1:23 `9-8` is not a port | {ports}")),
        ("egress: { ports: [80, https] }", &format!("1:23 `https` is not a port | {ports}")),
        (
            "egress: { allow: [10.0.0.0/33] }",
            "1:19 `10.0.0.0/33` is not a network | a network is written `10.0.0.0/8`, `2001:db8::/32`, or as one address",
        ),
        ("min_delay: 2s", "1:1 unknown key `min_delay` | it belongs in `pace`: `pace: { min_delay: … }`"),
        (
            "mode: report\ndirectory: /x",
            "2:1 unknown key `directory` | it belongs in `cache`, `evidence` or `store`: `cache: { directory: … }`",
        ),
        ("listen:\n  - adress: 127.0.0.1:1", "2:5 unknown key `adress` | did you mean `address`?"),
    ] {
        assert_eq!(short(yaml), [fault], "{yaml}");
    }
}

#[test]
fn conflicts_between_keys_are_reported_together_with_misspelt_words() {
    let yaml = "\
mode: enforced
listen: [{ address: 0.0.0.0:3128 }]
pace: { min_delay: 10m }
robots: { deny_status: 200, max_tll: 1m, min_ttl: 30d }
access: { users: [{ nmae: x, password: y }, { name: bob, password: hunter2 }] }
";
    assert_eq!(
        short(yaml),
        [
            "1:7 `enforced` is not a valid value here | did you mean `enforce`?",
            "3:20 `min_delay` (10m) is longer than `max_crawl_delay` (5m) | lower the first or raise the second",
            "4:29 unknown key `max_tll` | did you mean `max_ttl`?",
            "5:21 unknown key `nmae` | did you mean `name`?",
        ],
        "who may use it and how long copies are fresh is not known"
    );
}

#[test]
fn value_of_the_wrong_type_is_reported_with_the_expected_form() {
    for (yaml, fault) in [
        (
            "evidence: 3",
            "1:11 expected a map of keys, found `3` | write its keys below it, indented: `directory` and `keep`",
        ),
        ("listen: ['a:1']", "1:10 expected a listener, found `a:1` | write `listen: [{ address: 127.0.0.1:3128 }]`"),
        ("listen: a:1", "1:9 expected a listener, found `a:1` | write `listen: [{ address: 127.0.0.1:3128 }]`"),
        (
            "evidence: [a]",
            "1:11 expected a map of keys, found a list | write its keys below it, indented: `directory` and `keep`",
        ),
        (
            "listen: {address: x}",
            "1:9 expected a list, found a map of keys | a list is written `[one, two]`, or line by line, each line beginning with `- `",
        ),
        ("mode: [enforce]", "1:7 expected one word, found a list | write `enforce` or `report`"),
        ("mode: true", "1:7 expected one word, found `true` | write `enforce` or `report`"),
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
            "1:31 expected a whole number from 0 to 65535, found `70000` | write a smaller number",
        ),
        (
            "robots: { lenient_usage: maybe }",
            "1:26 expected `true` or `false`, found `maybe` | write `true` or `false`",
        ),
        (
            "robots: { max_size: 1.5 }",
            "1:21 `1.5` is not a size | a size is a whole number and its unit: `512KiB`, `1MiB`, `2GiB`, or a plain number of bytes",
        ),
        ("pace: { queue: many }", "1:16 expected a whole number, found `many` | write digits alone, such as `10`"),
        ("- mode", "1:1 expected a map of keys, found a list | write the keys of this section below it, indented"),
        ("mode", "1:1 expected a map of keys, found `mode` | write the keys of this section below it, indented"),
    ] {
        assert_eq!(short(yaml), [fault], "{yaml}");
    }
}

#[test]
fn invalid_method_names_are_refused() {
    for method in ["get", "*", "G ET", ""] {
        let fault = format!(
            "1:21 `{method}` is not a method | write methods in capitals, such as `GET`, `HEAD` or `POST`; `[]` allows any"
        );
        assert_eq!(short(&format!("egress: {{ methods: ['{method}'] }}")), [fault], "{method}");
    }
}

/// Joined to the directory of the configuration file, it would be that directory.
#[test]
fn an_empty_path_is_refused_wherever_a_path_is_written() {
    for yaml in [
        "include: ''",
        "include: ['']",
        "listen: [{ address: '127.0.0.1:1', tls: { certificate: '', key: k } }]",
        "listen: [{ address: '127.0.0.1:1', tls: { certificate: c, key: '' } }]",
        "listen: [{ address: '127.0.0.1:1', tls: { certificate: c, key: k, client_ca: '' } }]",
        "admin: { token_file: '' }",
        "identity: { signature: { key: '' } }",
        "identity: { signature: { key: k, other_keys: '' } }",
        "identity: { signature: { key: k, other_keys: [''] } }",
        "intercept: { ca: { directory: '' } }",
        "intercept: { ca: { certificate: '', key: k } }",
        "intercept: { ca: { certificate: c, key: '' } }",
        "egress: { ca_file: '' }",
        "hosts: { a.example: { client_certificate: { certificate: '', key: k } } }",
        "hosts: { a.example: { client_certificate: { certificate: c, key: '' } } }",
        "store: { directory: '' }",
        "evidence: { directory: '' }",
        "cache: { directory: '' }",
    ] {
        let column = yaml.find("''").unwrap() + 1;
        let fault = format!("1:{column} a path must not be empty | write a path, or leave the key out");
        assert_eq!(short(yaml), [fault], "{yaml}");
    }
}

#[test]
fn invalid_yaml_is_reported_with_a_hint() {
    for (yaml, fault) in [
        (
            "pace:\n\tqueue: 3",
            "2:1 found character that cannot start any token | YAML allows no tabs: indent with spaces",
        ),
        (
            "a: b: c",
            "1:5 mapping values are not allowed in this context | a text with a colon and a space needs quotes; \
             the keys of a section must begin in the same column",
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
            "1:7 a tag such as `!x` is not allowed here | leave out the word that begins with `!`, or put the text in quotes",
        ),
        (
            "mode: report\n---\nmode: enforce",
            "file the file has more than one document | leave out the line `---` and what follows",
        ),
        (
            "mode: enforce\npace: { queue: 5 } # \u{e9}\u{7}\n",
            "2:23 control characters are not allowed | leave the character out, or write it in double quotes as `\\xNN`",
        ),
        ("\u{feff}mode: x", "1:7 `x` is not a valid value here | write `enforce` or `report`"),
    ] {
        assert_eq!(short(yaml), [fault], "{yaml}");
    }
}

#[test]
fn alias_bombs_are_refused() {
    let mut yaml = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for level in 1..12 {
        let before = level - 1;
        let list = vec![format!("*a{before}"); 10].join(",");
        yaml.push_str(&format!("a{level}: &a{level} [{list}]\n"));
    }
    let faults = short(&yaml);
    assert_eq!(faults.len(), 1);
    assert!(faults[0].ends_with("write the values out instead of repeating aliases"), "{faults:?}");
    assert!(short("a: &a [*a, *a]")[0].contains("unfolds") || short("a: &a [*a, *a]")[0].contains("limit"));
}

#[test]
fn few_aliases_are_accepted() {
    let settings = good("access: { clients: &ours [10.0.0.0/8] }\negress: { allow: *ours }\n");
    assert_eq!(settings.egress.allow, settings.access.clients);
}

#[test]
fn only_the_first_50_faults_are_shown() {
    let yaml: String = (0..1000).map(|number| format!("key{number}: 1\n")).collect();
    assert_eq!(short(&yaml).len(), 50);
}

#[test]
fn addresses_require_an_agent() {
    let hint = "add `signature: { key: …, agent: https://bot.example }`; the addresses are published below this URL";
    assert_eq!(
        short("identity: { addresses: [192.0.2.0/24] }"),
        [format!("1:24 `addresses` requires `signature.agent` | {hint}")]
    );
}

/// The defaults that replace the faulty section are not compared with the other sections.
#[test]
fn mistake_in_one_section_causes_no_faults_in_others() {
    for (section, other) in [
        ("listen: [{ address: 127.0.0.1:8080, x: 1 }]", "egress: { upstream_proxy: 'http://127.0.0.1:3128' }"),
        ("admin: { address: 127.0.0.1:8081, x: 1 }", "egress: { upstream_proxy: 'http://127.0.0.1:3129' }"),
        ("pace: { max_crawl_delay: 1h, x: 1 }", "hosts: { a.example: { adaptive: { factor: 2, max: 30m } } }"),
    ] {
        let found = short(&format!("{section}\n{other}\n"));
        assert!(found.len() == 1 && found[0].starts_with("1:"), "{section}: {found:?}");
    }
}

/// The tokens of one of the two would otherwise be dropped silently.
#[test]
fn purpose_in_two_spellings_is_a_duplicate() {
    let yaml = "identity:\n  policy_tokens:\n    train-ai: [GPTBot]\n    search: [X]\n    AI-Train: [CCBot]\n";
    assert_eq!(short(yaml), ["5:5 the purpose `ai-train` appears twice | add these names to the list in line 3"]);
}

/// Searching the whole file for each fault would take hours.
#[test]
fn file_with_20_000_faulty_keys_shows_the_first_50() {
    const HASH: &str = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$RdescudvJCsgt3ub+b27rA";
    let many = |line: &dyn Fn(usize) -> String| (0..20_000).map(line).collect::<String>();
    for (yaml, first) in [
        (
            many(&|_| String::from("mode: report\n")),
            "2:1 duplicate key `mode` | already set in line 1; keep one of them",
        ),
        (
            format!("hosts:\n{}", many(&|number| format!("  h{number}.example: {{ budget: {{ per: day }} }}\n"))),
            "2:32 `per` is the period of `requests` and `bytes`, and neither is set | ",
        ),
        (
            format!("hosts:\n{}", many(&|number| format!("  H.example{}: {{}}\n", ["", "."][number % 2]))),
            "3:3 the host `h.example` appears twice | merge it with the entry in line 2",
        ),
        (
            format!(
                "access:\n  users:\n{}",
                many(&|number| format!("  - {{ name: u{number}, password: '{HASH}', budget: {{ per: day }} }}\n"))
            ),
            "3:107 `per` is the period of `requests` and `bytes`, and neither is set | ",
        ),
        (
            format!("access:\n  users:\n{}", many(&|_| format!("  - {{ name: u, password: '{HASH}' }}\n"))),
            "3:13 the user `u` appears twice | leave out one of them",
        ),
        (
            format!("listen:\n{}", many(&|_| String::from("- address: 127.0.0.1:1\n"))),
            "2:12 `127.0.0.1:1` appears twice | leave out one of them",
        ),
    ] {
        let faults = short(&yaml);
        assert_eq!(faults.len(), 50, "{}", &yaml[..80]);
        assert!(faults[0].starts_with(first), "{}", faults[0]);
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    assert_eq!(
        with_environment(Some(Path::new("/nowhere/politely.yaml")), &[]).unwrap_err(),
        "\
error: the configuration cannot be read: No such file or directory (os error 2)
  --> /nowhere/politely.yaml
hint: give the path of a readable file; without one the defaults are used"
    );
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("politely.yaml");
    fs::write(&file, b"mode: report\n# caf\xe9\n").unwrap();
    let fault = with_environment(Some(&file), &[]).unwrap_err();
    assert!(fault.starts_with("error: line 2 is not UTF-8\n"), "{fault}");
}

#[test]
fn faults_do_not_show_secrets() {
    for yaml in [
        "egress: { upstream_proxy: 'ftp://user:hunter2@proxy.example' }",
        "egress: { upstream_proxy: 'user:hunter2@proxy.example:3128' }",
        "egress: { upstream_proxy: 'http:user:hunter2@proxy.example:3128' }",
        "fleet: 'redis+sentinel://h/0?master=m&node=:hunter2@other'",
        "access: { users: [{ name: 'a', pwd: hunter2 }] }",
        "fleet: redis://user:hunter2@127.0.0.1:port",
        "fleet: http://user:hunter2@127.0.0.1",
        "fleet: redis://user:hunter2@127.0.0.1/first",
        "fleet: rediss://user:hunter2@127.0.0.1/0#insecure",
        "fleet: redis://user:hunter2@127.0.0.1/0?protocol=resp2",
        "access: { users: [{ name: 'a:b', password: hunter2 }] }",
        "access: { users: [{ name: 'a', password: [hunter2] }] }",
        "access: { users: [{ name: 'a', Password: hunter2 }] }",
        "access: { users: [{ name: 'a', pasword: hunter2 }] }",
        "access: { users: [{ name: 'a', passwd: hunter2 }] }",
        "access: { users: [{ name: 'a', hash: $argon2id$hunter2 }] }",
        "access: { users: [{ name: 'a', certificate: x, Pass-Word: hunter2, budgett: 1 }] }",
        "access: { users: [{ pasword:\n  hunter2, name: [] }] }",
    ] {
        let shown = faults(yaml);
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.contains("politely.yaml:1:"), "{shown}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Any edit of the shipped file gives settings, or faults that can be shown.
    #[test]
    fn edited_configuration_never_panics(at in 0..CONF.len(), cut in 0usize..40, typed in "[ -~\t\n\r\u{85}\u{2028}é\u{feff}]{0,12}") {
        let (from, to) = (CONF.floor_char_boundary(at), CONF.floor_char_boundary((at + cut).min(CONF.len())));
        let text = format!("{}{typed}{}", &CONF[..from], &CONF[to..]);
        if let Err(errors) = Settings::parse("politely.yaml", &text) {
            prop_assert!(!errors.faults().is_empty());
            prop_assert!(errors.render(true).contains("error"));
        }
    }

    #[test]
    fn arbitrary_text_never_panics(text in "([ -~]|\\n|\\PC){0,200}") {
        if let Err(errors) = Settings::parse("politely.yaml", &text) {
            prop_assert!(errors.to_string().starts_with("error: "));
        }
    }
}

#[test]
fn fault_in_a_user_name_does_not_mention_urls() {
    let hash = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$BmiKRkKhzZ2NX3mIfpTMzA";
    assert_eq!(
        short(&format!("access: {{ users: [{{ name: José, password: \"{hash}\" }}] }}")),
        [
            "1:27 the character 'é' is not allowed in a user's name | use printable ASCII: letters, digits, and signs other than `:`"
        ]
    );
}

#[test]
fn conflicts_between_keys_of_a_host_are_placed_in_any_spelling_of_the_host() {
    let yaml = "\
hosts:
  '*.Example.COM': { verify: off, budget: { per: hour } }
  B\u{fc}cher.example.: { adaptive: { min: 2s, max: 1s }, intercept: tunnel }
intercept: { hosts: { b\u{fc}cher.EXAMPLE: deny } }
access: { users: [{ name: bob, password: '$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA', hosts: { Example.COM: { breaker: { after: 1, pause: 2h } } } }] }
";
    let places: Vec<_> = short(yaml).iter().map(|fault| fault.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(places, ["2:30", "2:50", "3:39", "4:39", "5:159"], "{:#?}", short(yaml));
}

/// Adds listeners on free ports, unless the text sets them.
fn free_ports(yaml: &str) -> String {
    let sections = [("listen", "[{ address: '127.0.0.1:0' }]"), ("admin", "{ address: '127.0.0.1:0' }")];
    sections.iter().filter(|(key, _)| !yaml.starts_with(key)).map(|(key, value)| format!("{key}: {value}\n")).collect()
}

#[test]
fn fault_in_a_yaml_alias_is_placed_at_the_alias() {
    let yaml = "hosts:\n  a.example: &slow\n    crawl_delay: 1s\n  b.example: *slow\npace:\n  breaker: { after: 1, pause: *slow }\n";
    assert_eq!(
        short(yaml),
        [
            "6:31 expected a duration, found a map of keys | a duration is a whole number and its unit: `500ms`, `10s`, `5m`, `24h`, `30d`, or `0`"
        ]
    );
}
