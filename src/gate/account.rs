//! The result of one request's way through the gate, for the log.

use super::budget::{Bill, Charge};
use crate::policy::{Allowance, Entry, Refusal, RuleEvidence, SiteFile};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// What somebody reads of it; the rest is left out.
#[derive(Debug, Default, Clone, Copy)]
#[non_exhaustive]
pub struct AccountDetail {
    pub rule: bool,
    pub basis: bool,
}

/// Why it may go, and how long it was held.
#[derive(Debug, Default)]
pub struct Account {
    is_wanted: AccountDetail,
    basis: DecidedBy,
    /// `None`: it may not, or nothing has been decided.
    pub allowance: Option<Allowance>,
    pub rule: Option<RuleEvidence>,
    held: Duration,
    /// It is held.
    since: Option<Instant>,
    /// What it is to be paid from.
    pub(super) bill: Option<Box<Bill>>,
}

/// What was decided by, of each file that matters, in the order of [`SiteFile`].
#[derive(Debug)]
enum DecidedBy {
    Used([Option<Arc<Entry>>; SiteFile::COUNT]),
    /// It is decided again after a wait, so that a file may be evicted meanwhile.
    Awaited([Weak<Entry>; SiteFile::COUNT]),
}

impl Default for DecidedBy {
    fn default() -> Self {
        Self::Used(Default::default())
    }
}

impl Account {
    pub fn new(is_wanted: AccountDetail) -> Self {
        Self { is_wanted, ..Self::default() }
    }

    /// What was decided by, of each file that matters, in the order of [`SiteFile`].
    pub fn basis(&self) -> [Option<Arc<Entry>>; SiteFile::COUNT] {
        match &self.basis {
            DecidedBy::Used(entries) => entries.clone(),
            DecidedBy::Awaited(entries) => entries.each_ref().map(Weak::upgrade),
        }
    }

    /// Before it could go, up to now.
    pub fn held(&self) -> Duration {
        self.held + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// `allowance`: `None` if it may not go, or not yet. `entry`, `others`: what it was decided by, and of which other files.
    #[inline]
    pub(super) fn decided(
        &mut self,
        allowance: Option<Allowance>,
        entry: &Arc<Entry>,
        others: [Option<Arc<Entry>>; 2],
    ) {
        if self.is_wanted.basis {
            let [tdmrep, license] = others;
            self.basis = DecidedBy::Used([Some(entry.clone()), tdmrep, license]);
        }
        let Some(allowance) = allowance else { return };
        self.allowance = Some(allowance);
        if self.is_wanted.rule {
            self.rule = allowance.rule(entry);
        }
    }

    /// It is over. `sent`: it was sent to the origin, whose answer has so many bytes. `charged`: what that says of its promise, if there is
    /// an answer.
    #[inline]
    pub fn settle(&mut self, sent: bool, bytes: u64, charged: Option<Charge>) {
        if let Some(bill) = self.bill.take() {
            bill.settle(sent, bytes, charged);
        }
    }

    /// It goes, if there is room for it.
    pub(super) async fn pay(&mut self) -> Result<(), Refusal> {
        if let Some(bill) = self.bill.take() {
            // What most requests do not do takes no room in them.
            self.bill = Some(Box::pin(bill.pay()).await?);
        }
        Ok(())
    }

    pub fn begin_wait(&mut self) {
        self.basis =
            DecidedBy::Awaited(self.basis().map(|entry| entry.map_or_else(Weak::new, |entry| Arc::downgrade(&entry))));
        self.since = Some(Instant::now());
    }

    pub fn end_wait(&mut self) {
        self.held = self.held();
        self.since = None;
    }
}
