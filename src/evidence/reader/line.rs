//! The content of the chain's lines.

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
    /// When the event of this line happened; for a request, when the site could see it.
    pub fn seen(&self) -> SystemTime {
        match &self.kind {
            Kind::Decision(decision) => decision.seen(self.time),
            _ => self.time,
        }
    }
}

/// The content of a line, by its type.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Kind {
    /// The first line of a segment.
    Segment {
        segment: u64,
        /// The instance that writes the segment.
        instance: Option<String>,
    },
    /// A process begins to write.
    Start {
        version: Option<String>,
        instance: Option<String>,
        /// The previous process was killed, or the power failed.
        #[serde(default)]
        unclean: bool,
        #[serde(default, deserialize_with = "some_hash")]
        config: Option<Hash>,
    },
    /// The process ends.
    Stop,
    Decision(Box<Decision>),
    /// A file to which later records refer. Each segment with such records contains the file.
    File {
        #[serde(deserialize_with = "hash")]
        sha256: Hash,
        text: Option<String>,
        base64: Option<String>,
    },
    /// Records that could not be written. With `synced`: records that may be missing at the end of the previous segment, after the line
    /// with this SHA-256, because fsync failed.
    Lost {
        count: u64,
        #[serde(deserialize_with = "time")]
        from: SystemTime,
        #[serde(deserialize_with = "time")]
        to: SystemTime,
        #[serde(default, deserialize_with = "some_hash")]
        synced: Option<Hash>,
    },
    /// A segment was removed, because it was older than `keep`.
    Removed {
        segment: u64,
        /// SHA-256 of the removed segment's last line.
        #[serde(deserialize_with = "hash")]
        head: Hash,
    },
    /// A type that a later version of this program writes.
    #[serde(other)]
    Other,
}

/// Why a segment cannot be read further.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("malformed record: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("the line is longer than any line that this program writes")]
    TooLong,
    #[error("the line is incomplete")]
    Torn,
    #[error("the segment has no line here")]
    Empty,
}

/// Parses a line.
pub fn parse(line: &[u8]) -> Result<Line, ReadError> {
    Ok(serde_json::from_slice(line)?)
}
