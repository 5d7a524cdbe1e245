//! `access`: who may use the proxy, and overrides for each user.

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

/// Who may use the proxy. If empty, anybody who can reach it, which must be loopback only.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct AccessSettings {
    pub clients: Vec<Network>,
    #[serde(deserialize_with = "shared")]
    pub users: Vec<Arc<User>>,
}

/// A user, and the settings for their requests.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct User {
    pub name: HeaderText,
    /// The password's hash.
    pub password: Secret,
    /// Replaces `identity.product_tokens`.
    #[serde(default)]
    pub product_tokens: Vec<ProductToken>,
    /// The source of `hosts`.
    #[serde(default, rename = "hosts")]
    pub(in crate::config) overrides: HostMap<Override>,
    /// Replaces `Settings::hosts`, with this user's overrides laid over them. `None`: no overrides.
    #[serde(skip)]
    pub hosts: Option<Hosts>,
    /// What this user may request, further limited by what everybody may.
    #[serde(default, rename = "egress", deserialize_with = "listed_by_user")]
    pub listed: Allowlist,
    /// Limit on concurrent connections.
    pub max_connections: Option<NonZeroUsize>,
    /// Limit on waiting requests.
    pub max_waiting: Option<usize>,
    /// Budget for all hosts together.
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
