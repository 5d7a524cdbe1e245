//! The configuration from outside: what an operator writes, and what each slip is answered with.

mod check;
mod environment;
mod faults;
mod hosts;
mod include;
mod manners;
mod packages;
mod reference;
mod together;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use politely::config::{
    AccessLog, ConfigPlace, HostPolicy, InterceptMode, KeyArgument, ListenAddress, Mode, PortRange, Settings,
};
use politely::policy::operator_rules::OwnVerdict;
use politely::policy::{Host, KeyBy, RobotsOverride};
use politely::robots::Purpose;
use politely::tls::Ca;
use proptest::prelude::*;
use tempfile::TempDir;

const CONF: &str = include_str!("../../../conf/politely.yaml");

fn good(yaml: &str) -> Settings {
    Settings::parse("politely.yaml", yaml).unwrap_or_else(|errors| panic!("{errors}"))
}

fn faults(yaml: &str) -> String {
    Settings::parse("politely.yaml", yaml).expect_err("this has faults").to_string()
}

/// Each fault as `line:column what | hint`.
fn short(yaml: &str) -> Vec<String> {
    let errors = Settings::parse("politely.yaml", yaml).expect_err("this has faults");
    let line = |fault: &politely::config::ConfigFault| {
        let place = match &fault.place {
            ConfigPlace::Line { line, column, .. } => format!("{line}:{column} "),
            ConfigPlace::Variable(name) => format!("{name} "),
            ConfigPlace::File(_) => String::from("file "),
            ConfigPlace::Unwritten => String::new(),
        };
        format!("{place}{} | {}", fault.complaint.what, fault.complaint.hint)
    };
    errors.faults().iter().map(line).collect()
}

fn with_environment(file: Option<&Path>, variables: &[(&str, &str)]) -> Result<Settings, String> {
    let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    Settings::load(file, variables).map_err(|errors| errors.to_string())
}

fn policy<'a>(settings: &'a Settings, host: &str) -> &'a HostPolicy {
    settings.hosts.get(&Host::parse(host).unwrap())
}

#[test]
fn shipped_configuration_equals_the_defaults() {
    assert_eq!(good(CONF), Settings::default());
}

/// The keys that a section has, by what it offers in place of one that it has not.
fn keys(at: impl Fn(&str) -> String) -> BTreeSet<String> {
    let hint = short(&at("qqqqqqqqqqqqqqqq: 1")).remove(0);
    let (_, list) = hint.split_once("the keys here are ").expect("all keys are listed");
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn shipped_configuration_contains_every_key() {
    let shipped: serde_yaml::Mapping = serde_yaml::from_str(CONF).unwrap();
    let names = |map: &serde_yaml::Mapping| -> BTreeSet<String> {
        map.keys().map(|key| key.as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&shipped), keys(|key| key.to_owned()));
    let plain = ["include", "listen", "mode", "on_fleet_loss", "hosts"];
    for (section, value) in shipped.iter().filter(|(key, _)| !plain.contains(&key.as_str().unwrap())) {
        let section = section.as_str().unwrap();
        assert_eq!(names(value.as_mapping().unwrap()), keys(|key| format!("{section}: {{ {key} }}")), "{section}");
    }
    let ca = shipped["intercept"]["ca"].as_mapping().unwrap();
    assert_eq!(names(ca), keys(|key| format!("intercept: {{ ca: {{ {key} }} }}")));
    // These stand there as examples.
    for keys in [
        keys(|key| format!("listen: [{{ {key} }}]")),
        keys(|key| format!("listen: [{{ address: 127.0.0.1:1, tls: {{ {key} }} }}]")),
        keys(|key| format!("access: {{ users: [{{ {key} }}] }}")),
        keys(|key| format!("hosts: {{ a.example: {{ {key} }} }}")),
    ] {
        for key in keys {
            assert!(CONF.contains(&format!("{key}: ")), "{key}");
        }
    }
}

#[test]
fn file_without_keys_gives_the_defaults() {
    for yaml in ["", "# nothing\n", "---\n", "pace:\nrobots: null\n", "{}", "\u{feff}mode: enforce\r\n", "hosts:\n"] {
        assert_eq!(good(yaml), Settings::default(), "{yaml:?}");
    }
}

#[test]
fn each_key_sets_its_field() {
    let settings = good(
        r#"
listen: [{ address: 127.0.0.1:8080 }, { address: "fd:proxy" }, { address: "[::1]:8080" }]
mode: report
identity: { product_tokens: [ExampleBot, 360Spider], contact: "https://example.com/bot", purpose: [search] }
robots: { min_ttl: 1m, max_ttl: 12h, max_size: 1MiB, on_auth_error: disallow, precedence: first-match }
pace: { key: site, min_delay: 500ms, max_concurrent: 2, queue: 0 }
intercept: { default: tunnel, ca: { directory: /etc/ca }, leaf_cache: 10 }
egress: { allow: [10.1.2.3/8, "::1"], deny: [192.0.2.1], ports: [80, "8000-9000", "443"] }
access: { clients: [10.0.0.0/8] }
limits: { header_timeout: 5s, max_header_size: 65536 }
log: { level: debug, format: json, access: /var/log/access.log }
"#,
    );
    assert_eq!(settings.listen[0].address, ListenAddress::Socket(SocketAddr::from(([127, 0, 0, 1], 8080))));
    assert_eq!(settings.listen[1].address, ListenAddress::Inherited(String::from("proxy")));
    assert_eq!(settings.mode, Mode::Report);
    let tokens: Vec<&str> = settings.identity.product_tokens.iter().map(AsRef::as_ref).collect();
    assert_eq!(tokens, ["ExampleBot", "360Spider"]);
    assert_eq!(settings.identity.purpose, [Purpose::parse("search").unwrap()]);
    assert_eq!(settings.robots.max_ttl, Duration::from_secs(43_200));
    assert_eq!(settings.robots.parse_options().max_size, 1 << 20);
    assert_eq!(settings.pace.key, KeyBy::Site);
    assert_eq!((settings.pace.max_concurrent.get(), settings.pace.queue), (2, 0));
    assert_eq!(settings.intercept.ca.directory, Some(PathBuf::from("/etc/ca")));
    let allowed: Vec<String> = settings.egress.allow.iter().map(|network| network.0.to_string()).collect();
    assert_eq!(allowed, ["10.0.0.0/8", "::1/128"]);
    assert_eq!(settings.egress.ports[1], PortRange { first: 8000, last: 9000 });
    assert_eq!(settings.limits.max_header_size, 65_536);
    assert_eq!(settings.log.access, AccessLog::File(PathBuf::from("/var/log/access.log")));
}

#[test]
fn relative_paths_start_at_the_files_directory() {
    let yaml = "intercept: { ca: { certificate: ca.pem, key: /k.pem } }\negress: { ca_file: roots.pem }\nlog: { access: ./a.log }\nstore: { directory: 2026 }";
    let settings = Settings::parse("/etc/politely/politely.yaml", yaml).unwrap();
    let (certificate, key) = (PathBuf::from("/etc/politely/ca.pem"), PathBuf::from("/k.pem"));
    assert_eq!(settings.intercept.ca.files(), Some((&*certificate, &*key)));
    assert_eq!(settings.egress.ca_file, Some(PathBuf::from("/etc/politely/roots.pem")));
    assert_eq!(settings.log.access, AccessLog::File(PathBuf::from("/etc/politely/./a.log")));
    assert_eq!(settings.store.directory, Some(PathBuf::from("/etc/politely/2026")), "a number is a name, too");
}
