//! Counts a run's refusals: by rule, and those because of too long a wait, a private address or a port.

use crate::gate::Reported;
use crate::policy::{EgressReason, EntryEvidence, Refusal, is_background};
use crate::proxy::RecentDecision;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The refusals so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    rules: HashMap<RuleTally, RuleUse>,
    /// Product tokens of the crawler that was refused last, separated by commas.
    pub product_tokens: Option<Arc<str>>,
    /// Refused background requests of browsers, which are counted nowhere else here.
    pub background: u64,
    /// URLs of the first requests that were refused because the wait was too long, without duplicates.
    pub too_long: Vec<Box<str>>,
    pub too_long_in_all: u64,
    /// Number of requests refused because their address is not public. `private` is the first such address.
    pub private_in_all: u64,
    pub private: Option<IpAddr>,
    /// The first few ports for which requests were refused.
    pub ports: BTreeSet<u16>,
    /// The longest wait because of which a request was refused. A lower bound: refused requests are not in the queue, and so do not make
    /// each other's waits longer.
    pub longest_wait: Duration,
}

/// The requests that a rule has refused.
#[derive(Debug, Default)]
pub(super) struct RuleUse {
    pub requests: u64,
    /// URLs of the first requests, without duplicates.
    pub urls: Vec<Box<str>>,
}

/// A rule that refuses requests.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct RuleTally {
    /// The URL of the site's file, the key of an operator's rule, or `the sites' answers`.
    pub file: Box<str>,
    /// Line number in a robots.txt, from 1.
    pub line: Option<u32>,
    pub text: Box<str>,
}

impl Tally {
    pub fn add(&mut self, decision: &RecentDecision) {
        let Reported::Refused(refusal) = &decision.what else { return };
        // In report mode the request was sent.
        if !decision.enforced {
            return;
        }
        if decision.url.as_deref().is_some_and(is_background) {
            self.background += 1;
            return;
        }
        if let Some(rule) = RuleTally::of(refusal)
            && (self.rules.len() < MOST_RULES || self.rules.contains_key(&rule))
        {
            let used = self.rules.entry(rule).or_default();
            used.requests += 1;
            note(&mut used.urls, decision, MOST_URLS_OF_A_RULE);
        }
        match &**refusal {
            Refusal::Disallowed { product_tokens, .. } | Refusal::UsageDisallowed { product_tokens, .. } => {
                self.product_tokens = Some(Arc::clone(product_tokens));
            }
            Refusal::EgressDenied { why: EgressReason::Address { address, .. } } => {
                self.private_in_all += 1;
                self.private.get_or_insert(*address);
            }
            Refusal::EgressDenied { why: EgressReason::Port(port) } if self.ports.len() < MOST_PORTS => {
                self.ports.insert(*port);
            }
            // With a longer `--max-wait`, requests for a paused host are held, too.
            Refusal::CrawlDelay { retry_after, .. } | Refusal::HostPaused { retry_after, .. } => {
                self.too_long_in_all += 1;
                self.longest_wait = self.longest_wait.max(*retry_after);
                note(&mut self.too_long, decision, MOST_URLS);
            }
            _ => {}
        }
    }

    /// The rules that refused the most requests, in descending order.
    pub fn top(&self, most: usize) -> Vec<(&RuleTally, &RuleUse)> {
        let mut all: Vec<_> = self.rules.iter().collect();
        all.sort_by(|(a, more), (b, less)| less.requests.cmp(&more.requests).then(a.cmp(b)));
        all.truncate(most);
        all
    }
}

/// Adds the decision's URL, unless it is in the list, or the list is full.
fn note(urls: &mut Vec<Box<str>>, decision: &RecentDecision, most: usize) {
    let new = decision.url.iter().filter(|_| urls.len() < most).find(|url| !urls.contains(url));
    urls.extend(new.cloned());
}

impl RuleTally {
    fn of(refusal: &Refusal) -> Option<Self> {
        let (file, line, text) = match refusal {
            Refusal::Disallowed { authority, rule: Some(rule), .. } => {
                (authority.robots_url(), Some(rule.line), format!("{}: {}", rule.key, rule.value))
            }
            Refusal::Disallowed { authority, rule: None, .. } => {
                (authority.robots_url(), None, "everything is disallowed, without a rule".to_owned())
            }
            Refusal::UsageDisallowed { authority, preference, .. } => {
                let text = format!("{}: {}", preference.key, preference.value);
                (authority.robots_url(), Some(preference.line), text)
            }
            Refusal::EntryReserved(evidence) => {
                let EntryEvidence { url, entry, location, term, .. } = &**evidence;
                let text = match term {
                    Some(term) => format!("content {entry}: {location}; {term}"),
                    None => format!("entry {entry}: {location}"),
                };
                (url.to_string(), None, text)
            }
            Refusal::AnswerReserved(reservation) => {
                let text = format!("{}: {}", reservation.field.as_str(), reservation.value);
                ("the sites' answers".to_owned(), None, text)
            }
            Refusal::UsageUnreadable { of, why } => (of.to_string(), None, format!("it cannot be read ({why})")),
            Refusal::RobotsUnreachable { authority, why, .. } => {
                (authority.robots_url(), None, format!("it could not be read ({why})"))
            }
            Refusal::OperatorDenied { host, pattern, .. } => {
                (format!("hosts: {host}"), None, format!("deny: {pattern}"))
            }
            Refusal::InterceptDenied { key } => (key.to_string(), None, "deny".to_owned()),
            // Names the hours, as no `--max-wait` helps outside of a site's hours.
            Refusal::Closed { authority, hours, .. } => {
                (authority.robots_url(), None, format!("Visit-time: {hours} (UTC)"))
            }
            // Other refusals are not decided by a rule.
            _ => return None,
        };
        Some(RuleTally { file: file.into(), line, text: text.into() })
    }
}

impl std::fmt::Display for RuleTally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line} `{}`", self.file, self.text),
            None => write!(f, "{} `{}`", self.file, self.text),
        }
    }
}

const MOST_RULES: usize = 10_000;
const MOST_URLS: usize = 1000;
const MOST_PORTS: usize = 5;
const MOST_URLS_OF_A_RULE: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Authority;
    use std::time::SystemTime;

    fn refused(refusal: Refusal, enforced: bool) -> RecentDecision {
        let (url, what) = (Some("http://a.example/".into()), Reported::from(refusal));
        let client = std::net::Ipv4Addr::LOCALHOST.into();
        RecentDecision { number: 1, at: SystemTime::now(), client, user: None, url, what, enforced }
    }

    #[test]
    fn browser_background_requests_are_counted_but_not_listed() {
        let mut tally = Tally::default();
        let (authority, retry_after) = (Authority::from_url("https://update.googleapis.com").unwrap(), Duration::ZERO);
        let unread = Refusal::RobotsUnreachable { retry_after, authority, why: "status 503".into() };
        let mut decision = refused(unread, true);
        decision.url = Some("https://update.googleapis.com/service/update2".into());
        tally.add(&decision);
        decision.what = Reported::from(Refusal::CrawlDelay { retry_after: Duration::from_secs(7), max_wait: None });
        tally.add(&decision);
        assert_eq!((tally.background, tally.top(5).len(), tally.too_long_in_all), (2, 0, 0));
    }

    #[test]
    fn only_crawl_delay_refusals_suggest_a_longer_max_wait() {
        let [short, long, longest] = [5, 7, 60].map(Duration::from_secs);
        let mut tally = Tally::default();
        tally.add(&refused(Refusal::CrawlDelay { retry_after: long, max_wait: None }, true));
        tally.add(&refused(Refusal::CrawlDelay { retry_after: short, max_wait: None }, true));
        tally.add(&refused(Refusal::QueueFull { retry_after: longest }, true));
        assert_eq!((tally.too_long_in_all, tally.longest_wait), (2, long));
        let paused = Duration::from_secs(30);
        tally.add(&refused(Refusal::HostPaused { retry_after: paused, refusals: 5 }, true));
        assert_eq!((tally.too_long_in_all, tally.longest_wait), (3, paused));
    }

    #[test]
    fn address_refusals_are_counted_with_their_first_address() {
        let mut tally = Tally::default();
        for address in [[127, 0, 0, 1], [10, 0, 0, 1]].map(IpAddr::from) {
            let why = EgressReason::Address { address, range: "Loopback".into(), source: "RFC 1122".into() };
            tally.add(&refused(Refusal::EgressDenied { why }, true));
        }
        tally.add(&refused(Refusal::EgressDenied { why: EgressReason::Port(22) }, true));
        assert_eq!((tally.private_in_all, tally.private), (2, Some([127, 0, 0, 1].into())));
    }

    #[test]
    fn repeated_refusals_name_their_url_once() {
        let mut tally = Tally::default();
        for _ in 0..3 {
            tally.add(&refused(Refusal::CrawlDelay { retry_after: Duration::from_secs(7), max_wait: None }, true));
        }
        assert_eq!((tally.too_long_in_all, &*tally.too_long), (3, &["http://a.example/".into()][..]));
    }

    #[test]
    fn report_mode_decisions_are_not_counted_as_refused() {
        let mut tally = Tally::default();
        let authority = Authority::from_url("http://a.example").unwrap();
        let unread = Refusal::RobotsUnreachable { retry_after: Duration::ZERO, authority, why: "status 503".into() };
        tally.add(&refused(unread, false));
        tally.add(&refused(Refusal::CrawlDelay { retry_after: Duration::from_secs(7), max_wait: None }, false));
        assert_eq!((tally.top(5).len(), tally.too_long_in_all, tally.longest_wait), (0, 0, Duration::ZERO));
    }
}
