//! The configuration in force as JSON, as a running proxy shows it: the defaults overlaid with the written values, without secrets.

use super::read::environment::{KeyArgument, has_prefix, overlay, sets_no_key, variables};
use super::read::error::{ConfigPlace, Faults};
use super::read::tree::{Value as Written, YamlNode};
use super::schema::defaults::defaults;
use super::schema::secrets::without_user;
use serde_json::Value;
use std::ffi::OsString;
use std::fmt;
use std::slice;
use std::sync::Arc;
use url::Url;

/// The whole configuration, in the form of the configuration file. Kept as text, which takes a tenth of the memory of parsed JSON.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Whole {
    /// The configuration as JSON, including secrets.
    text: Arc<str>,
    /// The configuration as JSON without secrets, and the SHA-256 of this text, which identifies the configuration in evidence.
    pub kept: (Arc<str>, [u8; 32]),
}

impl Whole {
    pub fn of(mut all: Value) -> Self {
        let text: Arc<str> = all.to_string().into();
        hide_secrets(&mut all);
        let shown = all.to_string();
        let shown = if *shown == *text { text.clone() } else { shown.into() };
        let digest = ring::digest::digest(&ring::digest::SHA256, shown.as_bytes());
        let digest = digest.as_ref().try_into().expect("SHA-256 has 32 bytes");
        Self { text, kept: (shown, digest) }
    }

    /// The configuration including secrets.
    pub fn all(&self) -> Value {
        value(&self.text)
    }

    /// The configuration without secrets.
    pub fn shown(&self) -> Value {
        value(&self.kept.0)
    }
}

fn value(text: &str) -> Value {
    if text.is_empty() { Value::Null } else { serde_json::from_str(text).expect("this process wrote the JSON") }
}

impl fmt::Debug for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shown().fmt(f)
    }
}

pub(super) fn json(node: &YamlNode) -> Value {
    match &node.value {
        Written::Null => Value::Null,
        Written::Bool(value) => (*value).into(),
        Written::Unsigned(value) => (*value).into(),
        Written::Signed(value) => (*value).into(),
        Written::Decimal(value) => (*value).into(),
        Written::Text(value) => value.as_str().into(),
        Written::List(items) => items.iter().map(json).collect(),
        Written::Map(entries) => {
            Value::Object(entries.iter().map(|(name, entry)| (name.clone(), json(&entry.1))).collect())
        }
    }
}

/// The value at this key, as JSON without secrets.
pub(super) fn without_secrets(key: &str, node: &YamlNode) -> Value {
    shown(&serde_json::json!({ key: json(node) }))[key].take()
}

fn shown(all: &Value) -> Value {
    let mut shown = all.clone();
    hide_secrets(&mut shown);
    shown
}

/// The variables with our prefix that are withheld from programs that this process starts: variables that may hold a secret, and unknown
/// variables. The other variables pass, as such a program may itself be `politely`.
pub fn withheld_variables(environment: impl IntoIterator<Item = (OsString, OsString)>) -> Vec<OsString> {
    let holds_secret = |variable: &KeyArgument| {
        let mut root = YamlNode::new(ConfigPlace::Unwritten, Written::Map(Default::default()));
        overlay(&mut root, slice::from_ref(variable), defaults(), &mut Faults::default());
        let all = json(&root);
        shown(&all) != all
    };
    let ours: Vec<_> = environment.into_iter().filter(|(name, _)| has_prefix(name)).collect();
    let keys = variables(ours.iter().cloned(), defaults()).0.into_iter().filter(|variable| !holds_secret(variable));
    let passed: Vec<_> = keys.map(|variable| OsString::from(variable.name)).collect();
    let names = ours.into_iter().map(|(name, _)| name);
    names.filter(|name| !(sets_no_key(name) || passed.contains(name))).collect()
}

fn hide_secrets(value: &mut Value) {
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                match value {
                    Value::String(secret) if key == "password" => *secret = HIDDEN.into(),
                    value => hide_secrets(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hide_secrets),
        Value::String(text) if text.contains("://") => {
            if let Ok(url) = Url::parse(text)
                && (url.password().is_some() || !url.username().is_empty())
            {
                *text = without_user(url).into();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

const HIDDEN: &str = "(hidden)";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use std::os::unix::ffi::OsStringExt;

    fn of(text: &str) -> Value {
        shown(&json(&YamlNode::read(text, "", &|_| ConfigPlace::Unwritten, &mut Faults::default()).unwrap()))
    }

    #[test]
    fn unwritten_keys_are_shown_with_their_defaults() {
        let text = "pace: { max_wait: 5s, queue: null }\nhosts: { a.example: { robots: ignore } }";
        let shown = Settings::parse("test", text).unwrap().shown();
        assert_eq!((&shown["pace"]["max_wait"], &shown["pace"]["queue"]), (&"5s".into(), &1000.into()));
        assert_eq!((&shown["mode"], &shown["hosts"]["a.example"]["robots"]), (&"enforce".into(), &"ignore".into()));
    }

    #[test]
    fn no_secret_is_shown() {
        let shown = of("access: { users: [{ name: a, password: $argon2id$s3cret }] }\n\
             fleet: rediss://u:s3cret@redis.example:6379/1\n\
             egress: { upstream_proxy: 'http://:s3cret@proxy.example:3128' }");
        assert!(!shown.to_string().contains("s3cret"), "{shown}");
        assert_eq!(shown["fleet"], "rediss://redis.example:6379/1");
        assert_eq!(shown["access"]["users"][0]["password"], HIDDEN);
    }

    #[test]
    fn values_that_may_contain_secrets_are_withheld() {
        let all = [
            ("POLITELY_FLEET", "redis://:s3cret@redis.example/0"),
            ("POLITELY_FLEET__COPIES", "redis://redis.example/1"),
            ("POLITELY_EGRESS", "{ upstream_proxy: 'http://a:s3cret@proxy.example:3128' }"),
            ("POLITELY_ACCESS__USERS", "[{ name: a, password: $argon2id$s3cret }]"),
            ("POLITELY_STORE__DIRECTORY", "/var/lib/a:b@c"),
            ("POLITELY_HOSTS", "{ a.example: { robots: report } }"),
            ("POLITELY_CONFIG", "politely.yaml"),
            ("OTHER_FLEET", "redis://:s3cret@redis.example/0"),
            ("POLITELY_EGRES__UPSTREAM_PROXY", "http://a:s3cret@proxy.example:3128"),
            ("POLITELY_PASSWORD", "s3cret"),
        ];
        let not_text = (OsString::from_vec(b"POLITELY_\xff".to_vec()), "s3cret".into());
        let all = all.map(|(name, value)| (OsString::from(name), OsString::from(value))).into_iter().chain([not_text]);
        let found = withheld_variables(all);
        let found: Vec<_> = found.iter().map(|name| name.to_string_lossy()).collect();
        let withheld = ["FLEET", "EGRESS", "ACCESS__USERS", "EGRES__UPSTREAM_PROXY", "PASSWORD", "\u{fffd}"];
        assert_eq!(found, withheld.map(|name| format!("POLITELY_{name}")));
    }

    #[test]
    fn shown_configuration_can_be_parsed_again() {
        let hash = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA";
        let text = format!(
            "listen: [{{ address: 0.0.0.0:3128 }}]\n\
             access: {{ users: [{{ name: a, password: '{hash}', hosts: {{ b.example: {{ robots: ignore }} }} }}] }}"
        );
        let settings = Settings::parse("test", &text).unwrap();
        let shown = settings.shown().to_string();
        let again = Settings::of_shown("then", &shown).unwrap();
        assert_eq!(again.access.users[0].hosts, settings.access.users[0].hosts);
        let error = Settings::of_shown("then", &shown.replace("0.0.0.0:3128", "nowhere")).unwrap_err();
        assert!(error.contains("then") && error.contains("nowhere"), "{error}");
    }
}
