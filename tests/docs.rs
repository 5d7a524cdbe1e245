//! The documentation: whatever the code has a name for is explained at its place, and every link leads somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_refusal_and_every_failure_has_its_section() {
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
    let outcomes = part(&read("src/proxy/exchange/outcome.rs"), "fn words(&self)", "\n    }\n");
    let outcomes: BTreeSet<String> =
        outcomes.split("=> (").skip(1).flat_map(|after| quoted(after).into_iter().next()).collect();
    let wanted: BTreeSet<String> = fields.into_iter().chain(outcomes).filter(|name| name != "outcome").collect();
    assert_eq!(listed, wanted);
    assert!(page.contains("\n- `outcome`: "));
}

#[test]
fn every_link_leads_somewhere() {
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

/// The threat model's table of attacks: whoever renames or removes a test that it rests on learns of it here.
#[test]
fn every_test_that_the_threat_model_names_exists() {
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

/// The map for newcomers: `every_link_leads_somewhere` holds its files, this the functions in them.
#[test]
fn every_function_that_the_map_names_is_in_its_file() {
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

/// The owner names the repository in Cargo.toml, and learns here where else it is written out.
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
    let book = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    top.into_iter().chain(book.filter(|path| path.extension().is_some_and(|extension| extension == "md"))).collect()
}

/// Without what is code.
fn prose(text: &str) -> String {
    let mut is_code = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.starts_with("```");
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

/// The items of all lists of names: what is before the colon, and what it means.
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
