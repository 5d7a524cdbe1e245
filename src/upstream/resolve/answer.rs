//! The result of a look-up, and how long it is valid.

use dns_lookup::{LookupError, LookupErrorKind};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Why a name has no address.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ResolveError {
    /// There is no such name, it has no address, or its servers fail; `why` is the resolver's message.
    #[error("cannot resolve {name}: {why}")]
    Failed { name: Arc<str>, why: Arc<str> },
    /// The resolver did not answer in time. `is_alone`: it answered for other names meanwhile.
    #[error("cannot resolve {name}: no answer in time")]
    TimedOut { name: Arc<str>, is_alone: bool },
    /// The resolver seems to be unreachable or failing. Like `OwnLimit`, this says nothing about the name.
    #[error("cannot resolve {name}: {why}")]
    NoResolver { name: Arc<str>, why: Arc<str> },
    /// The resolver was not asked: this machine has no descriptor or memory left, or too many other look-ups are in flight.
    #[error("cannot resolve {name}: {why}")]
    OwnLimit { name: Arc<str>, why: Arc<str> },
}

#[derive(Clone)]
pub(super) struct LookupAnswer {
    pub found: LookupResult,
    /// When the resolver answered.
    pub at: Instant,
    /// When to look the name up again.
    pub until: Instant,
}

/// Progress of a look-up.
#[derive(Clone)]
pub(super) enum LookupState {
    Queued,
    Begun(Instant),
    Done(LookupResult),
}

pub(super) type LookupResult = Result<Arc<[IpAddr]>, ResolveError>;

/// Why a look-up failed.
pub(super) struct LookupFault {
    pub whose: Whose,
    pub why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    Names,
    Ours,
    /// The resolver reports the same error if it is unreachable and if the name's servers fail.
    Unknown,
}

impl From<LookupError> for LookupFault {
    fn from(error: LookupError) -> Self {
        let whose = match error.kind() {
            LookupErrorKind::NoName | LookupErrorKind::NoData => Whose::Names,
            LookupErrorKind::Again | LookupErrorKind::Fail => Whose::Unknown,
            _ => Whose::Ours,
        };
        LookupFault { whose, why: error.to_string() }
    }
}

impl LookupAnswer {
    pub fn now(found: LookupResult) -> Self {
        let at = Instant::now();
        let keep = match found {
            // Another look-up might wait equally long.
            Ok(_) | Err(ResolveError::TimedOut { .. }) => KEEP,
            Err(ResolveError::Failed { .. }) => KEEP_FAILURE,
            Err(ResolveError::NoResolver { .. } | ResolveError::OwnLimit { .. }) => KEEP_OWN_LIMIT,
        };
        LookupAnswer { found, at, until: at + keep }
    }

    pub fn is_fresh(&self) -> bool {
        Instant::now() < self.until
    }

    /// Whether the last look-up timed out.
    pub fn is_silence(&self) -> bool {
        matches!(self.found, Err(ResolveError::TimedOut { .. }))
    }

    /// Whether to use the answer if a new look-up fails or is slow.
    pub fn is_usable(&self) -> bool {
        self.found.is_ok() && self.at.elapsed() < STALE
    }
}

/// How long addresses are used without another look-up, and how long a name that timed out is not looked up.
pub const KEEP: Duration = Duration::from_secs(30);
/// How long addresses are used while look-ups fail or are slow.
const STALE: Duration = Duration::from_secs(600);
pub(super) const KEEP_OWN_LIMIT: Duration = Duration::from_secs(1);
pub(super) const KEEP_FAILURE: Duration = Duration::from_secs(5);
