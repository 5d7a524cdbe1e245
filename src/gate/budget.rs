//! What is spent of budgets, by hosts and by users: what all who share them know, as far as they can be asked, and what is known
//! here until they can.

use super::fleet::{Fleet, Spend};
use crate::policy::{Budget, PaceKey, Period, Refusal, Request, Spent};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::runtime::Handle;

/// What has been spent, as it is known here.
pub(super) struct Ledger {
    known: Mutex<HashMap<(Box<str>, Period), KnownBudget>>,
    fleet: Option<Arc<Fleet>>,
}

#[derive(Debug, Clone, Copy)]
struct KnownBudget {
    budget: Budget,
    spent: Spent,
}

/// A budget, for people who watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetFigures {
    /// A pace key, or `user=NAME`.
    pub of: Box<str>,
    pub budget: Budget,
    pub spent: Spent,
}

/// The budgets that one request is to be paid from.
pub(super) struct Bill {
    ledger: Arc<Ledger>,
    items: Vec<(Box<str>, Budget)>,
    is_paid: bool,
    /// It goes whatever has been spent.
    is_reported: bool,
}

impl fmt::Debug for Bill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bill").field(&self.items).finish()
    }
}

impl Ledger {
    pub fn new(fleet: Option<Arc<Fleet>>) -> Arc<Self> {
        Arc::new(Self { known: Mutex::default(), fleet })
    }

    /// Those of the period of now, in the order of their names.
    pub fn all(&self) -> Vec<BudgetFigures> {
        let (known, now) = (self.known.lock(), SystemTime::now());
        let is_now = |((_, per), known): &(&(Box<str>, Period), &KnownBudget)| known.spent.ends == per.end(now).0;
        let of = |((of, _), known): (&(Box<str>, Period), &KnownBudget)| {
            let KnownBudget { budget, spent } = *known;
            BudgetFigures { of: of.clone(), budget, spent }
        };
        let mut all: Vec<_> = known.iter().filter(is_now).map(of).collect();
        all.sort_by(|one, other| one.of.cmp(&other.of));
        all
    }

    fn known(&self, of: &str, per: Period, now: SystemTime) -> Spent {
        let known = self.known.lock();
        let spent = known.get(&(of.into(), per)).map_or_else(Spent::default, |known| known.spent);
        spent.in_period(per.end(now).0)
    }

    /// False: there was no room for it.
    async fn spend(&self, of: &str, budget: Budget, spend: Spend) -> bool {
        let told = match &self.fleet {
            Some(fleet) => fleet.spend(of, &spend).await.ok(),
            None => None,
        };
        let (now, mut all) = (SystemTime::now(), self.known.lock());
        let (ends, _) = spend.per.end(now);
        if all.len() >= MOST_KNOWN {
            all.retain(|(_, per), known| known.spent.ends == per.end(now).0);
        }
        let known = all.entry((of.into(), spend.per)).or_insert(KnownBudget { budget, spent: Spent::default() });
        // Nobody else can be asked: it goes on from what was known last.
        let (goes, spent) = told.unwrap_or_else(|| spend.of(known.spent.in_period(ends)));
        *known = KnownBudget { budget, spent };
        goes
    }
}

impl Bill {
    /// `None`: nobody has a budget. `is_reported`: what is spent is only told of.
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
        let user = request.user.zip(request.budget).map(|(user, budget)| (format!("user={user}").into(), *budget));
        let items = host.into_iter().chain(user).collect();
        Some(Box::new(Self { ledger: ledger.clone(), items, is_paid: false, is_reported }))
    }

    /// Why it does not go, if that is known already.
    pub fn refusal(&self) -> Option<Refusal> {
        let now = SystemTime::now();
        let is_spent = |(of, budget): &&(Box<str>, Budget)| !budget.has_room(&self.ledger.known(of, budget.per, now));
        self.items.iter().find(is_spent).map(|(of, budget)| spent(of, *budget, now))
    }

    /// One more request.
    pub async fn pay(&mut self) -> Result<(), Refusal> {
        for (number, (of, budget)) in self.items.iter().enumerate() {
            let within = Some(*budget).filter(|_| !self.is_reported);
            let spend = Spend { per: budget.per, requests: 1, bytes: 0, within };
            if !self.ledger.spend(of, *budget, spend).await {
                for (of, budget) in &self.items[..number] {
                    self.ledger.spend(of, *budget, unsent(budget.per)).await;
                }
                return Err(spent(of, *budget, SystemTime::now()));
            }
        }
        self.is_paid = true;
        Ok(())
    }

    /// It is over. `bytes`: of its answer. Not `sent`: it has not been a request.
    pub fn settle(self, sent: bool, bytes: u64) {
        if !self.is_paid || sent && bytes == 0 {
            return;
        }
        let settled = async move {
            for (of, budget) in &self.items {
                let spend = if sent { Spend { requests: 0, bytes, ..unsent(budget.per) } } else { unsent(budget.per) };
                self.ledger.spend(of, *budget, spend).await;
            }
        };
        // Without one, the process is ending.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(settled);
        }
    }
}

fn unsent(per: Period) -> Spend {
    Spend { per, requests: -1, bytes: 0, within: None }
}

fn spent(of: &str, budget: Budget, now: SystemTime) -> Refusal {
    Refusal::BudgetSpent { retry_after: budget.per.end(now).1, of: of.into(), budget }
}

/// Hosts and users before those of other periods are forgotten.
const MOST_KNOWN: usize = 65_536;
