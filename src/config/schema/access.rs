//! `access`: who may use the proxy, and overrides for each user.

use std::num::NonZeroUsize;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};

use super::host_table::{HostMap, Override};
use super::manners;
use super::secrets::Secret;
use super::text::{self, QUOTES, checked_texts};
use super::values::{HeaderText, MethodName, Network, listed};
use crate::config::hosts::Hosts;
use crate::config::read::error::Complaint;
use crate::policy::{Allowlist, Budget, HostPattern, ListedBy};
use crate::robots::ProductToken;

/// The clients and users that may use the proxy. If empty, anybody who can reach the proxy may use it, so it must listen on loopback only.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct AccessSettings {
    pub clients: Vec<Network>,
    /// Whether only `users` may use the proxy, even if that list is empty.
    pub require_user: bool,
    pub users: Vec<Arc<User>>,
}

impl AccessSettings {
    /// Whether a client has to be one of `users`.
    pub fn needs_user(&self) -> bool {
        self.require_user || !self.users.is_empty()
    }

    /// Whether anybody may use the proxy.
    pub fn is_open_to_all(&self) -> bool {
        self.clients.is_empty() && !self.needs_user()
    }
}

/// A user, and the settings for their requests.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct User {
    pub name: HeaderText,
    /// The password's hash. `None` requires `certificate`.
    pub password: Option<Secret>,
    /// A client that presents a certificate with this name counts as this user.
    pub certificate: Option<CertificateName>,
    /// Replaces `identity.product_tokens`.
    #[serde(default)]
    pub product_tokens: Vec<ProductToken>,
    /// Replaces `identity.user_agent` and the client's `User-Agent`. Unless `product_tokens` are set, they are taken from this value.
    #[serde(default, deserialize_with = "text::some")]
    pub user_agent: Option<String>,
    /// The written overrides, until `hosts` is built from them.
    #[serde(default, rename = "hosts")]
    pub(in crate::config) overrides: HostMap<Override>,
    /// Replaces `Settings::hosts`, with this user's overrides laid over them. `None`: no overrides.
    #[serde(skip)]
    pub hosts: Option<Hosts>,
    /// The hosts and methods that this user may request, among those that everybody may request.
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

checked_texts! {
    /// A name in a client certificate: the subject's CN, or a subject alternative name (DNS, e-mail, URI). Not empty.
    CertificateName, "text", QUOTES, parse_certificate_name;
}

fn parse_certificate_name(text: &str) -> Result<&str, Complaint> {
    match text.is_empty() || text.contains(char::is_control) {
        true => Err(Complaint::new(format!("{text:?} is not a name in a certificate"), CERTIFICATE_FORMS)),
        false => Ok(text),
    }
}

const CERTIFICATE_FORMS: &str =
    "write the CN of the certificate, or one of its alternative names: a DNS name, an e-mail address or a URI";

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
