//! What the lines of a chain say.

use super::record::{Hash, from_hex};
use serde::{Deserialize, Deserializer, de};
use std::io;
use std::time::SystemTime;

/// A line of any kind.
#[derive(Debug, Deserialize)]
pub(super) struct Line {
    #[serde(deserialize_with = "hash")]
    pub prev: Hash,
    #[serde(deserialize_with = "time")]
    pub time: SystemTime,
    #[serde(flatten)]
    pub kind: Kind,
}

/// What a line is about.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(super) enum Kind {
    /// The first of its segment.
    Segment {
        segment: u64,
        /// Who writes it; not in segments of 1.0.0-rc.1.
        instance: Option<String>,
    },
    /// A process begins to write.
    Start {
        version: Option<String>,
        instance: Option<String>,
        /// The one before was killed, or lost its power.
        #[serde(default)]
        unclean: bool,
        #[serde(default, deserialize_with = "some_hash")]
        config: Option<Hash>,
    },
    /// It ends.
    Stop,
    Decision(Box<Decision>),
    /// What records after it refer to. A file is in each segment with such records.
    File {
        #[serde(deserialize_with = "hash")]
        sha256: Hash,
        text: Option<String>,
        base64: Option<String>,
    },
    /// Records that could not be written. With `synced`: that may be missing at the end of the segment before, after the line with
    /// this SHA-256, because fsync failed.
    Lost {
        count: u64,
        #[serde(deserialize_with = "time")]
        from: SystemTime,
        #[serde(deserialize_with = "time")]
        to: SystemTime,
        #[serde(default, deserialize_with = "some_hash")]
        synced: Option<Hash>,
    },
    /// A segment that was kept long enough.
    Removed {
        segment: u64,
        /// Of its last line.
        #[serde(deserialize_with = "hash")]
        head: Hash,
    },
    /// Of a later version.
    #[serde(other)]
    Other,
}

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
    /// If there are several: all of them.
    pub reasons: Vec<String>,
    pub rule: Option<String>,
    pub line: Option<u32>,
    /// Of a tdmrep.json or a licence file.
    pub entry: Option<u64>,
    pub robots: Option<SiteCopy>,
    pub tdmrep: Option<SiteCopy>,
    pub license_file: Option<SiteCopy>,
    /// Fields of the answer that reserve a use.
    pub signals: Option<String>,
    /// What the answer asked for in return: where its licence is, and a price.
    pub license: Option<String>,
    pub price: Option<String>,
    #[serde(deserialize_with = "some_hash")]
    pub config: Option<Hash>,
    pub status: u16,
    /// Of the site's answer, if it is not `status`.
    pub origin_status: Option<u16>,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub held_ms: u64,
    pub origin_ms: Option<u64>,
    pub ms: u64,
}

impl Decision {
    /// Every reason, the deciding one first.
    pub fn all_reasons(&self) -> impl Iterator<Item = &String> {
        let others = self.reasons.iter().filter(|other| Some(*other) != self.reason.as_ref());
        self.reason.iter().chain(others)
    }

    /// The figure of a report in which it counts.
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

    /// Whether the site answered a request that was refused then: its answer was not delivered.
    pub fn is_refused_after_answer(&self) -> bool {
        self.outcome == "refused" && self.origin_ms.is_some()
    }

    /// Whether the page's own words (a field, or an element of its head) refused it, then or remembered.
    pub fn is_refused_by_page(&self) -> bool {
        let is_by_file = self.line.is_some() || self.entry.is_some();
        self.outcome == "refused" && self.reason.as_deref() == Some("usage-disallowed") && !is_by_file
    }

    /// Whether the configuration let it through although a rule says no, or unread.
    pub fn is_let_through(&self) -> bool {
        let unread = ["robots-ignored", "allowed-by-operator", "long-unreachable"];
        match self.verdict.as_deref() {
            Some("allowed") => self.reason.as_deref().is_some_and(|reason| unread.contains(&reason)),
            verdict => verdict == Some("reported"),
        }
    }

    /// Status of the site's answer. `None`: it was not asked, or the record does not have it.
    pub fn site_status(&self) -> Option<u16> {
        let is_sites = self.origin_ms.is_some() && !matches!(self.outcome.as_str(), "refused" | "failed" | "cached");
        self.origin_status.or(is_sites.then_some(self.status))
    }
}

/// The figure of a report in which a request counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    Delivered,
    Status4xx,
    Status5xx,
    /// Answered from here.
    Answered,
    Refused,
    Failed,
    /// The client may not use the proxy: in no total.
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

/// A file of the site that it rests on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SiteCopy {
    /// Of the answer that it came with, or that said that there is none.
    pub status: Option<u16>,
    #[serde(deserialize_with = "some_hash")]
    pub sha256: Option<Hash>,
    /// Fetched, or confirmed.
    #[serde(deserialize_with = "some_time")]
    pub fetched: Option<SystemTime>,
    /// Why it could not be fetched since, and since when.
    pub failure: Option<String>,
    #[serde(deserialize_with = "some_time")]
    pub failing_since: Option<SystemTime>,
}

/// Why a segment cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("malformed record: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("it is longer than any that is written")]
    TooLong,
    #[error("its end is missing")]
    Torn,
    #[error("there is no line in it")]
    Empty,
    #[error("segment {segment}, line {line}: {error}")]
    At { segment: u64, line: u64, error: Box<ReadError> },
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Io(error) => error,
            other => io::Error::new(io::ErrorKind::InvalidData, other),
        }
    }
}

/// What a line says.
pub(super) fn parse(line: &[u8]) -> Result<Line, ReadError> {
    Ok(serde_json::from_slice(line)?)
}

fn hash<'de, D: Deserializer<'de>>(from: D) -> Result<Hash, D::Error> {
    let text = String::deserialize(from)?;
    from_hex(&text).ok_or_else(|| de::Error::custom("a SHA-256 has 64 digits"))
}

fn some_hash<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Hash>, D::Error> {
    hash(from).map(Some)
}

fn time<'de, D: Deserializer<'de>>(from: D) -> Result<SystemTime, D::Error> {
    let text = String::deserialize(from)?;
    crate::rfc3339::parse(&text).ok_or_else(|| de::Error::custom("a time is written as RFC 3339 has it"))
}

fn some_time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SystemTime>, D::Error> {
    time(from).map(Some)
}
