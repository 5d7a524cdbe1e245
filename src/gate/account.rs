//! What there is to tell of one request's way through the gate, for the log.

use crate::policy::{Allowance, Entry, RuleEvidence};
use std::time::{Duration, Instant};

/// Why it may go, and how long it was held.
#[derive(Debug, Default)]
pub struct Account {
    is_wanted: bool,
    /// `None`: it may not, or nothing has been decided.
    pub allowance: Option<Allowance>,
    pub rule: Option<RuleEvidence>,
    held: Duration,
    /// It is held.
    since: Option<Instant>,
}

impl Account {
    /// `is_wanted`: somebody reads it; else `rule` is left out.
    pub fn new(is_wanted: bool) -> Self {
        Self { is_wanted, ..Self::default() }
    }

    /// Before it could go, up to now.
    pub fn held(&self) -> Duration {
        self.held + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// `entry`: what it was decided by.
    #[inline]
    pub(super) fn allow(&mut self, allowance: Allowance, entry: &Entry) {
        self.allowance = Some(allowance);
        if self.is_wanted {
            self.rule = allowance.rule(entry);
        }
    }

    pub(super) fn waits(&mut self) {
        self.since = Some(Instant::now());
    }

    pub(super) fn goes_on(&mut self) {
        self.held = self.held();
        self.since = None;
    }
}
