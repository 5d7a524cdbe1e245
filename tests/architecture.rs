//! The layers: a module imports only what lies below it (see the top of `src/lib.rs`).

use std::fs;
use std::path::{Path, PathBuf};

/// From the bottom up. Modules in one row do not import each other.
const LAYERS: [&[&str]; 10] = [
    &["robots", "histogram", "tls_words"],
    &["policy"],
    &["config"],
    &["http1", "evidence", "signing"],
    &["upstream", "tls"],
    &["gate"],
    &["proxy", "telemetry"],
    &["admin"],
    &["server"],
    &["cli"],
];

#[test]
fn imports_go_down_only() {
    let mut faults = Vec::new();
    for file in sources(Path::new("src")) {
        let Some(module) = module_of(&file) else { continue };
        let text = fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate() {
            for imported in imports(line) {
                if layer(imported) >= layer(&module) && imported != module {
                    faults.push(format!("{}:{}: {module} imports {imported}", file.display(), number + 1));
                }
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn the_pure_engine_knows_no_runtime() {
    for file in ["robots", "policy", "http1"].iter().flat_map(|module| sources(&Path::new("src").join(module))) {
        if ["tests.rs", "simulation.rs"].iter().any(|test| file.ends_with(test)) {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        for word in ["tokio", "pingora", "Instant::now", "SystemTime::now"] {
            let code = text.split("#[cfg(test)]").next().unwrap();
            let code: Vec<_> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            assert!(!code.join("\n").contains(word), "{}: {word}", file.display());
        }
    }
}

#[test]
fn only_the_answers_choose_a_status() {
    for file in sources(Path::new("src/gate")).into_iter().chain(sources(Path::new("src/policy"))) {
        assert!(!fs::read_to_string(&file).unwrap().contains("StatusCode"), "{}", file.display());
    }
}

#[test]
fn every_module_opens_with_its_purpose() {
    for file in sources(Path::new("src")) {
        if file.file_name().is_some_and(|name| name == "tests.rs") {
            continue;
        }
        assert!(fs::read_to_string(&file).unwrap().starts_with("//! "), "{}", file.display());
    }
}

fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The top-level module a file belongs to; `None` for the crate's root and the binary.
fn module_of(file: &Path) -> Option<String> {
    let first = file.components().nth(1)?.as_os_str().to_str()?.trim_end_matches(".rs").to_owned();
    (!["lib", "main"].contains(&first.as_str())).then_some(first)
}

fn imports(line: &str) -> impl Iterator<Item = &str> {
    let code = line.split("//").next().unwrap_or_default();
    code.split("crate::").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        LAYERS.iter().any(|row| row.contains(&&rest[..end])).then_some(&rest[..end])
    })
}

fn layer(module: &str) -> usize {
    LAYERS.iter().position(|row| row.contains(&module)).unwrap_or_else(|| panic!("{module} is in no layer"))
}
