//! What one request is paid from: paid before it goes, settled when it is over, and given back if it was never sent.

use super::Ledger;
use crate::gate::decode::rethrown;
use crate::gate::fleet::Spend;
use crate::policy::{Budget, PaceKey, Refusal, Request, Spent};
use futures_util::FutureExt;
use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::runtime::Handle;

/// The budgets that one request is to be paid from.
pub(in crate::gate) struct Bill {
    ledger: Arc<Ledger>,
    items: Vec<Item>,
    /// It goes whatever has been spent.
    is_reported: bool,
}

#[derive(Debug)]
struct Item {
    of: Box<str>,
    budget: Budget,
    /// The end of the period in which it has been paid.
    paid: Option<u64>,
}

impl fmt::Debug for Bill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bill").field(&self.items).finish()
    }
}

impl Bill {
    /// `None`: nobody has a budget. `is_reported`: what is spent is only reported.
    #[inline]
    pub fn of(
        ledger: &Arc<Ledger>,
        host: Option<Budget>,
        key: &PaceKey,
        request: &Request<'_>,
        is_reported: bool,
    ) -> Option<Box<Self>> {
        if host.is_none() && request.budget.is_none() {
            return None;
        }
        let host = host.map(|budget| Item { of: key.to_string().into(), budget, paid: None });
        let user = request.user.zip(request.budget);
        let user = user.map(|(user, budget)| Item { of: Budget::key_of_user(user), budget: *budget, paid: None });
        let items = host.into_iter().chain(user).collect();
        Some(Box::new(Self { ledger: ledger.clone(), items, is_reported }))
    }

    /// Why it does not go, if that is known already.
    pub fn refusal(&self) -> Option<Refusal> {
        let now = SystemTime::now();
        let is_spent = |it: &&Item| !it.budget.has_room(&self.ledger.known(&it.of, it.budget.per, now).spent(1));
        self.items.iter().find(is_spent).map(|it| it.refusal(now))
    }

    /// One more request. Whoever stops waiting has paid nothing: others who count with us may be far away, and have counted it.
    pub async fn pay(self: Box<Self>) -> Result<Box<Self>, Refusal> {
        if self.ledger.fleet.is_none() {
            // Waits for nobody.
            return self.pay_all().await;
        }
        let paying = tokio::spawn(async move { self.pay_all().await.map(|bill| Paid(Some(bill))) });
        // Else the process is ending.
        let Ok(paid) = paying.await.map_err(rethrown) else { return pending().await };
        paid.map(|mut paid| paid.0.take().expect("nobody else takes it"))
    }

    async fn pay_all(mut self: Box<Self>) -> Result<Box<Self>, Refusal> {
        for number in 0..self.items.len() {
            let item = &self.items[number];
            let within = Some(item.budget).filter(|_| !self.is_reported);
            let spend = Spend { within, ..Spend::of(item.budget.per, 1, 0) };
            let paid = self.ledger.spend(&item.of, item.budget, spend).await;
            if paid.is_none() {
                let refusal = item.refusal(SystemTime::now());
                self.give_back().await;
                return Err(refusal);
            }
            self.items[number].paid = paid;
        }
        Ok(self)
    }

    async fn give_back(&mut self) {
        for item in &mut self.items {
            if let Some(ends) = item.paid.take() {
                let heard = Spent { ends, ..Spent::default() };
                let spend = Spend { heard, ..Spend::of(item.budget.per, -1, 0) };
                self.ledger.spend(&item.of, item.budget, spend).await;
            }
        }
    }

    /// It is over. `bytes`: of its answer. Not `sent`: it has not been a request.
    pub fn settle(mut self, sent: bool, bytes: u64) {
        if sent && bytes == 0 || self.items.iter().all(|item| item.paid.is_none()) {
            return;
        }
        let settled = async move {
            if !sent {
                return self.give_back().await;
            }
            for item in &self.items {
                self.ledger.spend(&item.of, item.budget, Spend::of(item.budget.per, 0, bytes)).await;
            }
        };
        // Without one, the process is ending.
        let Ok(runtime) = Handle::try_current() else { return };
        let mut settled = Box::pin(settled);
        // At once, before the client has its answer and asks again, unless it has to be reported to others.
        if (&mut settled).now_or_never().is_none() {
            runtime.spawn(settled);
        }
    }
}

/// A bill that has been paid; given back if nobody takes it.
struct Paid(Option<Box<Bill>>);

impl Drop for Paid {
    fn drop(&mut self) {
        if let Some(bill) = self.0.take() {
            bill.settle(false, 0);
        }
    }
}

impl Item {
    fn refusal(&self, now: SystemTime) -> Refusal {
        let Self { of, budget, .. } = self;
        Refusal::BudgetSpent { retry_after: budget.per.end(now).1, of: of.clone(), budget: *budget }
    }
}
