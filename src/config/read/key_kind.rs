//! The kinds of keys that a map may have. Keys that the operator chooses, such as hosts, are converted to one spelling, so that merging
//! files finds duplicates.

use super::error::Complaint;
use crate::policy::HostPattern;
use crate::robots::Purpose;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyKind {
    /// Keys of the configuration itself.
    Settings,
    Hosts,
    Purposes,
}

impl KeyKind {
    /// The kind of the keys in the map at this key, in any section.
    pub fn at(key: &str) -> Self {
        match key {
            // `hosts`, `intercept.hosts`, and the `hosts` of a user.
            "hosts" => Self::Hosts,
            "policy_tokens" => Self::Purposes,
            _ => Self::Settings,
        }
    }

    pub fn one_spelling(self, key: String) -> String {
        match self {
            Self::Settings => key,
            Self::Hosts => HostPattern::parse(&key).map_or(key, |pattern| pattern.to_string()),
            Self::Purposes => Purpose::parse(&key).map_or(key, |purpose| purpose.to_string()),
        }
    }

    /// The complaint about a repeated key. `first`: the place of the first one.
    pub fn repeated(self, key: &str, first: &str) -> Complaint {
        let (what, hint) = match self {
            Self::Settings => (format!("duplicate key `{key}`"), format!("already set in {first}; keep one of them")),
            Self::Hosts => (format!("the host `{key}` appears twice"), format!("merge it with the entry in {first}")),
            Self::Purposes => {
                (format!("the purpose `{key}` appears twice"), format!("add these names to the list in {first}"))
            }
        };
        Complaint::new(what, hint)
    }

    /// The noun for a key of this kind, and an example of a map with such keys. For errors about variables, whose names cannot contain such
    /// a key.
    pub fn example(self) -> (&'static str, &'static str) {
        match self {
            Self::Purposes => ("purpose", "{ai-train: [NAME]}"),
            Self::Hosts | Self::Settings => ("host", "{\"example.com\": …}"),
        }
    }
}
