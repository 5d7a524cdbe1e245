//! The state of the link, which changes atomically.

use crate::gate::fleet::membership::Membership;
use crate::gate::fleet::server::ServerConnection;
use std::time::{Duration, Instant};

#[derive(Clone)]
pub(super) struct Live {
    pub membership: Membership,
    /// Whether the first attempt to connect has ended.
    pub is_tried: bool,
    /// `None`: the server is unreachable. A broken connection stays until another replaces it.
    pub connection: Option<ServerConnection>,
    /// Number of the server. A server that may have lost its data gets a new number.
    pub server: u64,
    /// Number of the last server to which this instance has reported its debts (the times before which nothing may start).
    pub told: u64,
    /// Time by which all instances have noticed that the server is back or lost. `None`: that time has passed, and all instances have
    /// reported their debts.
    pub settled_at: Option<Instant>,
    pub history: Option<String>,
    /// The cause of the loss in the last log line, and when it was logged.
    pub logged: Option<(Box<str>, Instant)>,
    /// Whether this instance is leaving the fleet.
    pub leaves: bool,
}

impl Live {
    pub fn new(now: Instant) -> Self {
        Self {
            membership: Membership::unknown(now),
            is_tried: false,
            connection: None,
            server: 0,
            told: 0,
            settled_at: None,
            history: None,
            logged: None,
            leaves: false,
        }
    }

    /// Whether this instance has reported its debts to the server.
    pub fn has_told(&self) -> bool {
        self.told == self.server
    }

    /// Whether to log this cause of a loss: true if the loss is new, or if the cause differs from the one logged last, which must be at
    /// least [`BETWEEN_CAUSES`] ago.
    pub fn logs(&mut self, why: &str, is_news: bool) -> bool {
        let is_other = |(logged, at): &(Box<str>, Instant)| **logged != *why && at.elapsed() >= BETWEEN_CAUSES;
        let is_logged = is_news || self.logged.as_ref().is_none_or(is_other);
        if is_logged {
            self.logged = Some((why.into(), Instant::now()));
        }
        is_logged
    }
}

/// Minimum time between two log lines about one loss whose cause has changed.
const BETWEEN_CAUSES: Duration = Duration::from_secs(10);
