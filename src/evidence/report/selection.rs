//! Which records a report counts: by period, host, user and declared use.

use crate::evidence::reader::Decision;
use crate::policy::{Authority, HostPattern, HostPatternError};
use crate::robots::Purpose;
use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

/// Which records count. What is empty selects all.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    pub since: Option<SystemTime>,
    /// Exclusive.
    pub until: Option<SystemTime>,
    pub hosts: Vec<HostSelection>,
    /// A user, or the address of a client without one.
    pub user: Option<String>,
    /// A declared use.
    pub purpose: Option<Purpose>,
}

/// Hosts, at all their ports or at one.
#[derive(Debug, Clone)]
pub struct HostSelection {
    pattern: HostPattern,
    port: Option<u16>,
}

impl HostSelection {
    fn matches(&self, site: &Authority) -> bool {
        self.pattern.matches(site.host()) && self.port.is_none_or(|port| port == site.port())
    }
}

impl FromStr for HostSelection {
    type Err = HostPatternError;

    /// `example.com`, `*.example.com` or `example.com:8443`. An IPv6 address with a port is in brackets. A URL selects its host and port.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(site) = Authority::from_url(text) {
            return Ok(HostSelection { pattern: HostPattern::Host(site.host().clone()), port: Some(site.port()) });
        }
        HostPattern::parse(text).map(|pattern| HostSelection { pattern, port: None }).or_else(|error| {
            let (host, port) = text.rsplit_once(':').ok_or(error)?;
            let port = port.parse().map_err(|_| error)?;
            Ok(HostSelection { pattern: HostPattern::parse(host)?, port: Some(port) })
        })
    }
}

impl fmt::Display for HostSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pattern.fmt(f)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl Selection {
    /// Whether a report counts this record.
    pub fn counts(&self, decision: &Decision, at: SystemTime) -> bool {
        let is_host = |host: &Authority| self.hosts.iter().any(|selected| selected.matches(host));
        // The requests inside have records of their own.
        decision.outcome != "intercepted"
            && self.overlaps(at, at)
            && (self.hosts.is_empty() || authority(decision).is_some_and(|host| is_host(&host)))
            && self.user.as_deref().is_none_or(|user| user == user_of(decision))
            && self.purpose.as_ref().is_none_or(|purpose| decision.purpose.iter().any(|it| it == purpose.as_str()))
    }

    pub fn overlaps(&self, from: SystemTime, to: SystemTime) -> bool {
        self.since.is_none_or(|since| to >= since) && self.until.is_none_or(|until| from < until)
    }
}

/// The site. `None`: no request could be read.
pub fn authority(decision: &Decision) -> Option<Authority> {
    Authority::from_url(decision.url.as_deref()?).ok()
}

/// The user, or the address of a client without one.
pub fn user_of(decision: &Decision) -> &str {
    decision.user.as_deref().unwrap_or(&decision.client)
}
