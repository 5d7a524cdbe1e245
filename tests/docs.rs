//! The documentation: whatever the code has a name for is explained at its place, and every link leads somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn errors_page_has_a_section_for_each_refusal_and_failure() {
    let slugs = part(&read("src/policy/refusal/mod.rs"), "pub fn slug(&self)", "\n    }\n");
    let errors = read("src/proxy/respond/failure.rs");
    let names: BTreeSet<String> =
        quoted(&slugs).into_iter().chain(quoted(&errors).into_iter().filter(|text| is_name(text, '_'))).collect();
    assert!(names.len() > 30 && names.contains("robots-disallowed") && names.contains("dns_error"), "{names:?}");
    let page = read("docs/errors.md");
    let sections: BTreeSet<String> =
        page.lines().filter_map(|line| line.strip_prefix("### ")).map(String::from).collect();
    assert_eq!(sections, names);
    for slug in quoted(&slugs) {
        assert!(page.contains(&format!("### {slug}\n\n`urn:politely:{slug}`, ")), "{slug}");
    }
}

#[test]
fn every_metric_is_listed_with_its_type() {
    let code = read("src/admin/metrics.rs");
    let (code, _) = code.split_once("struct Metrics").expect("what describes them, and what they are made with");
    let mut made = BTreeSet::new();
    for (call, kind) in [
        ("counter", "counter"),
        ("counters", "counter"),
        ("amounts", "counter"),
        ("gauge", "gauge"),
        ("gauges", "gauge"),
        ("seconds", "gauge"),
        ("histogram", "histogram"),
    ] {
        for after in code.split(&format!("all.{call}(")).skip(1) {
            let name = quoted(after).into_iter().next().expect("its name");
            let total = if kind == "counter" { "_total" } else { "" };
            made.insert((format!("politely_{name}{total}"), kind.to_owned()));
        }
    }
    let process = read("src/admin/process.rs");
    for after in process.split("gauge(\"").skip(1) {
        made.insert((format!("process_{}", after.split('"').next().unwrap()), "gauge".to_owned()));
    }
    made.insert(("process_cpu_seconds_total".to_owned(), "counter".to_owned()));
    let page = read("docs/metrics.md");
    let listed: BTreeSet<_> = items(&page)
        .map(|(item, _)| item.trim_end_matches(')').split_once(" (").unwrap_or_else(|| panic!("{item}: no type")))
        .map(|(name, kind)| (name.replace('`', ""), kind.split(" by ").next().unwrap().to_owned()))
        .collect();
    assert_eq!(listed, made);
    assert!(items(&page).all(|(_, meaning)| !meaning.is_empty()));
}

#[test]
fn every_field_of_the_access_log_is_listed() {
    let code = part(&read("src/proxy/exchange/access_log.rs"), "target:", "\n        );");
    let fields: BTreeSet<String> = code
        .lines()
        .filter_map(|line| line.trim().split_once(" = "))
        .map(|(name, _)| name.to_owned())
        .filter(|name| is_name(name, '_'))
        .chain([String::from("time")])
        .collect();
    assert!(fields.len() > 20, "{fields:?}");
    let page = read("docs/logs.md");
    let named = |(item, _): (&str, &str)| item.split('`').skip(1).step_by(2).map(String::from).collect::<Vec<_>>();
    let listed: BTreeSet<String> = items(&page).flat_map(named).filter(|name| name != "outcome").collect();
    let outcomes = part(&read("src/proxy/exchange/outcome.rs"), "fn words(&self, trip: &Trip)", "\n    }\n");
    let outcomes: BTreeSet<String> =
        outcomes.split("=> (").skip(1).flat_map(|after| quoted(after).into_iter().next()).collect();
    let wanted: BTreeSet<String> = fields.into_iter().chain(outcomes).filter(|name| name != "outcome").collect();
    assert_eq!(listed, wanted);
    assert!(page.contains("\n- `outcome`: "));
}

#[test]
fn every_link_target_exists() {
    let mut faults = Vec::new();
    for page in pages() {
        let text = prose(&fs::read_to_string(&page).unwrap());
        for target in text.split("](").skip(1).map(|after| after.split(')').next().unwrap_or_default()) {
            if target.contains("://") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let there = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            if !there.exists() {
                faults.push(format!("{}: {target}", page.display()));
            } else if !anchor.is_empty() && !anchors(&fs::read_to_string(&there).unwrap()).contains(anchor) {
                faults.push(format!("{}: {target}: there is no such heading", page.display()));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn every_page_is_in_the_index() {
    let index = read("docs/README.md");
    for page in pages().iter().filter(|page| page.parent().unwrap() == root().join("docs")) {
        let name = page.file_name().unwrap().to_str().unwrap();
        assert!(name == "README.md" || index.contains(&format!("]({name})")), "{name}");
    }
}

/// Fails if a test that the threat model's table names is renamed or removed.
#[test]
fn tests_named_in_the_threat_model_exist() {
    let table = part(&read("SECURITY.md"), "## Attack by attack", "\n## ");
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| **")).collect();
    let named = |row: &&str| -> Vec<String> {
        let last = row.trim_matches('|').rsplit('|').next().unwrap_or_default().to_owned();
        last.split('`').skip(1).step_by(2).map(String::from).collect()
    };
    let code = sources(&root().join("tests")) + &sources(&root().join("src"));
    for row in &rows[1..] {
        assert!(!named(row).is_empty(), "no test: {row}");
    }
    assert!(rows.len() > 25, "{rows:?}");
    for name in rows.iter().flat_map(named) {
        let test = |before: &str| {
            before.lines().rev().take(4).any(|line| line.trim_start().starts_with("#[") && line.contains("test"))
        };
        let is_there = code.match_indices(&format!("fn {name}(")).any(|(at, _)| test(&code[..at]));
        assert!(is_there, "SECURITY.md names `{name}`, and there is no such test");
    }
}

/// `every_link_target_exists` checks the files of the map for newcomers, this test the functions in them.
#[test]
fn functions_named_in_the_source_map_are_in_their_files() {
    let map = part(&read("CONTRIBUTING.md"), "| where is |", "\n\n");
    let rows: Vec<&str> = map.lines().skip(2).collect();
    assert!(rows.len() > 5, "{rows:?}");
    for row in rows {
        let files: String = row.split("](").skip(1).map(|after| read(after.split(')').next().unwrap())).collect();
        for name in row.split('`').skip(1).step_by(2) {
            assert!(files.contains(&format!("fn {name}(")) || files.contains(&format!("fn {name}<")), "{name}: {row}");
        }
    }
}

#[test]
fn docs_stay_within_their_word_limit() {
    let words = |page: &PathBuf| fs::read_to_string(page).unwrap().split_whitespace().count();
    let words: usize = book().iter().map(words).sum();
    assert!(words < 20_000, "docs/*.md have {words} words: for each one more, take another away");
}

#[test]
fn doc_sentences_have_at_most_30_words() {
    // clients.md contains a generated list of the tested clients.
    for page in book().iter().filter(|page| !page.ends_with("clients.md")) {
        for sentence in sentences(&fs::read_to_string(page).unwrap()) {
            assert!(sentence.len() <= 30, "{}: {} words: {}", page.display(), sentence.len(), sentence.join(" "));
        }
    }
    let text = "# No end\nOne `a. b` (two.)\nthree [four. five](a.md). Six\n- seven.\n\n    no. code\n\na | table.\n";
    let found: Vec<_> = sentences(text).iter().map(|words| words.join(" ")).collect();
    assert_eq!(found, ["One X (two.)", "three [four.", "five](a.md).", "Six", "- seven."]);
}

/// Checks YAML blocks, indented blocks, and `section: { … }` within sentences.
#[test]
fn every_configuration_in_the_docs_is_valid() {
    let (home, mut checked) = (Home::new(), 0);
    let shipped = read("conf/politely.yaml");
    let sections: BTreeSet<&str> =
        shipped.lines().filter_map(|line| line.split_once(':')).map(|(key, _)| key).collect();
    let is_ours = |yaml: &&String| {
        let first = yaml.lines().find(|line| !line.starts_with('#')).unwrap_or_default();
        first
            .split_once(": ")
            .or(first.strip_suffix(':').map(|key| (key, "")))
            .is_some_and(|(key, _)| sections.contains(key))
    };
    for page in pages().iter().filter(|page| !page.ends_with("configuration.md")) {
        let text = fs::read_to_string(page).unwrap();
        let fenced = fenced(&text, "yaml");
        for yaml in fenced.iter().filter(|yaml| !is_ours(yaml)) {
            let is_known = ["- uses: ", "- repo: ", "# prometheus.yml"].iter().any(|begin| yaml.starts_with(begin));
            assert!(is_known, "{}: for which program is this? {yaml}", page.display());
        }
        for yaml in fenced.iter().chain(&indented(&text)).chain(&in_sentences(&text)).filter(is_ours) {
            let (is_valid, told) = home.check(yaml);
            assert!(is_valid, "{}: {yaml}\n{told}", page.display());
            checked += 1;
        }
    }
    assert!(checked > 30, "{checked}");
}

/// docs/team.md: the main file and a team's file, at the paths that the page names.
#[test]
fn example_files_on_the_team_page_form_a_valid_configuration() {
    let page = read("docs/team.md");
    let below = |name: &str| {
        part(&page, &format!("`/etc/politely/{name}`"), "\n```\n").split_once("```yaml\n").unwrap().1.to_owned()
    };
    let home = Home::new();
    home.write("conf.d/research.yaml", &below("conf.d/research.yaml"));
    home.write("politely.yaml", &below("politely.yaml"));
    let (is_clean, told) = home.politely(&["check", "--strict", "--config", "politely.yaml"]);
    assert!(is_clean, "{told}");
    for line in [
        "requires a user name and password: research (access.users)",
        "applies to each host: 20000 requests per day (pace.budget)",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    assert!(
        told.contains("(conf.d/research.yaml:3): password: yes; egress.hosts: example.com, *.example.org;"),
        "{told}"
    );
    // Without the teams' files nobody is let in.
    fs::remove_file(home.0.path().join("conf.d/research.yaml")).unwrap();
    let (is_valid, told) = home.politely(&["check", "--config", "politely.yaml"]);
    assert!(is_valid && told.contains("warning: nobody is let in"), "{told}");
}

/// A directory with all files that configurations in the docs name.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        home.write("users.yaml", "{}");
        home.write("conf.d/none.yaml", "{}");
        home.write("token", "0123456789abcdef");
        assert!(home.politely(&["identity", "keygen", "bot"]).0);
        let (is_made, path) = home.politely(&["ca", "path"]);
        assert!(is_made, "{path}");
        let certificate = Path::new(path.trim());
        for name in ["company-ca.pem", "us.pem", "proxy.pem", "clients.pem"] {
            fs::copy(certificate, home.0.path().join(name)).unwrap();
        }
        for name in ["us.key", "proxy.key"] {
            fs::copy(certificate.with_extension("key"), home.0.path().join(name)).unwrap();
        }
        home
    }

    /// With this directory in place of the machine's, and a hash that is complete.
    fn write(&self, name: &str, text: &str) {
        let home = self.0.path().display().to_string();
        let text = text.replace("/var/", &format!("{home}/var/")).replace("/etc/politely/", &format!("{home}/"));
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text.replace("$argon2id$v=19$m=19456,t=2,p=1$…", HASH)).unwrap();
    }

    /// Whether `politely check` accepts it, and what it prints.
    fn check(&self, yaml: &str) -> (bool, String) {
        self.write("politely.yaml", yaml);
        self.politely(&["check", "--config", "politely.yaml"])
    }

    fn politely(&self, arguments: &[&str]) -> (bool, String) {
        let home = self.0.path();
        let mut command = Command::new(env!("CARGO_BIN_EXE_politely"));
        command.args(arguments).current_dir(home).env_clear().env("HOME", home);
        let ended =
            command.env("CREDENTIALS_DIRECTORY", home).env("STATE_DIRECTORY", home.join("state")).output().unwrap();
        (ended.status.success(), String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap())
    }
}

const HASH: &str = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$BmiKRkKhzZ2NX3mIfpTMzA";

/// The blocks of code in this language.
fn fenced(text: &str, language: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut indent = None;
    for line in text.lines() {
        let (begin, fence) = line.split_at(line.len() - line.trim_start().len());
        match (indent, fence.strip_prefix("```")) {
            (None, Some(name)) if name == language => {
                all.push(String::new());
                indent = Some(begin.len());
            }
            (Some(_), Some(_)) => indent = None,
            (Some(indent), None) => {
                *all.last_mut().unwrap() += &format!("{}\n", line.get(indent..).unwrap_or_default())
            }
            (None, _) => {}
        }
    }
    all
}

/// The indented blocks, up to an empty line.
fn indented(text: &str) -> Vec<String> {
    let line = |line: &str| line.strip_prefix("    ").map(|line| format!("{line}\n"));
    let blocks = text.split("\n\n").filter(|block| !block.contains("```"));
    blocks.map(|block| block.lines().filter_map(line).collect()).collect()
}

/// Complete configurations between backticks, such as `section: { … }`.
fn in_sentences(text: &str) -> Vec<String> {
    let code =
        |block: &str| block.replace('\n', " ").split('`').skip(1).step_by(2).map(String::from).collect::<Vec<_>>();
    let is_section = |code: &String| code.split_once(": ").is_some_and(|(_, value)| value.starts_with(['{', '[']));
    prose(text).split("\n\n").flat_map(code).filter(|code| is_section(code) && !code.contains('…')).collect()
}

/// The words of each sentence; code is one word. No headings, tables and blocks of code.
fn sentences(text: &str) -> Vec<Vec<String>> {
    let (mut all, mut words) = (Vec::new(), Vec::new());
    let mut end = |words: &mut Vec<String>| all.extend(Some(std::mem::take(words)).filter(|words| !words.is_empty()));
    let plain = |text: &str| {
        let parts = text.split('`').enumerate();
        parts.map(|(index, part)| if index % 2 == 0 { part } else { "X" }).collect::<String>()
    };
    for block in prose(text).split("\n\n") {
        for line in plain(block).lines() {
            let is_item = line
                .trim_start()
                .split_once(' ')
                .is_some_and(|(mark, _)| mark == "-" || mark.trim_end_matches('.').parse::<u32>().is_ok());
            if is_item {
                end(&mut words);
            }
            if line.starts_with('#') || line.contains(" | ") || line.contains("---|") {
                continue;
            }
            for word in line.split_whitespace() {
                words.push(word.to_owned());
                if word.trim_end_matches([')', '"', '*']).ends_with(['.', '!', '?']) {
                    end(&mut words);
                }
            }
        }
        end(&mut words);
    }
    all
}

/// Fails where the repository is written out and differs from Cargo.toml.
#[test]
fn the_docs_name_the_repository_of_cargo_toml() {
    let repository = part(&read("Cargo.toml"), "\nrepository = \"", "\"\n");
    let (_, path) = repository.split_once("://").and_then(|(_, rest)| rest.split_once('/')).unwrap();
    let page = read("docs/install.md");
    for named in [format!("repo: {repository}\n"), format!("uses: {path}@v1\n")] {
        assert!(page.contains(&named), "docs/install.md does not have {named}");
    }
}

/// All Rust below a folder.
fn sources(folder: &Path) -> String {
    let mut all = String::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            all += &sources(&entry);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            all += &fs::read_to_string(&entry).unwrap();
        }
    }
    all
}

/// All Markdown that users read.
fn pages() -> Vec<PathBuf> {
    let top = ["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(|name| root().join(name));
    top.into_iter().chain(book()).collect()
}

/// docs/*.md.
fn book() -> Vec<PathBuf> {
    let all = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// The text without its code.
fn prose(text: &str) -> String {
    let mut is_code = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence && !line.starts_with("    ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The headings' addresses, as renderers of Markdown make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).lines().filter(|line| line.starts_with('#')).map(String::from).collect::<Vec<_>>();
    let address = |heading: &String| {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.iter().map(address).collect()
}

/// The items of all lists of names: the name before the colon, and its meaning.
fn items(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter(|line| line.starts_with("- `")).filter_map(|line| line[2..].split_once(": "))
}

fn is_name(text: &str, joint: char) -> bool {
    text.len() > 1 && text.chars().all(|c| c.is_ascii_lowercase() || c == joint)
}

fn quoted(text: &str) -> Vec<String> {
    text.split('"').skip(1).step_by(2).map(String::from).collect()
}

/// From `begin` to the next `end`.
fn part(text: &str, begin: &str, end: &str) -> String {
    let (_, rest) = text.split_once(begin).unwrap_or_else(|| panic!("no {begin}"));
    rest.split_once(end).unwrap_or_else(|| panic!("no {end}")).0.to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}
