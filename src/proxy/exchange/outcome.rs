//! How an exchange ended: what is counted, recorded, logged and answered then.

use super::request::{Request, Unread};
use super::state::Trip;
use crate::config::Settings;
use crate::policy::Refusal;
use crate::proxy::Proxy;
use crate::proxy::client::Peer;
use crate::proxy::respond::{Answer, Failure, ReplyContext};
use std::sync::atomic::Ordering;
use tokio::time::Instant;

/// How it ended.
#[non_exhaustive]
pub enum Outcome {
    /// The origin's answer was handed on, or the connection is another protocol's from now on.
    Forwarded,
    /// Answered from here, with what was asked for.
    Answered(Answer),
    /// A CONNECT whose inside is served here was granted.
    Intercepted,
    /// A CONNECT was granted, and what came of it is over.
    Tunnelled,
    Refused(Refusal),
    Failed(Failure),
    /// The origin's answer broke off.
    Cut(String),
    /// The client has left.
    Gone,
    /// The proxy does not wait for it any longer.
    Stopped,
}

impl From<Failure> for Box<Outcome> {
    fn from(failure: Failure) -> Self {
        Box::new(Outcome::Failed(failure))
    }
}

/// What is known of an exchange at its end. `request`: what there is of one that could not be read.
pub(super) struct About<'a> {
    pub(super) proxy: &'a Proxy,
    pub(super) settings: &'a Settings,
    pub(super) peer: &'a Peer,
    pub(super) began: Instant,
    pub(super) request: Result<&'a Request<'a>, &'a Unread<'a>>,
    pub(super) trip: &'a Trip,
}

/// What is left to be done for the client.
pub(super) enum FinalStep {
    /// It has its answer.
    AlreadySent,
    Answer(Answer),
    /// There is none.
    Cut,
}

impl About<'_> {
    /// Counts, records and logs.
    pub(super) fn conclude(&self, outcome: Outcome) -> FinalStep {
        let proxy = self.proxy;
        let user = self.peer.user.as_deref();
        let line = proxy.is_logging.load(Ordering::Relaxed).then(|| self.line(&outcome));
        let record = proxy.evidence.as_ref().map(|evidence| (evidence, self.record(evidence, &outcome)));
        let last = match outcome {
            Outcome::Forwarded => {
                proxy.counters.forwarded(user);
                FinalStep::AlreadySent
            }
            Outcome::Answered(answer) => {
                proxy.counters.forwarded(user);
                FinalStep::Answer(answer)
            }
            // Counted when it was granted.
            Outcome::Tunnelled | Outcome::Intercepted => FinalStep::AlreadySent,
            Outcome::Refused(refusal) => {
                let url = self.url();
                let asked = ReplyContext { url: url.as_deref(), accept: self.accept() };
                let answer = Answer::refusal(&refusal, &asked, self.settings);
                proxy.log_refused(self.peer, url, refusal);
                FinalStep::Answer(answer)
            }
            Outcome::Failed(failure) => {
                self.count_failure(&failure.detail);
                let url = self.url();
                FinalStep::Answer(Answer::failure(
                    &failure,
                    &ReplyContext { url: url.as_deref(), accept: self.accept() },
                ))
            }
            Outcome::Cut(why) => {
                self.count_failure(&why);
                FinalStep::Cut
            }
            Outcome::Gone => {
                proxy.counters.client_gone(user);
                FinalStep::Cut
            }
            Outcome::Stopped => FinalStep::Cut,
        };
        if let Some(line) = line {
            line.write(self, &last);
        }
        if let Some((evidence, record)) = record {
            self.put(evidence, record, &last);
        }
        last
    }

    fn count_failure(&self, why: &str) {
        let user = self.peer.user.as_deref();
        match self.request {
            Ok(request) => self.proxy.counters.failed_at(&request.authority, why, user),
            Err(_) => self.proxy.counters.failed(user),
        }
    }

    pub(super) fn url(&self) -> Option<String> {
        self.request.map_or_else(|unread| unread.url.clone(), |request| Some(request.url()))
    }

    fn accept(&self) -> Option<&[u8]> {
        self.request.map_or_else(|unread| unread.accept, |request| request.accept)
    }
}
