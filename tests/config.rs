//! The configuration from outside: what an operator writes, and what is answered to each slip.
#![cfg(feature = "proxy")]

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use politely::config::{ListenAddress, Place, Settings};

const CONF: &str = include_str!("../conf/politely.yaml");

fn faults(yaml: &str) -> String {
    Settings::parse("politely.yaml", yaml)
        .expect_err("this has faults")
        .to_string()
}

fn with_environment(variables: &[(&str, &str)]) -> Result<Settings, String> {
    let variables = variables
        .iter()
        .map(|(name, value)| (OsString::from(name), OsString::from(value)));
    Settings::load(None, variables).map_err(|errors| errors.to_string())
}

#[test]
fn the_file_we_ship_says_the_defaults() {
    assert_eq!(Settings::parse("politely.yaml", CONF), Ok(Settings::default()));
}

#[test]
fn nothing_but_comments_is_the_defaults() {
    for yaml in [
        "",
        "# nothing\n",
        "---\n",
        "pace:\nrobots: null\n",
        "{}",
        "\u{feff}mode: enforce\r\n",
    ] {
        assert_eq!(
            Settings::parse("politely.yaml", yaml),
            Ok(Settings::default()),
            "{yaml:?}"
        );
    }
}

#[test]
fn an_unknown_key_is_shown_in_its_line_with_the_key_that_was_meant() {
    println!(
        "{}",
        faults("pace:\n  key: host\n  crawl_dely: 10s   # too fast\n  max_wiat: 3s\nrobot: {}\nlisten: 3\n")
    );
    println!(
        "{}",
        faults(
            "pace: { max_wait: 10, queue: -1, queue: 3, max_concurrent: 0 }\nmode: enforced\nidentity:\n  product_tokens: Foo\n  contact: 7\n"
        )
    );
    println!("{}", faults("a: b: c"));
    println!("{}", faults("pace:\n\tqueue: 3"));
    println!("{}", faults("hosts:\n  *.example.com: {}"));
}
