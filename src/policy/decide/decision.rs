//! A decision, as data, and what it is made of. Pure.

use std::time::Duration;

use crate::policy::{Entry, Refusal, SiteFile};

/// What to do with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub ruling: Ruling,
    /// The gap that holds between two starts, whatever is said of this request, as far as it is known.
    pub crawl_delay: Option<Duration>,
    /// The file that should be fetched again, without anybody waiting for it.
    pub refresh: Option<SiteFile>,
}

/// Whether it may go.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ruling {
    /// Nothing can be said before this file is fetched.
    Fetch(SiteFile),
    /// It may, in its turn.
    Allow(Allowance),
    /// It would not, but that is only reported: `report` is configured.
    Report(Box<Refusal>),
    Refuse(Box<Refusal>),
}

/// Why it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Allowance {
    /// robots.txt itself is implicitly allowed (RFC 9309 §2.2.2).
    RobotsTxt,
    /// An `allow` of the operator's.
    Operator,
    /// `robots: ignore`.
    Ignored,
    /// A rule; its place among those of the file.
    Rule {
        place: u32,
    },
    NoRule,
    /// There is no robots.txt.
    Missing,
    /// robots.txt has not been readable for 30 days, and `on_long_unreachable: allow`.
    LongUnreachable,
}

/// What a site has said of all its pages.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    pub robots: &'a Entry,
    /// `None`: it does not matter ([`HostRules::mining_purpose`](super::HostRules::mining_purpose)).
    pub tdmrep: Option<&'a Entry>,
    /// `None`: the same ([`HostRules::licensed_purposes`](super::HostRules::licensed_purposes)).
    pub license: Option<&'a Entry>,
}

impl<'a> From<&'a Entry> for Known<'a> {
    fn from(robots: &'a Entry) -> Self {
        Known { robots, tdmrep: None, license: None }
    }
}
