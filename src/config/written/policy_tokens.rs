//! `identity.policy_tokens`: the names of purposes in robots.txt.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use crate::config::read::error::Complaint;
use crate::policy::PolicyToken;
use crate::robots::{ProductToken, Purpose};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyTokens(BTreeMap<Purpose, Vec<ProductToken>>);

impl PolicyTokens {
    /// Each token with its purpose.
    pub fn each(&self) -> impl Iterator<Item = PolicyToken> {
        self.0.iter().flat_map(|(purpose, tokens)| tokens.iter().map(|token| (purpose.clone(), token.clone())))
    }
}

impl<'de> Deserialize<'de> for PolicyTokens {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Lists;

        impl<'de> Visitor<'de> for Lists {
            type Value = PolicyTokens;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", Complaint::new("names by purpose", "write `{ ai-train: [NAME] }`, or `{}` for none"))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PolicyTokens, A::Error> {
                BTreeMap::deserialize(MapAccessDeserializer::new(map)).map(PolicyTokens)
            }
        }

        deserializer.deserialize_any(Lists)
    }
}
