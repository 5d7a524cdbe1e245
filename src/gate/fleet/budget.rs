//! An instance's spending from a budget, as reported to the server (`budget.lua`) or to the processes of this machine.

use super::scripts;
use crate::policy::{Budget, Period, Spent};
use redis::ScriptInvocation;
use std::time::{Duration, SystemTime};

/// Spending to add in the current period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) struct Spend {
    pub per: Period,
    /// Requests or, for a budget of money, millionths of its currency. Negative: they were paid, and are given back.
    pub requests: i64,
    pub bytes: u64,
    /// Nothing is added if the spending has reached a limit of this budget. `None`: adds without a check, as the spending has already
    /// happened.
    pub within: Option<Budget>,
    /// A count that this instance has received, in case the server or the file has lost it. If `requests` is negative, `ends` is the period
    /// in which they were paid, the only one in which they are given back.
    pub heard: Spent,
}

impl Spend {
    pub fn of(per: Period, requests: i64, bytes: u64) -> Self {
        Self { per, requests, bytes, within: None, heard: Spent::default() }
    }

    /// The requests to add in the period that ends at `ends`. A payment is given back only in the period in which it was made.
    pub fn requests_in(&self, ends: u64) -> i64 {
        if self.requests < 0 && self.heard.ends != ends { 0 } else { self.requests }
    }

    /// Whether the budget has room after `spent`, and the new total.
    pub fn after(&self, spent: Spent) -> (bool, Spent) {
        let spent = spent.or_more(self.heard);
        let goes = self.within.is_none_or(|budget| budget.has_room(&spent));
        (goes, if goes { spent.plus(self.requests_in(spent.ends), self.bytes) } else { spent })
    }

    pub(super) fn invocation(&self, key: &str) -> ScriptInvocation<'static> {
        let Spend { per, requests, bytes, within, heard } = *self;
        let most = |most: Option<u64>| most.map_or(String::new(), |most| most.to_string());
        let mut call = scripts::BUDGET.key(format!("politely:{{{key}}}:budget:{}", per.as_str()));
        call.arg(per.length()).arg(requests).arg(bytes);
        call.arg(most(within.and_then(|budget| budget.requests))).arg(most(within.and_then(|budget| budget.bytes)));
        call.arg(heard.requests).arg(heard.bytes).arg(heard.ends);
        call
    }
}

/// The script's reply: whether there was room, requests, bytes, milliseconds to the end of the period.
pub(super) type BudgetReply = (u8, u64, u64, u64);

/// Reads the reply. The server's clock may differ from ours, so the count is assigned to our period that ends at about the same time.
pub(super) fn answered(answer: BudgetReply, per: Period, now: SystemTime) -> (bool, Spent) {
    let (goes, requests, bytes, left) = answer;
    // The middle of the period is used, so that clocks that differ by less than half a period agree. If the server's clock was set back,
    // its period may be the next one, so up to two lengths may be left.
    let left = Duration::from_millis(left).min(Duration::from_secs(2 * per.length()));
    let middle = (now + left).checked_sub(Duration::from_secs(per.length() / 2)).unwrap_or(now);
    (goes == 1, Spent { ends: per.end(middle).0, requests, bytes })
}
