//! Overrides: settings that make the proxy less polite than its defaults, or trust a site without verification. `politely check` shows the
//! overrides in force; a report shows the overrides of stored configurations.

use super::display::json;
use super::schema::defaults::defaults;
use super::units::{parse_duration, parse_size};
use crate::robots::Purpose;
use serde::Serialize;
use serde_json::Value;

/// A setting that makes the proxy obey sites less than by default, or not verify them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OverrideInForce {
    /// A host or pattern. `None`: all hosts.
    pub hosts: Option<String>,
    /// `None`: every user.
    pub user: Option<String>,
    /// The setting as in the configuration, such as `robots: ignore`.
    pub setting: String,
    /// Keys and list indices that lead to the setting.
    #[serde(skip)]
    pub(super) path: Vec<String>,
}

impl OverrideInForce {
    /// Why the setting is less polite, as a clause after a comma; empty if the setting itself shows why.
    pub fn why(&self) -> &'static str {
        let is_delay = self.setting.starts_with("crawl_delay: ");
        if is_delay { ", in place of a site's own Crawl-delay, which may be longer" } else { "" }
    }

    /// The hosts, and the user if the setting applies to only one.
    pub fn scope(&self) -> String {
        let hosts = self.hosts.as_deref().unwrap_or("all hosts");
        self.user.as_ref().map_or_else(|| hosts.to_owned(), |user| format!("{hosts}, for the user {user}"))
    }
}

/// The overrides of a configuration in the form of the file, complete with defaults.
pub fn overrides(config: &Value) -> Vec<OverrideInForce> {
    let mut all = Vec::new();
    for (key, polite) in &GLOBAL {
        let path: Vec<_> = key.split('.').map(str::to_owned).collect();
        let value = path.iter().fold(config, |value, key| &value[key]);
        if !polite.has(value, &default(key)) {
            all.push(OverrideInForce { hosts: None, user: None, setting: format!("{key}: {}", plain(value)), path });
        }
    }
    let (declared, max_delay) = (purposes(&config["identity"]["purpose"]), &config["pace"]["max_crawl_delay"]);
    let mut add = |section: &[&str], entries: &Value, user: Option<&str>| {
        for (pattern, entry) in entries.as_object().into_iter().flatten() {
            for (keys, setting) in of_entry(entry, &declared, max_delay) {
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

/// The overrides in an entry of `hosts` or `intercept.hosts`, each as the keys that lead from the entry to the setting,
/// and the setting. `max_delay`: the longest delay that a site can ask for.
fn of_entry<'a>(entry: &'a Value, declared: &[Purpose], max_delay: &Value) -> Vec<(Vec<&'a str>, String)> {
    let global = |key: &str, value| {
        let polite = GLOBAL.iter().find(|(global, _)| *global == key);
        polite.is_none_or(|(_, polite)| polite.has(value, &default(key)))
    };
    let Value::Object(keys) = entry else {
        let is_polite = global("intercept.default", entry);
        return if is_polite { Vec::new() } else { vec![(Vec::new(), format!("intercept: {}", plain(entry)))] };
    };
    let mut all = Vec::new();
    for (key, value) in keys {
        let is_polite = match key.as_str() {
            "usage" => {
                for (signal, mode) in value.as_object().into_iter().flatten() {
                    let key = format!("usage.{signal}");
                    if !global(&key, mode) {
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
            "robots" => value.is_null() || value == "enforce",
            "verify" => [Value::Null, true.into(), "on".into()].contains(value),
            "tls" => value.is_null() || value == "current",
            "intercept" => global("intercept.default", value),
            // Polite only if no site can ask for a longer delay; otherwise the site's own delay may be longer.
            "crawl_delay" => value.is_null() || amount(max_delay).is_some_and(|most| amount(value) >= Some(most)),
            _ => true,
        };
        if !is_polite {
            all.push((vec![key.as_str()], format!("{key}: {}", plain(value))));
        }
    }
    all
}

/// The polite values of a key, which are not overrides, besides the default and `null`.
enum Polite {
    /// Each of these words.
    Also(&'static [&'static str]),
    /// Durations or numbers below the default.
    UpTo,
    /// Durations or numbers above the default.
    From,
    /// Any number except 0.
    Any,
}

impl Polite {
    fn has(&self, value: &Value, default: &Value) -> bool {
        let (number, bound) = (amount(value), amount(default));
        value.is_null()
            || plain(value) == plain(default)
            || match self {
                Self::Also(words) => words.contains(&plain(value).as_str()),
                Self::UpTo => number <= bound,
                Self::From => number >= bound,
                Self::Any => number != Some(0),
            }
    }
}

fn default(key: &str) -> Value {
    json(defaults().along(&key.split('.').collect::<Vec<_>>()))
}

fn amount(value: &Value) -> Option<u128> {
    let text = plain(value);
    let duration = parse_duration(&text).ok().map(|duration| duration.as_millis());
    duration.or_else(|| parse_size(&text).ok().map(u128::from))
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

const DEFAULT: Polite = Polite::Also(&[]);
/// The keys that apply to all hosts, with their polite values. The values for `usage` and `intercept` also apply to entries of hosts.
const GLOBAL: [(&str, Polite); 19] = [
    ("mode", DEFAULT),
    ("usage.content_usage", DEFAULT),
    ("usage.content_signal", DEFAULT),
    ("usage.x_robots_tag", DEFAULT),
    ("usage.tdm_reservation", DEFAULT),
    ("usage.page", DEFAULT),
    ("usage.tdmrep", DEFAULT),
    ("usage.license", Polite::Also(&["enforce"])),
    ("robots.min_ttl", Polite::UpTo),
    ("robots.max_ttl", Polite::UpTo),
    ("robots.on_long_unreachable", DEFAULT),
    ("robots.user_agent_match", DEFAULT),
    ("robots.precedence", DEFAULT),
    ("robots.paths", DEFAULT),
    ("pace.max_crawl_delay", Polite::From),
    ("pace.max_concurrent", Polite::UpTo),
    ("pace.subresources", DEFAULT),
    ("intercept.default", Polite::Also(&["deny"])),
    // Without the disk, a restart forgets owed delays.
    ("store.disk", Polite::Any),
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
    fn defaults_and_stricter_settings_are_not_overrides() {
        let more = "usage: { license: enforce }\nrobots: { min_ttl: 1m, max_ttl: 1h, on_unavailable: disallow }\n\
            pace: { min_delay: 2s, max_crawl_delay: 1h, max_concurrent: 1, key: address }\nintercept: { default: deny }\n\
            identity: { purpose: [ai-train] }\n\
            hosts: { b.example: { crawl_delay: 60m }, a.example: { robots: enforce, verify: on, tls: current, allow: [], deny: [/x], usage: { tdmrep: enforce },\n\
            purpose: [train-ai, search], intercept: deny, budget: { requests: 1 } } }";
        for yaml in ["", more] {
            assert_eq!(set(yaml), [""; 0]);
        }
    }

    #[test]
    fn each_setting_that_obeys_sites_less_is_an_override() {
        let yaml = "mode: report\nrobots: { max_ttl: 48h, paths: as-sent }\npace: { max_crawl_delay: 1m, max_concurrent: 9 }\n\
            usage: { page: report }\nstore: { disk: 0 }\nidentity: { purpose: [ai-train, tdm] }\nintercept: { hosts: { '*.bank.example': tunnel } }\n\
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
                "all hosts: store.disk: 0",
                "all hosts: usage.page: report",
            ]
        );
    }
}
