//! Selects the records that a report counts: by period, host, user and declared use.

use crate::config::units::parse_duration;
use crate::evidence::reader::Decision;
use crate::policy::{Authority, HostPattern, HostPatternError};
use crate::rfc3339;
use crate::robots::Purpose;
use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;
use time::macros::format_description;
use time::{Date, OffsetDateTime, Time};

/// The records that count. An empty criterion selects all.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Selection {
    /// Only requests since this time: `7d` ago, a date, or a time such as 2026-11-22T18:30:00Z
    #[arg(long, value_name = "WHEN", value_parser = when)]
    pub since: Option<SystemTime>,
    /// Only requests before this time, in the same notation
    #[arg(long, value_name = "WHEN", value_parser = when)]
    pub until: Option<SystemTime>,
    /// Only requests to this host: `example.com`; `example.com:8443` or a URL for one port; `*.example.com` for all hosts below it; may
    /// be given several times
    #[arg(long = "host", value_name = "PATTERN")]
    pub hosts: Vec<HostSelection>,
    /// Only requests of this user or, for clients without a user name, from this address
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Only requests with this declared use, such as ai-train
    #[arg(long, value_name = "PURPOSE")]
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
        // The requests inside an intercepted CONNECT have their own records.
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

/// The site of a record. `None`: the request could not be read.
pub fn authority(decision: &Decision) -> Option<Authority> {
    Authority::from_url(decision.url.as_deref()?).ok()
}

/// The user, or the address of a client without one.
pub fn user_of(decision: &Decision) -> &str {
    decision.user.as_deref().unwrap_or(&decision.client)
}

/// Parses a time as people write it: RFC 3339, a date, or how long ago it was (`7d`).
pub fn when(text: &str) -> Result<SystemTime, String> {
    if text == "now" {
        return Ok(SystemTime::now());
    }
    if let Some(at) = rfc3339::parse(text) {
        return Ok(at);
    }
    if let Ok(date) = Date::parse(text, format_description!("[year]-[month]-[day]")) {
        return Ok(OffsetDateTime::new_utc(date, Time::MIDNIGHT).into());
    }
    let ago = parse_duration(text).ok().and_then(|ago| SystemTime::now().checked_sub(ago));
    ago.ok_or_else(|| {
        format!("`{text}` is not a time: write 2026-11-22T18:30:00Z, 2026-11-22, now, or 7d for seven days ago")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn time_arguments_are_dates_or_ages() {
        assert_eq!(when("1970-01-03"), Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(2 * 86_400)));
        let then = when("7d").unwrap();
        let week = SystemTime::now().duration_since(then).unwrap();
        assert_eq!(week.as_secs() / 86_400, 7);
        assert!(when("yesterday").is_err());
    }
}
