//! Tests of freshness and retries (docs/robots-txt-life.md).

use super::*;

const NOW: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

fn now() -> SystemTime {
    httpdate::parse_http_date(NOW).unwrap()
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn fields(cache_control: &[&[u8]], expires: Option<&str>, date: Option<&str>, age: Option<&str>) -> CacheFields {
    CacheFields::read(|take| {
        cache_control.iter().for_each(|line| take(b"Cache-Control", line));
        let others = [(&b"Expires"[..], expires), (b"DATE", date), (b"age", age)];
        others.iter().for_each(|(name, value)| value.iter().for_each(|value| take(name, value.as_bytes())));
    })
}

/// The lifetime in seconds, limited only to a year.
fn lifetime(cache_control: &[&str], expires: Option<&str>, date: Option<&str>, age: Option<&str>) -> u64 {
    let cache_control: Vec<_> = cache_control.iter().map(|line| line.as_bytes()).collect();
    let limits = FreshnessLimits { min_ttl: secs(0), max_ttl: secs(366 * 86_400) };
    fields(&cache_control, expires, date, age).lifetime(now(), None, &limits).as_secs()
}

#[test]
fn default_lifetime_is_a_day() {
    assert_eq!(lifetime(&[], None, None, None), 86_400);
    assert_eq!(lifetime(&["public, must-revalidate"], None, None, Some("60")), 86_400);
}

#[test]
fn max_age_is_read_in_any_spelling() {
    for line in [
        "max-age=3600",
        "Max-Age = 3600",
        "public,max-age=\"3600\"",
        "a=\"x, max-age=1\", max-age=3600",
        ", max-age=3600,",
    ] {
        assert_eq!(lifetime(&[line], None, None, None), 3600, "{line}");
    }
}

#[test]
fn s_maxage_precedes_max_age_and_expires() {
    assert_eq!(lifetime(&["max-age=10"], Some("Sun, 06 Nov 1994 09:49:37 GMT"), None, None), 10);
    assert_eq!(lifetime(&["max-age=10", "s-maxage=20"], None, None, None), 20);
}

#[test]
fn smaller_of_two_max_ages_counts() {
    assert_eq!(lifetime(&["max-age=20, max-age=10"], None, None, None), 10);
    assert_eq!(lifetime(&["max-age=10", "max-age=20"], None, None, None), 10);
}

#[test]
fn age_in_other_caches_counts() {
    assert_eq!(lifetime(&["max-age=3600"], None, None, Some("600")), 3000);
    assert_eq!(lifetime(&["max-age=3600"], None, None, Some("7200")), 0);
    assert_eq!(lifetime(&["max-age=3600"], None, None, Some("old")), 3600);
}

#[test]
fn no_cache_no_store_and_invalid_max_age_have_no_lifetime() {
    for line in [
        "no-cache",
        "No-Store",
        "max-age=600, no-cache",
        "no-cache=\"set-cookie\"",
        "max-age=",
        "max-age",
        "max-age=-1",
        "max-age=1h",
    ] {
        assert_eq!(lifetime(&[line], None, None, None), 0, "{line}");
    }
}

#[test]
fn cache_control_that_is_not_text_is_ignored() {
    let fields = fields(&[b"max-age=60\xff"], None, None, None);
    assert_eq!(fields.lifetime(now(), None, &FreshnessLimits::default()), DAY);
}

#[test]
fn expires_runs_from_the_origins_date() {
    let expires = Some("Sun, 06 Nov 1994 09:49:37 GMT");
    assert_eq!(lifetime(&[], expires, None, None), 3600);
    assert_eq!(lifetime(&[], expires, Some("Sun, 06 Nov 1994 09:39:37 GMT"), None), 600);
    assert_eq!(lifetime(&[], expires, Some("yesterday"), Some("60")), 3540);
    assert_eq!(lifetime(&[], Some("Sun, 06 Nov 1994 08:00:00 GMT"), None, None), 0);
    assert_eq!(lifetime(&[], Some("0"), None, None), 0);
}

#[test]
fn a_lifetime_stays_within_the_operators_limits() {
    let limits = FreshnessLimits::default();
    let of = |line: &str| fields(&[line.as_bytes()], None, None, None).lifetime(now(), None, &limits);
    assert_eq!(of("max-age=1"), secs(300));
    assert_eq!(of("max-age=600"), secs(600));
    assert_eq!(of("max-age=31536000"), DAY);
    assert_eq!(of("max-age=99999999999999999999999"), DAY);
    let crossed = FreshnessLimits { min_ttl: secs(20), max_ttl: secs(10) };
    assert_eq!(crossed.clamp(secs(15)), secs(20), "and never panics");
}

#[test]
fn a_copy_is_refreshed_before_it_expires() {
    let at = |second: u64| now() + secs(second);
    let early = Freshness::new(now(), secs(1000), 1.0);
    assert_eq!((early.refresh_at(), early.expires_at()), (at(800), at(1000)));
    let late = Freshness::new(now(), secs(1000), 0.0);
    assert_eq!(late.refresh_at(), at(1000));
    assert_eq!(early.state(false, at(0)), CopyState::Fresh);
    assert_eq!(early.state(false, at(799)), CopyState::Fresh);
    assert_eq!(early.state(false, at(800)), CopyState::Refresh);
    assert_eq!(late.state(false, at(999)), CopyState::Fresh);
}

#[test]
fn stale_copy_is_usable_for_a_day() {
    let copy = Freshness::new(now(), secs(300), 0.5);
    assert_eq!(copy.state(false, now() + secs(86_399)), CopyState::Refresh);
    assert_eq!(copy.state(false, now() + DAY), CopyState::Unusable);
}

#[test]
fn copy_with_a_lifetime_over_a_day_is_usable_until_it_expires() {
    let copy = Freshness::new(now(), DAY * 3, 1.0);
    assert_eq!(copy.state(false, now() + DAY * 2), CopyState::Fresh);
    assert_eq!(copy.state(false, now() + DAY * 3 - secs(1)), CopyState::Refresh);
    assert_eq!(copy.state(false, now() + DAY * 3), CopyState::Unusable);
}

#[test]
fn rfc_last_good_copy_is_usable_for_30_days_while_unreachable() {
    let copy = Freshness::new(now(), secs(300), 0.5);
    assert_eq!(copy.state(true, now() + DAY * 30 - secs(1)), CopyState::Refresh);
    assert_eq!(copy.state(true, now() + DAY * 30), CopyState::Unusable);
}

#[test]
fn clock_set_back_makes_a_copy_due_for_refresh() {
    let copy = Freshness::new(now(), DAY, 0.0);
    assert_eq!(copy.state(false, now() - secs(1)), CopyState::Refresh);
    assert_eq!(copy.age(now() - secs(1)), 0);
    assert_eq!(copy.age(now() + secs(90)), 90);
}

#[test]
fn failed_fetches_back_off_from_a_minute_to_an_hour() {
    let wait = |failures| retry_in(failures, None, 0.0).as_secs();
    assert_eq!([1, 2, 3, 4, 5, 6, 7, 8, u32::MAX].map(wait), [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]);
    assert_eq!(wait(0), 60);
}

#[test]
fn refresh_jitter_is_up_to_a_fifth() {
    assert_eq!(retry_in(1, None, 1.0), secs(48));
    assert_eq!(retry_in(1, None, 0.5), secs(54));
    assert_eq!(retry_in(1, None, f64::NAN), secs(60));
    assert_eq!(retry_in(1, None, 7.0), secs(48));
}

#[test]
fn retry_after_of_robots_is_honoured_up_to_an_hour() {
    assert_eq!(retry_in(5, Some(secs(7)), 1.0), secs(7));
    assert_eq!(retry_in(1, Some(DAY), 0.5), secs(3600));
    assert_eq!(retry_in(2, Some(secs(0)), 0.0), secs(120), "no advice");
}

#[test]
fn absurd_lifetimes_do_not_overflow() {
    let copy = Freshness::new(now(), Duration::MAX, 0.5);
    assert_eq!(copy.state(false, now()), CopyState::Fresh);
}
