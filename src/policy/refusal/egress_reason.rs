//! Why this proxy must not connect to a target. Pure.

use std::fmt;
use std::net::IpAddr;

/// The denied property of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EgressReason {
    /// The address is in a special-purpose range.
    Address {
        address: IpAddr,
        /// The range's name, such as `Private-Use`.
        range: Box<str>,
        /// The document that defines the range, such as `RFC 1918`.
        source: Box<str>,
    },
    /// `egress.ports` does not contain the port.
    Port(u16),
    /// `egress.deny` contains the host.
    Host {
        host: Box<str>,
        /// The entry that matches the host.
        pattern: Box<str>,
    },
    /// `egress.hosts` does not contain the host.
    UnlistedHost { host: Box<str>, by: ListedBy },
    /// `egress.methods` does not contain the method.
    UnlistedMethod { method: Box<str>, by: ListedBy },
}

/// The owner of an allowlist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListedBy {
    /// The operator: `egress`, which applies to everybody.
    #[default]
    All,
    /// A user in `access.users`: `egress` of that user.
    User,
}

impl fmt::Display for ListedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "egress",
            Self::User => "access.users[].egress",
        })
    }
}

impl EgressReason {
    /// The `source` of an address that `egress.deny` contains. For other addresses, `source` is a document.
    pub const DENY: &str = "egress.deny";
    /// The `pattern` of the host that is `intercept.setup_host`. For other hosts, `pattern` is an entry of `egress.deny`.
    pub const SETUP_HOST: &str = "intercept.setup_host";

    /// The configuration key that decides.
    pub fn setting(&self) -> String {
        match self {
            Self::Address { source, .. } if **source == *Self::DENY => Self::DENY.to_owned(),
            Self::Address { .. } => "egress.allow".to_owned(),
            Self::Port(_) => "egress.ports".to_owned(),
            Self::Host { pattern, .. } if **pattern == *Self::SETUP_HOST => Self::SETUP_HOST.to_owned(),
            Self::Host { .. } => Self::DENY.to_owned(),
            Self::UnlistedHost { by, .. } => format!("{by}.hosts"),
            Self::UnlistedMethod { by, .. } => format!("{by}.methods"),
        }
    }
}

impl fmt::Display for EgressReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { address, range, source } => {
                write!(f, "egress: {address} is in the range {range} ({source})")
            }
            Self::Port(port) => write!(f, "egress.ports: port {port} is not allowed"),
            Self::Host { host, pattern } => write!(f, "egress: the host {host} is denied by `{pattern}`"),
            Self::UnlistedHost { host, by } => write!(f, "{by}.hosts: the host {host} is not listed"),
            Self::UnlistedMethod { method, by } => write!(f, "{by}.methods: the method {method} is not listed"),
        }
    }
}
