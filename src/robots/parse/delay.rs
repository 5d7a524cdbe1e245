//! The pace a file asks for: Crawl-delay, Request-rate, Visit-time. Defined not by RFC 9309, but by Bing, Yandex and
//! the extended standard of 1996. Pure.

use std::fmt;
use std::time::{Duration, SystemTime};

use super::key::RecordKey;

/// The pace that a file asks for.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StatedPace {
    pub(crate) crawl_delay: Option<Duration>,
    pub(crate) request_rate: Option<RequestRate>,
    pub(crate) visit_time: Option<VisitTime>,
}

impl StatedPace {
    /// Reads the value of a line with this key. `None`: the value is malformed, or the key is not about pace.
    pub(crate) fn parse(key: RecordKey, value: &[u8]) -> Option<Self> {
        let nothing = Self::default();
        match key {
            RecordKey::CrawlDelay => crawl_delay(value).map(|delay| Self { crawl_delay: Some(delay), ..nothing }),
            RecordKey::RequestRate => {
                RequestRate::parse(value).map(|rate| Self { request_rate: Some(rate), ..nothing })
            }
            RecordKey::VisitTime => VisitTime::parse(value).map(|time| Self { visit_time: Some(time), ..nothing }),
            _ => None,
        }
    }

    /// Merges two paces: the slower value of each kind counts. Times of day cannot be compared, so the first one stays.
    pub(crate) fn slower(self, other: Self) -> Self {
        let request_rate = match (self.request_rate, other.request_rate) {
            (Some(a), Some(b)) => Some(if b.gap() > a.gap() { b } else { a }),
            (a, b) => a.or(b),
        };
        Self {
            crawl_delay: self.crawl_delay.max(other.crawl_delay),
            request_rate,
            visit_time: self.visit_time.or(other.visit_time),
        }
    }

    /// Time from one request to the next.
    pub(crate) fn gap(&self) -> Option<Duration> {
        self.crawl_delay.max(self.request_rate.map(|rate| rate.gap()))
    }
}

/// The longest delay: a year. Longer delays are cut to this.
const MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The value of a line such as `Request-rate: 1/10s 0900-1700`: `requests` in each `time`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestRate {
    pub requests: u32,
    pub time: Duration,
    /// The time of day for which the site states the rate. It is applied all day, as a slower pace does no harm.
    pub during: Option<VisitTime>,
}

impl RequestRate {
    /// Time from one request to the next.
    pub fn gap(&self) -> Duration {
        self.time / self.requests.max(1)
    }

    fn parse(value: &[u8]) -> Option<Self> {
        let value = str::from_utf8(value).ok()?;
        let (rate, during) = match value.split_once([' ', '\t']) {
            Some((rate, during)) => (rate, Some(VisitTime::parse(during.trim().as_bytes())?)),
            None => (value, None),
        };
        let (requests, time) = rate.split_once('/')?;
        let requests = requests.parse::<u32>().ok().filter(|&requests| requests > 0)?;
        let digits = time.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = time.split_at(digits);
        let seconds = match unit.to_ascii_lowercase().as_str() {
            "" | "s" => 1,
            "m" => 60,
            "h" => 3600,
            _ => return None,
        };
        let time = Duration::from_secs(number.parse::<u64>().ok()?.saturating_mul(seconds)).min(MAX);
        Some(Self { requests, time, during })
    }
}

/// The value of a line such as `Visit-time: 0600-0845`: the part of the day, UTC, in which the site wants to be crawled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VisitTime {
    /// Start, in minutes after midnight.
    pub from: u16,
    /// End, in minutes after midnight; less than `from` if midnight lies between them.
    pub to: u16,
}

impl VisitTime {
    /// Time until the site opens. `None`: the site is open.
    pub(crate) fn opens_in(self, now: SystemTime) -> Option<Duration> {
        const DAY: u64 = 24 * 3600;
        let since_epoch = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let second = since_epoch.as_secs() % DAY;
        let minute = u16::try_from(second / 60).expect("a day has 1440 minutes");
        if self.contains(minute) {
            return None;
        }
        let opens = u64::from(self.from) * 60;
        Some(Duration::from_secs((opens + DAY - second) % DAY))
    }

    /// Whether the period includes a time, in minutes after midnight UTC. Both ends are included.
    pub fn contains(&self, minute: u16) -> bool {
        if self.from <= self.to {
            (self.from..=self.to).contains(&minute)
        } else {
            minute >= self.from || minute <= self.to
        }
    }

    fn parse(value: &[u8]) -> Option<Self> {
        let (from, to) = str::from_utf8(value).ok()?.split_once('-')?;
        Some(Self { from: minute_of_day(from.trim())?, to: minute_of_day(to.trim())? })
    }
}

/// Formats the period as in a robots.txt.
impl fmt::Display for VisitTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to } = self;
        write!(f, "{:02}{:02}-{:02}{:02}", from / 60, from % 60, to / 60, to % 60)
    }
}

/// Parses decimal seconds. A word directly after the number must be a unit of seconds.
fn crawl_delay(value: &[u8]) -> Option<Duration> {
    let digits = value.iter().take_while(|byte| matches!(byte, b'0'..=b'9' | b'.')).count();
    let (number, rest) = value.split_at(digits);
    let word = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
    let unit = rest[..word].to_ascii_lowercase();
    if !matches!(unit.as_slice(), b"" | b"s" | b"sec" | b"secs" | b"second" | b"seconds") {
        return None;
    }
    let seconds = str::from_utf8(number).ok()?.parse::<f64>().ok()?;
    Some(Duration::try_from_secs_f64(seconds).map_or(MAX, |delay| delay.min(MAX)))
}

/// Parses `hhmm` or `hh:mm`.
fn minute_of_day(text: &str) -> Option<u16> {
    let (hours, minutes) = match text.split_once(':') {
        Some(parts) => parts,
        None => text.split_at_checked(text.len().checked_sub(2)?)?,
    };
    let two_digits = |text: &str| match text.as_bytes() {
        [b'0'..=b'9'] | [b'0'..=b'9', b'0'..=b'9'] => text.parse::<u16>().ok(),
        _ => None,
    };
    let (hours, minutes) = (two_digits(hours)?, two_digits(minutes)?);
    (minutes < 60 && hours * 60 + minutes <= 24 * 60).then_some(hours * 60 + minutes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delay(value: &str) -> Option<f64> {
        crawl_delay(value.as_bytes()).map(|delay| delay.as_secs_f64())
    }

    #[test]
    fn delays_are_decimal_seconds() {
        for (value, seconds) in
            [("10", 10.0), ("0", 0.0), ("0.5", 0.5), (".5", 0.5), ("5.", 5.0), ("007", 7.0), ("1.25", 1.25)]
        {
            assert_eq!(delay(value), Some(seconds), "{value}");
        }
    }

    #[test]
    fn a_leading_number_is_accepted() {
        for value in ["10s", "10S", "10 s", "10 seconds", "10sec", "10;", "10, please", "10 (ten)"] {
            assert_eq!(delay(value), Some(10.0), "{value}");
        }
    }

    #[test]
    fn invalid_delay_is_ignored() {
        for value in
            ["", "word", "-1", "+1", "NaN", "inf", "infinity", "1.2.1", "1.a0", "10a", ".", "1e3", "s", "1,5x\u{fc}"]
        {
            let expected = (value == "1,5x\u{fc}").then_some(1.0);
            assert_eq!(delay(value), expected, "{value}");
        }
        assert_eq!(crawl_delay(b"\xFF1"), None);
    }

    #[test]
    fn huge_delays_are_a_year() {
        assert_eq!(crawl_delay("9".repeat(400).as_bytes()), Some(MAX));
    }

    #[test]
    fn request_rates_are_requests_per_time() {
        let gap = |value: &str| RequestRate::parse(value.as_bytes()).map(|rate| rate.gap().as_secs_f64());
        for (value, seconds) in
            [("1/5", 5.0), ("1/10s", 10.0), ("2/1m", 30.0), ("30/1H", 120.0), ("4/1", 0.25), ("1/10m 1300-1659", 600.0)]
        {
            assert_eq!(gap(value), Some(seconds), "{value}");
        }
        for value in ["", "5", "/5", "1/", "0/5", "1/5d", "9/banana", "-1/5", "1/5 noon", "1/5 1300-2561"] {
            assert_eq!(gap(value), None, "{value}");
        }
    }

    #[test]
    fn visit_time_may_span_midnight() {
        let at = |value: &str, minute| VisitTime::parse(value.as_bytes()).map(|time| time.contains(minute));
        assert_eq!(at("0600-0845", 6 * 60), Some(true));
        assert_eq!(at("06:00 - 08:45", 8 * 60 + 46), Some(false));
        assert_eq!(at("2200-0400", 60), Some(true));
        assert_eq!(at("2200-0400", 12 * 60), Some(false));
        for value in ["", "0600", "0660-0700", "2500-2600", "6am-8am", "06000-0700", "\u{fc}1-02"] {
            assert_eq!(at(value, 0), None, "{value}");
        }
    }
}
