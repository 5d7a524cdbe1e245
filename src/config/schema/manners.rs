//! Limits beyond what a site asks for, as written in `pace` for all hosts and in `hosts` for some.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::Deserialize;
use serde::de::Deserializer;

use super::text::{self, from_text};
use super::units::show_duration;
use crate::config::read::error::Complaint;
use crate::config::read::sections::Sections;
use crate::policy::{self, Manners, MoneyBudget, Period};

/// Makes the gap between requests depend on the host's latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct WrittenAdaptive {
    /// Gap as a multiple of the latency, in hundredths; 0: off.
    #[serde(deserialize_with = "text::one")]
    pub factor: u32,
    pub min: Duration,
    pub max: Duration,
}

/// Pauses a host that refuses requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct WrittenBreaker {
    /// Number of refusals in a row; 0: off.
    pub after: u32,
    pub pause: Duration,
}

/// Limits for each period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct WrittenBudget {
    /// Maximum number of requests. `None`: unlimited.
    pub requests: Option<u64>,
    #[serde(default, deserialize_with = "text::some")]
    pub bytes: Option<u64>,
    pub per: Period,
    /// Limit on the money promised to sites for their pages.
    pub money: Option<MoneyBudget>,
}

/// The limits written in one section. `None`: not written, so the same as for all hosts.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::config) struct WrittenManners {
    pub adaptive: Option<WrittenAdaptive>,
    pub breaker: Option<WrittenBreaker>,
    pub budget: Option<WrittenBudget>,
    /// 0: no limit.
    pub min_revisit: Option<Duration>,
}

impl Default for WrittenAdaptive {
    /// The defaults of the crawler Heritrix for delay factor and maximum delay.
    fn default() -> Self {
        Self { factor: 500, min: Duration::ZERO, max: Duration::from_secs(30) }
    }
}

impl Default for WrittenBreaker {
    fn default() -> Self {
        Self { after: 5, pause: Duration::from_secs(600) }
    }
}

impl WrittenAdaptive {
    fn into_policy(self) -> Option<policy::Adaptive> {
        let Self { factor, min, max } = self;
        NonZeroU32::new(factor).map(|factor| policy::Adaptive::new(factor, min, max))
    }
}

impl WrittenBreaker {
    fn into_policy(self) -> Option<policy::Breaker> {
        let Self { after, pause } = self;
        NonZeroU32::new(after).map(|after| policy::Breaker { after, pause })
    }
}

impl WrittenBudget {
    fn into_policy(self) -> Option<policy::Budget> {
        let Self { requests, bytes, per, money } = self;
        let is_limit = requests.is_some() || bytes.is_some() || money.is_some();
        is_limit.then_some(policy::Budget { requests, bytes, per, money })
    }
}

impl WrittenManners {
    /// These limits, with each missing limit taken from `before`.
    pub fn over(&self, before: &Manners) -> Manners {
        Manners {
            adaptive: self.adaptive.map_or(before.adaptive, WrittenAdaptive::into_policy),
            breaker: self.breaker.map_or(before.breaker, WrittenBreaker::into_policy),
            budget: self.budget.map_or(before.budget, WrittenBudget::into_policy),
            min_revisit: self
                .min_revisit
                .map_or(before.min_revisit, |after| Some(after).filter(|after| !after.is_zero())),
        }
    }

    /// Checks combinations of these values. `section`: the section in which they are written. `max_delay`: `pace.max_crawl_delay`.
    pub fn check(&self, section: &[&str], max_delay: Duration, check: &mut Sections<'_>) {
        let key = |path: [&'static str; 2]| [section, &path].concat();
        if self.budget.is_some() {
            check_budget(section, check);
        }
        if let Some(WrittenAdaptive { factor, min, max }) = self.adaptive
            && factor != 0
        {
            let (shown_min, shown_max, most) = (show_duration(min), show_duration(max), show_duration(max_delay));
            if min > max {
                let what = format!("`min` ({shown_min}) is longer than `max` ({shown_max})");
                check.fault(&key(["adaptive", "min"]), what, "lower the first or raise the second");
            } else if max > max_delay && check.is_sure("pace") {
                let what = format!("`max` ({shown_max}) is longer than `pace.max_crawl_delay` ({most})");
                check.fault(&key(["adaptive", "max"]), what, "lower the first or raise the second");
            }
        }
        if let Some(WrittenBreaker { after, pause }) = self.breaker
            && after != 0
            && (pause.is_zero() || pause > LONGEST_PAUSE)
        {
            let what = format!("a pause must be longer than 0 and at most 1h, not {}", show_duration(pause));
            check.fault(
                &key(["breaker", "pause"]),
                what,
                "write `10m`; a host that still refuses requests is paused again",
            );
        }
    }
}

/// Checks that `per` comes with `requests` or `bytes`.
pub(in crate::config) fn check_budget(section: &[&str], check: &mut Sections<'_>) {
    let [per, requests, bytes] = ["per", "requests", "bytes"].map(|name| [section, &["budget", name]].concat());
    if check.is_written(&per) && !check.is_written(&requests) && !check.is_written(&bytes) {
        let hint = "add `requests: …` or `bytes: …`; money has a period of its own: `money: { USD: 5, per: day }`; `{}` means no budget";
        check.fault(&per, "`per` is the period of `requests` and `bytes`, and neither is set", hint);
    }
}

/// Reads a budget, for `#[serde(deserialize_with)]`.
pub(in crate::config) fn some_budget<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<policy::Budget>, D::Error> {
    WrittenBudget::deserialize(deserializer).map(WrittenBudget::into_policy)
}

/// Parses `5` or `2.5`. Returns hundredths.
fn parse_factor(text: &str) -> Result<u32, Complaint> {
    let fault = |what| Complaint::new(what, FACTOR_FORMS);
    let number: f64 = text.parse().map_err(|_| fault(format!("expected a number, found `{text}`")))?;
    let hundredths = (number * 100.0).round();
    match (number == 0.0 || hundredths >= 1.0) && (0.0..=MOST_FACTOR * 100.0).contains(&hundredths) {
        true => Ok(hundredths as u32),
        false => Err(fault(format!("`{number}` is not a factor"))),
    }
}

from_text! {
    u32, "a number", FACTOR_FORMS, parse_factor;
}

const MOST_FACTOR: f64 = 1000.0;
const FACTOR_FORMS: &str = "a factor is a number from 0.01 to 1000, such as `5` or `2.5`, or 0 for none";
/// Maximum pause of a host: an hour, as for every stored delay. A longer stored delay counts as the result of a wrong clock.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);
