//! Why a target may not be reached through this proxy. Pure.

use std::fmt;
use std::net::IpAddr;

/// What about the target is denied.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EgressReason {
    /// The address lies in a range that is not the public Internet's.
    Address {
        address: IpAddr,
        /// The range's name, `Private-Use`.
        range: Box<str>,
        /// Where the range is defined, `RFC 1918`.
        source: Box<str>,
    },
    /// The port is not among `egress.ports`.
    Port(u16),
    /// The host is on `egress.deny`.
    Host {
        host: Box<str>,
        /// The entry that matched.
        pattern: Box<str>,
    },
    /// Only listed hosts may be asked (`egress.hosts`), and it is none of them.
    UnlistedHost { host: Box<str>, by: ListedBy },
    /// The same of methods (`egress.methods`).
    UnlistedMethod { method: Box<str>, by: ListedBy },
}

/// Where the lists are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListedBy {
    /// `egress`, for all.
    #[default]
    All,
    /// `egress` of one of the `access.users`.
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

impl fmt::Display for EgressReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { address, range, source } => write!(f, "egress: {address} is {range} ({source})"),
            Self::Port(port) => write!(f, "egress.ports: port {port} is not allowed"),
            Self::Host { host, pattern } => write!(f, "egress: the host {host} is denied by `{pattern}`"),
            Self::UnlistedHost { host, by } => write!(f, "{by}.hosts: the host {host} is not listed"),
            Self::UnlistedMethod { method, by } => write!(f, "{by}.methods: the method {method} is not listed"),
        }
    }
}
