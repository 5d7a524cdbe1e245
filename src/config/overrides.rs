//! Overrides: settings that make politely less polite than its defaults, or trust a site unverified. `politely check` shows those in force,
//! a report those of stored configurations.

use super::units::parse_duration;
use crate::robots::Purpose;
use serde_json::Value;
use std::cmp::Ordering;

/// A setting that obeys sites less than its default does, or does not verify them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverrideInForce {
    /// A host or pattern. `None`: all hosts.
    pub hosts: Option<String>,
    /// `None`: every user.
    pub user: Option<String>,
    /// As in the configuration, such as `robots: ignore`.
    pub setting: String,
    /// Keys and list indices that lead to it.
    pub(super) path: Vec<String>,
}

impl OverrideInForce {
    /// The hosts, and the user if it applies to one.
    pub fn scope(&self) -> String {
        let hosts = self.hosts.as_deref().unwrap_or("all hosts");
        self.user.as_ref().map_or_else(|| hosts.to_owned(), |user| format!("{hosts}, for the user {user}"))
    }
}

/// The overrides of a configuration in the form of the file, complete with defaults.
pub fn overrides(config: &Value) -> Vec<OverrideInForce> {
    let mut all = Vec::new();
    for (key, polite) in GLOBAL {
        let path: Vec<_> = key.split('.').map(str::to_owned).collect();
        let value = path.iter().fold(config, |value, key| &value[key]);
        if !polite.has(value) {
            all.push(OverrideInForce { hosts: None, user: None, setting: format!("{key}: {}", plain(value)), path });
        }
    }
    let declared = purposes(&config["identity"]["purpose"]);
    let mut add = |section: &[&str], entries: &Value, user: Option<&str>| {
        for (pattern, entry) in entries.as_object().into_iter().flatten() {
            for (keys, setting) in of_entry(entry, &declared) {
                let path =
                    section.iter().chain([&pattern.as_str()]).chain(&keys).map(|key| (*key).to_owned()).collect();
                let (hosts, user) = (Some(pattern.clone()), user.map(str::to_owned));
                all.push(OverrideInForce { hosts, user, setting, path });
            }
        }
    };
    add(&["intercept", "hosts"], &config["intercept"]["hosts"], None);
    add(&["hosts"], &config["hosts"], None);
    for (number, user) in config["access"]["users"].as_array().into_iter().flatten().enumerate() {
        add(&["access", "users", &number.to_string(), "hosts"], &user["hosts"], user["name"].as_str());
    }
    all
}

/// What an entry of `hosts` or `intercept.hosts` overrides: the keys that lead there from the entry, and the setting.
fn of_entry<'a>(entry: &'a Value, declared: &[Purpose]) -> Vec<(Vec<&'a str>, String)> {
    let Value::Object(keys) = entry else {
        let is_polite = INTERCEPT.has(entry);
        return if is_polite { Vec::new() } else { vec![(Vec::new(), format!("intercept: {}", plain(entry)))] };
    };
    let mut all = Vec::new();
    for (key, value) in keys {
        let is_polite = match key.as_str() {
            "usage" => {
                for (signal, mode) in value.as_object().into_iter().flatten() {
                    let key = format!("usage.{signal}");
                    let polite = GLOBAL.iter().find(|(global, _)| *global == key);
                    if polite.is_some_and(|(_, polite)| !polite.has(mode)) {
                        all.push((vec!["usage", signal.as_str()], format!("{key}: {}", plain(mode))));
                    }
                }
                true
            }
            "purpose" => {
                let own = purposes(value);
                value.is_null() || declared.iter().all(|purpose| own.contains(purpose))
            }
            "allow" => value.as_array().is_none_or(Vec::is_empty),
            key => HOST.iter().find(|(known, _)| *known == key).is_none_or(|(_, polite)| polite.has(value)),
        };
        if !is_polite {
            all.push((vec![key.as_str()], format!("{key}: {}", plain(value))));
        }
    }
    all
}

/// Values that are no override.
enum Polite {
    OneOf(&'static [&'static str]),
    /// The default, and less: a duration or a number.
    UpTo(&'static str),
    /// The default, and more.
    From(&'static str),
}

impl Polite {
    fn has(&self, value: &Value) -> bool {
        let text = plain(value);
        let compared = |bound: &str| Some(amount(&text)?.cmp(&amount(bound)?));
        match self {
            Self::OneOf(words) => value.is_null() || words.contains(&text.as_str()),
            Self::UpTo(most) => compared(most) != Some(Ordering::Greater),
            Self::From(least) => compared(least) != Some(Ordering::Less),
        }
    }
}

fn amount(text: &str) -> Option<u128> {
    let number = text.parse().ok();
    number.or_else(|| Some(parse_duration(text).ok()?.as_millis()))
}

fn purposes(list: &Value) -> Vec<Purpose> {
    let names = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    names.filter_map(|name| Purpose::parse(name).ok()).collect()
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(false) => "off".to_owned(),
        Value::Bool(true) => "on".to_owned(),
        other => other.to_string(),
    }
}

const ENFORCE: Polite = Polite::OneOf(&["enforce"]);
const INTERCEPT: Polite = Polite::OneOf(&["intercept", "deny"]);
/// Keys for all hosts.
const GLOBAL: [(&str, Polite); 18] = [
    ("mode", ENFORCE),
    ("usage.content_usage", ENFORCE),
    ("usage.content_signal", ENFORCE),
    ("usage.x_robots_tag", ENFORCE),
    ("usage.tdm_reservation", ENFORCE),
    ("usage.page", ENFORCE),
    ("usage.tdmrep", ENFORCE),
    ("usage.license", Polite::OneOf(&["report", "enforce"])),
    ("robots.min_ttl", Polite::UpTo("5m")),
    ("robots.max_ttl", Polite::UpTo("24h")),
    ("robots.on_long_unreachable", Polite::OneOf(&["disallow"])),
    ("robots.user_agent_match", Polite::OneOf(&["exact"])),
    ("robots.precedence", Polite::OneOf(&["most-specific"])),
    ("robots.paths", Polite::OneOf(&["as-served"])),
    ("pace.max_crawl_delay", Polite::From("5m")),
    ("pace.max_concurrent", Polite::UpTo("8")),
    ("pace.subresources", Polite::OneOf(&["pace"])),
    ("intercept.default", INTERCEPT),
];
/// Keys of a host.
const HOST: [(&str, Polite); 5] = [
    ("robots", ENFORCE),
    ("verify", Polite::OneOf(&["on"])),
    ("tls", Polite::OneOf(&["current"])),
    ("intercept", INTERCEPT),
    // In place of the site's own.
    ("crawl_delay", Polite::OneOf(&[])),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    fn set(yaml: &str) -> Vec<String> {
        let settings = Settings::parse("a.yaml", yaml).unwrap();
        overrides(&settings.shown()).iter().map(|it| format!("{}: {}", it.scope(), it.setting)).collect()
    }

    #[test]
    fn the_defaults_and_what_is_more_polite_are_none() {
        let more = "usage: { license: enforce }\nrobots: { min_ttl: 1m, max_ttl: 1h, on_unavailable: disallow }\n\
            pace: { min_delay: 2s, max_crawl_delay: 1h, max_concurrent: 1, key: address }\nintercept: { default: deny }\n\
            identity: { purpose: [ai-train] }\n\
            hosts: { a.example: { robots: enforce, verify: on, tls: current, allow: [], deny: [/x], usage: { tdmrep: enforce },\n\
            purpose: [train-ai, search], intercept: deny, budget: { requests: 1 } } }";
        for yaml in ["", more] {
            assert_eq!(set(yaml), [""; 0]);
        }
    }

    #[test]
    fn each_key_that_obeys_sites_less_is_one() {
        let yaml = "mode: report\nrobots: { max_ttl: 48h, paths: as-sent }\npace: { max_crawl_delay: 1m, max_concurrent: 9 }\n\
            usage: { page: report }\nidentity: { purpose: [ai-train, tdm] }\nintercept: { hosts: { '*.bank.example': tunnel } }\n\
            hosts: { '*': { robots: ignore }, a.example: { verify: off, allow: [/open/], purpose: [tdm], usage: { license: ignore } } }\n\
            access: { users: [{ name: anna, certificate: x, hosts: { '*': { crawl_delay: 1s } } }] }";
        let mut said = set(yaml);
        said.sort();
        assert_eq!(
            said,
            [
                "*, for the user anna: crawl_delay: 1s",
                "*.bank.example: intercept: tunnel",
                "*: robots: ignore",
                "a.example: allow: [\"/open/\"]",
                "a.example: purpose: [\"tdm\"]",
                "a.example: usage.license: ignore",
                "a.example: verify: off",
                "all hosts: mode: report",
                "all hosts: pace.max_concurrent: 9",
                "all hosts: pace.max_crawl_delay: 1m",
                "all hosts: robots.max_ttl: 48h",
                "all hosts: robots.paths: as-sent",
                "all hosts: usage.page: report",
            ]
        );
    }
}
