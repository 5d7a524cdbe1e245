//! Spending from the budgets of hosts and users: counted jointly while the other instances can be reached. During a partition each process
//! spends an equal share of what is left, and reports it afterwards.

mod bill;
mod in_force;

pub(super) use bill::Bill;
pub use bill::Charge;

use super::fleet::{Fleet, ServerLost, Spend};
use crate::config::Settings;
use crate::policy::{Budget, Period, Spent};
use futures_util::future::join_all;
use in_force::in_force;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// The spending known to this process.
pub(super) struct Ledger {
    known: Mutex<Book>,
    fleet: Arc<Fleet>,
    /// Locked by the task that reports to the server, so that one task reports at a time.
    reporting: tokio::sync::Mutex<()>,
}

/// The counts, by budget and period. When there are `MOST_KNOWN` counts, and twice as many as after the last eviction, the book evicts
/// counts of earlier periods, counts that are fully reported to the fleet, and if necessary the counts with the least spending.
#[derive(Default)]
struct Book {
    known: HashMap<(Box<str>, Period), KnownBudget>,
    /// Number of counts after the last eviction.
    left: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct KnownBudget {
    budget: Budget,
    /// The last count received from the fleet.
    heard: Spent,
    /// The highest count received, as a server that has lost its data answers with a lower count. For money, the last count received, as
    /// payments are often given back.
    most: Spent,
    /// Requests (or millionths of money) and bytes that were spent here and are not reported yet.
    unreported: (i64, u64),
}

/// A budget and the spending from it, for the status and the API.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetFigures {
    /// A pace key or `user=NAME`, followed by ` in USD` (its currency) if the budget is of money.
    pub of: Box<str>,
    pub budget: Budget,
    /// If the budget is of money, `requests` are millionths of its currency.
    pub spent: Spent,
}

impl Ledger {
    pub fn new(fleet: Arc<Fleet>) -> Arc<Self> {
        Arc::new(Self { known: Mutex::default(), fleet, reporting: tokio::sync::Mutex::default() })
    }

    /// The budgets in force with spending in the current period, sorted by name.
    pub fn all(&self, settings: &Settings) -> Vec<BudgetFigures> {
        let of = |(of, _, known): (Box<str>, Period, KnownBudget)| {
            let budget = in_force(settings, &of, known.budget)?;
            Some(BudgetFigures { of, budget, spent: known.spent(1) })
        };
        let mut all: Vec<_> = self.of_now(|_| true).into_iter().filter_map(of).collect();
        all.sort_by(|one, other| one.of.cmp(&other.of));
        all
    }

    /// A user's budget, and the requests and bytes spent from it in the current period.
    pub fn of_user(&self, user: &str, budget: Budget) -> BudgetFigures {
        let of = Budget::key_of_user(user);
        let spent = self.known(&of, budget.per, SystemTime::now()).spent(1);
        BudgetFigures { of, budget, spent }
    }

    /// Reports the counts received earlier, which the server may have lost. False: some could not be reported.
    pub async fn tell(&self) -> bool {
        let mut is_complete = true;
        for counts in self.of_now(|_| true).chunks(AT_A_TIME) {
            let told = counts.iter().map(|(of, per, known)| async {
                self.fleet.spend(of, &Spend { heard: known.most, ..Spend::of(*per, 0, 0) }).await.is_ok()
            });
            is_complete &= join_all(told).await.into_iter().all(|is_told| is_told);
        }
        is_complete
    }

    /// Reports the unreported spending, once all instances have reported the counts that they have received. Stops at the first failure.
    pub async fn report_all(self: &Arc<Self>) {
        while let Some(at) = self.fleet.reach().settled_at.filter(|at| *at > Instant::now()) {
            tokio::time::sleep_until(at.into()).await;
        }
        for (of, per, _) in self.of_now(|known| known.unreported != (0, 0)) {
            let ledger = self.clone();
            // The report runs to its end even if the caller stops waiting; otherwise, the spending could be reported twice.
            let reported = tokio::spawn(async move { ledger.report(&of, per).await });
            if !matches!(reported.await, Ok(Ok(()))) {
                return;
            }
        }
    }

    /// The counts of the current period for which `is_wanted` returns true.
    fn of_now(&self, is_wanted: impl Fn(&KnownBudget) -> bool) -> Vec<(Box<str>, Period, KnownBudget)> {
        let (book, now) = (self.known.lock(), SystemTime::now());
        let all = book.known.iter().filter(|((_, per), known)| known.is_current(*per, now) && is_wanted(known));
        all.map(|((of, per), known)| (of.clone(), *per, known.at(*per, now))).collect()
    }

    fn known(&self, of: &str, per: Period, now: SystemTime) -> KnownBudget {
        let known = self.known.lock().known.get(&(of.into(), per)).copied();
        known.unwrap_or_default().at(per, now)
    }

    /// Reports the unreported spending from one budget in its current period.
    async fn report(&self, of: &str, per: Period) -> Result<(), ServerLost> {
        let unreported = || self.known(of, per, SystemTime::now());
        if unreported().unreported == (0, 0) {
            return Ok(());
        }
        let _reporting = self.reporting.lock().await;
        let reported = unreported();
        let (requests, bytes) = reported.unreported;
        // The file that the processes of this machine share may be new, so the report repeats the count that was read from the previous
        // file.
        let heard = if self.fleet.has_server() { Spent::default() } else { reported.heard };
        let heard = Spent { ends: reported.heard.ends, ..heard };
        let (_, heard) = self.fleet.spend(of, &Spend { heard, ..Spend::of(per, requests, bytes) }).await?;
        if let Some(known) = self.known.lock().known.get_mut(&(of.into(), per)) {
            known.hear(&reported, heard);
        }
        Ok(())
    }

    /// Adds spending. Returns the end of the period in which it counts. `None`: the budget has no room.
    async fn spend(&self, of: &str, budget: Budget, spend: Spend) -> Option<u64> {
        let (mut answer, reach) = (None, self.fleet.reach());
        let part = reach.alone.map_or((1, 0), |phase| (phase.instances.max(1), phase.rank));
        if reach.settled_at.is_none_or(|at| at <= Instant::now()) && self.report(of, spend.per).await.is_ok() {
            // Without a server, repeats the last count received: the file that the processes of this machine share may have been removed. A
            // refund (negative) has in `heard` the period that it counts in.
            let is_told = self.fleet.has_server() || spend.requests < 0;
            let heard = || self.known(of, spend.per, SystemTime::now()).heard;
            let spend = if is_told { spend } else { Spend { heard: heard(), ..spend } };
            answer = self.fleet.spend(of, &spend).await.ok();
        }
        let (now, mut book) = (SystemTime::now(), self.known.lock());
        book.make_room(now);
        let known = book.known.entry((of.into(), spend.per)).or_default();
        let current = known.at(spend.per, now);
        *known = KnownBudget { budget, ..answer.map_or(current, |(_, heard)| current.in_period(heard.ends)) };
        let goes = match answer {
            Some((goes, heard)) => {
                known.count(heard);
                goes
            }
            None => known.spend_unreported(&spend, part),
        };
        goes.then_some(known.heard.ends)
    }
}

impl KnownBudget {
    /// The count at `now` ([`Spent::at`]).
    fn at(self, per: Period, now: SystemTime) -> Self {
        let heard = self.heard.at(per, now);
        let unreported = if self.is_current(per, now) { self.unreported } else { (0, 0) };
        Self { heard, most: self.most.at(per, now), unreported, ..self }
    }

    /// Whether the count's period is still running.
    fn is_current(&self, per: Period, now: SystemTime) -> bool {
        self.heard.ends >= per.end(now).0
    }

    /// The count in the period that ends at `ends`.
    fn in_period(self, ends: u64) -> Self {
        if self.heard.ends == ends {
            self
        } else {
            Self { heard: self.heard.in_period(ends), unreported: (0, 0), ..self }
        }
    }

    fn count(&mut self, heard: Spent) {
        self.most = if self.budget.money.is_some() { heard } else { heard.or_more(self.most) };
        self.heard = heard;
    }

    /// Handles the answer to a report. `reported`: the count when the report was made.
    fn hear(&mut self, reported: &Self, heard: Spent) {
        // If a new period has begun since the report, the answer is ignored: the report contained no spending of the new period.
        if self.heard.ends == reported.heard.ends {
            let unreported =
                (self.unreported.0 - reported.unreported.0, self.unreported.1.saturating_sub(reported.unreported.1));
            *self = Self { unreported, ..*self }.in_period(heard.ends);
            self.count(heard);
        }
    }

    /// The estimated total, as if each instance had spent as much as this instance since the last count received.
    fn spent(&self, instances: u32) -> Spent {
        let (requests, bytes) = self.unreported;
        self.heard.plus(requests.saturating_mul(instances.into()), bytes.saturating_mul(instances.into()))
    }

    /// Spends during a partition. Returns false if the budget may have no room, assuming that the other instances, each with another rank,
    /// spend as much.
    fn spend_unreported(&mut self, spend: &Spend, (instances, rank): (u32, u32)) -> bool {
        let goes = spend.within.is_none_or(|budget| budget.has_room(&self.spent(instances).plus(rank.into(), 0)));
        if goes {
            let (requests, bytes) = self.unreported;
            self.unreported = (requests + spend.requests_in(self.heard.ends), bytes.saturating_add(spend.bytes));
        }
        goes
    }
}

impl Book {
    /// Evicts counts if there are too many. The search through all counts is rare, as their number must double in between.
    fn make_room(&mut self, now: SystemTime) {
        if self.known.len() < MOST_KNOWN.max(2 * self.left) {
            return;
        }
        self.known.retain(|(_, per), known| known.is_current(*per, now) && known.unreported != (0, 0));
        if self.known.len() > MOST_LEFT {
            let mut spent: Vec<u64> = self.known.values().map(|known| known.spent(1).requests).collect();
            let given_up = spent.len() - MOST_LEFT / 2;
            let most = *spent.select_nth_unstable(given_up).1;
            self.known.retain(|_, known| known.spent(1).requests > most);
        }
        self.left = self.known.len();
    }
}

/// Maximum number of counts that are reported at a time.
const AT_A_TIME: usize = 256;
/// Number of counts below which none is evicted.
const MOST_KNOWN: usize = 65_536;
/// Number of counts of current periods with unreported spending above which some of these are evicted, too.
const MOST_LEFT: usize = 4 * MOST_KNOWN;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Money, MoneyBudget};

    /// Number of requests that are allowed during a partition, if `heard` was the last count received before it.
    fn alone(budget: Budget, heard: u64, part: (u32, u32)) -> usize {
        let heard = Spent { ends: 3600, requests: heard, bytes: heard * 100 };
        let mut known = KnownBudget { budget, heard, most: heard, unreported: (0, 0) };
        let spend = Spend { within: Some(budget), ..Spend::of(Period::Hour, 1, 100) };
        (0..20).filter(|_| known.spend_unreported(&spend, part)).count()
    }

    #[test]
    fn instance_cut_off_spends_its_share_of_the_rest() {
        let budget = Budget { requests: Some(10), bytes: None, per: Period::Hour, money: None };
        let all = [(0, 1), (4, 1), (10, 1), (0, 2), (4, 2), (5, 2), (9, 3), (10, 2)];
        let goes = all.map(|(heard, instances)| {
            let parts: Vec<usize> = (0..instances).map(|rank| alone(budget, heard, (instances, rank))).collect();
            assert_eq!(parts.iter().sum::<usize>(), 10 - heard as usize, "the instances spend all that is left");
            parts
        });
        let expected: [&[usize]; 8] = [&[10], &[6], &[0], &[5, 5], &[3, 3], &[3, 2], &[1, 0, 0], &[0, 0]];
        assert_eq!(goes, expected);
        let bytes = Budget { requests: None, bytes: Some(1000), ..budget };
        assert_eq!([(0, 1), (0, 2), (4, 3)].map(|(heard, instances)| alone(bytes, heard, (instances, 0))), [10, 5, 2]);
    }

    #[test]
    fn emptied_server_receives_the_highest_count_without_refunded_money() {
        let money = MoneyBudget { most: Money::parse("USD 1").unwrap(), per: Period::Hour };
        for (money, most) in [(None, 9), (Some(money), 2)] {
            let mut known = KnownBudget { budget: Budget { money, ..Budget::default() }, ..KnownBudget::default() };
            for requests in [4, 9, 2] {
                known.count(Spent { ends: 3600, requests, bytes: 0 });
            }
            assert_eq!((known.most.requests, known.heard.requests), (most, 2));
        }
    }

    #[test]
    fn unreported_spending_expires_with_its_period() {
        let budget = Budget { requests: Some(10), bytes: None, per: Period::Hour, money: None };
        let heard = Spent { ends: 3600, requests: 4, bytes: 40 };
        let known = KnownBudget { budget, heard, most: heard, unreported: (2, 20) };
        assert_eq!(known.in_period(7200).spent(3), Spent { ends: 7200, requests: 0, bytes: 0 });
        assert_eq!(known.in_period(3600).spent(2), Spent { ends: 3600, requests: 8, bytes: 80 });
    }

    #[test]
    fn clock_set_back_does_not_renew_the_budget() {
        let at = |seconds| SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        let heard = Spent { ends: 7200, requests: 4, bytes: 40 };
        let known = KnownBudget { heard, unreported: (2, 20), ..KnownBudget::default() };
        let spent = |seconds| known.at(Period::Hour, at(seconds)).spent(1);
        assert_eq!([3600, 3599, 0].map(spent), [Spent { ends: 7200, requests: 6, bytes: 60 }; 3]);
        assert_eq!(spent(7200), Spent { ends: 10_800, requests: 0, bytes: 0 });
        let mut book = Book { known: HashMap::new(), left: 0 };
        book.known.extend((0..MOST_KNOWN).map(|number| ((number.to_string().into(), Period::Hour), known)));
        book.make_room(at(0));
        assert_eq!(book.known.len(), MOST_KNOWN);
    }

    #[test]
    fn refund_counts_only_in_its_own_period() {
        let paid = |ends| Spend { heard: Spent { ends, ..Spent::default() }, ..Spend::of(Period::Hour, -1, 0) };
        let heard = Spent { ends: 3600, requests: 4, bytes: 0 };
        let mut known = KnownBudget { heard, ..KnownBudget::default() };
        let left = [paid(0), paid(3600)].map(|spend| (known.spend_unreported(&spend, (1, 0)), known.spent(1).requests));
        assert_eq!(left, [(true, 4), (true, 3)]);
    }

    #[test]
    fn reported_spending_is_no_longer_unreported_in_the_same_period() {
        let known = |ends, requests, unreported| {
            let heard = Spent { ends, requests, bytes: 10 * requests };
            KnownBudget { heard, unreported, ..KnownBudget::default() }
        };
        let after = |mut now: KnownBudget, heard: KnownBudget| {
            now.hear(&known(3600, 4, (2, 20)), heard.heard);
            (now.heard.ends, now.heard.requests, now.unreported)
        };
        assert_eq!(after(known(3600, 4, (2, 20)), known(3600, 6, (0, 0))), (3600, 6, (0, 0)));
        assert_eq!(
            after(known(3600, 4, (3, 30)), known(3600, 6, (0, 0))),
            (3600, 6, (1, 10)),
            "spent since the report"
        );
        assert_eq!(
            after(known(3600, 4, (3, 30)), known(7200, 2, (0, 0))),
            (7200, 2, (0, 0)),
            "the server's period ended"
        );
        assert_eq!(after(known(7200, 0, (1, 10)), known(3600, 6, (0, 0))), (7200, 0, (1, 10)), "our period ended");
    }

    #[test]
    fn expired_budgets_are_dropped_without_a_search_per_request() {
        let budget = Budget { requests: Some(1), bytes: None, per: Period::Hour, money: None };
        let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(36_000);
        let mut book = Book::default();
        let put = |book: &mut Book, number: usize, ends: u64| {
            let heard = Spent { ends, requests: 1, bytes: 0 };
            book.known.insert(
                (number.to_string().into(), Period::Hour),
                KnownBudget { budget, heard, most: heard, unreported: (1, 0) },
            );
        };
        (0..MOST_KNOWN).for_each(|number| put(&mut book, number, if number % 2 == 0 { 36_000 } else { 39_600 }));
        book.make_room(now);
        assert_eq!((book.known.len(), book.left), (MOST_KNOWN / 2, MOST_KNOWN / 2));
        (0..MOST_KNOWN).for_each(|number| put(&mut book, number, 39_600));
        book.make_room(now);
        assert_eq!((book.known.len(), book.left), (MOST_KNOWN, MOST_KNOWN));
        put(&mut book, MOST_KNOWN, 36_000);
        book.make_room(now);
        assert_eq!(book.known.len(), MOST_KNOWN + 1, "nothing is evicted until the book has doubled");
    }

    #[test]
    fn number_of_budgets_of_one_period_is_bounded() {
        let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(36_000);
        let kept = |unreported: i64| {
            let mut book = Book::default();
            for number in 0..600_000 {
                book.make_room(now);
                let requests = if number == 7 { 50 } else { number % 3 };
                let heard = Spent { ends: 39_600, requests, bytes: 0 };
                let known = KnownBudget { heard, unreported: (unreported, 0), ..KnownBudget::default() };
                book.known.insert((number.to_string().into(), Period::Hour), known);
            }
            (book.known.len(), book.known.contains_key(&("7".into(), Period::Hour)))
        };
        let (count, _) = kept(0);
        assert!(count <= MOST_KNOWN, "reported counts are evicted: {count}");
        let (count, has_much_spent) = kept(1);
        assert!(count <= 2 * MOST_LEFT && has_much_spent, "{count}");
    }
}
