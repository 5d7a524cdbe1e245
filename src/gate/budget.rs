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
    known: Mutex<Book>,
    fleet: Option<Arc<Fleet>>,
}

/// Those of earlier periods are forgotten when there are twice as many as were left the last time.
#[derive(Default)]
struct Book {
    known: HashMap<(Box<str>, Period), KnownBudget>,
    left: usize,
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
        let (book, now) = (self.known.lock(), SystemTime::now());
        let is_now = |((_, per), known): &(&(Box<str>, Period), &KnownBudget)| known.spent.ends == per.end(now).0;
        let of = |((of, _), known): (&(Box<str>, Period), &KnownBudget)| {
            let KnownBudget { budget, spent } = *known;
            BudgetFigures { of: of.clone(), budget, spent }
        };
        let mut all: Vec<_> = book.known.iter().filter(is_now).map(of).collect();
        all.sort_by(|one, other| one.of.cmp(&other.of));
        all
    }

    fn known(&self, of: &str, per: Period, now: SystemTime) -> Spent {
        let book = self.known.lock();
        let spent = book.known.get(&(of.into(), per)).map_or_else(Spent::default, |known| known.spent);
        spent.in_period(per.end(now).0)
    }

    /// False: there was no room for it.
    async fn spend(&self, of: &str, budget: Budget, spend: Spend) -> bool {
        let told = match &self.fleet {
            Some(fleet) => fleet.spend(of, &spend).await.ok(),
            None => None,
        };
        let (now, mut book) = (SystemTime::now(), self.known.lock());
        let (ends, _) = spend.per.end(now);
        book.make_room(now);
        let known = book.known.entry((of.into(), spend.per)).or_insert(KnownBudget { budget, spent: Spent::default() });
        // Nobody else can be asked: it goes on from what was known last.
        let (goes, spent) = told.unwrap_or_else(|| spend.of(known.spent.in_period(ends)));
        *known = KnownBudget { budget, spent };
        goes
    }
}

impl Book {
    /// Not for each that comes, however many there are of this period.
    fn make_room(&mut self, now: SystemTime) {
        if self.known.len() >= MOST_KNOWN.max(2 * self.left) {
            self.known.retain(|(_, per), known| known.spent.ends == per.end(now).0);
            self.left = self.known.len();
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_earlier_periods_spent_is_forgotten_and_is_not_looked_for_with_each_request() {
        let budget = Budget { requests: Some(1), bytes: None, per: Period::Hour };
        let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(36_000);
        let mut book = Book::default();
        let put = |book: &mut Book, number: usize, ends: u64| {
            let spent = Spent { ends, requests: 1, bytes: 0 };
            book.known.insert((number.to_string().into(), Period::Hour), KnownBudget { budget, spent });
        };
        (0..MOST_KNOWN).for_each(|number| put(&mut book, number, if number % 2 == 0 { 36_000 } else { 39_600 }));
        book.make_room(now);
        assert_eq!((book.known.len(), book.left), (MOST_KNOWN / 2, MOST_KNOWN / 2));
        (0..MOST_KNOWN).for_each(|number| put(&mut book, number, 39_600));
        book.make_room(now);
        assert_eq!((book.known.len(), book.left), (MOST_KNOWN, MOST_KNOWN));
        put(&mut book, MOST_KNOWN, 36_000);
        book.make_room(now);
        assert_eq!(book.known.len(), MOST_KNOWN + 1, "not before there are twice as many");
    }
}
