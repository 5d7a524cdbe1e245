//! Instants as text, as RFC 3339 has them, in UTC: in evidence, in the API, at the command line.

use std::time::{Duration, SystemTime};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// `2026-11-22T18:30:00.123Z`
pub fn millis(at: SystemTime) -> String {
    text(24, |out| write_millis(at, out))
}

/// `2026-11-22T18:30:00Z`
pub fn seconds(at: SystemTime) -> String {
    text(20, |out| {
        write_second(utc(at), out);
        out.push(b'Z');
    })
}

/// That of `millis`: for each record, so without the formatter.
pub fn write_millis(at: SystemTime, out: &mut Vec<u8>) {
    let at = utc(at);
    write_second(at, out);
    out.push(b'.');
    number(at.millisecond().into(), 3, out);
    out.push(b'Z');
}

/// Of any form that the standard has.
pub fn parse(text: &str) -> Option<SystemTime> {
    OffsetDateTime::parse(text, &Rfc3339).ok().map(Into::into)
}

/// What has no such form, as a clock gone wrong has it, is the first or the last that has.
fn utc(at: SystemTime) -> OffsetDateTime {
    at.clamp(SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + LAST).into()
}

fn write_second(at: OffsetDateTime, out: &mut Vec<u8>) {
    let ((year, month, day), (hour, minute, second)) = (at.date().to_calendar_date(), at.time().as_hms());
    number(year.unsigned_abs(), 4, out);
    for (before, value) in [(b'-', month as u8), (b'-', day), (b'T', hour), (b':', minute), (b':', second)] {
        out.push(before);
        number(value.into(), 2, out);
    }
}

fn number(value: u32, digits: u32, out: &mut Vec<u8>) {
    for place in (0..digits).rev() {
        out.push(b'0' + (value / 10u32.pow(place) % 10) as u8);
    }
}

fn text(length: usize, write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::with_capacity(length);
    write(&mut out);
    String::from_utf8(out).expect("digits")
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
