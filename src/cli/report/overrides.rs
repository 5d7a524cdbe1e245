//! The parts of stored configurations that a report shows: the operator's contact, and the overrides that apply to the selected records.

use crate::config::{self, OverrideInForce};
use crate::evidence::{Basis, Selection};
use crate::policy::{Authority, HostPattern};
use serde_json::Value;
use std::cmp::Reverse;

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

/// The overrides of a configuration that apply to the hosts and users of the selected records.
pub(super) fn overrides(config: &str, selection: &Selection, basis: &Basis) -> Vec<OverrideInForce> {
    let Ok(config) = serde_json::from_str::<Value>(config) else { return Vec::new() };
    let concerns = |set: &OverrideInForce| {
        let selected = selection.user.as_deref();
        set.hosts.as_ref().is_none_or(|pattern| concerns(pattern, selection, basis))
            && set.user.as_deref().is_none_or(|user| selected.is_none_or(|selected| selected == user))
    };
    config::overrides(&config).into_iter().filter(concerns).collect()
}

/// Whether the report includes any host that matches the pattern.
fn concerns(pattern: &str, selection: &Selection, basis: &Basis) -> bool {
    let Ok(pattern) = HostPattern::parse(pattern) else { return true };
    let is_of = |origin: &String| Authority::from_url(origin).is_ok_and(|site| pattern.matches(site.host()));
    selection.hosts.is_empty() || basis.sites.keys().any(is_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(config: &str, hosts: &[&str], user: Option<&str>, sites: &[&str]) -> Vec<String> {
        let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
        let selection = Selection { hosts, user: user.map(str::to_owned), ..Selection::default() };
        let mut basis = Basis::default();
        basis.sites.extend(sites.iter().map(|site| ((*site).to_owned(), Default::default())));
        let all = overrides(config, &selection, &basis);
        all.into_iter().map(|it| format!("{}: {}", it.scope(), it.setting)).collect()
    }

    const CONFIG: &str = r#"{
        "mode": "report", "identity": { "contact": "mailto:bot@example.com" }, "usage": { "tdmrep": "enforce" },
        "intercept": { "default": "intercept", "hosts": { "*.bank.example": "tunnel" } },
        "hosts": { "a.example": { "robots": "ignore", "verify": false, "deny": ["/x"] }, "b.example": { "allow": ["/open/"] } },
        "access": { "users": [{ "name": "anna", "hosts": { "*": { "crawl_delay": "1s" } } }] }
    }"#;

    #[test]
    fn overrides_are_listed_with_their_scope() {
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
    fn filtered_report_lists_only_overrides_of_its_sites_and_user() {
        let said = written(CONFIG, &["b.example"], Some("bob"), &["https://b.example"]);
        assert_eq!(said, ["all hosts: mode: report", "b.example: allow: [\"/open/\"]"]);
    }
}
