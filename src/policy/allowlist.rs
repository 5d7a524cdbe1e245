//! The operator's lists of hosts and methods that may be requested. Pure.

use super::{EgressReason, Host, HostPattern, ListedBy};

/// Allowed hosts and methods. An empty list allows all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Allowlist {
    pub hosts: Vec<HostPattern>,
    /// Methods in upper case, as sent (RFC 9110 §9.1). `CONNECT` opens tunnels, in which methods are not visible.
    pub methods: Vec<Box<str>>,
    pub by: ListedBy,
}

impl Allowlist {
    /// Checks that the host may be requested.
    pub fn check_host(&self, host: &Host) -> Result<(), EgressReason> {
        match self.hosts.is_empty() || self.hosts.iter().any(|pattern| pattern.matches(host)) {
            true => Ok(()),
            false => Err(EgressReason::UnlistedHost { host: host.to_string().into(), by: self.by }),
        }
    }

    /// Checks that the host may be requested with this method.
    pub fn check(&self, host: &Host, method: &str) -> Result<(), EgressReason> {
        match self.methods.is_empty() || self.methods.iter().any(|listed| **listed == *method) {
            true => self.check_host(host),
            false => Err(EgressReason::UnlistedMethod { method: method.into(), by: self.by }),
        }
    }
}
