//! Values that may contain a password: neither `Debug` nor `Display` shows the password, and no message repeats the value.

use std::fmt;

use serde::de::Deserializer;
use url::Url;

use super::text::{self, QUOTES, from_text, read_from_text};
use crate::config::read::error::Complaint;
use crate::policy::{Authority, AuthorityError, Scheme};

/// A URL that may contain a password, which neither `Debug` nor `Display` shows.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretUrl(Url);

impl SecretUrl {
    /// The URL with its secrets. Must never be printed.
    pub fn expose(&self) -> &Url {
        &self.0
    }

    /// The address of a proxy: scheme, host and port.
    pub fn authority(&self) -> Result<Authority, AuthorityError> {
        let scheme = if self.0.scheme() == "https" { Scheme::Https } else { Scheme::Http };
        Authority::new(scheme, self.0.host_str().unwrap_or_default(), self.0.port())
    }

    fn of_proxy(text: &str) -> Result<Self, Complaint> {
        let url = Self::parse(text, &["http", "https"], PROXY_FORMS)?;
        url.authority().map_err(|error| Complaint::new(error.to_string(), PROXY_FORMS))?;
        Ok(url)
    }

    fn parse(text: &str, schemes: &[&str], hint: &'static str) -> Result<Self, Complaint> {
        // The text is not repeated, as it may contain a password.
        let fault = |what: &str| Complaint::new(what, hint);
        let url = Url::parse(text).map_err(|error| fault(&format!("this is not a URL: {error}")))?;
        if !text.contains("://") {
            return Err(fault("`//` is missing after the scheme"));
        }
        if !schemes.contains(&url.scheme()) {
            return Err(fault(&format!("a URL with the scheme `{}` is not allowed here", url.scheme())));
        }
        match url.host_str() {
            Some(host) if !host.is_empty() => Ok(Self(url)),
            Some(_) | None => Err(fault("this URL has no host")),
        }
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        without_user(self.0.clone()).fmt(f)
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretUrl({self})")
    }
}

/// The URL without user and password, for display.
pub(in crate::config) fn without_user(mut url: Url) -> Url {
    // Both calls fail only for URLs that cannot have a user.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url
}

/// A text that is never printed: a password's hash.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    text: String,
    cost: Option<HashCost>,
}

/// The parameters of a password hash, which determine the cost of verifying.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashCost {
    algorithm: argon2::Algorithm,
    version: argon2::Version,
    /// Memory, passes, lanes and output length.
    params: argon2::Params,
}

impl Secret {
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// The cost of verifying. `None`: the hash cannot be used for verification, which is an error of the configuration.
    pub fn cost(&self) -> Option<&HashCost> {
        self.cost.as_ref()
    }

    fn of(text: &str) -> Result<Self, Complaint> {
        Ok(Self { text: text.to_owned(), cost: HashCost::of(text) })
    }
}

impl HashCost {
    fn of(hash: &str) -> Option<Self> {
        let hash = argon2::PasswordHash::new(hash).ok()?;
        if hash.salt.is_none() || hash.hash.is_none() {
            return None;
        }
        let algorithm = argon2::Algorithm::new(hash.algorithm.as_str()).ok()?;
        let version = hash.version.map(argon2::Version::try_from).transpose().ok()?.unwrap_or_default();
        let params = argon2::Params::try_from(&hash).ok()?;
        Some(Self { algorithm, version, params })
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

read_from_text! {
    Secret, "text", QUOTES, Self::of;
}

from_text! {
    SecretUrl, "a URL", PROXY_FORMS, SecretUrl::of_proxy;
    FleetUrl, "a URL", FLEET_FORMS, FleetUrl::parse;
}

/// Reads the URL of a Redis or Valkey server, for `#[serde(deserialize_with)]`.
pub(in crate::config) fn some_fleet_url<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SecretUrl>, D::Error> {
    text::one(deserializer).map(|FleetUrl(url)| Some(url))
}

struct FleetUrl(SecretUrl);

impl FleetUrl {
    fn parse(text: &str) -> Result<Self, Complaint> {
        let url = SecretUrl::parse(text, FLEET_SCHEMES, FLEET_FORMS)?;
        let database = url.0.path().trim_start_matches('/');
        if !database.is_empty() && database.parse::<u32>().is_err() {
            return Err(Complaint::new("the database must be a number", FLEET_FORMS));
        }
        // A fragment is refused, as `#insecure` makes some clients disable verification.
        let is_many = url.0.scheme().contains('+');
        if url.0.fragment().is_some() || url.0.query().is_some() && !is_many {
            return Err(Complaint::new("nothing may follow the number of the database", FLEET_FORMS));
        }
        let is_sentinel = url.0.scheme().ends_with("+sentinel");
        for (name, value) in url.0.query_pairs() {
            let is_host = |node: Url| node.has_host() && without_user(node.clone()) == node;
            let is_node = name == "node" && Url::parse(&format!("redis://{value}")).is_ok_and(is_host);
            let fits = is_node || is_sentinel && name == "master";
            if !fits {
                return Err(Complaint::new(format!("`{name}=` is unknown here, or its value is invalid"), FLEET_FORMS));
            }
        }
        if is_sentinel && !url.0.query_pairs().any(|(name, value)| name == "master" && !value.is_empty()) {
            return Err(Complaint::new("a sentinel URL needs the name of the master", FLEET_FORMS));
        }
        Ok(Self(url))
    }
}

const PROXY_FORMS: &str = "write `http://proxy.example:3128` or `https://user:password@proxy.example:3128`";
const FLEET_SCHEMES: &[&str] =
    &["redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"];
const FLEET_FORMS: &str = "write `redis://host:6379/0`, `redis+sentinel://host:26379/0?master=NAME&node=host2:26379` \
                           or `redis+cluster://host:6379?node=host2:6379`, and `rediss…` for TLS";
