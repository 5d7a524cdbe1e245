//! Parses times as people write them.

use crate::config::units::parse_duration;
use crate::rfc3339;
use std::time::{Duration, SystemTime};
use time::macros::format_description;
use time::{Date, OffsetDateTime, Time};

/// An instant that people or records name: RFC 3339, a date, or how long ago it was (`7d`).
///
/// # Errors
/// What is wrong with it.
pub fn when(text: &str, now: SystemTime) -> Result<SystemTime, String> {
    if let Some(at) = rfc3339::parse(text) {
        return Ok(at);
    }
    if let Ok(date) = Date::parse(text, format_description!("[year]-[month]-[day]")) {
        return Ok(OffsetDateTime::new_utc(date, Time::MIDNIGHT).into());
    }
    parse_duration(text)
        .ok()
        .and_then(|ago| now.checked_sub(ago))
        .ok_or_else(|| format!("`{text}` is no time: write 2026-11-22T18:30:00Z, 2026-11-22, or 7d for seven days ago"))
}

/// Days since 1970 in UTC.
pub(super) fn day(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs() / 86_400
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_name_a_day_or_say_how_long_ago() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(10 * 86_400);
        assert_eq!(when("1970-01-03", now), Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(2 * 86_400)));
        assert_eq!(when("7d", now), Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(3 * 86_400)));
        assert!(when("yesterday", now).is_err());
    }
}
