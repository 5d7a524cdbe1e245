//! Limits on the requests and bytes of each period, for a host or a user. Pure; time is an argument.

use std::fmt;
use std::time::{Duration, SystemTime};

use super::Money;

/// Limits for each period. `None`: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    pub requests: Option<u64>,
    /// Bytes of answers' bodies.
    pub bytes: Option<u64>,
    pub per: Period,
    /// Limit on the money promised to sites for their pages (pay per crawl), with a period of its own.
    pub money: Option<MoneyBudget>,
}

/// Limit on the money promised in each period.
#[derive(Debug, Clone, Copy, PartialEq, Hash, Eq)]
pub struct MoneyBudget {
    pub most: Money,
    pub per: Period,
}

/// A period of wall-clock time, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "proxy", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Period {
    #[default]
    Day,
    Hour,
}

/// The amount spent in one period, which is identified by its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// End of the period, in seconds since 1970.
    pub ends: u64,
    pub requests: u64,
    pub bytes: u64,
}

impl Budget {
    /// The key of a user's budget, distinct from the keys of hosts' budgets.
    pub fn key_of_user(user: &str) -> Box<str> {
        format!("user={user}").into()
    }

    /// Whether one more request may be sent. The bytes of its answer are counted afterwards, when they are known.
    pub fn has_room(&self, spent: &Spent) -> bool {
        self.requests.is_none_or(|most| spent.requests < most) && self.bytes.is_none_or(|most| spent.bytes < most)
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requests = self.requests.map(|most| format!("{most} requests"));
        let bytes = self.bytes.map(|most| format!("{most} bytes"));
        let all: Vec<String> = requests.into_iter().chain(bytes).collect();
        let all = Some(all.join(" and ")).filter(|all| !all.is_empty());
        let all = all.map(|all| format!("{all} per {}", self.per.as_str()));
        let all: Vec<String> = all.into_iter().chain(self.money.map(|money| money.to_string())).collect();
        f.write_str(&all.join("; "))
    }
}

impl fmt::Display for MoneyBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {}", self.most, self.per.as_str())
    }
}

impl Period {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Hour => "hour",
        }
    }

    /// Length in seconds.
    pub fn length(self) -> u64 {
        match self {
            Self::Day => 86_400,
            Self::Hour => 3_600,
        }
    }

    /// End of the current period: in seconds since 1970, and from now.
    pub fn end(self, now: SystemTime) -> (u64, Duration) {
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let ends = (since.as_secs() / self.length() + 1) * self.length();
        (ends, Duration::from_secs(ends).saturating_sub(since))
    }
}

impl Spent {
    /// The amount that counts now: zero if `self` is of an earlier period. If the clock was set back, the amount of a later period still
    /// counts, but at most until the end of the next period, as the clock may have been years ahead.
    #[must_use]
    pub fn at(self, per: Period, now: SystemTime) -> Self {
        let (ends, _) = per.end(now);
        if self.ends < ends { self.in_period(ends) } else { Self { ends: self.ends.min(ends + per.length()), ..self } }
    }

    /// Time until the period ends.
    pub fn left(&self, now: SystemTime) -> Duration {
        Duration::from_secs(self.ends).saturating_sub(now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
    }

    /// The amount spent in the period with this end: zero if `self` is of another period.
    #[must_use]
    pub fn in_period(self, ends: u64) -> Self {
        if self.ends == ends { self } else { Self { ends, ..Self::default() } }
    }

    /// The greater number of requests and of bytes, or `self` if `other` is of another period.
    #[must_use]
    pub fn or_more(self, other: Self) -> Self {
        let other = other.in_period(self.ends);
        Self { requests: self.requests.max(other.requests), bytes: self.bytes.max(other.bytes), ..self }
    }

    /// Adds to the amount. `requests` is negative for requests that were not sent after all.
    #[must_use]
    pub fn plus(self, requests: i64, bytes: u64) -> Self {
        let requests = self.requests.saturating_add_signed(requests);
        Self { requests, bytes: self.bytes.saturating_add(bytes), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(per: Period) -> Budget {
        Budget { per, ..Budget::default() }
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    /// Requests at these times, one after the other: `+` if allowed, `-` if not.
    fn go(budget: Budget, times: &[u64]) -> String {
        let mut spent = Spent::default();
        let mut ask = |now: &u64| {
            spent = spent.at(budget.per, at(*now));
            let goes = budget.has_room(&spent);
            spent = if goes { spent.plus(1, 100) } else { spent };
            if goes { '+' } else { '-' }
        };
        times.iter().map(&mut ask).collect()
    }

    #[test]
    fn requests_per_period_are_limited() {
        let hourly = Budget { requests: Some(2), bytes: None, ..of(Period::Hour) };
        assert_eq!(go(hourly, &[0, 1, 2, 3599, 3600, 3601, 3602, 7200]), "++--++-+");
        let daily = Budget { per: Period::Day, ..hourly };
        assert_eq!(go(daily, &[0, 3600, 7200, 86_399, 86_400]), "++--+");
        assert_eq!(go(Budget { requests: Some(0), ..daily }, &[0, 86_400]), "--", "nothing is allowed");
    }

    #[test]
    fn bytes_per_period_are_limited() {
        let budget = Budget { requests: Some(5), bytes: Some(250), ..of(Period::Hour) };
        assert_eq!(go(budget, &[0, 0, 0, 0, 3600]), "+++-+", "the bytes of an answer are known only afterwards");
    }

    #[test]
    fn a_period_ends_by_the_clock_in_utc() {
        let day = 20_000 * 86_400;
        assert_eq!(Period::Day.end(at(day)), (day + 86_400, Duration::from_secs(86_400)));
        assert_eq!(Period::Day.end(at(day + 86_399)), (day + 86_400, Duration::from_secs(1)));
        assert_eq!(Period::Hour.end(at(day + 3601)), (day + 7200, Duration::from_secs(3599)));
        let almost = at(day + 86_399) + Duration::from_millis(999);
        assert_eq!(Period::Day.end(almost).1, Duration::from_millis(1));
    }

    #[test]
    fn clock_set_back_does_not_renew_the_budget() {
        let hourly = Budget { requests: Some(2), bytes: None, ..of(Period::Hour) };
        assert_eq!(go(hourly, &[3600, 3601, 3599, 0, 3600, 7199, 7200]), "++----+", "the period lasts until its end");
        assert_eq!(go(hourly, &[36_000, 36_001, 0, 3600, 7199, 7200]), "++---+", "or to the end of the next one");
        let spent = Spent { ends: 7200, requests: 9, bytes: 9 };
        assert_eq!(spent.at(Period::Hour, at(10)).left(at(10)), Duration::from_secs(7190));
    }

    #[test]
    fn refund_reduces_the_count() {
        let spent = Spent { ends: 1, requests: 1, bytes: 5 };
        assert_eq!(spent.plus(-1, 0), Spent { ends: 1, requests: 0, bytes: 5 });
        assert_eq!(spent.plus(-2, 0).requests, 0);
    }

    #[test]
    fn budget_is_displayed_in_words() {
        let budget = Budget { requests: Some(5), bytes: Some(1024), ..of(Period::Hour) };
        assert_eq!(budget.to_string(), "5 requests and 1024 bytes per hour");
        assert_eq!(Budget { requests: None, ..budget }.to_string(), "1024 bytes per hour");
        let money = Some(MoneyBudget { most: Money::parse("USD 5").unwrap(), per: Period::Day });
        assert_eq!(Budget { requests: None, money, ..budget }.to_string(), "1024 bytes per hour; USD 5 per day");
        assert_eq!(Budget { money, ..Budget::default() }.to_string(), "USD 5 per day");
    }
}
