//! `identity.policy_tokens`: the names by which groups of a robots.txt stand for a purpose, such as `Google-Extended` for `ai-train`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::policy::PolicyToken;
use crate::robots::{ProductToken, Purpose};

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct PolicyTokens(BTreeMap<Purpose, Vec<ProductToken>>);

impl PolicyTokens {
    /// Each token with its purpose.
    pub fn each(&self) -> impl Iterator<Item = PolicyToken> {
        self.0.iter().flat_map(|(purpose, tokens)| tokens.iter().map(|token| (purpose.clone(), token.clone())))
    }
}
