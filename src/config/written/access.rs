//! `access`: who may use the proxy, and what is otherwise for each of them.

use std::num::NonZeroUsize;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};

use super::host_table::{HostMap, Override};
use super::manners;
use super::secrets::Secret;
use super::values::{HeaderText, MethodName, Network, listed};
use crate::config::hosts::Hosts;
use crate::policy::{Allowlist, Budget, HostPattern, ListedBy};
use crate::robots::ProductToken;

/// Who may use the proxy. Neither: anybody who reaches it, so loopback only.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct AccessSettings {
    pub clients: Vec<Network>,
    #[serde(deserialize_with = "shared")]
    pub users: Vec<Arc<User>>,
}

/// Who shows a password, and what holds for their requests.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct User {
    pub name: HeaderText,
    /// The password's hash.
    pub password: Secret,
    /// In place of `identity.product_tokens`.
    #[serde(default)]
    pub product_tokens: Vec<ProductToken>,
    /// What `hosts` is made of.
    #[serde(default, rename = "hosts")]
    pub(in crate::config) overrides: HostMap<Override>,
    /// In place of `Settings::hosts`, which these were laid over. `None`: nothing is otherwise for this user.
    #[serde(skip)]
    pub hosts: Option<Hosts>,
    /// What they may ask, of what all may.
    #[serde(default, rename = "egress", deserialize_with = "listed_by_user")]
    pub listed: Allowlist,
    /// Connections at a time.
    pub max_connections: Option<NonZeroUsize>,
    /// Requests that may wait at a time.
    pub max_waiting: Option<usize>,
    /// What they may ask of all hosts together.
    #[serde(default, deserialize_with = "manners::some_budget")]
    pub budget: Option<Budget>,
}

fn shared<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Arc<User>>, D::Error> {
    Ok(Vec::deserialize(deserializer)?.into_iter().map(Arc::new).collect())
}

fn listed_by_user<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Allowlist, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct UserEgress {
        hosts: Vec<HostPattern>,
        methods: Vec<MethodName>,
    }

    let UserEgress { hosts, methods } = UserEgress::deserialize(deserializer)?;
    Ok(listed(&hosts, &methods, ListedBy::User))
}
