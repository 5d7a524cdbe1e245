//! How the carrying of one request ended, and why it broke off.

use super::Outcome;
use super::carry::Fault;

/// How it ended, as far as it was no fault.
pub(super) struct Carried {
    /// The origin has taken all of the request.
    pub(super) is_sent: bool,
    pub(super) is_switched: bool,
}

/// Why it broke off.
pub(super) enum Broken {
    /// The client has gone.
    Gone,
    /// The body of the request is not what its framing says.
    BadRequest(String),
    /// It comes too slowly, or not at all.
    SlowRequest,
    /// The origin takes nothing of the request.
    NotTaken,
    /// The origin has not answered in time.
    NoAnswer,
    /// The origin's end, before its answer began.
    Origin(Fault),
    /// Its answer is not one to hand on.
    Head(Box<Outcome>),
    /// The answer had begun.
    Cut(String),
}
