//! Each refusal as one sentence, for the person who reads the answer or the log. Pure.

use std::fmt::{self, Write};
use std::time::Duration;

use super::Refusal;
use super::evidence::{Reservation, served_as};

impl Refusal {
    /// Writes the sentence.
    pub fn write(&self, f: &mut impl Write) -> fmt::Result {
        let wait = Seconds(self.retry_after().unwrap_or_default());
        match self {
            Self::Disallowed { authority, product_tokens, rule: Some(rule) } => {
                // The most frequent refusal is written without the formatter.
                authority.write_url(ROBOTS_TXT, f)?;
                f.write_str(" disallows this URL for ")?;
                f.write_str(named(product_tokens))?;
                f.write_str(": ")?;
                rule.write(f)
            }
            Self::Disallowed { authority, product_tokens, rule: None } => write!(
                f,
                "{authority}/robots.txt is missing or denied, which disallows everything for {}, as configured",
                named(product_tokens)
            ),
            Self::UsageDisallowed { authority, product_tokens, purpose, preference } => {
                let tokens = named(product_tokens);
                write!(
                    f,
                    "{authority}/robots.txt disallows this URL for the purpose `{purpose}`, for {tokens}: {preference}"
                )
            }
            Self::EntryReserved(evidence) => write!(f, "{evidence}"),
            Self::AnswerReserved(reservation) => {
                let Reservation { field, value, purpose } = &**reservation;
                write!(f, "the site's answer says no to the purpose `{purpose}`: `{}: {value}`", field.as_str())
            }
            Self::UsageUnreadable { of, why } => {
                write!(f, "the usage preferences of {of} cannot be read: {why}")
            }
            Self::RobotsUnreachable { authority, why, .. } => write!(
                f,
                "{authority}/robots.txt could not be read ({why}), so nothing is allowed; next attempt in {wait}"
            ),
            // The forecast slot was within `max_wait`, but other requests did not finish.
            Self::CrawlDelay { retry_after, max_wait: Some(max_wait) } if retry_after <= max_wait => {
                let most = Seconds(*max_wait);
                write!(f, "crawl-delay: no slot within max_wait {most}: other requests are in flight or ahead; try again in {wait}")
            }
            Self::CrawlDelay { max_wait: Some(max_wait), .. } => {
                write!(f, "crawl-delay: next slot in {wait}, over max_wait {}", Seconds(*max_wait))
            }
            Self::CrawlDelay { max_wait: None, .. } => {
                write!(f, "crawl-delay: waited too long for robots.txt; try again in {wait}")
            }
            Self::HostPaused { refusals, .. } => {
                write!(f, "host paused after {refusals} refusals in a row; try again in {wait}")
            }
            Self::RevisitTooSoon { .. } => {
                write!(f, "this page was fetched less than `min_revisit` ago; try again in {wait}")
            }
            Self::BudgetSpent { of, budget, retry_after: None } => {
                write!(f, "budget of {of} never allows this: {budget} (UTC)")
            }
            Self::BudgetSpent { of, budget, .. } => {
                write!(f, "budget of {of} spent: {budget} (UTC); try again in {wait}")
            }
            Self::Closed { authority, hours, .. } => write!(
                f,
                "{authority}/robots.txt allows crawling only during `Visit-time: {hours}` (UTC); the site opens in {wait}"
            ),
            Self::QueueFull { .. } => {
                write!(f, "too many requests are waiting for this host, in all, or of this user; try again in {wait}")
            }
            Self::ConnectionLimit { limit } => {
                write!(f, "this user already has {limit} connections open, the maximum allowed")
            }
            Self::EgressDenied { why } => write!(f, "blocked by {why}"),
            Self::ClientDenied { why, .. } => write!(f, "this client is not allowed to use the proxy: {why}"),
            Self::AuthorityMismatch { connection, request } => {
                write!(f, "the connection was opened for {connection}, but the request inside it is for {request}")
            }
            Self::BadRequest { detail } => write!(f, "the request is malformed: {detail}"),
            Self::NotAProxyRequest => f.write_str(
                "this is a forward proxy: a request names the whole URL (`GET http://host/path`) or begins with CONNECT",
            ),
            Self::HeadTooLarge { limit } => write!(f, "the request head is larger than {limit} bytes"),
            Self::HeadTimeout { limit } => write!(f, "the request head was not complete within {}", Seconds(*limit)),
            Self::ExpectationFailed => f.write_str("the only supported value of Expect is a single `100-continue`"),
            Self::Loop => f.write_str("the request is for the proxy itself, or would come back to it"),
            Self::Draining { .. } => write!(f, "the proxy is shutting down; try again in {wait}"),
            Self::FleetLost { is_uncounted: true, .. } => write!(
                f,
                "the server through which this fleet of proxies shares its paces has not been reached since this proxy was started, so \
                 the number of proxies is unknown: the operator can set `fleet.instances`; try again in {wait}"
            ),
            Self::FleetLost { is_uncounted: false, .. } => write!(
                f,
                "the server through which this fleet of proxies shares its paces is out of reach (`on_fleet_loss: \
                 refuse`); try again in {wait}"
            ),
            Self::OwnLimit { why, .. } => {
                write!(f, "the proxy has reached a limit of its own ({why}); try again in {wait}")
            }
            Self::OperatorDenied { host, pattern, matched_path } => {
                write!(f, "the operator of this proxy denies this URL: `deny: {pattern}` for the host {host}")?;
                served_as(f, matched_path)
            }
            Self::InterceptDenied { key } => {
                write!(f, "the operator of this proxy denies https to this host: `{key}: deny`")
            }
            Self::NotStored => f.write_str("the cache has no usable answer to this request (`only-if-cached`)"),
            Self::RulesTooComplex { rules } => write!(
                f,
                "comparing this URL with {rules} takes too many steps: the URL is very long or has many forms, or patterns \
                 have many stars, almost match, or are in thousands of groups. What cannot be compared is not allowed"
            ),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f)
    }
}

/// The path of an authority's rules.
const ROBOTS_TXT: &str = "/robots.txt";

/// The names of the crawlers concerned, as shown to people.
fn named(product_tokens: &str) -> &str {
    if product_tokens.is_empty() { "every crawler" } else { product_tokens }
}

/// A duration shown in seconds, rounded up to a tenth, so that nobody retries too early.
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
