//! What one request costs its budgets: paid before the request is sent, settled when it ends, given back if it was never sent.

use super::Ledger;
use crate::gate::compute::rethrown;
use crate::gate::fleet::Spend;
use crate::policy::{Budget, Money, PaceKey, Refusal, Request, Spent};
use futures_util::FutureExt;
use std::fmt;
use std::future::pending;
use std::sync::{Arc, Once};
use std::time::SystemTime;
use tokio::runtime::Handle;

/// What one request costs each of its budgets.
pub(in crate::gate) struct Bill {
    ledger: Arc<Ledger>,
    items: Vec<Item>,
    /// Report mode: the request is sent even over budget.
    is_reported: bool,
}

#[derive(Debug)]
struct Item {
    of: Box<str>,
    budget: Budget,
    /// The amount to pay: one request, or the promised price in millionths of its currency unit.
    cost: i64,
    /// The item is paid only if the spending so far is below these limits.
    within: Budget,
    /// The end of the period in which the item was paid. `None`: not paid.
    paid: Option<u64>,
}

impl fmt::Debug for Bill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bill").field(&self.items).finish()
    }
}

impl Bill {
    /// The bill of a request. `None`: no budget applies. `is_reported`: as in [`Bill`].
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
        let host = host.map(|budget| (key.to_string().into(), budget));
        let user = request.user.zip(request.budget).map(|(user, budget)| (Budget::key_of_user(user), *budget));
        let both = || host.iter().chain(&user);
        let counted = both().filter_map(|(of, budget)| Item::counted(of, *budget));
        let promised = request.promised.into_iter();
        let promised = promised.flat_map(|it| both().filter_map(move |(of, budget)| Item::promised(of, *budget, it)));
        let items: Vec<_> = counted.chain(promised).collect();
        (!items.is_empty()).then(|| Box::new(Self { ledger: ledger.clone(), items, is_reported }))
    }

    /// The refusal, if a budget is already known to be spent.
    pub fn refusal(&self) -> Option<Refusal> {
        let now = SystemTime::now();
        let refused = |it: &Item| {
            let spent = self.ledger.known(&it.of, it.within.per, now).spent(1);
            (!it.within.has_room(&spent)).then(|| it.refusal(spent, now))
        };
        self.items.iter().find_map(refused)
    }

    /// Pays for the request. If the caller stops waiting, the payment is still completed and then given back, because other instances may
    /// already have counted it.
    pub async fn pay(self: Box<Self>) -> Result<Box<Self>, Refusal> {
        let paying = tokio::spawn(async move { self.pay_all().await.map(|bill| Paid(Some(bill))) });
        // The task fails only when the process is ending.
        let Ok(paid) = paying.await.map_err(rethrown) else { return pending().await };
        paid.map(|mut paid| paid.0.take().expect("nothing else takes the bill"))
    }

    async fn pay_all(mut self: Box<Self>) -> Result<Box<Self>, Refusal> {
        for number in 0..self.items.len() {
            let item = &self.items[number];
            let within = Some(item.within).filter(|_| !self.is_reported);
            let spend = Spend { within, ..Spend::of(item.within.per, item.cost, 0) };
            let paid = self.ledger.spend(&item.of, item.budget, spend).await;
            if paid.is_none() {
                let now = SystemTime::now();
                let refusal = item.refusal(self.ledger.known(&item.of, item.within.per, now).heard, now);
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
                let spend = Spend { heard, ..Spend::of(item.within.per, -item.cost, 0) };
                self.ledger.spend(&item.of, item.budget, spend).await;
            }
        }
    }

    /// Settles an ended request. `sent`: whether it was sent to the origin. `bytes`: length of its answer's body. `charged`: the charge
    /// that its answer reports; `None`: unknown.
    pub fn settle(mut self, sent: bool, bytes: u64, charged: Option<Charge>) {
        let is_charged = charged.is_some() && self.items.iter().any(|item| item.budget.money.is_some());
        if sent && bytes == 0 && !is_charged || self.items.iter().all(|item| item.paid.is_none()) {
            return;
        }
        let settled = async move {
            if !sent {
                return self.give_back().await;
            }
            for item in &self.items {
                let Some(spend) = item.afterwards(bytes, charged) else { continue };
                self.ledger.spend(&item.of, item.budget, spend).await;
            }
        };
        // If there is no runtime, the process is ending.
        let Ok(runtime) = Handle::try_current() else { return };
        let mut settled = Box::pin(settled);
        // The bill is settled at once, before the client's next request, unless that needs the fleet's server or has to wait.
        if (&mut settled).now_or_never().is_none() {
            runtime.spawn(settled);
        }
    }
}

/// The charge that an answer reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    Nothing,
    Of(Money),
}

/// A paid bill. Dropping it gives the payment back.
struct Paid(Option<Box<Bill>>);

impl Drop for Paid {
    fn drop(&mut self) {
        if let Some(bill) = self.0.take() {
            bill.settle(false, 0, None);
        }
    }
}

impl Item {
    /// The item for a budget's limits on requests and bytes. `None`: it has none.
    fn counted(of: &str, budget: Budget) -> Option<Self> {
        let budget = Budget { money: None, ..budget };
        let is_one = budget.requests.is_some() || budget.bytes.is_some();
        is_one.then(|| Self { of: of.into(), budget, cost: 1, within: budget, paid: None })
    }

    /// The item for a budget's limit on money, whose millionths are counted like requests. A price above the limit or in another currency
    /// is always refused (not in report mode). `None`: the budget does not limit money.
    fn promised(of: &str, budget: Budget, promised: Money) -> Option<Self> {
        let money = budget.money?;
        let promised = Some(promised).filter(|promised| promised.currency == money.most.currency);
        let left = promised.and_then(|promised| money.most.micros.checked_sub(promised.micros));
        let within = Budget { requests: Some(left.map_or(0, |left| left + 1)), per: money.per, ..Budget::default() };
        let cost = promised.map_or(0, |promised| i64::try_from(promised.micros).unwrap_or(i64::MAX));
        let of = format!("{of} in {}", money.most.currency.as_str()).into();
        let budget = Budget { money: Some(money), per: money.per, ..Budget::default() };
        Some(Self { of, budget, cost, within, paid: None })
    }

    /// The spending to add when the answer ends: its bytes or, for money, the charge minus what was paid, which is never positive. `None`:
    /// nothing to add.
    fn afterwards(&self, bytes: u64, charged: Option<Charge>) -> Option<Spend> {
        let per = self.within.per;
        let Some(money) = self.budget.money else { return (bytes > 0).then(|| Spend::of(per, 0, bytes)) };
        let micros = match charged? {
            Charge::Nothing => 0,
            Charge::Of(charged) if charged.currency == money.most.currency => charged.micros,
            // The promised amount stays spent.
            Charge::Of(_) => return None,
        };
        let charged = i64::try_from(micros).unwrap_or(i64::MAX);
        if charged > self.cost {
            TOLD.call_once(|| {
                tracing::warn!("an answer charges more than was offered: only the offer is counted for {}", self.of);
            });
        }
        let more = charged.min(self.cost) - self.cost;
        let heard = Spent { ends: self.paid?, ..Spent::default() };
        (more != 0).then(|| Spend { heard, ..Spend::of(per, more, 0) })
    }

    fn refusal(&self, spent: Spent, now: SystemTime) -> Refusal {
        let Self { of, budget, .. } = self;
        let is_ever = self.within.has_room(&Spent::default());
        let retry_after = is_ever.then(|| spent.left(now));
        Refusal::BudgetSpent { retry_after, of: of.clone(), budget: *budget }
    }
}

/// Whether a charge above the offer has been logged.
static TOLD: Once = Once::new();

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{MoneyBudget, Period};

    /// The spending added by an answer with this charge, in millionths, after an offer of USD 0.01.
    fn change(charged: Option<Charge>) -> Option<i64> {
        let money = |text| Money::parse(text).unwrap();
        let budget =
            Budget { money: Some(MoneyBudget { most: money("USD 1"), per: Period::Day }), ..Budget::default() };
        let item = Item::promised("user=a", budget, money("USD 0.01")).unwrap();
        let item = Item { paid: Some(86_400), ..item };
        item.afterwards(0, charged).map(|spend| spend.requests)
    }

    #[test]
    fn charge_is_limited_to_the_offer() {
        let charged = |text| change(Some(Charge::Of(Money::parse(text).unwrap())));
        assert_eq!(charged("USD 5000"), None);
        assert_eq!(charged("USD 999999999999"), None);
        assert_eq!(charged("USD 0.01"), None);
        assert_eq!(charged("USD 0.004"), Some(-6_000));
        assert_eq!(charged("EUR 0"), None, "the offered amount stays spent");
        assert_eq!(change(Some(Charge::Nothing)), Some(-10_000));
        assert_eq!(change(None), None);
    }
}
