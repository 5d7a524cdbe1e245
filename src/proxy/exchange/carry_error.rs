//! How the transfer of one request ended, and why it broke off.

use super::Outcome;
use super::carry::SideError;

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

    /// An answer is below the minimum rate. `is_held_up`: by the client's fault.
    pub fn too_slow(is_held_up: bool) -> Self {
        let what = if is_held_up { "the client reads too slowly" } else { "the answer is too slow" };
        Self::Cut(format!("{what} (`limits.min_rate`)"))
    }
}
