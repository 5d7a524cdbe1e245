//! Why a request is not forwarded (one variant per outcome of the decision), with the evidence. Pure; knows no HTTP
//! status: `proxy::respond` alone chooses one.

use std::fmt::{self, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::{Authority, Budget, MiningEvidence, Reservation};
use crate::robots::{PreferenceRef, RuleKind, RuleRef, VisitTime};

/// A refusal. `Display` is one sentence for the person who reads the answer or the log.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// The request has come through this instance already, or is for one of its own listeners.
    Loop,
    /// The proxy is shutting down and takes no new waiters.
    Draining { retry_after: Duration },
    /// The server that the fleet shares is out of reach, and nothing may go without it.
    FleetLost { retry_after: Duration },
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
    /// Servers may take the path in more ways than can be judged.
    AmbiguousPath,
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
            Self::UsageDisallowed { .. } | Self::MiningReserved(_) | Self::AnswerReserved(_) => "usage-disallowed",
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
            Self::Loop => "loop",
            Self::Draining { .. } => "draining",
            Self::FleetLost { .. } => "fleet-lost",
            Self::OwnLimit { .. } => "out-of-resources",
            Self::OperatorDenied { .. } => "operator-denied",
            Self::AmbiguousPath => "ambiguous-path",
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
            | Self::FleetLost { retry_after }
            | Self::OwnLimit { retry_after, .. } => Some(*retry_after),
            Self::Disallowed { .. }
            | Self::UsageDisallowed { .. }
            | Self::MiningReserved(_)
            | Self::AnswerReserved(_)
            | Self::ConnectionLimit { .. }
            | Self::EgressDenied { .. }
            | Self::ClientDenied { .. }
            | Self::AuthorityMismatch { .. }
            | Self::BadRequest { .. }
            | Self::NotAProxyRequest
            | Self::HeadTooLarge { .. }
            | Self::HeadTimeout { .. }
            | Self::Loop
            | Self::OperatorDenied { .. }
            | Self::AmbiguousPath => None,
        }
    }
}

impl Refusal {
    /// Its sentence, written to where it is wanted.
    pub fn write(&self, f: &mut impl Write) -> fmt::Result {
        match self {
            Self::Disallowed { authority, product_tokens, rule: Some(rule) } => {
                // The one that is told most, without the formatter.
                authority.write_url(ROBOTS_TXT, f)?;
                f.write_str(" disallows this URL for ")?;
                f.write_str(named(product_tokens))?;
                f.write_str(": ")?;
                rule.write(f)
            }
            Self::Disallowed { authority, product_tokens, rule: None } => {
                let tokens = named(product_tokens);
                write!(f, "{authority}/robots.txt is missing or denied, and is configured to disallow everything for {tokens}")
            }
            Self::UsageDisallowed { authority, product_tokens, purpose, preference } => {
                let tokens = named(product_tokens);
                write!(
                    f,
                    "{authority}/robots.txt says no to the purpose `{purpose}` of this URL for {tokens}: {preference}"
                )
            }
            Self::MiningReserved(evidence) => write!(f, "{evidence}"),
            Self::AnswerReserved(reservation) => {
                let Reservation { field, value, purpose } = &**reservation;
                write!(f, "the site's answer says no to the purpose `{purpose}`: `{}: {value}`", field.as_str())
            }
            Self::RobotsUnreachable { retry_after, authority, why } => {
                let wait = Seconds(*retry_after);
                write!(
                    f,
                    "{authority}/robots.txt could not be read ({why}), so nothing is allowed; next attempt in {wait}"
                )
            }
            Self::CrawlDelay { retry_after, max_wait: Some(max_wait) } => {
                let (slot, max_wait) = (Seconds(*retry_after), Seconds(*max_wait));
                write!(f, "crawl-delay: next slot in {slot}, over max_wait {max_wait}")
            }
            Self::CrawlDelay { retry_after, max_wait: None } => {
                let wait = Seconds(*retry_after);
                write!(f, "crawl-delay: waited too long for robots.txt; try again in {wait}")
            }
            Self::HostPaused { retry_after, refusals } => {
                let wait = Seconds(*retry_after);
                write!(f, "host paused after {refusals} refusals in a row; try again in {wait}")
            }
            Self::RevisitTooSoon { retry_after } => {
                write!(f, "fetched not long ago: again in {} (min_revisit)", Seconds(*retry_after))
            }
            Self::BudgetSpent { retry_after, of, budget } => {
                let wait = Seconds(*retry_after);
                write!(f, "budget of {of} spent: {budget} (UTC); try again in {wait}")
            }
            Self::Closed { retry_after, authority, hours } => {
                let wait = Seconds(*retry_after);
                write!(
                    f,
                    "{authority}/robots.txt allows crawling only during `Visit-time: {hours}` (UTC); it opens in {wait}"
                )
            }
            Self::QueueFull { retry_after } => {
                write!(
                    f,
                    "too many requests are waiting for this host; try again in {}",
                    Seconds(*retry_after)
                )
            }
            Self::ConnectionLimit { limit } => {
                write!(f, "this user already has {limit} connections open, the maximum allowed")
            }
            Self::EgressDenied { why } => write!(f, "blocked by {why}"),
            Self::ClientDenied { credentials: _, why } => write!(f, "this client is not allowed to use the proxy: {why}"),
            Self::AuthorityMismatch { connection, request } => {
                write!(
                    f,
                    "the connection was opened for {connection}, the request inside it is for {request}"
                )
            }
            Self::BadRequest { detail } => write!(f, "the request is malformed: {detail}"),
            Self::NotAProxyRequest => f.write_str(
                "this is a forward proxy: a request names the whole URL (`GET http://host/path`) or begins with CONNECT",
            ),
            Self::HeadTooLarge { limit } => write!(f, "the request head is larger than {limit} bytes"),
            Self::HeadTimeout { limit } => write!(f, "the request head was not complete within {}", Seconds(*limit)),
            Self::Loop => f.write_str("the request is for the proxy itself, or would come back to it"),
            Self::Draining { retry_after } => {
                write!(f, "the proxy is shutting down; try again in {}", Seconds(*retry_after))
            }
            Self::FleetLost { retry_after } => {
                write!(
                    f,
                    "the server that this fleet of proxies shares its paces through is out of reach (`on_fleet_loss: \
                     refuse`); try again in {}",
                    Seconds(*retry_after)
                )
            }
            Self::OwnLimit { retry_after, why } => {
                let wait = Seconds(*retry_after);
                write!(f, "the proxy's own machine cannot open connections now ({why}); try again in {wait}")
            }
            Self::OperatorDenied { host, pattern, matched_path } => {
                write!(
                    f,
                    "the operator of this proxy denies this URL: `deny: {pattern}` for the host {host}"
                )?;
                served_as(f, matched_path)
            }
            Self::AmbiguousPath => f.write_str(
                "servers may take this URL's path in too many ways for each to be judged: it mixes escapes, backslashes, \
                 parameters and empty segments at great length",
            ),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f)
    }
}

/// The rule of robots.txt that decided, as written there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleEvidence {
    /// From 1.
    pub line: u32,
    /// `Allow:` or `Disallow:`.
    pub allow: bool,
    /// The path pattern as written.
    pub pattern: Box<str>,
    /// What it matches, where that is not the path as sent but one that servers take it for.
    pub matched_path: Option<Box<str>>,
}

impl RuleEvidence {
    pub(super) fn new(rule: RuleRef<'_>, matched_path: Option<Box<str>>) -> Self {
        let allow = rule.kind() == RuleKind::Allow;
        Self { line: rule.line(), allow, pattern: rule.pattern().into(), matched_path }
    }

    /// The key of its line.
    pub fn key(&self) -> &'static str {
        if self.allow { "Allow" } else { "Disallow" }
    }

    fn write(&self, f: &mut impl Write) -> fmt::Result {
        f.write_str("line ")?;
        f.write_str(itoa::Buffer::new().format(self.line))?;
        f.write_str(", `")?;
        f.write_str(self.key())?;
        f.write_str(": ")?;
        f.write_str(&self.pattern)?;
        f.write_str("`")?;
        served_as(f, &self.matched_path)
    }
}

impl fmt::Display for RuleEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f)
    }
}

fn served_as(f: &mut impl Write, matched_path: &Option<Box<str>>) -> fmt::Result {
    match matched_path {
        Some(path) => write!(f, ", which matches `{path}`: servers may take this URL's path for that"),
        None => Ok(()),
    }
}

/// The usage preference of robots.txt that decided, as written there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreferenceEvidence {
    /// From 1.
    pub line: u32,
    /// `Content-Signal` or `Content-Usage`.
    pub key: Box<str>,
    /// `/ train-ai=n`.
    pub value: Box<str>,
    /// What it is about, where that is not the path as sent but one that servers take it for.
    pub matched_path: Option<Box<str>>,
}

impl PreferenceEvidence {
    pub(super) fn new(preference: PreferenceRef<'_>, matched_path: Option<Box<str>>) -> Self {
        Self { line: preference.line(), key: preference.key().into(), value: preference.value().into(), matched_path }
    }
}

impl fmt::Display for PreferenceEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, `{}: {}`", self.line, self.key, self.value)?;
        served_as(f, &self.matched_path)
    }
}

/// What about the target is denied.
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// Where an authority's rules are.
const ROBOTS_TXT: &str = "/robots.txt";

/// For whom something holds.
fn named(product_tokens: &str) -> &str {
    if product_tokens.is_empty() { "every crawler" } else { product_tokens }
}

/// Up to the next tenth of a second, so that nobody is told to come too early.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = self.0.as_nanos().div_ceil(100_000_000);
        match tenths % 10 {
            0 => write!(f, "{} s", tenths / 10),
            tenth => write!(f, "{}.{tenth} s", tenths / 10),
        }
    }
}

#[cfg(test)]
mod tests;
