//! What the keys of a map are. Those that the operator names have one spelling from here on, by which files are joined and
//! faults are found.

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
    /// Of the map that stands at this key, wherever that is.
    pub fn at(key: &str) -> Self {
        match key {
            // Also `intercept.hosts`, and those of a user.
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

    /// The key is there already, `{}`.
    pub fn repeated(self, key: &str) -> Complaint {
        match self {
            Self::Settings => Complaint::new(format!("duplicate key `{key}`"), "already set in {}; keep one of them"),
            Self::Hosts => Complaint::new(format!("the host `{key}` appears twice"), "merge it with the entry in {}"),
            Self::Purposes => {
                Complaint::new(format!("the purpose `{key}` appears twice"), "add these names to the list in {}")
            }
        }
    }

    /// What one of the keys is, and such a map: for a variable's name that cannot spell it.
    pub fn example(self) -> (&'static str, &'static str) {
        match self {
            Self::Purposes => ("purpose", "{ai-train: [NAME]}"),
            Self::Hosts | Self::Settings => ("host", "{\"example.com\": …}"),
        }
    }
}
