//! Instants as they are written in records, and as people write them.

use crate::config::units::parse_duration;
use std::time::{Duration, SystemTime};
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{Date, OffsetDateTime, Time};

/// RFC 3339 with milliseconds, in UTC: for each record, so without the formatter.
pub(super) fn write(at: SystemTime, out: &mut Vec<u8>) {
    let at = OffsetDateTime::from(at);
    let year = at.year().clamp(0, 9999).unsigned_abs();
    number(year, 4, out);
    for (before, value) in
        [(b'-', at.month() as u8), (b'-', at.day()), (b'T', at.hour()), (b':', at.minute()), (b':', at.second())]
    {
        out.push(before);
        number(value.into(), 2, out);
    }
    out.push(b'.');
    number(at.millisecond().into(), 3, out);
    out.push(b'Z');
}

/// The same as text.
pub fn rfc3339(at: SystemTime) -> String {
    let mut text = Vec::with_capacity(24);
    write(at, &mut text);
    String::from_utf8(text).expect("digits")
}

/// An instant that people or records name: RFC 3339, a date, or how long ago it was (`7d`).
///
/// # Errors
/// What is wrong with it.
pub fn when(text: &str, now: SystemTime) -> Result<SystemTime, String> {
    if let Ok(at) = OffsetDateTime::parse(text, &Rfc3339) {
        return Ok(at.into());
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

fn number(value: u32, digits: u32, out: &mut Vec<u8>) {
    for place in (0..digits).rev() {
        out.push(b'0' + (value / 10u32.pow(place) % 10) as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for millis in [0, 951_782_400_001, 1_795_372_199_999] {
            let at = SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
            assert_eq!(when(&rfc3339(at), SystemTime::now()), Ok(at));
        }
        assert_eq!(
            rfc3339(SystemTime::UNIX_EPOCH + Duration::from_millis(951_782_400_001)),
            "2000-02-29T00:00:00.001Z"
        );
    }

    #[test]
    fn people_name_a_day_or_say_how_long_ago() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(10 * 86_400);
        assert_eq!(when("1970-01-03", now), Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(2 * 86_400)));
        assert_eq!(when("7d", now), Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(3 * 86_400)));
        assert!(when("yesterday", now).is_err());
    }
}
