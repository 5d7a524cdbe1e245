//! The content of a report, independent of its format, and texts that the formats share.

use crate::cli::{REFUSED_AFTER_ANSWER, counted};
use crate::evidence::{By, Group, MOST_NAMES, Report, Selection};
use crate::policy::is_unseen;
use clap::ValueEnum;
use std::path::Path;
use std::time::SystemTime;

/// Everything that a report contains.
pub struct Page<'a> {
    pub directory: &'a Path,
    pub by: By,
    pub selection: &'a Selection,
    pub made: SystemTime,
    pub report: &'a Report,
}

impl Page<'_> {
    /// The value of `--by`, which is also the heading of the first column.
    pub fn what(&self) -> String {
        self.by.to_possible_value().expect("no value is hidden").get_name().to_owned()
    }
}

pub fn named(name: &str) -> &str {
    if name.is_empty() { "(none)" } else { name }
}

pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// Says how many of the refused requests the site has seen.
pub fn refused(group: &Group) -> String {
    let after = group.refused_after_answer;
    match group.refused - after {
        0 => format!("{after} {REFUSED_AFTER_ANSWER}"),
        before if after == 0 => format!("{before} not asked"),
        before => format!("{before} not asked, {after} {REFUSED_AFTER_ANSWER}"),
    }
}

/// Formats the requests by outcome. The figures add up to the total number of requests.
pub fn outcomes(group: &Group) -> String {
    let refused = || format!("refused {}: {}", group.refused, refused(group));
    [
        (group.delivered(), format!("delivered {}", group.delivered())),
        (group.status_4xx, format!("the site answered 4xx {}", group.status_4xx)),
        (group.status_5xx, format!("the site answered 5xx {}", group.status_5xx)),
        (group.answered, format!("answered by the proxy {}", group.answered)),
        (group.refused, refused()),
        (group.failed, format!("failed {}", group.failed)),
    ]
    .into_iter()
    .filter_map(|(count, said)| (count > 0).then_some(said))
    .collect::<Vec<_>>()
    .join("; ")
}

/// The User-Agents that sites saw; the User-Agents of the proxy's own fetches come last. The flag: there may be more.
pub fn agents<'a>(page: &'a Page<'_>) -> (Vec<&'a str>, bool) {
    let (agents, own) = (&page.report.total.agents, page.report.basis.own_agents());
    let others = agents.iter().map(|agent| named(agent)).filter(|agent| !own.contains(agent));
    (others.chain(own.iter().copied()).collect(), agents.len() == MOST_NAMES)
}

/// A sentence on the requests without a declared use. `None`: each request declared a use.
pub fn undeclared(group: &Group) -> Option<String> {
    (group.undeclared > 0).then(|| {
        let (count, of) = (group.undeclared, counted(group.requests, "request"));
        format!("no purpose declared for {count} of {of}: the sites' reservations of use were not applied to them")
    })
}

/// Says how many requests the operator's overrides let through.
pub fn let_through(group: &Group) -> String {
    let mut out = format!(
        "{} let through as configured: {} only reported (`mode: report`, or `report` under `usage`), {} without regard to robots.txt \
         (`robots: ignore`, `allow`)",
        counted(group.let_through, "request"),
        group.reported,
        group.let_through - group.reported
    );
    if group.let_through_reserved > 0 {
        out += &format!("; a reservation of use is on record for {}", group.let_through_reserved);
    }
    out
}

/// Explains a reason to people who have not read our documentation.
pub fn meaning(reason: &str) -> &'static str {
    match reason {
        "allowed-by-rule" => "a rule of the site's robots.txt allows it",
        "no-matching-rule" => "no rule of the site's robots.txt matches it, which allows it",
        "no-robots-txt" => "the site has no robots.txt, which allows everything",
        "robots-txt" => "robots.txt itself may always be fetched",
        "allowed-by-operator" => "the operator's own rules allow it, whatever robots.txt says",
        "robots-ignored" => "the operator has configured that robots.txt is ignored for this host",
        "long-unreachable" => {
            "robots.txt could not be read for 30 days, and the operator has configured that this allows everything"
        }
        "robots-disallowed" => "a rule of the site's robots.txt disallows it",
        "usage-disallowed" => "the site says no to the declared use",
        "usage-unreadable" => "the site's usage preferences could not be read",
        "robots-unreachable" => "the site's robots.txt could not be read, which allows nothing",
        "crawl-delay" => "it came too soon after the request before it, or outside the hours of the site's robots.txt",
        "held" => "it would have been held back for a while, but nothing is enforced",
        "queue-full" => "too many requests were waiting already: for the host, in all, or of the user",
        "operator-denied" => "the operator's own rules forbid it",
        "egress-denied" => "its address, port, host or method is not allowed",
        "client-denied" => "the client may not use this proxy",
        "host-paused" => "the site had refused several requests, so it got none for a while",
        "revisit-too-soon" => {
            "the page had been fetched a short while before: the operator sets a minimum time between two fetches"
        }
        "budget-spent" => "the budget that the operator has set for the site or the user was used up",
        "connection-limit" => "the user already had the maximum number of connections",
        "authority-mismatch" => "it named another site than the connection was opened for",
        "rules-too-complex" => "comparing its URL with the site's rules would have taken too long",
        "bad-request" | "head-too-large" | "head-timeout" | "expectation-failed" => "it was not a valid request",
        "loop" => "it was for this proxy itself, or had come through it before",
        "draining" => "the proxy was stopping",
        "not-stored" => "its client accepts only a stored answer, and there is none",
        "fleet-lost" => "the server that several proxies share was out of reach",
        "out-of-resources" => {
            "the proxy's machine had no file descriptors, memory or ports left to send it, or no name server"
        }
        _ => UNKNOWN,
    }
}

const UNKNOWN: &str = "see the documentation";
/// Maximum number of rows in a table; JSON has all rows.
pub const MOST_SHOWN: usize = 1000;

/// Appends a character of untrusted text, escaped if it could begin a tag, hide text or change the direction of text in HTML or Markdown.
pub(super) fn put_text(out: &mut String, c: char) {
    match c {
        '&' => out.push_str("&amp;"),
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        c if is_unseen(c) => out.extend(c.escape_unicode()),
        c => out.push(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_slug_has_an_explanation() {
        let sources = [include_str!("../../policy/refusal/mod.rs"), include_str!("../../policy/explain.rs")];
        let slugs = sources.map(|source| source.split("fn slug(").nth(1).unwrap().split("\n    }\n").next().unwrap());
        let slugs: Vec<_> = slugs.iter().flat_map(|body| body.split('"').skip(1).step_by(2)).collect();
        assert!(slugs.len() > 20, "{slugs:?}");
        for slug in slugs {
            assert_ne!(meaning(slug), UNKNOWN, "{slug}");
        }
    }

    #[test]
    fn sizes_are_readable() {
        assert_eq!([0, 1023, 1536, 5 << 30].map(size), ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]);
    }
}
