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

const HASH: &str = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$BmiKRkKhzZ2NX3mIfpTMzA";

#[test]
fn a_directory_of_files_and_one_of_users_go_over_the_first() {
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
fn faults_of_all_files_are_shown_with_their_places() {
    let (home, main) = files(&[
        ("politely.yaml", "include: [conf.d, none]\nmode: strict\n"),
        ("conf.d/a.yaml", "pace:\n  max_wiat: 1s\n  queue: 3\nlisten: [{ address: 0.0.0.0:3128 }]\n"),
        ("conf.d/b.yaml", "include: x\npace:\n  queue: 4\n"),
        ("conf.d/c.yaml", "pace: [\n"),
        ("conf.d/d.yaml", &format!("access: {{ users: [{}, {}] }}", user("a"), user("a"))),
        ("conf.d/e.yaml", ""),
    ]);
    let told = with_environment(Some(&main), &[]).unwrap_err().replace(&home.path().display().to_string(), "HOME");
    let places: Vec<&str> = told.lines().filter_map(|line| line.trim().strip_prefix("--> HOME/")).collect();
    let expected = [
        "politely.yaml:1:11",
        "politely.yaml:1:19",
        "politely.yaml:2:7",
        "conf.d/a.yaml:2:3",
        "conf.d/b.yaml:1:10",
        "conf.d/b.yaml:3:3",
        "conf.d/c.yaml:1:9",
        "conf.d/d.yaml:1:",
    ];
    for (place, expected) in places.iter().zip(expected) {
        assert!(place.starts_with(expected), "{told}");
    }
    assert_eq!(places.len(), expected.len(), "{told}");
    assert!(told.contains("error: `none` cannot be included: No such file or directory"), "{told}");
    assert!(told.contains("HOME/conf.d/e.yaml: it is empty"), "as it is while it is being written: {told}");
    assert!(told.contains("3 |   queue: 4\n  |   ^^^^^\nhint: already set in HOME/conf.d/a.yaml:3; keep one of them"));
    assert!(told.contains("an included file includes no others"), "{told}");
    assert!(told.contains("the user `a` appears twice"), "{told}");
}

#[test]
fn a_fault_of_an_included_file_is_shown_though_a_variable_overrides_it() {
    let (_home, main) = files(&[("politely.yaml", "include: conf.d"), ("conf.d/a.yaml", "pace: { queue: -1 }")]);
    let told = with_environment(Some(&main), &[("POLITELY_PACE__QUEUE", "5")]).unwrap_err();
    assert_eq!(told.matches("conf.d/a.yaml:1:16").count(), 1, "{told}");
    let (_home, main) = files(&[("politely.yaml", "include: ."), ("own.yaml", "mode: report")]);
    assert_eq!(with_environment(Some(&main), &[]).unwrap().mode, Mode::Report, "its own directory");
}

#[test]
fn a_fault_without_a_line_is_shown_with_the_file_that_it_is_in() {
    let (home, main) =
        files(&[("politely.yaml", "include: conf.d"), ("conf.d/a.yaml", "mode: report\n---\nmode: enforce\n")]);
    let told = Settings::load(Some(&main), []).unwrap_err().to_string();
    assert!(told.contains("there is more than one document in it"), "{told}");
    assert!(told.contains(&format!("--> {}", home.path().join("conf.d/a.yaml").display())), "{told}");
    assert!(!told.contains("politely.yaml"), "{told}");
}
