//! Instants as text, as RFC 3339 has them, in UTC: in evidence, in the API, at the command line.

use std::time::{Duration, SystemTime};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// `2026-11-22T18:30:00.123Z`
pub fn millis(at: SystemTime) -> String {
    String::from_utf8_lossy(&millis_bytes(at)).into_owned()
}

/// `2026-11-22T18:30:00Z`
pub fn seconds(at: SystemTime) -> String {
    String::from_utf8_lossy(&second(utc(at))).into_owned() + "Z"
}

/// What `millis` says: for each record, so without the formatter.
pub fn millis_bytes(at: SystemTime) -> [u8; 24] {
    let at = utc(at);
    let mut text = *b"0000-00-00T00:00:00.000Z";
    text[..19].copy_from_slice(&second(at));
    let millis = at.millisecond();
    text[20] = b'0' + (millis / 100) as u8;
    text[21..23].copy_from_slice(&two((millis % 100) as u8));
    text
}

/// Of any form that the standard has.
pub fn parse(text: &str) -> Option<SystemTime> {
    OffsetDateTime::parse(text, &Rfc3339).ok().map(Into::into)
}

/// What has no such form, as a clock gone wrong has it, is the first or the last that has.
fn utc(at: SystemTime) -> OffsetDateTime {
    at.clamp(SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + LAST).into()
}

fn second(at: OffsetDateTime) -> [u8; 19] {
    let ((year, month, day), (hour, minute, second)) = (at.date().to_calendar_date(), at.time().as_hms());
    let mut text = *b"0000-00-00T00:00:00";
    let (century, year) = ((year / 100) as u8, (year % 100) as u8);
    for (place, value) in [(0, century), (2, year), (5, month as u8), (8, day), (11, hour), (14, minute), (17, second)]
    {
        text[place..place + 2].copy_from_slice(&two(value));
    }
    text
}

fn two(value: u8) -> [u8; 2] {
    [b'0' + value / 10, b'0' + value % 10]
}

/// The end of the year 9999, since 1970.
const LAST: Duration = Duration::from_secs(253_402_300_799);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for after in [0, 951_782_400_001, 1_795_372_199_999] {
            let at = SystemTime::UNIX_EPOCH + Duration::from_millis(after);
            assert_eq!(parse(&millis(at)), Some(at));
        }
        let leap = SystemTime::UNIX_EPOCH + Duration::from_millis(951_782_400_001);
        assert_eq!(
            (millis(leap).as_str(), seconds(leap).as_str()),
            ("2000-02-29T00:00:00.001Z", "2000-02-29T00:00:00Z")
        );
        assert_eq!(parse("yesterday"), None);
    }

    #[test]
    fn a_clock_gone_wrong_is_written_all_the_same() {
        assert_eq!(seconds(SystemTime::UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00Z");
        let far = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 50);
        assert_eq!(millis(far), "9999-12-31T23:59:59.000Z");
    }
}
