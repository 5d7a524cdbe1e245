//! How the transfer of one request ended, and why it broke off.

use super::Outcome;
use super::carry::{FlowError, SideError};

/// A completed transfer.
pub(super) struct Carried {
    /// The whole request was sent.
    pub(super) is_sent: bool,
    pub(super) is_switched: bool,
}

/// Why a transfer broke off.
pub(super) enum CarryError {
    /// The client has gone.
    ClientGone,
    /// The request's body does not match its framing.
    BadRequest(String),
    /// The request's body is too slow or has stalled.
    SlowRequest,
    /// The origin does not read the request.
    NotRead,
    /// The origin did not answer in time.
    NoAnswer,
    /// The origin failed before its answer began.
    Origin(SideError),
    /// The answer must not be forwarded.
    Rejected(Box<Outcome>),
    /// The answer broke off after it began.
    Cut(String),
}

impl CarryError {
    /// `is_held_up`: by the origin's fault.
    pub fn slow_request(is_held_up: bool) -> Self {
        if is_held_up { Self::NotRead } else { Self::SlowRequest }
    }

    /// Of an answer's body. `is_held_up`: the client is at fault for what is too slow.
    pub fn of_answer(error: FlowError, is_held_up: bool) -> Self {
        match error {
            FlowError::Source(fault) => Self::Cut(format!("the origin: {fault}")),
            FlowError::Destination(_) => Self::ClientGone,
            FlowError::TooSlow if is_held_up => Self::Cut("the client reads too slowly (`limits.min_rate`)".into()),
            FlowError::TooSlow => Self::Cut("the answer is too slow (`limits.min_rate`)".into()),
        }
    }
}
