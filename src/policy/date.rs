//! Dates in fields: HTTP dates, and other formats that sites use. Pure.

use std::time::{Duration, SystemTime};

use time::format_description::BorrowedFormatItem;
use time::format_description::well_known::Rfc2822;
use time::macros::format_description;
use time::parsing::Parsed;
use time::{Date, OffsetDateTime, PrimitiveDateTime};

/// Parses an HTTP date in any of its three forms (RFC 9110 §5.6.7). As in nginx and Squid, case does not matter, and the day of the week
/// may be wrong.
pub(super) fn http_date(value: &[u8]) -> Option<SystemTime> {
    let text = str::from_utf8(value).ok()?.trim().to_ascii_lowercase();
    FORMS.iter().find_map(|form| parse(text.as_bytes(), form)).map(|date| date.assume_utc().into())
}

fn parse(text: &[u8], form: &[BorrowedFormatItem<'_>]) -> Option<PrimitiveDateTime> {
    let mut parts = Parsed::new();
    let rest = parts.parse_items(text, form).ok()?;
    if let Some(year) = parts.year_last_two() {
        parts.set_year(if year < 70 { 2000 } else { 1900 } + i32::from(year))?;
    }
    rest.is_empty().then(|| parts.try_into().ok())?
}

/// Formats an HTTP date. A time that HTTP dates cannot express, as after a clock error, becomes the start of 1970.
pub fn shown_http_date(at: SystemTime) -> String {
    let seconds = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let seconds = if seconds < YEAR_10000 { seconds } else { 0 };
    let at = OffsetDateTime::from(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    at.format(HTTP_DATE).expect("each part of it is known")
}

/// Whether a date in the format of RFC 9110, RFC 822 or ISO 8601 (day) is in the past. `None`: the date cannot be parsed.
pub(super) fn is_past(date: &str, now: SystemTime) -> Option<bool> {
    let of_mail = date.replace(" UTC", " GMT");
    if let Some(date) = http_date(of_mail.as_bytes()) {
        return Some(date < now);
    }
    let now = OffsetDateTime::from(now);
    if let Ok(date) = OffsetDateTime::parse(&of_mail, &Rfc2822) {
        return Some(date < now);
    }
    let day = Date::parse(date.get(..10)?, format_description!("[year]-[month]-[day]")).ok()?;
    let rest = &date[10..];
    (rest.is_empty() || rest.starts_with(['T', ' '])).then(|| day < now.date())
}

const HTTP_DATE: &[BorrowedFormatItem<'_>] =
    format_description!("[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT");
/// The forms that are parsed, in small letters: of RFC 9110, of RFC 850 (with two digits of the year), and of C's `asctime`.
const FORMS: [&[BorrowedFormatItem<'_>]; 3] = [
    format_description!(
        "[weekday repr:short case_sensitive:false], [day] [month repr:short case_sensitive:false] [year] \
         [hour]:[minute]:[second] gmt"
    ),
    format_description!(
        "[weekday repr:long case_sensitive:false], [day]-[month repr:short case_sensitive:false]-[year repr:last_two] \
         [hour]:[minute]:[second] gmt"
    ),
    format_description!(
        "[weekday repr:short case_sensitive:false] [month repr:short case_sensitive:false] [day padding:space] \
         [hour]:[minute]:[second] [year]"
    ),
];
const YEAR_10000: u64 = 253_402_300_800;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_mail_and_of_http_are_read_with_their_zones() {
        // 2010-06-25, 22:30 UTC.
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_277_505_000);
        for (date, expected) in [
            ("25 Jun 2010 15:00:00 PST", Some(false)),
            ("25 Jun 2010 15:00:00 PDT", Some(true)),
            ("Fri, 25 Jun 2010 17:29:59 EST", Some(true)),
            ("Fri, 25 Jun 2010 22:29 +0000", Some(true)),
            ("Fri, 25 Jun 2010 22:31:00 UTC", Some(false)),
            ("Friday, 25-Jun-10 22:29:59 GMT", Some(true)),
            ("FRIDAY, 25-jun-10 22:31:00 gmt", Some(false)),
            ("Friday, 25-Jun-69 22:29:59 GMT", Some(false)),
            ("Friday, 25-Jun-70 22:29:59 GMT", Some(true)),
            ("Friday, 25-Jun-10 22:29:59 GMT ", Some(true)),
            ("Friday, 25-Jun-10 22:29:59 GMT x", None),
            ("Fri Jun 25 22:29:59 2010", Some(true)),
            ("FRI, 25 jun 2010 22:29:59 gmt", Some(true)),
            ("Mon, 25 Jun 2010 22:29:59 GMT", Some(true)),
            ("Mon, 25 Jun 2010 22:31:00 UTC", Some(false)),
            ("Mon, 25 Jun 2010 17:29:59 EST", Some(true)),
            ("Mon Jun  7 22:29:59 2010", Some(true)),
            ("Tue Jun  7 22:29:59 2010", Some(true)),
            ("Fri, 31 Jun 2010 22:29:59 GMT", None),
            ("2010-06-24T23:00:00Z", Some(true)),
            ("2010-06-25", Some(false)),
            ("2010-06-2", None),
            ("Wed, 25 Jun 2010 15:00:00", None),
        ] {
            assert_eq!(is_past(date, now), expected, "{date}");
        }
    }

    #[test]
    fn formatted_http_dates_are_those_of_another_library() {
        for seconds in [0, 951_782_400, 1_277_505_000, 1_795_372_199, YEAR_10000 - 1] {
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            let shown = shown_http_date(at);
            assert_eq!(shown, httpdate::fmt_http_date(at));
            assert_eq!(http_date(shown.as_bytes()), Some(at));
        }
        assert_eq!(
            shown_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(YEAR_10000)),
            "Thu, 01 Jan 1970 00:00:00 GMT"
        );
    }
}
