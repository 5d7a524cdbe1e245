//! Instants as RFC 3339 text in UTC, for evidence, the API and the command line.

use std::time::{Duration, SystemTime};
use time::OffsetDateTime;
use time::format_description::{BorrowedFormatItem, well_known::Rfc3339};
use time::macros::format_description;

/// Formats with milliseconds: `2026-11-22T18:30:00.123Z`.
pub fn millis(at: SystemTime) -> String {
    String::from_utf8_lossy(&millis_bytes(at)).into_owned()
}

/// Formats in whole seconds: `2026-11-22T18:30:00Z`.
pub fn seconds(at: SystemTime) -> String {
    millis(at)[..19].to_owned() + "Z"
}

/// Like [`millis`], without an allocation.
pub fn millis_bytes(at: SystemTime) -> [u8; 24] {
    let mut text = [0; 24];
    utc(at).format_into(&mut &mut text[..], MILLIS).expect("each part has a fixed number of digits");
    text
}

/// Parses any form of RFC 3339.
pub fn parse(text: &str) -> Option<SystemTime> {
    OffsetDateTime::parse(text, &Rfc3339).ok().map(Into::into)
}

/// Converts to UTC, clamped to the years 1970 to 9999: a wrong clock may show a year that RFC 3339 cannot express.
fn utc(at: SystemTime) -> OffsetDateTime {
    at.clamp(SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + LAST).into()
}

const MILLIS: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
/// Time from 1970 to the end of the year 9999.
const LAST: Duration = Duration::from_secs(253_402_300_799);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatted_times_round_trip() {
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
    fn times_out_of_range_are_clamped() {
        assert_eq!(seconds(SystemTime::UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00Z");
        let far = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 50);
        assert_eq!(millis(far), "9999-12-31T23:59:59.000Z");
    }
}
