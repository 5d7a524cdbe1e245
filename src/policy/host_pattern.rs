//! Patterns that select the hosts of a configuration entry: `hosts`, `intercept.hosts`, `egress.deny`. Pure.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::{AuthorityError, Host};

/// A host, or a pattern of hosts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HostPattern {
    /// `*`: every host, including addresses.
    Any,
    /// `*.example.com`: all names below that name, at any depth, but not the name itself.
    Below(Arc<str>),
    /// One name or address.
    Host(Host),
}

impl HostPattern {
    /// Parses `example.com`, `192.0.2.1`, `*.example.com` or `*`; names in any spelling that a URL may have.
    pub fn parse(text: &str) -> Result<Self, HostPatternError> {
        if text == "*" {
            return Ok(Self::Any);
        }
        match text.strip_prefix("*.") {
            None if text.contains('*') => Err(HostPatternError::Star),
            None => Ok(Self::Host(Host::parse(text)?)),
            Some(rest) if rest.contains('*') => Err(HostPatternError::Star),
            Some(rest) => match Host::parse(rest)? {
                Host::Name(name) => Ok(Self::Below(name)),
                Host::Ip(_) => Err(HostPatternError::BelowAddress),
            },
        }
    }

    /// Whether the pattern matches this host.
    pub fn matches(&self, host: &Host) -> bool {
        match self {
            Self::Any => true,
            Self::Below(parent) => host.name().is_some_and(|name| is_below(name, parent)),
            Self::Host(own) => own == host,
        }
    }

    /// Orders patterns that match the same host: greater is more specific.
    pub fn rank(&self) -> usize {
        match self {
            Self::Any => 0,
            Self::Below(parent) => 1 + parent.split('.').count(),
            Self::Host(_) => usize::MAX,
        }
    }
}

impl FromStr for HostPattern {
    type Err = HostPatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Below(parent) => write!(f, "*.{parent}"),
            Self::Host(host) => host.fmt(f),
        }
    }
}

/// Why a text is not a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostPatternError {
    /// A misplaced star: `a*.example.com`, `*.*.com`, `*example.com`.
    #[error("`*` stands for whole labels and only at the beginning: `*.example.com`")]
    Star,
    /// A star before an address: `*.192.0.2.1`.
    #[error("an address has no names below it")]
    BelowAddress,
    /// The text, or the part after `*.`, is not a host.
    #[error(transparent)]
    Host(#[from] AuthorityError),
}

fn is_below(name: &str, parent: &str) -> bool {
    name.strip_suffix(parent).and_then(|rest| rest.strip_suffix('.')).is_some_and(|rest| !rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn matches(pattern: &str, host: &str) -> bool {
        HostPattern::parse(pattern).unwrap().matches(&Host::parse(host).unwrap())
    }

    #[test]
    fn a_name_matches_itself_in_any_spelling() {
        assert!(matches("Example.COM.", "example.com"));
        assert!(matches("bücher.example", "xn--bcher-kva.example"));
        assert!(!matches("example.com", "www.example.com"));
        assert!(!matches("example.com", "com"));
    }

    #[test]
    fn an_address_matches_itself_in_any_spelling() {
        assert!(matches("127.1", "127.0.0.1"));
        assert!(matches("[::1]", "0:0:0:0:0:0:0:1"));
        assert!(!matches("127.0.0.1", "::ffff:127.0.0.1"), "an IPv4-mapped address is another host");
    }

    #[test]
    fn star_matches_subdomains_but_not_the_name_itself() {
        assert!(matches("*.example.com", "www.example.com"));
        assert!(matches("*.EXAMPLE.com", "a.b.example.com"));
        assert!(!matches("*.example.com", "example.com"));
        assert!(!matches("*.example.com", "badexample.com"));
        assert!(!matches("*.example.com", "example.com.evil"));
    }

    #[test]
    fn lone_star_matches_everything() {
        assert!(matches("*", "example.com"));
        assert!(matches("*", "::1"));
    }

    #[test]
    fn the_more_specific_pattern_ranks_higher() {
        let mut patterns: Vec<_> = ["*.com", "www.example.com", "*", "*.www.example.com", "*.example.com"]
            .map(|pattern| HostPattern::parse(pattern).unwrap())
            .into();
        patterns.sort_by_key(HostPattern::rank);
        let sorted: Vec<_> = patterns.iter().map(ToString::to_string).collect();
        assert_eq!(sorted, ["*", "*.com", "*.example.com", "*.www.example.com", "www.example.com"]);
    }

    #[test]
    fn invalid_patterns_are_refused_with_the_reason() {
        for (text, why) in [
            ("*example.com", HostPatternError::Star),
            ("a.*.com", HostPatternError::Star),
            ("*.*.com", HostPatternError::Star),
            ("**", HostPatternError::Star),
            ("*.192.0.2.1", HostPatternError::BelowAddress),
            ("*.", HostPatternError::Host(AuthorityError::HostMissing)),
            ("", HostPatternError::Host(AuthorityError::HostMissing)),
            ("exam ple", HostPatternError::Host(AuthorityError::HostCharacters)),
            ("https://example.com", HostPatternError::Host(AuthorityError::Ipv6)),
        ] {
            assert_eq!(text.parse::<HostPattern>(), Err(why), "{text}");
        }
    }
}
