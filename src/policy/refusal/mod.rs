//! Why a request is not forwarded (one variant per outcome of the decision), with the evidence. Pure; knows no HTTP
//! status: `proxy::respond::status` alone chooses one.

mod egress_reason;
mod evidence;
mod sentence;

pub use egress_reason::{EgressReason, ListedBy};
pub use evidence::{LicenseEvidence, MiningEvidence, PreferenceEvidence, Reservation, RuleEvidence};

use std::sync::Arc;
use std::time::Duration;

use super::{Authority, Budget};
use crate::robots::VisitTime;

/// A refusal. `Display` is one sentence for the person who reads the answer or the log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// A rule in robots.txt forbids the URL.
    Disallowed {
        /// Whose robots.txt it is.
        authority: Authority,
        /// For whom it was asked, with commas between them.
        product_tokens: Arc<str>,
        /// `None`: everything is disallowed without a rule saying so (`on_unavailable: disallow` and the like).
        rule: Option<RuleEvidence>,
    },
    /// A preference in robots.txt (Content-Signal, Content-Usage) says no to the declared purpose.
    UsageDisallowed {
        authority: Authority,
        product_tokens: Arc<str>,
        /// `ai-train`, `search`, … as the operator declared it.
        purpose: Box<str>,
        preference: PreferenceEvidence,
    },
    /// The site's tdmrep.json reserves the URL from the declared purpose.
    MiningReserved(Box<MiningEvidence>),
    /// The site's licence file does not license the URL for the declared purpose.
    NotLicensed(Box<LicenseEvidence>),
    /// The origin's answer says no to the declared purpose: its body is not delivered.
    AnswerReserved(Box<Reservation>),
    /// robots.txt could not be read, and no copy is good enough: complete disallow (RFC 9309 §2.3.1.4).
    RobotsUnreachable {
        /// Until robots.txt is asked for again.
        retry_after: Duration,
        authority: Authority,
        /// `status 503`, `timed out after 10 s`, …
        why: Box<str>,
    },
    /// The turn of the request would come later than it may wait.
    CrawlDelay {
        /// Until its turn would have come.
        retry_after: Duration,
        /// How long it may wait. `None`: it waited for robots.txt, and nobody knows when its turn would have come.
        max_wait: Option<Duration>,
    },
    /// The host has turned away so many requests in a row that it is left alone, for longer than the request may wait.
    HostPaused { retry_after: Duration, refusals: u32 },
    /// The page was fetched not long ago, and may not be again so soon.
    RevisitTooSoon { retry_after: Duration },
    /// As much has been asked in this period as may be.
    BudgetSpent {
        /// Until the next period.
        retry_after: Duration,
        /// A pace key, or `user=NAME`.
        of: Box<str>,
        budget: Budget,
    },
    /// The site is not open at this time of the day (`Visit-time`, where that is kept).
    Closed {
        /// Until it opens.
        retry_after: Duration,
        authority: Authority,
        hours: VisitTime,
    },
    /// Too many wait for the host already, or in all.
    QueueFull { retry_after: Duration },
    /// The user has as many connections to this proxy as are allowed.
    ConnectionLimit { limit: usize },
    /// The target is not to be reached through this proxy.
    EgressDenied { why: EgressReason },
    /// The client may not use this proxy.
    ClientDenied {
        /// Whether credentials would help (or other ones than those sent).
        credentials: bool,
        /// `no credentials`, `address 192.0.2.1 is not in access.clients`, …; never the credentials themselves.
        why: Box<str>,
    },
    /// CONNECT, SNI and the request inside do not agree.
    AuthorityMismatch {
        /// What the connection was opened for.
        connection: Box<str>,
        /// What the request names.
        request: Box<str>,
    },
    /// The request cannot be understood, or not in one way only.
    BadRequest { detail: Box<str> },
    /// Something asks the proxy as if it were the origin: a browser that was pointed at its address.
    NotAProxyRequest,
    /// The request head is over the limit, in bytes.
    HeadTooLarge { limit: usize },
    /// The request head did not arrive in time.
    HeadTimeout { limit: Duration },
    /// The request expects something other than to be told to go on (RFC 9110 §10.1.1).
    ExpectationFailed,
    /// The request has come through this instance already, or is for one of its own listeners.
    Loop,
    /// The proxy is shutting down and takes no new waiters.
    Draining { retry_after: Duration },
    /// The server that the fleet shares is out of reach, and nothing may go without it.
    FleetLost {
        retry_after: Duration,
        /// Nothing may go as it has never been reached, and nobody knows how many instances share the pace.
        is_uncounted: bool,
    },
    /// This machine has nothing left to connect with: descriptors, memory, a resolver. Says nothing about the host.
    OwnLimit {
        retry_after: Duration,
        /// The system's own words.
        why: Box<str>,
    },
    /// A rule of the operator's own forbids the URL.
    OperatorDenied {
        /// The entry of `hosts` that holds the rule.
        host: Box<str>,
        /// The path pattern as configured.
        pattern: Box<str>,
        /// What it matches, where that is not the path as sent but one that servers take it for.
        matched_path: Option<Box<str>>,
    },
    /// The operator denies https to the host (`intercept: deny`).
    InterceptDenied {
        /// The key of the configuration that says so.
        key: Box<str>,
    },
    /// To compare rules with this URL takes more steps than one decision may.
    RulesTooComplex {
        /// Where the rules are: the file's URL, or the key of the configuration.
        rules: Box<str>,
    },
}

impl Refusal {
    /// The request cannot be understood, and why.
    pub fn bad_request(detail: impl Into<Box<str>>) -> Self {
        Self::BadRequest { detail: detail.into() }
    }

    /// The tail of the problem type (RFC 9457) and the label in logs and metrics. Stable.
    pub fn slug(&self) -> &'static str {
        match self {
            Self::Disallowed { .. } => "robots-disallowed",
            Self::UsageDisallowed { .. } | Self::MiningReserved(_) | Self::NotLicensed(_) | Self::AnswerReserved(_) => {
                "usage-disallowed"
            }
            Self::RobotsUnreachable { .. } => "robots-unreachable",
            Self::CrawlDelay { .. } | Self::Closed { .. } => "crawl-delay",
            Self::HostPaused { .. } => "host-paused",
            Self::BudgetSpent { .. } => "budget-spent",
            Self::RevisitTooSoon { .. } => "revisit-too-soon",
            Self::QueueFull { .. } => "queue-full",
            Self::ConnectionLimit { .. } => "connection-limit",
            Self::EgressDenied { .. } => "egress-denied",
            Self::ClientDenied { .. } => "client-denied",
            Self::AuthorityMismatch { .. } => "authority-mismatch",
            Self::BadRequest { .. } | Self::NotAProxyRequest => "bad-request",
            Self::HeadTooLarge { .. } => "head-too-large",
            Self::HeadTimeout { .. } => "head-timeout",
            Self::ExpectationFailed => "expectation-failed",
            Self::Loop => "loop",
            Self::Draining { .. } => "draining",
            Self::FleetLost { .. } => "fleet-lost",
            Self::OwnLimit { .. } => "out-of-resources",
            Self::OperatorDenied { .. } | Self::InterceptDenied { .. } => "operator-denied",
            Self::RulesTooComplex { .. } => "rules-too-complex",
        }
    }

    /// The rule of robots.txt that decided.
    pub fn rule(&self) -> Option<RuleEvidence> {
        let Self::Disallowed { rule, .. } = self else { return None };
        rule.clone()
    }

    /// The preference that decided.
    pub fn preference(&self) -> Option<PreferenceEvidence> {
        let Self::UsageDisallowed { preference, .. } = self else { return None };
        Some(preference.clone())
    }

    /// The entry of tdmrep.json that decided.
    pub(super) fn reservation(&self) -> Option<&MiningEvidence> {
        let Self::MiningReserved(evidence) = self else { return None };
        Some(evidence)
    }

    /// When to come back, where time alone helps.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RobotsUnreachable { retry_after, .. }
            | Self::CrawlDelay { retry_after, .. }
            | Self::HostPaused { retry_after, .. }
            | Self::BudgetSpent { retry_after, .. }
            | Self::RevisitTooSoon { retry_after }
            | Self::Closed { retry_after, .. }
            | Self::QueueFull { retry_after }
            | Self::Draining { retry_after }
            | Self::FleetLost { retry_after, .. }
            | Self::OwnLimit { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
