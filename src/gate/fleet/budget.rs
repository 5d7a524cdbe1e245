//! What an instance spends of a budget, as it is reported to others: the server (`budget.lua`), or those on one machine.

use super::scripts;
use crate::policy::{Budget, Period, Spent};
use redis::ScriptInvocation;
use std::time::{Duration, SystemTime};

/// So much more is spent, in the period of now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) struct Spend {
    pub per: Period,
    pub requests: i64,
    pub bytes: u64,
    /// Only if there is room for it. `None`: it has been spent already.
    pub within: Option<Budget>,
    /// No less had been spent before, as was heard then: the other side may have forgotten. Fewer requests are of that period.
    pub heard: Spent,
}

impl Spend {
    pub fn of(per: Period, requests: i64, bytes: u64) -> Self {
        Self { per, requests, bytes, within: None, heard: Spent::default() }
    }

    /// As it counts in the period that ends then: a request that was never sent is given back where it was paid.
    pub fn requests_in(&self, ends: u64) -> i64 {
        if self.requests < 0 && self.heard.ends != ends { 0 } else { self.requests }
    }

    /// What comes of it, from what has been spent before. False: there was no room.
    pub fn after(&self, spent: Spent) -> (bool, Spent) {
        let heard = self.heard.in_period(spent.ends);
        let (requests, bytes) = (spent.requests.max(heard.requests), spent.bytes.max(heard.bytes));
        let spent = Spent { requests, bytes, ..spent };
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

/// What the script answers: whether it goes, requests, bytes, milliseconds to the end of the period.
pub(super) type BudgetReply = (u8, u64, u64, u64);

/// The same. The server's clock need not agree with ours: the period is the one that ends about then, as we count.
pub(super) fn answered(answer: BudgetReply, per: Period, now: SystemTime) -> (bool, Spent) {
    let (goes, requests, bytes, left) = answer;
    // Computed for the middle of the period, so that clocks that differ by less than half a period agree.
    let left = Duration::from_millis(left).min(Duration::from_secs(per.length()));
    let middle = (now + left).checked_sub(Duration::from_secs(per.length() / 2)).unwrap_or(now);
    (goes == 1, Spent { ends: per.end(middle).0, requests, bytes })
}
