//! What follows an attempt that broke off: another, where that is safe, or its failure.

use super::Exchange;
use super::Outcome;
use super::carry::{Broken, Fault};
use crate::proxy::respond::Failure;
use crate::upstream::{Route, Versions, Want};

/// How one try ended.
pub(super) enum Tried {
    Over(Outcome),
    /// Another connection may do better.
    Again(Want, Failure),
    /// The same, and the origin has done nothing about the request: this was no try.
    Untried(Want, Failure),
}

impl Exchange<'_> {
    /// What follows an attempt that broke off. `shared`: with requests before or beside it; `over`: the connection is.
    #[cold]
    pub(super) fn after(
        &mut self,
        broken: Broken<Box<Outcome>>,
        shared: bool,
        over: bool,
        untouched: bool,
        want: Want,
        route: &Route,
    ) -> Tried {
        let limits = &self.settings.limits;
        let limit = limits.read_timeout;
        let over = match broken {
            Broken::Gone => Outcome::Gone,
            Broken::Cut(why) => Outcome::Cut(why),
            Broken::BadRequest(why) => Outcome::Failed(Failure::bad_request(why)),
            Broken::SlowRequest => Outcome::Failed(Failure::slow_request()),
            Broken::NotTaken => Outcome::Failed(Failure::not_taken(limit)),
            Broken::NoAnswer => Outcome::Failed(Failure::no_answer(limit)),
            Broken::Head(outcome) => match *outcome {
                Outcome::Failed(failure) if std::mem::take(&mut self.signature.is_wanted) => {
                    self.signature.is_repeated = true;
                    return Tried::Again(want, failure);
                }
                outcome => outcome,
            },
            Broken::Origin(fault) => {
                let goes_away = fault.goes_away();
                let again = match &fault {
                    _ if !untouched => None,
                    fault if fault.wants_http1() => Some(Want { versions: Versions::Http1Only, ..want }),
                    fault if fault.is_unprocessed() => Some(want),
                    // It was closed while it was kept, or for what somebody else asked.
                    fault if shared && (over || fault.is_end()) && self.request.is_idempotent() => {
                        Some(Want { fresh: true, ..want })
                    }
                    fault
                        if fault.is_end() && self.request.is_idempotent() && route.may_be_only_http2(want.versions) =>
                    {
                        Some(Want { fresh: true, ..want })
                    }
                    _ => None,
                };
                let failure = match fault {
                    Fault::Malformed(why) => Failure::malformed(why),
                    Fault::TooLarge(limit) => Failure::too_large(limit),
                    Fault::Ended => Failure::ended("it closed the connection before its answer was complete"),
                    Fault::Http2(error) if !(error.is_io() || error.is_go_away() || error.is_reset()) => {
                        Failure::malformed(error)
                    }
                    fault @ (Fault::Io(_) | Fault::Http2(_)) => Failure::ended(fault),
                };
                if let Some(want) = again {
                    return if goes_away { Tried::Untried(want, failure) } else { Tried::Again(want, failure) };
                }
                Outcome::Failed(failure)
            }
        };
        Tried::Over(over)
    }
}
