//! The rules of CONTRIBUTING.md that a program can check. Lists of exceptions may only shrink: an exception that is no
//! longer needed fails the test.

mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use source::Module;

/// From the bottom up. Modules in one row do not import each other.
const LAYERS: [&[&str]; 10] = [
    &["robots", "histogram", "rfc3339", "tls_provider", "tls_words"],
    &["policy"],
    &["config"],
    &["http1", "evidence", "signing", "fair_places"],
    &["upstream", "tls"],
    &["gate"],
    &["proxy", "telemetry"],
    &["admin"],
    &["server"],
    &["cli"],
];

#[test]
fn modules_import_only_lower_layers() {
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
    assert_none(&faults);
}

/// An owner and what it hands out may import each other, if the pair is on the list.
#[test]
fn files_have_no_import_cycles() {
    let imports: BTreeMap<_, _> = CODE.iter().map(|module| (module.file.as_path(), &module.imports)).collect();
    assert!(CIRCLES.iter().all(|circle| circle.split(' ').count() == 2), "a circle of more than two");
    assert_just(circles(&imports), CIRCLES.iter().map(|circle| circle.split(' ').map(Path::new).collect()));
}

#[test]
fn type_names_are_unique() {
    let mut defined: BTreeMap<&str, Vec<&Path>> = BTreeMap::new();
    for module in CODE.iter() {
        module.types.iter().for_each(|name| defined.entry(name).or_default().push(&module.file));
    }
    assert_just(defined.iter().filter(|(_, files)| files.len() > 1).map(|(name, _)| *name), TWICE.iter().copied());
}

#[test]
fn a_file_has_at_most_300_lines_without_tests() {
    let long = CODE.iter().filter(|module| module.lines > 300).map(|module| module.file.as_path());
    assert_just(long, LONG.iter().map(Path::new));
}

#[test]
fn module_with_folder_is_its_mod_rs() {
    let beside = |file: &PathBuf| file.with_extension("").is_dir();
    assert_none(&sources(Path::new("src")).into_iter().filter(beside).collect::<Vec<_>>());
}

#[test]
fn tests_are_last_in_each_file() {
    let faults = CODE.iter().filter(|module| module.has_tests_before_code).map(|module| &module.file);
    assert_none(&faults.collect::<Vec<_>>());
}

#[test]
fn pure_modules_do_not_use_the_runtime() {
    let pure = |file: &Path| ["src/robots", "src/policy", "src/http1"].iter().any(|folder| file.starts_with(folder));
    for module in CODE.iter().filter(|module| pure(&module.file)) {
        let code = module.text.split("#[cfg(test)]").next().unwrap();
        let code: Vec<_> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        for word in ["tokio", "pingora", "Instant::now", "SystemTime::now"] {
            assert!(!code.join("\n").contains(word), "{}: {word}", module.file.display());
        }
    }
}

/// `lint` finds the oddities of a robots.txt, when somebody asks for them.
#[test]
fn the_parser_of_robots_txt_makes_no_warnings() {
    for file in sources(Path::new("src/robots/parse")) {
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        assert!(!code.contains("Warning") && !code.contains("column"), "{}", file.display());
    }
}

#[test]
fn gate_and_policy_do_not_choose_http_statuses() {
    for file in sources(Path::new("src/gate")).into_iter().chain(sources(Path::new("src/policy"))) {
        assert!(!fs::read_to_string(&file).unwrap().contains("StatusCode"), "{}", file.display());
    }
}

#[test]
fn each_module_begins_with_a_doc_comment() {
    let silent = CODE.iter().filter(|module| !module.text.starts_with("//! ")).map(|module| &module.file);
    assert_none(&silent.collect::<Vec<_>>());
}

static CODE: LazyLock<Vec<Module>> = LazyLock::new(|| source::modules(Path::new("src")));

fn assert_none<T: Debug>(faults: &[T]) {
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Asserts that `found` equals `permitted`.
fn assert_just<T: Ord + Debug>(found: impl IntoIterator<Item = T>, permitted: impl Iterator<Item = T>) {
    let (found, permitted): (BTreeSet<_>, BTreeSet<_>) = (found.into_iter().collect(), permitted.collect());
    let new: Vec<_> = found.difference(&permitted).collect();
    let gone: Vec<_> = permitted.difference(&found).collect();
    assert!(new.is_empty(), "not permitted: {new:#?}");
    assert!(gone.is_empty(), "no exception any more, so take it off the list: {gone:#?}");
}

/// Groups of files that import each other in cycles, sorted.
fn circles<'a>(imports: &BTreeMap<&'a Path, &'a BTreeSet<PathBuf>>) -> BTreeSet<Vec<&'a Path>> {
    let reached: BTreeMap<_, _> = imports.keys().map(|file| (*file, reach(file, imports))).collect();
    let circle = |file: &&'a Path| -> Vec<&'a Path> {
        reached[file].iter().filter(|other| reached[*other].contains(file)).copied().collect()
    };
    imports.keys().map(circle).filter(|circle| circle.len() > 1).collect()
}

fn reach<'a>(file: &Path, imports: &BTreeMap<&'a Path, &'a BTreeSet<PathBuf>>) -> BTreeSet<&'a Path> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&Path> = imports[file].iter().map(PathBuf::as_path).collect();
    while let Some(file) = open.pop() {
        if reached.insert(imports.get_key_value(file).expect("a file of ours").0) {
            open.extend(imports[file].iter().map(PathBuf::as_path));
        }
    }
    reached.into_iter().copied().collect()
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

/// Pairs of files that know each other.
const CIRCLES: &[&str] = &[
    "src/admin/guard.rs src/admin/state.rs",
    "src/cli/explain/mod.rs src/cli/explain/past.rs",
    "src/cli/trust/mod.rs src/cli/trust/nss.rs",
    "src/gate/pacer/host_queue/mod.rs src/gate/pacer/permit.rs",
    "src/http1/body.rs src/http1/chunked.rs",
    "src/proxy/client/distrust.rs src/proxy/mod.rs",
    "src/proxy/respond/mod.rs src/proxy/respond/page.rs",
    "src/server/mod.rs src/server/reload.rs",
    "src/tls/ca/directory.rs src/tls/ca/mod.rs",
    "src/upstream/endpoint.rs src/upstream/http2/mod.rs",
];

/// Types that have the name of another.
const TWICE: &[&str] = &["Decision", "Member", "Request", "State"];

/// Files over the length.
const LONG: &[&str] = &["src/config/schema/file.rs", "src/config/schema/values.rs"];
