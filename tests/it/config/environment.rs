//! Variables over the file.

use super::*;

#[test]
fn the_environment_overrides_the_file() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("politely.yaml");
    fs::write(&file, "pace: { max_wait: 5s, queue: 7 }\nhosts: { a.example: { robots: ignore } }\n").unwrap();
    let settings = with_environment(
        Some(&file),
        &[
            ("POLITELY_PACE__MAX_WAIT", "10s"),
            ("POLITELY_EGRESS__PORTS", "[80, 443, \"8000-9000\"]"),
            ("POLITELY_IDENTITY__USER_AGENT", "Bot/1 (+https://example.com/bot#who: me)"),
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
    assert_eq!(settings.identity.user_agent.as_deref(), Some("Bot/1 (+https://example.com/bot#who: me)"));
    assert_eq!(settings.intercept.ca.directory, Some(home.path().join("ca")));
    assert_eq!(policy(&settings, "a.example").rules.robots, RobotsOverride::Ignore);
}

#[test]
fn fault_in_a_variable_names_the_variable() {
    assert_eq!(
        with_environment(
            None,
            &[
                ("POLITELY_PACE__MIN_DELAY", "10"),
                ("POLITELY_ROBOTS", "{max_tll: 1h}"),
                ("POLITELY_LISTEN", "[{ address: 0.0.0.0:1 "),
                ("POLITELY_MODE", "off"),
            ]
        )
        .unwrap_err(),
        "\
error: did not find expected ',' or '}'
  --> POLITELY_LISTEN
hint: lists and maps are written `[80, 443]` and `{key: value}`; other values as they are

error: `off` is not a valid value here
  --> POLITELY_MODE
hint: write `enforce` or `report`

error: the duration `10` lacks its unit
  --> POLITELY_PACE__MIN_DELAY
hint: write `10s` for seconds or `10ms` for milliseconds

error: unknown key `max_tll`
  --> POLITELY_ROBOTS
hint: did you mean `max_ttl`?"
    );
    let fault = with_environment(None, &[("POLITELY_ROBOTS__MIN_TTL", "3d")]).unwrap_err();
    assert!(fault.contains("--> POLITELY_ROBOTS__MIN_TTL"), "{fault}");
}

#[test]
fn variable_without_a_key_causes_only_a_warning() {
    let strange = [
        ("POLITELY_PORT", "tcp://10.0.0.7:3128"),
        ("POLITELY_PACE__MAX_WIAT", "10s"),
        ("POLITELY_MODE__X", "1"),
        ("POLITELY_TEAM", "a"),
    ];
    let settings = with_environment(None, &strange).unwrap();
    let warnings: Vec<String> = settings.warnings().iter().map(|it| format!("{} | {}", it.what, it.hint)).collect();
    assert_eq!(
        warnings,
        [
            "the environment variable `POLITELY_MODE__X` is not a setting | there are no keys below `mode`",
            "the environment variable `POLITELY_PACE__MAX_WIAT` is not a setting | did you mean `POLITELY_PACE__MAX_WAIT`?",
            "the environment variable `POLITELY_PORT` is not a setting | Kubernetes sets it for a service named `politely`; \
             `enableServiceLinks: false` in the pod prevents this",
            "the environment variable `POLITELY_TEAM` is not a setting | each key is `POLITELY_` and its name, with `__` \
             between section and key",
        ]
    );
}

#[test]
fn systemd_credential_can_replace_a_path() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("politely.yaml");
    let yaml = "admin: { address: 0.0.0.0:3129, token_file: credential:token }\n\
                listen: [{ address: 127.0.0.1:1, tls: { certificate: a.pem, key: credential:key } }]\n";
    fs::write(&file, yaml).unwrap();
    let settings = with_environment(Some(&file), &[("CREDENTIALS_DIRECTORY", "/run/credentials/politely.service")]);
    let settings = settings.unwrap();
    assert_eq!(settings.admin.token_file, Some(PathBuf::from("/run/credentials/politely.service/token")));
    assert_eq!(settings.listen[0].tls.as_ref().unwrap().key, PathBuf::from("/run/credentials/politely.service/key"));
    let told = with_environment(Some(&file), &[]).unwrap_err();
    assert!(told.contains("politely.yaml:1:45\n"), "{told}");
    assert!(told.contains("the credential `token` is available only inside the service that has it"), "{told}");
    assert!(told.contains("add `LoadCredential=key:PATH` to the unit"), "{told}");
}

#[test]
fn fault_in_the_file_is_reported_although_a_variable_overrides_it() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("politely.yaml");
    fs::write(&file, "mode: wrong\npace: { queue: -1 }\n").unwrap();
    let told =
        with_environment(Some(&file), &[("POLITELY_MODE", "report"), ("POLITELY_PACE__QUEUE", "x")]).unwrap_err();
    for place in ["politely.yaml:1:7", "politely.yaml:2:16", "POLITELY_PACE__QUEUE"] {
        assert_eq!(told.matches(place).count(), 1, "{told}");
    }
    // Conflicts between keys are checked on the final values.
    fs::write(&file, "listen: [{ address: 0.0.0.0:3128 }]\n").unwrap();
    with_environment(Some(&file), &[("POLITELY_ACCESS__CLIENTS", "[10.0.0.0/8]")]).unwrap();
}

#[test]
fn purposes_cannot_be_set_by_variable_name() {
    let name = "POLITELY_IDENTITY__POLICY_TOKENS__AI_TRAIN";
    assert_eq!(
        with_environment(None, &[(name, "[GPTBot]")]).unwrap_err(),
        format!(
            "\
error: a purpose cannot be named below `POLITELY_IDENTITY__POLICY_TOKENS`
  --> {name}
hint: the name of a key or variable cannot contain a purpose: set the whole map in one value, such as \
`POLITELY_IDENTITY__POLICY_TOKENS='{{ai-train: [NAME]}}'`"
        )
    );
    let told = |value| with_environment(None, &[("POLITELY_IDENTITY__POLICY_TOKENS", value)]);
    told("{ai-train: [GPTBot]}").unwrap();
    let twice = told("{ai-train: [GPTBot], train-ai: [CCBot]}").unwrap_err();
    assert!(twice.starts_with("error: the purpose `ai-train` appears twice\n"), "{twice}");
    let list = told("[GPTBot]").unwrap_err();
    assert!(list.starts_with("error: expected a map, found a list\n"), "{list}");
    assert!(list.contains("hint: write `NAME: …` for each entry, or `{}` for none"), "{list}");
}

/// `EXAMPLE_COM` could be `example.com`, `example_com` or `example-com`.
#[test]
fn hosts_cannot_be_set_by_variable_name() {
    let hint = "the name of a key or variable cannot contain a host: set the whole map in one value, such as";
    for (name, section) in [
        ("POLITELY_HOSTS__EXAMPLE_COM__ROBOTS", "POLITELY_HOSTS"),
        ("POLITELY_HOSTS__EXAMPLE_COM", "POLITELY_HOSTS"),
        ("POLITELY_INTERCEPT__HOSTS__EXAMPLE_COM", "POLITELY_INTERCEPT__HOSTS"),
        ("POLITELY_HOSTS__", "POLITELY_HOSTS"),
    ] {
        let told = with_environment(None, &[(name, "ignore")]).unwrap_err();
        let what =
            format!("error: a host cannot be named below `{section}`\n  --> {name}\nhint: {hint} `{section}='{{");
        assert!(told.starts_with(&what), "{told}");
    }
    let settings = with_environment(
        None,
        &[
            ("POLITELY_HOSTS", "{\"Example.com\": {robots: ignore}, a_b.example: {robots: report}}"),
            ("POLITELY_INTERCEPT__HOSTS", "{\"example.com\": tunnel}"),
        ],
    )
    .unwrap();
    assert_eq!(policy(&settings, "example.com").rules.robots, RobotsOverride::Ignore);
    assert_eq!(policy(&settings, "example.com").intercept, InterceptMode::Tunnel);
    assert_eq!(
        policy(&settings, "a_b.example").rules.robots,
        RobotsOverride::Report,
        "an underscore is part of the name"
    );
    let told = with_environment(None, &[("POLITELY_HOSTS", "{A.example: {}, a.example: {}}")]).unwrap_err();
    assert!(told.starts_with("error: the host `a.example` appears twice\n  --> POLITELY_HOSTS\nhint: "), "{told}");
}

fn with_arguments(arguments: &[(&str, &str)]) -> Result<Settings, String> {
    let argument = |(key, value): &(&str, &str)| KeyArgument {
        name: format!("--set {key}"),
        key: (*key).into(),
        value: (*value).into(),
    };
    let arguments: Vec<_> = arguments.iter().map(argument).collect();
    let variables = [("POLITELY_PACE__QUEUE", "8"), ("POLITELY_PACE__MAX_WAIT", "8s")];
    let variables = variables.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    Settings::load_in_layers(None, variables, &arguments)
        .map(|(settings, _)| settings)
        .map_err(|errors| errors.to_string())
}

#[test]
fn arguments_override_the_environment_and_earlier_arguments() {
    let settings = with_arguments(&[
        ("pace.max_wait", "9s"),
        ("pace.max_wait", "10s"),
        ("egress.ports", "[8080]"),
        ("hosts", "{a.example: {robots: ignore}}"),
    ])
    .unwrap();
    assert_eq!((settings.pace.max_wait, settings.pace.queue), (Duration::from_secs(10), 8));
    assert_eq!(settings.egress.ports.len(), 1);
    assert_eq!(policy(&settings, "a.example").rules.robots, RobotsOverride::Ignore);
}

#[test]
fn fleet_accepts_a_url_or_a_map_with_instances() {
    let url = "redis://127.0.0.1:1/";
    let fleet = |settings: &Settings| {
        let fleet = &settings.fleet;
        assert_eq!(settings.shown()["fleet"]["url"].as_str(), fleet.paces().map(|url| url.expose().as_str()));
        (fleet.paces().is_some(), fleet.instances.map(|instances| instances.get()))
    };
    assert_eq!(fleet(&good("")), (false, None));
    assert_eq!(fleet(&good(&format!("fleet: {url}"))), (true, None));
    assert_eq!(fleet(&good(&format!("fleet: {{ url: {url}, instances: 3 }}"))), (true, Some(3)));
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("politely.yaml");
    for (yaml, variable) in [
        (format!("fleet: {url}"), ("POLITELY_FLEET__INSTANCES", "3")),
        ("fleet: { instances: 3 }".to_owned(), ("POLITELY_FLEET", url)),
        ("fleet: { instances: 3 }".to_owned(), ("POLITELY_FLEET__URL", url)),
        ("fleet: redis://192.0.2.1/".to_owned(), ("POLITELY_FLEET", "{ url: 'redis://127.0.0.1:1/', instances: 3 }")),
    ] {
        fs::write(&file, &yaml).unwrap();
        let settings = with_environment(Some(&file), &[variable]).unwrap();
        assert_eq!(fleet(&settings), (true, Some(3)), "{yaml} {variable:?}");
        assert_eq!(settings.shown()["fleet"]["url"], url);
    }
    fs::write(home.path().join("more.yaml"), "fleet: { instances: 3 }").unwrap();
    fs::write(&file, format!("include: [more.yaml]\nfleet: {url}")).unwrap();
    assert_eq!(fleet(&with_environment(Some(&file), &[]).unwrap()), (true, Some(3)));
    let settings = with_arguments(&[("fleet", url), ("fleet.instances", "3")]).unwrap();
    assert_eq!(fleet(&settings), (true, Some(3)));
    for wrong in ["0", "10001", "many", "-1"] {
        let told = short(&format!("fleet: {{ instances: {wrong} }}"));
        assert!(told[0].starts_with("1:21 "), "{told:?}");
    }
    assert!(short("fleet: 7")[0].contains("this is not a URL"), "{:?}", short("fleet: 7"));
    let apart = |text: &str| {
        let fleet = good(text).fleet;
        [fleet.paces(), fleet.copies_apart()].map(|url| url.and_then(|url| url.expose().port()))
    };
    assert_eq!(apart("fleet: { pace: 'redis://h:1/', copies: 'redis://h:2/' }"), [Some(1), Some(2)]);
    assert_eq!(apart("fleet: { pace: 'redis://h:1/', copies: 'redis://h:1/' }"), [Some(1), None]);
    assert_eq!(apart("fleet: redis://h:1/"), [Some(1), None]);
    for (wrong, told) in [
        ("{ pace: 'redis://h:1/' }", "needs both `pace` and `copies`"),
        ("{ copies: 'redis://h:1/' }", "needs both `pace` and `copies`"),
        ("{ url: 'redis://h:1/', copies: 'redis://h:2/' }", "`url` stands for"),
        ("{ pace: 'redis://h:1/', copies: 'http://h:2/' }", "redis"),
    ] {
        let said = short(&format!("fleet: {wrong}"));
        assert!(said.iter().any(|said| said.contains(told)), "{said:?}");
    }
}

/// Unlike a variable, an argument is always meant for politely.
#[test]
fn fault_in_an_argument_names_the_argument() {
    for (key, value, told) in [
        ("pace.max_wiat", "1s", "unknown key `max_wiat`\n  --> --set pace.max_wiat\nhint: did you mean `max_wait`?"),
        ("paec.queue", "1", "unknown key `paec`\n  --> --set paec.queue\nhint: did you mean `pace`?"),
        ("pace..x", "1", "unknown key ``\n  --> --set pace..x\nhint: the keys here are `key`, "),
        ("pace.max_wait", "10", "the duration `10` lacks its unit\n  --> --set pace.max_wait\nhint: write `10s`"),
        (
            "mode.x",
            "1",
            "expected one word, found a map of keys\n  --> --set mode.x\nhint: write `enforce` or `report`",
        ),
        ("egress.ports", "[80", "did not find expected ',' or ']'\n  --> --set egress.ports\nhint: lists and maps are"),
        (
            "hosts.a.example.robots",
            "ignore",
            "a host cannot be named below `--set hosts`\n  --> --set hosts.a.example.robots\nhint: the name of a key or variable \
             cannot contain a host: set the whole map in one value, such as `--set hosts='{",
        ),
    ] {
        let error = with_arguments(&[(key, value)]).unwrap_err();
        assert!(error.starts_with(&format!("error: {told}")), "{error}");
    }
}

#[test]
fn variable_that_is_not_utf8_is_a_fault() {
    use std::os::unix::ffi::OsStringExt;

    let variable = (OsString::from("POLITELY_STORE__DIRECTORY"), OsString::from_vec(b"/srv/caf\xe9".to_vec()));
    let fault = Settings::load(None, [variable]).unwrap_err().to_string();
    let expected =
        "error: the value is not UTF-8, or contains U+FFFD\n  --> POLITELY_STORE__DIRECTORY\nhint: write it in UTF-8";
    assert_eq!(fault, expected);
}
