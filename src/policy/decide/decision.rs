//! A decision as data. Pure.

use std::time::Duration;

use crate::policy::{Entry, Refusal, SiteFile};

/// The decision on a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub ruling: Ruling,
    /// The gap between two starts, for any ruling. `None`: no gap is known.
    pub crawl_delay: Option<Duration>,
    /// The files to fetch again in the background.
    pub refresh: Vec<SiteFile>,
}

/// Whether the request may be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ruling {
    /// Undecided until this file is fetched.
    Fetch(SiteFile),
    /// The request may be sent, at the pace of its host.
    Allow(Allowance),
    /// Refused, but the refusal is only reported, as `report` is configured.
    Report(Box<Refusal>),
    Refuse(Box<Refusal>),
}

/// Why a request is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Allowance {
    /// robots.txt itself is implicitly allowed (RFC 9309 §2.2.2).
    RobotsTxt,
    /// An `allow` by the operator.
    Operator,
    /// `robots: ignore`.
    Ignored,
    /// A rule; `place` is its index among the rules of the file.
    Rule {
        place: u32,
    },
    NoRule,
    /// The site has no robots.txt.
    Missing,
    /// robots.txt has not been readable for 30 days, and `on_long_unreachable: allow`.
    LongUnreachable,
}

/// The known state of a site.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    pub robots: &'a Entry,
    /// `None`: the file is not needed ([`HostRules::mining_purpose`](super::HostRules::mining_purpose)).
    pub tdmrep: Option<&'a Entry>,
    /// `None`: the file is not needed ([`HostRules::licensed_purposes`](super::HostRules::licensed_purposes)).
    pub license: Option<&'a Entry>,
}

impl<'a> From<&'a Entry> for Known<'a> {
    fn from(robots: &'a Entry) -> Self {
        Known { robots, tdmrep: None, license: None }
    }
}
