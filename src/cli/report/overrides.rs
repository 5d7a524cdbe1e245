//! The settings of a stored configuration that override what sites say, or disable verification, for readers of a report.

use crate::evidence::{Basis, Selection};
use crate::policy::{Authority, HostPattern};
use serde_json::Value;
use std::cmp::Reverse;

/// A setting that deviates from obeying sites in everything.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub(super) struct Overriding {
    /// The hosts, and the user if it applies to one.
    pub scope: String,
    /// As in the configuration, such as `robots: ignore`.
    pub setting: String,
}

/// The contact of the last configuration on record that has one.
pub(super) fn operator(basis: &Basis) -> Option<String> {
    let mut all: Vec<_> = basis.configs.values().collect();
    all.sort_by_key(|used| Reverse(used.times.1));
    all.into_iter().filter_map(|used| used.text.as_deref()).find_map(contact)
}

/// The contact for webmasters: `identity.contact`.
pub(super) fn contact(config: &str) -> Option<String> {
    let config: Value = serde_json::from_str(config).ok()?;
    config["identity"]["contact"].as_str().filter(|contact| !contact.is_empty()).map(str::to_owned)
}

/// The overrides of a configuration that concern the hosts and users of the selected records.
pub(super) fn overrides(config: &str, selection: &Selection, basis: &Basis) -> Vec<Overriding> {
    let Ok(config) = serde_json::from_str::<Value>(config) else { return Vec::new() };
    let mut all = Vec::new();
    for (section, key, obeys) in GLOBAL {
        let value = if section.is_empty() { &config[key] } else { &config[section][key] };
        if !value.is_null() && value != obeys {
            let key = if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") };
            all.push(Overriding { scope: "all hosts".to_owned(), setting: format!("{key}: {}", plain(value)) });
        }
    }
    let mut hosts = |entries: &Value, whose: &str| {
        for (pattern, entry) in
            entries.as_object().into_iter().flatten().filter(|(pattern, _)| concerns(pattern, selection, basis))
        {
            let scope = format!("{pattern}{whose}");
            let settings: Vec<_> = match entry {
                Value::String(mode) => vec![format!("intercept: {mode}")],
                entry => {
                    let set = HOST_KEYS.into_iter().map(|key| (key, &entry[key])).filter(|(_, value)| !value.is_null());
                    set.map(|(key, value)| format!("{key}: {}", plain(value))).collect()
                }
            };
            all.extend(settings.into_iter().map(|setting| Overriding { scope: scope.clone(), setting }));
        }
    };
    hosts(&config["intercept"]["hosts"], "");
    hosts(&config["hosts"], "");
    for user in config["access"]["users"].as_array().into_iter().flatten() {
        let name = user["name"].as_str().unwrap_or_default();
        if selection.user.as_deref().is_none_or(|selected| selected == name) {
            hosts(&user["hosts"], &format!(", for the user {name}"));
        }
    }
    all
}

/// Whether the report includes any host that matches the pattern.
fn concerns(pattern: &str, selection: &Selection, basis: &Basis) -> bool {
    let Ok(pattern) = HostPattern::parse(pattern) else { return true };
    let is_of = |origin: &String| Authority::from_url(origin).is_ok_and(|site| pattern.matches(site.host()));
    selection.hosts.is_empty() || basis.sites.keys().any(is_of)
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(false) => "off".to_owned(),
        Value::Bool(true) => "on".to_owned(),
        other => other.to_string(),
    }
}

/// Keys for all hosts, with the value that obeys sites.
const GLOBAL: [(&str, &str, &str); 7] = [
    ("", "mode", "enforce"),
    ("usage", "content_usage", "enforce"),
    ("usage", "x_robots_tag", "enforce"),
    ("usage", "tdm_reservation", "enforce"),
    ("usage", "tdmrep", "enforce"),
    ("robots", "on_long_unreachable", "disallow"),
    ("intercept", "default", "intercept"),
];
/// Keys in `hosts` that override what a site says, or disable verification.
const HOST_KEYS: [&str; 7] = ["robots", "allow", "verify", "tls", "intercept", "crawl_delay", "usage"];

#[cfg(test)]
mod tests {
    use super::*;

    fn written(config: &str, hosts: &[&str], user: Option<&str>, sites: &[&str]) -> Vec<String> {
        let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
        let selection = Selection { hosts, user: user.map(str::to_owned), ..Selection::default() };
        let mut basis = Basis::default();
        basis.sites.extend(sites.iter().map(|site| ((*site).to_owned(), Default::default())));
        let all = overrides(config, &selection, &basis);
        all.into_iter().map(|it| format!("{}: {}", it.scope, it.setting)).collect()
    }

    const CONFIG: &str = r#"{
        "mode": "report", "identity": { "contact": "mailto:bot@example.com" }, "usage": { "tdmrep": "enforce" },
        "intercept": { "default": "intercept", "hosts": { "*.bank.example": "tunnel" } },
        "hosts": { "a.example": { "robots": "ignore", "verify": false, "deny": ["/x"] }, "b.example": { "allow": ["/open/"] } },
        "access": { "users": [{ "name": "anna", "hosts": { "*": { "crawl_delay": "1s" } } }] }
    }"#;

    #[test]
    fn what_stands_in_place_of_a_sites_rules_is_listed_with_its_scope() {
        assert_eq!(
            written(CONFIG, &[], None, &[]),
            [
                "all hosts: mode: report",
                "*.bank.example: intercept: tunnel",
                "a.example: robots: ignore",
                "a.example: verify: off",
                "b.example: allow: [\"/open/\"]",
                "*, for the user anna: crawl_delay: 1s",
            ]
        );
        assert_eq!(contact(CONFIG).as_deref(), Some("mailto:bot@example.com"));
        assert_eq!(written("{}", &[], None, &[]), [""; 0]);
    }

    #[test]
    fn a_report_about_one_site_or_user_tells_nothing_of_the_others() {
        let said = written(CONFIG, &["b.example"], Some("bob"), &["https://b.example"]);
        assert_eq!(said, ["all hosts: mode: report", "b.example: allow: [\"/open/\"]"]);
    }
}
