//! The account of one request in the gate, for the log: its decision, waits and bill.

use super::budget::{Bill, Charge};
use crate::policy::{Allowance, Entry, LineEvidence, Refusal, SiteFile};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Which optional details the account records.
#[derive(Debug, Default, Clone, Copy)]
#[non_exhaustive]
pub struct AccountDetail {
    pub rule: bool,
    pub basis: bool,
}

/// Why a request was allowed, and how long it was held.
#[derive(Debug, Default)]
pub struct Account {
    pub detail: AccountDetail,
    basis: DecidedBy,
    /// `None`: not allowed, or not decided yet.
    pub allowance: Option<Allowance>,
    pub rule: Option<LineEvidence>,
    held: Duration,
    /// Start of the current wait.
    since: Option<Instant>,
    /// What the request costs its budgets.
    pub(super) bill: Option<Box<Bill>>,
}

/// The entries that the decision used, one for each file, in the order of [`SiteFile`].
#[derive(Debug)]
enum DecidedBy {
    Used([Option<Arc<Entry>>; SiteFile::COUNT]),
    /// The request waits. Weak references, so that the entries may be evicted: the decision is made again after the wait.
    Awaited([Weak<Entry>; SiteFile::COUNT]),
}

impl Default for DecidedBy {
    fn default() -> Self {
        Self::Used(Default::default())
    }
}

impl Account {
    /// The entry of each relevant file that the decision used, in the order of [`SiteFile`].
    pub fn basis(&self) -> [Option<Arc<Entry>>; SiteFile::COUNT] {
        match &self.basis {
            DecidedBy::Used(entries) => entries.clone(),
            DecidedBy::Awaited(entries) => entries.each_ref().map(Weak::upgrade),
        }
    }

    /// Time that the request was held so far.
    pub fn held(&self) -> Duration {
        self.held + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Records a decision. `allowance`: `None` if the request is not allowed, or waits for a file. `entry`, `others`: the entries that
    /// the decision used.
    #[inline]
    pub(super) fn record_decision(
        &mut self,
        allowance: Option<Allowance>,
        entry: &Arc<Entry>,
        others: [Option<Arc<Entry>>; 2],
    ) {
        if self.detail.basis {
            let [tdmrep, license] = others;
            self.basis = DecidedBy::Used([Some(entry.clone()), tdmrep, license]);
        }
        let Some(allowance) = allowance else { return };
        self.allowance = Some(allowance);
        if self.detail.rule {
            self.rule = allowance.rule(entry);
        }
    }

    /// Settles the bill when the request ends. `sent`: the request was sent to the origin. `bytes`: length of the answer. `charged`: the
    /// charge that the answer reports; `None`: unknown.
    #[inline]
    pub fn settle(&mut self, sent: bool, bytes: u64, charged: Option<Charge>) {
        // Adds the time of a wait that the client broke off.
        (self.held, self.since) = (self.held(), None);
        if let Some(bill) = self.bill.take() {
            bill.settle(sent, bytes, charged);
        }
    }

    /// Charges the budgets if they have room.
    pub(super) async fn pay(&mut self) -> Result<(), Refusal> {
        if let Some(bill) = self.bill.take() {
            // Boxed, because most requests have no budget.
            self.bill = Some(Box::pin(bill.pay()).await?);
        }
        Ok(())
    }

    /// Awaits `wait`, after which the request is decided again, and counts that time as held.
    pub async fn waits<T>(&mut self, wait: impl Future<Output = T>) -> T {
        let used = self.basis().map(|entry| entry.map_or_else(Weak::new, |entry| Arc::downgrade(&entry)));
        self.basis = DecidedBy::Awaited(used);
        self.waits_decided(wait).await
    }

    /// Awaits `wait`, after which the decision stays, and counts that time as held.
    pub(super) async fn waits_decided<T>(&mut self, wait: impl Future<Output = T>) -> T {
        self.since = Some(Instant::now());
        let done = wait.await;
        self.held = self.held();
        self.since = None;
        done
    }
}
