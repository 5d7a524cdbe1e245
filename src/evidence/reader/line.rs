//! What the lines of a chain say.

use super::decision::{Decision, hash, some_hash, time};
use crate::evidence::record::Hash;
use serde::Deserialize;
use std::io;
use std::time::SystemTime;

/// A line of any kind.
#[derive(Debug, Deserialize)]
pub struct Line {
    #[serde(deserialize_with = "hash")]
    pub prev: Hash,
    #[serde(deserialize_with = "time")]
    pub time: SystemTime,
    #[serde(flatten)]
    pub kind: Kind,
}

impl Line {
    /// When what it tells of happened; of a request, when the site could see it.
    pub fn seen(&self) -> SystemTime {
        match &self.kind {
            Kind::Decision(decision) => decision.seen(self.time),
            _ => self.time,
        }
    }
}

/// What a line is about.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Kind {
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
}

/// What a line says.
pub fn parse(line: &[u8]) -> Result<Line, ReadError> {
    Ok(serde_json::from_slice(line)?)
}
