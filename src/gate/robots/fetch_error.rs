//! The reasons why a fetch has no reply.

use crate::policy::Refusal;
use crate::upstream::{DialError, DialFault, GetError, Want};
use std::fmt::Display;
use std::time::Duration;

/// The reason why a fetch has no reply.
#[derive(Debug)]
pub(super) enum FetchError {
    /// DNS, TCP, TLS, timeout, truncated body: the site's failure.
    Unreachable(String),
    /// The site was not asked, for a reason on our side: no slot was granted, or no descriptor was left.
    NotAsked(Refusal),
}

/// The reason why one attempt has no reply.
pub(super) enum TryError {
    Final(FetchError),
    /// To be retried in another slot. The text says that a kept connection was dead, or that a shared one was closing. `None`: the slot
    /// expired before the request could be sent.
    Again(Want, Option<String>),
}

impl From<String> for FetchError {
    fn from(why: String) -> Self {
        Self::Unreachable(why)
    }
}

impl<E: Into<FetchError>> From<E> for TryError {
    fn from(error: E) -> Self {
        Self::Final(error.into())
    }
}

impl From<GetError> for FetchError {
    fn from(error: GetError) -> Self {
        match error {
            GetError::Dial(error) if error.kind.is_ours() => own_limit(&error),
            GetError::Dial(DialError { kind: DialFault::Loop, .. }) => Self::NotAsked(Refusal::Loop),
            error => Self::Unreachable(error.to_string()),
        }
    }
}

pub(super) fn own_limit(why: &dyn Display) -> FetchError {
    FetchError::NotAsked(Refusal::OwnLimit { retry_after: COME_BACK, why: why.to_string().into() })
}

/// Retry-After for problems on our side, which are transient.
pub(super) const COME_BACK: Duration = Duration::from_secs(1);
