//! The parsed content of a site's file. Pure.

use std::sync::Arc;

use crate::robots::{RobotsTxt, RslFile, TdmRep};

/// The content of an answer to the request for a site's file.
#[derive(Debug, Clone)]
pub enum Access {
    /// A robots.txt, even if empty.
    Rules(RobotsTxt),
    /// A tdmrep.json.
    Reservations(Arc<TdmRep>),
    /// A licence file.
    Licenses(Arc<RslFile>),
    /// No file: status 400 to 499 except 429, or redirects that lead nowhere. Each decision interprets this by the current settings, so
    /// that a changed setting applies at once.
    Missing,
}

impl Access {
    /// The bytes of the file, if there is one.
    pub fn source(&self) -> Option<&[u8]> {
        match self {
            Self::Rules(robots) => Some(robots.source()),
            Self::Reservations(file) => Some(file.source()),
            Self::Licenses(file) => Some(file.source()),
            Self::Missing => None,
        }
    }

    /// Content digest, computed by `digest` on first use.
    pub fn digest_by(&self, digest: impl FnOnce(&[u8]) -> [u8; 32]) -> Option<&[u8; 32]> {
        match self {
            Self::Rules(robots) => Some(robots.digest_by(digest)),
            Self::Reservations(file) => Some(file.digest_by(digest)),
            Self::Licenses(file) => Some(file.digest_by(digest)),
            Self::Missing => None,
        }
    }

    /// Reference count of the file.
    pub fn holders(&self) -> usize {
        match self {
            Self::Rules(robots) => robots.holders(),
            Self::Reservations(file) => Arc::strong_count(file),
            Self::Licenses(file) => Arc::strong_count(file),
            Self::Missing => 0,
        }
    }

    /// Bytes of the file on the heap.
    pub fn heap_size(&self) -> usize {
        match self {
            Self::Rules(robots) => robots.heap_size(),
            Self::Reservations(file) => file.heap_size(),
            Self::Licenses(file) => file.heap_size(),
            Self::Missing => 0,
        }
    }
}
