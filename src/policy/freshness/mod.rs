//! How long a copy of robots.txt is usable (RFC 9309 §2.4, RFC 9111 §4.2), and when to retry a failed fetch. Pure.
//!
//! Does not use `http-cache-semantics`: it stores whole header maps with each copy, supports neither a minimum lifetime nor long use
//! without revalidation, and obeys `no-store`, which would prevent keeping a robots.txt at all.

use std::time::{Duration, SystemTime};

use super::cache::CacheControl;
use super::date::http_date;
use super::retry_after::delta_seconds;

/// How long a copy is usable while robots.txt is unreachable (RFC 9309 §2.3.1.4).
pub const LAST_GOOD_USE: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long a copy is used without revalidation while robots.txt is reachable (RFC 9309 §2.4).
pub const STALE_USE: Duration = DAY;

const DAY: Duration = Duration::from_secs(24 * 3600);
const RETRY_FIRST: Duration = Duration::from_secs(60);
/// The longest wait after a failure.
pub const RETRY_MAX: Duration = Duration::from_secs(3600);

/// The operator's limits: `robots.min_ttl` and `robots.max_ttl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreshnessLimits {
    pub min_ttl: Duration,
    pub max_ttl: Duration,
}

impl Default for FreshnessLimits {
    fn default() -> Self {
        Self { min_ttl: Duration::from_secs(300), max_ttl: DAY }
    }
}

impl FreshnessLimits {
    fn clamp(&self, lifetime: Duration) -> Duration {
        // Not `Ord::clamp`, which panics if min exceeds max.
        lifetime.min(self.max_ttl).max(self.min_ttl)
    }
}

/// The fields of a response that determine its lifetime.
#[derive(Debug, Clone, Default)]
pub struct CacheFields {
    control: CacheControl,
    expires: Option<Vec<u8>>,
    date: Option<SystemTime>,
    age: Duration,
}

impl CacheFields {
    /// Reads the response's fields. `each` calls its argument with the name and value of each field. The first Expires, Date and Age count;
    /// Cache-Control lines that are not UTF-8 are ignored.
    pub fn read(each: impl FnOnce(&mut dyn FnMut(&[u8], &[u8]))) -> Self {
        let (mut lines, mut expires, mut date, mut age) = (Vec::new(), None, None, None);
        each(&mut |name, value| {
            let place = match &*name.to_ascii_lowercase() {
                b"cache-control" if str::from_utf8(value).is_ok() => return lines.push(value.to_vec()),
                b"expires" => &mut expires,
                b"date" => &mut date,
                b"age" => &mut age,
                _ => return,
            };
            place.get_or_insert_with(|| value.to_vec());
        });
        let age = age.as_deref().and_then(|age| delta_seconds(str::from_utf8(age).ok()?.trim()));
        CacheFields {
            control: CacheControl::read(lines.iter().map(Vec::as_slice)),
            expires,
            date: date.as_deref().and_then(http_date),
            age: age.unwrap_or_default(),
        }
    }

    /// How long the response is fresh. `now`: the time from which this counts, used in place of a missing Date. If the fields state no
    /// lifetime, it is a day, or for a 304 the old lifetime, `confirmed`. If the fields are malformed or forbid storing, it is the minimum,
    /// as robots.txt must be kept for some time to be usable at all.
    pub fn lifetime(&self, now: SystemTime, confirmed: Option<Duration>, limits: &FreshnessLimits) -> Duration {
        let Self { control, expires, age, .. } = self;
        let stated = match control.no_cache || control.no_store {
            true => Some(Duration::ZERO),
            // s-maxage overrides max-age, as this proxy is a shared cache (§5.2.2.10).
            false => control.s_maxage.or(control.max_age),
        };
        let stated = stated.or_else(|| Some(self.until(expires.as_deref()?, now)));
        limits.clamp(stated.map_or(confirmed.unwrap_or(DAY), |lifetime| lifetime.saturating_sub(*age)))
    }

    fn until(&self, expires: &[u8], now: SystemTime) -> Duration {
        // `Expires: 0` and other invalid dates are in the past (RFC 9111 §5.3).
        let until = http_date(expires).and_then(|expires| expires.duration_since(self.date.unwrap_or(now)).ok());
        until.unwrap_or_default()
    }
}

/// When a copy was validated, and until when it is usable. Stored in milliseconds since 1970, which take half the space of `SystemTime`:
/// there may be a million copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freshness {
    validated: u64,
    refresh: u64,
    expires: u64,
}

impl Freshness {
    /// When the copy was fetched, or last confirmed by 304.
    pub fn validated_at(&self) -> SystemTime {
        time(self.validated)
    }

    /// Whether the copy is fresh for a client that requests the file itself (RFC 9111 §4.2).
    pub fn is_fresh(&self, now: SystemTime) -> bool {
        (self.validated_at()..self.expires_at()).contains(&now)
    }

    /// The copy's freshness lifetime, counted from its validation.
    pub fn lifetime(&self) -> Duration {
        Duration::from_millis(self.expires.saturating_sub(self.validated))
    }

    /// The time from which a request causes a refresh in the background.
    pub fn refresh_at(&self) -> SystemTime {
        time(self.refresh)
    }

    /// When the copy ceases to be fresh.
    pub fn expires_at(&self) -> SystemTime {
        time(self.expires)
    }

    /// The times of validation, refresh and expiry, in milliseconds since 1970.
    pub fn to_millis(&self) -> [u64; 3] {
        [self.validated, self.refresh, self.expires]
    }

    /// The inverse of [`to_millis`](Self::to_millis).
    pub fn from_millis([validated, refresh, expires]: [u64; 3]) -> Self {
        Self { validated: validated.min(LATEST), refresh: refresh.min(LATEST), expires: expires.min(LATEST) }
    }

    /// The freshness of a new copy. `random`, from 0 to 1, spreads the refreshes of copies fetched together over the last fifth of a
    /// lifetime.
    pub fn new(validated_at: SystemTime, lifetime: Duration, random: f64) -> Self {
        let lifetime = lifetime.min(FAR);
        let ahead = lifetime.mul_f64(0.2 * unit(random));
        let expires_at = validated_at + lifetime;
        Self { validated: millis(validated_at), refresh: millis(expires_at - ahead), expires: millis(expires_at) }
    }

    /// Corrects a stored value: treats a copy that a wrong clock dated in the future as just fetched and due for a refresh.
    #[must_use]
    pub fn sanitized(self, now: SystemTime) -> Self {
        let now = millis(now);
        if self.validated > now { Self { validated: now, refresh: now, expires: now } } else { self }
    }

    /// Limits the freshness to this duration after validation.
    #[must_use]
    pub fn within(self, most: Duration) -> Self {
        let latest = millis(self.validated_at() + most.min(FAR));
        Self { refresh: self.refresh.min(latest), expires: self.expires.min(latest), ..self }
    }

    /// The state of the copy now. `failing`: the fetches since its validation have failed.
    pub fn state(&self, failing: bool, now: SystemTime) -> CopyState {
        let now = millis(now);
        let Some(age) = now.checked_sub(self.validated).map(Duration::from_millis) else {
            // The clock was set back: the age is unknown.
            return CopyState::Refresh;
        };
        let usable_for = if failing { LAST_GOOD_USE } else { STALE_USE };
        if now < self.refresh {
            CopyState::Fresh
        } else if now < self.expires || age < usable_for {
            CopyState::Refresh
        } else {
            CopyState::Unusable
        }
    }

    /// The value of the Age field, in whole seconds.
    pub fn age(&self, now: SystemTime) -> u64 {
        now.duration_since(self.validated_at()).unwrap_or(Duration::ZERO).as_secs()
    }
}

/// Milliseconds since 1970.
fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).map_or(LATEST, |millis| millis.min(LATEST))
}

fn time(millis: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
}

/// The year 10889, which every platform's clock can represent.
const LATEST: u64 = 1 << 48;

/// How a copy may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CopyState {
    /// Use the copy.
    Fresh,
    /// Use the copy, and fetch the file again in the background.
    Refresh,
    /// Fetch the file first.
    Unusable,
}

/// How long to wait after this many failed fetches in a row: Retry-After if the origin sent it, but at most an hour; otherwise one minute,
/// doubled after each failure up to an hour, and shortened by up to a fifth by `random` (from 0 to 1).
pub fn retry_in(failures: u32, retry_after: Option<Duration>, random: f64) -> Duration {
    match retry_after.filter(|wait| !wait.is_zero()) {
        Some(wait) => wait.min(RETRY_MAX),
        None => {
            let doublings = failures.saturating_sub(1).min(6);
            let wait = (RETRY_FIRST * (1 << doublings)).min(RETRY_MAX);
            wait - wait.mul_f64(0.2 * unit(random))
        }
    }
}

/// Longest lifetime, even if more is configured: prevents overflow in `SystemTime` arithmetic.
const FAR: Duration = Duration::from_secs(366 * 24 * 3600);

fn unit(random: f64) -> f64 {
    if random.is_nan() { 0.0 } else { random.clamp(0.0, 1.0) }
}

#[cfg(test)]
mod tests;
