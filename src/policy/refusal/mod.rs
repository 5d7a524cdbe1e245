//! Why a request is not forwarded: one variant for each reason, with the evidence. HTTP statuses are chosen by `proxy::respond::status`.
//! Pure.

mod egress_reason;
mod evidence;
mod sentence;

pub(crate) use super::clip::shortened;
pub use egress_reason::{EgressReason, ListedBy};
pub use evidence::{EntryEvidence, LineEvidence, Reservation};

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
        /// The authority of the robots.txt.
        authority: Authority,
        /// The product tokens for which robots.txt was read, separated by commas.
        product_tokens: Arc<str>,
        /// `None`: everything is disallowed without a rule (`on_unavailable: disallow` and the like).
        rule: Option<LineEvidence>,
    },
    /// A preference in robots.txt (Content-Signal, Content-Usage), or a group that names a purpose, refuses the declared purpose.
    UsageDisallowed {
        authority: Authority,
        product_tokens: Arc<str>,
        /// The purpose as the operator declared it: `ai-train`, `search`, …
        purpose: Box<str>,
        preference: LineEvidence,
    },
    /// The site's tdmrep.json reserves the URL from the declared purpose, or its licence file does not license the URL for that purpose.
    EntryReserved(Box<EntryEvidence>),
    /// The origin's answer says no to the declared purpose, so its body is not delivered.
    AnswerReserved(Box<Reservation>),
    /// A page or file that may say no to the declared purpose exists, but cannot be read.
    UsageUnreadable {
        /// `the page`, or the URL of a licence file.
        of: Box<str>,
        why: Box<str>,
    },
    /// robots.txt could not be read, and there is no usable copy: complete disallow (RFC 9309 §2.3.1.4).
    RobotsUnreachable {
        /// Time until robots.txt is fetched again.
        retry_after: Duration,
        authority: Authority,
        /// `status 503`, `timed out after 10 s`, …
        why: Box<str>,
    },
    /// The request's slot would come later than the request may wait.
    CrawlDelay {
        /// Time until the request's slot would have come.
        retry_after: Duration,
        /// Maximum time that the request may wait. `None`: the request waited for robots.txt, so the time of its slot is unknown.
        max_wait: Option<Duration>,
    },
    /// The host has refused so many requests in a row that it is paused for longer than the request may wait.
    HostPaused { retry_after: Duration, refusals: u32 },
    /// The page was fetched recently, and may not be fetched again yet.
    RevisitTooSoon { retry_after: Duration },
    /// The budget of this period is used up.
    BudgetSpent {
        /// Time until the next period. `None`: the budget does not allow this request in any period.
        retry_after: Option<Duration>,
        /// The key of the budget: a pace key, or `user=NAME`; for a budget of money, followed by ` in USD` (its currency).
        of: Box<str>,
        budget: Budget,
    },
    /// The site is closed at this time of day (`Visit-time`, if enforced).
    Closed {
        /// Time until the site opens.
        retry_after: Duration,
        authority: Authority,
        hours: VisitTime,
    },
    /// Too many requests are waiting, for this host, in all, or of this user.
    QueueFull { retry_after: Duration },
    /// The user has the maximum number of connections to this proxy.
    ConnectionLimit { limit: usize },
    /// The target must not be reached through this proxy.
    EgressDenied { why: EgressReason },
    /// The client may not use this proxy.
    ClientDenied {
        /// Whether the client may retry with credentials, or with other credentials.
        credentials: bool,
        /// `no credentials`, `address 192.0.2.1 is not in access.clients`, …; never the credentials themselves.
        why: Box<str>,
    },
    /// The targets of CONNECT, SNI and the request inside differ.
    AuthorityMismatch {
        /// The target that the connection was opened for.
        connection: Box<str>,
        /// The target that the request names.
        request: Box<str>,
    },
    /// The request is malformed or ambiguous.
    BadRequest { detail: Box<str> },
    /// The request addresses the proxy as an origin, as when a user opens its address in a browser.
    NotAProxyRequest,
    /// The request head is over the limit, in bytes.
    HeadTooLarge { limit: usize },
    /// The request head did not arrive in time.
    HeadTimeout { limit: Duration },
    /// The request has an expectation other than 100-continue (RFC 9110 §10.1.1).
    ExpectationFailed,
    /// The request has passed through this instance already, or is for one of its listeners.
    Loop,
    /// The proxy is shutting down, and accepts no new waiting requests.
    Draining { retry_after: Duration },
    /// The fleet's server is unreachable, and nothing may be sent without it.
    FleetLost {
        retry_after: Duration,
        /// Whether the server was never reached, so that the number of instances sharing the pace is unknown.
        is_uncounted: bool,
    },
    /// This proxy or machine has reached a limit, for example on descriptors or long files, or lacks a resolver. The host is not at fault.
    OwnLimit {
        retry_after: Duration,
        /// The limit, or the system's error message.
        why: Box<str>,
    },
    /// A rule of the operator denies the URL.
    OperatorDenied {
        /// The entry of `hosts` with the rule.
        host: Box<str>,
        /// The path pattern as configured.
        pattern: Box<str>,
        /// The form of the path that the pattern matches, if this is not the path as sent but a form that servers make of it.
        matched_path: Option<Box<str>>,
    },
    /// The operator denies https to the host (`intercept: deny`).
    InterceptDenied {
        /// The configuration key.
        key: Box<str>,
    },
    /// The client accepts only a stored answer (`only-if-cached`), and there is no usable one.
    NotStored,
    /// Comparing rules with this URL takes more steps than one decision may.
    RulesTooComplex {
        /// The rules: the URL of the file, or the configuration key.
        rules: Box<str>,
    },
}

impl Refusal {
    /// The refusal of a malformed request, with the reason. A long reason is cut, as it may quote the request.
    pub fn bad_request(detail: impl AsRef<str>) -> Self {
        Self::BadRequest { detail: shortened(detail.as_ref()).into() }
    }

    /// Stable name of the refusal: the last part of the problem type (RFC 9457), and the label in logs and metrics.
    pub fn slug(&self) -> &'static str {
        match self {
            Self::Disallowed { .. } => "robots-disallowed",
            Self::UsageDisallowed { .. } | Self::EntryReserved(_) | Self::AnswerReserved(_) => "usage-disallowed",
            Self::UsageUnreadable { .. } => "usage-unreadable",
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
            Self::NotStored => "not-stored",
            Self::RulesTooComplex { .. } => "rules-too-complex",
        }
    }

    /// The line of robots.txt that decided.
    pub fn line(&self) -> Option<&LineEvidence> {
        match self {
            Self::Disallowed { rule, .. } => rule.as_ref(),
            Self::UsageDisallowed { preference, .. } => Some(preference),
            _ => None,
        }
    }

    /// The entry of tdmrep.json or of the licence file that decided.
    pub(super) fn reservation(&self) -> Option<&EntryEvidence> {
        let Self::EntryReserved(evidence) = self else { return None };
        Some(evidence)
    }

    /// The configuration key that decided, if one refuses this target.
    pub fn setting(&self) -> Option<String> {
        Some(match self {
            Self::EgressDenied { why } => why.setting(),
            Self::InterceptDenied { key } => key.to_string(),
            Self::OperatorDenied { host, .. } => format!("hosts.{host}.deny"),
            _ => return None,
        })
    }

    /// Time until a retry makes sense. `None`: waiting does not help.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RobotsUnreachable { retry_after, .. }
            | Self::CrawlDelay { retry_after, .. }
            | Self::HostPaused { retry_after, .. }
            | Self::RevisitTooSoon { retry_after }
            | Self::Closed { retry_after, .. }
            | Self::QueueFull { retry_after }
            | Self::Draining { retry_after }
            | Self::FleetLost { retry_after, .. }
            | Self::OwnLimit { retry_after, .. } => Some(*retry_after),
            Self::BudgetSpent { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
