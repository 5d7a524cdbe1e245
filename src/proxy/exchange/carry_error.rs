//! The result of one request's transfer: completed, or why it broke off.

use super::Outcome;
use super::carry::{FlowError, SideError};
use crate::proxy::respond::Failure;

/// A completed transfer.
pub(super) struct Carried {
    /// Whether the whole request was sent.
    pub(super) is_sent: bool,
    pub(super) is_switched: bool,
}

/// Why a transfer broke off.
pub(super) enum CarryError {
    /// Another attempt would not help.
    Over(Box<Outcome>),
    /// The origin failed before its answer began.
    Origin(SideError),
    /// The answer must not be forwarded.
    Rejected(Box<Outcome>),
}

impl CarryError {
    pub fn client_gone() -> Self {
        Self::Over(Outcome::ClientGone.into())
    }

    /// The error for an answer that broke off after it began.
    pub fn cut(why: impl Into<String>) -> Self {
        Self::Over(Outcome::Cut(why.into()).into())
    }

    /// The error for an answer's body. `is_held_up`: the client is too slow, not the origin.
    pub fn of_answer(error: FlowError, is_held_up: bool) -> Self {
        match error {
            FlowError::Source(fault) => Self::cut(format!("the origin's answer broke off: {fault}")),
            FlowError::Destination(_) => Self::client_gone(),
            FlowError::TooSlow if is_held_up => Self::cut("the client reads too slowly (`limits.min_rate`)"),
            FlowError::TooSlow => Self::cut("the answer is too slow (`limits.min_rate`)"),
        }
    }
}

/// A failure before the answer begins.
impl From<Failure> for CarryError {
    fn from(failure: Failure) -> Self {
        Self::Over(failure.into())
    }
}
