//! The record of a request, and its interpretation: the figure of a report that counts the request, who decided, and whether the site
//! answered.

use crate::evidence::record::{Hash, from_hex};
use serde::{Deserialize, Deserializer, de};
use std::time::{Duration, SystemTime};

/// One request, and what was decided about it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Decision {
    pub client: String,
    pub user: Option<String>,
    pub method: Option<String>,
    pub url: Option<String>,
    pub product_tokens: Vec<String>,
    pub purpose: Vec<String>,
    pub outcome: String,
    /// `allowed`, `refused`, or `reported`; `None`: nothing was decided.
    pub verdict: Option<String>,
    pub reason: Option<String>,
    /// All reasons, if there are several.
    pub reasons: Vec<String>,
    pub rule: Option<String>,
    pub line: Option<u32>,
    /// Number of the deciding entry of a tdmrep.json or a licence file.
    pub entry: Option<u64>,
    pub robots: Option<SiteCopy>,
    pub tdmrep: Option<SiteCopy>,
    pub license_file: Option<SiteCopy>,
    /// Fields of the answer that reserve a use.
    pub signals: Option<String>,
    /// Terms in the answer: the URL of its licence, and (`price`) a price.
    pub license: Option<String>,
    pub price: Option<String>,
    #[serde(deserialize_with = "some_hash")]
    pub config: Option<Hash>,
    pub status: u16,
    /// Status of the site's answer, if it differs from `status`.
    pub origin_status: Option<u16>,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub held_ms: u64,
    /// Milliseconds from the request's arrival until it was sent to the site. `None`: it was not sent.
    pub sent_ms: Option<u64>,
    /// The User-Agent with which the request was sent.
    pub agent: Option<String>,
    pub origin_ms: Option<u64>,
    pub ms: u64,
}

impl Decision {
    /// The time at which the site could see the request: when the request was sent or, if it was never sent, when it arrived (`came`, the
    /// record's own time).
    pub fn seen(&self, came: SystemTime) -> SystemTime {
        self.sent_ms.and_then(|after| came.checked_add(Duration::from_millis(after))).unwrap_or(came)
    }

    /// The deciding rule. A rule of a tdmrep.json or licence file is preceded by the kind of file. `None`: no rule decided.
    pub fn named_rule(&self) -> Option<String> {
        let rule = self.rule.as_deref()?;
        Some(match self.entry {
            Some(_) if self.is_by_license() => format!("licence file: {rule}"),
            Some(_) => format!("tdmrep.json: {rule}"),
            None => rule.to_owned(),
        })
    }

    /// Every reason, the deciding one first.
    pub fn all_reasons(&self) -> impl Iterator<Item = &String> {
        let others = self.reasons.iter().filter(|other| Some(*other) != self.reason.as_ref());
        self.reason.iter().chain(others)
    }

    /// The figure of a report that counts the request.
    pub fn figure(&self) -> Figure {
        match (self.outcome.as_str(), self.site_status()) {
            _ if self.reason.as_deref() == Some("client-denied") => Figure::TurnedAway,
            ("refused", _) => Figure::Refused,
            ("answered" | "cached", _) => Figure::Answered,
            ("failed" | "cut" | "client-gone", _) => Figure::Failed,
            (_, Some(400..=499)) => Figure::Status4xx,
            (_, Some(500..)) => Figure::Status5xx,
            _ => Figure::Delivered,
        }
    }

    /// Whether the request was refused after the site had answered, so that the answer was not delivered.
    pub fn is_refused_after_answer(&self) -> bool {
        self.outcome == "refused" && self.origin_ms.is_some()
    }

    /// Whether the page itself (a header field, or an element in the page's head) reserved the use, in this answer or an earlier one.
    /// Includes requests let through in report mode.
    pub fn is_by_page(&self) -> bool {
        self.reason.as_deref() == Some("usage-disallowed") && self.line.is_none() && self.entry.is_none()
    }

    /// Whether the licence file reserved the use.
    pub fn is_by_license(&self) -> bool {
        self.rule.as_deref().is_some_and(|rule| rule.starts_with("url: "))
    }

    /// Whether the configuration let the request through although it would have been refused or held, or without regard to the rules.
    pub fn is_let_through(&self) -> bool {
        let unread = ["robots-ignored", "allowed-by-operator", "long-unreachable"];
        match self.verdict.as_deref() {
            Some("allowed") => self.reason.as_deref().is_some_and(|reason| unread.contains(&reason)),
            verdict => verdict == Some("reported"),
        }
    }

    /// Whether the client received the site's answer.
    fn is_sites(&self) -> bool {
        self.origin_ms.is_some() && !matches!(self.outcome.as_str(), "refused" | "failed" | "cached")
    }

    /// Status of the site's answer. `None`: the request was not sent to the site, or the record has no such status.
    pub fn site_status(&self) -> Option<u16> {
        self.origin_status.or(self.is_sites().then_some(self.status))
    }

    /// Bytes of the site's answer, or of a tunnel, that the client received. `None`: the client's answer came from the
    /// proxy.
    pub fn site_bytes(&self) -> Option<u64> {
        (self.is_sites() || self.outcome == "tunnelled").then_some(self.bytes_out)
    }

    /// Whether content was delivered, by a 2xx answer. Tunnels count too, as they may have delivered content.
    pub fn is_content(&self) -> bool {
        self.figure() == Figure::Delivered && self.site_status().is_none_or(|status| (200..300).contains(&status))
    }

    /// The file and line that decided, or else the party that decided (the page, robots.txt, the operator). `None`: `reason` needs no
    /// addition.
    pub fn decided_by(&self) -> Option<String> {
        let reason = self.reason.as_deref()?;
        Some(match (self.line, self.entry) {
            (Some(line), _) => format!("robots.txt line {line}"),
            (None, Some(entry)) if self.is_by_license() => format!("licence file content {entry}"),
            (None, Some(entry)) => format!("tdmrep.json entry {entry}"),
            (None, None) if self.is_by_page() => "the page".to_owned(),
            (None, None) if BY_ROBOTS.contains(&reason) => "robots.txt".to_owned(),
            (None, None) if BY_OPERATOR.contains(&reason) => "the operator".to_owned(),
            (None, None) => return None,
        })
    }
}

/// Reasons that follow from robots.txt as a whole, not from one of its rules.
const BY_ROBOTS: [&str; 5] =
    ["no-matching-rule", "no-robots-txt", "robots-disallowed", "robots-unreachable", "rules-too-complex"];
/// Reasons that follow from the configuration.
const BY_OPERATOR: [&str; 7] = [
    "allowed-by-operator",
    "operator-denied",
    "robots-ignored",
    "long-unreachable",
    "egress-denied",
    "budget-spent",
    "revisit-too-soon",
];

/// The figure of a report that counts a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    Delivered,
    Status4xx,
    Status5xx,
    /// Answered by the proxy itself.
    Answered,
    Refused,
    Failed,
    /// The client may not use the proxy. Not counted in any total.
    TurnedAway,
}

impl Figure {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Status4xx => "4xx",
            Self::Status5xx => "5xx",
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::TurnedAway => "turned-away",
        }
    }
}

/// A copy of a site's file, on which a decision is based.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SiteCopy {
    /// Status of the answer that contained the file, or said that there is none.
    pub status: Option<u16>,
    #[serde(deserialize_with = "some_hash")]
    pub sha256: Option<Hash>,
    /// When the copy was fetched or confirmed.
    #[serde(deserialize_with = "some_time")]
    pub fetched: Option<SystemTime>,
    /// Why later fetches failed, and (`failing_since`) since when.
    pub failure: Option<String>,
    #[serde(deserialize_with = "some_time")]
    pub failing_since: Option<SystemTime>,
}

pub fn hash<'de, D: Deserializer<'de>>(from: D) -> Result<Hash, D::Error> {
    let text = String::deserialize(from)?;
    from_hex(&text).ok_or_else(|| de::Error::custom("a SHA-256 has 64 digits"))
}

pub fn some_hash<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Hash>, D::Error> {
    hash(from).map(Some)
}

pub fn time<'de, D: Deserializer<'de>>(from: D) -> Result<SystemTime, D::Error> {
    let text = String::deserialize(from)?;
    crate::rfc3339::parse(&text).ok_or_else(|| de::Error::custom("a time must be in the format of RFC 3339"))
}

fn some_time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SystemTime>, D::Error> {
    time(from).map(Some)
}
