//! Contents of packages: manual pages, and files embedded in the binary.

use super::*;

#[test]
fn each_command_and_the_configuration_have_a_manual_page() {
    let home = tempfile::tempdir().unwrap();
    let pages = home.path().join("man");
    let done = Command::new(env!("CARGO_BIN_EXE_politely")).args(["man", "--directory"]).arg(&pages).status().unwrap();
    assert!(done.success());
    let names: BTreeSet<String> =
        fs::read_dir(&pages).unwrap().map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    for name in [
        "politely.1",
        "politely-serve.1",
        "politely-ca.1",
        "politely-ca-rotate.1",
        "politely-identity-keygen.1",
        "politely.yaml.5",
    ] {
        assert!(names.contains(name), "{names:?}");
    }
    assert!(!names.iter().any(|name| name.contains("supervise")), "{names:?}");
    let page = fs::read_to_string(pages.join("politely.yaml.5")).unwrap();
    let shipped: serde_yaml::Mapping = serde_yaml::from_str(CONF).unwrap();
    for (section, keys) in &shipped {
        assert!(page.contains(&format!("\n.SH {}\n", section.as_str().unwrap())), "{section:?}");
        for key in keys.as_mapping().into_iter().flat_map(|keys| keys.keys()) {
            assert!(
                page.contains(&format!("\\fB{}: ", key.as_str().unwrap())) || key == "ca" || key == "signature",
                "{key:?}"
            );
        }
    }
}

#[test]
fn shipped_files_are_listed_in_makefile_and_cargo_toml() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut folders, mut files) = (vec![root.join("conf")], Vec::new());
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    let shipped: Vec<_> = files.iter().filter(|file| !file.to_str().unwrap().ends_with(".test.yml")).collect();
    assert!(shipped.len() >= 4, "{shipped:?}");
    for file in shipped {
        let name = file.strip_prefix(root).unwrap().display().to_string();
        for list in ["Makefile", "Cargo.toml"] {
            assert!(fs::read_to_string(root.join(list)).unwrap().contains(&name), "{list} leaves out {name}");
        }
    }
}

/// A Python wheel has no directory for such files.
#[test]
fn print_command_outputs_the_embedded_files() {
    let print = |what| {
        let done = Command::new(env!("CARGO_BIN_EXE_politely")).args(["print", what]).output().unwrap();
        assert!(done.status.success());
        String::from_utf8(done.stdout).unwrap()
    };
    assert_eq!(print("config"), CONF);
    for (what, file) in [
        ("agent", "conf/agent.yaml"),
        ("alerts", "conf/prometheus/politely.rules.yml"),
        ("grafana", "conf/grafana/politely.json"),
    ] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        assert_eq!(print(what), fs::read_to_string(&file).unwrap(), "{what}");
    }
    let openapi: serde_json::Value = serde_json::from_str(&print("openapi")).unwrap();
    assert!(openapi["paths"]["/api/v1/status"].is_object());
}
