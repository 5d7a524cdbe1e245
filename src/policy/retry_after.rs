//! Retry-After (RFC 9110 §10.2.3). Pure.

use std::time::{Duration, SystemTime};

use super::date::http_date;

/// The time that Retry-After fields, joined by commas, ask for: the longest value, in seconds or as a date. Zero for a date in the past;
/// `None` if no value can be parsed. `date`: the Date field, if any, as the origin's clock may differ from ours. `now`: the time by our
/// clock.
pub fn retry_after(fields: &[u8], date: Option<&[u8]>, now: SystemTime) -> Option<Duration> {
    let now = date.and_then(http_date).unwrap_or(now);
    let read = |value: &[u8]| {
        let seconds = delta_seconds(str::from_utf8(value).ok()?.trim_matches([' ', '\t']));
        seconds.or_else(|| Some(http_date(value)?.duration_since(now).unwrap_or(Duration::ZERO)))
    };
    let values: Vec<&[u8]> = fields.split(|&byte| byte == b',').collect();
    // Rejoins neighbouring pieces, as most dates contain a comma.
    let dates = values.windows(2).filter_map(|pair| read(&pair.join(&b','))).max();
    values.iter().filter_map(|value| read(value)).max().max(dates)
}

/// Parses delta-seconds (RFC 9111 §1.2.2). A value that overflows counts as the maximum.
pub(super) fn delta_seconds(text: &str) -> Option<Duration> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(Duration::from_secs(text.parse::<u32>().unwrap_or(u32::MAX).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT
    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777)
    }

    fn seconds(fields: &str) -> Option<u64> {
        retry_after(fields.as_bytes(), None, now()).map(|wait| wait.as_secs())
    }

    #[test]
    fn seconds_are_read() {
        assert_eq!(seconds("120"), Some(120));
        assert_eq!(seconds(" 0\t"), Some(0));
        assert_eq!(seconds("99999999999999999999"), Some(u32::MAX.into()));
    }

    #[test]
    fn all_three_date_formats_are_read() {
        assert_eq!(seconds("Sun, 06 Nov 1994 08:50:37 GMT"), Some(60));
        assert_eq!(seconds("Sunday, 06-Nov-94 08:50:37 GMT"), Some(60));
        assert_eq!(seconds("Sun Nov  6 08:50:37 1994"), Some(60));
    }

    #[test]
    fn past_date_is_a_wait_of_zero() {
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:36 GMT"), Some(0));
    }

    #[test]
    fn invalid_retry_after_is_ignored() {
        for value in ["", "soon", "-1", "+1", "1.5", "1e3", ",", "Sun, 06 Nov 1994"] {
            assert_eq!(seconds(value), None, "{value}");
        }
        assert_eq!(retry_after(b"\xff", None, now()), None);
    }

    #[test]
    fn longest_valid_retry_after_counts() {
        for (fields, longest) in [
            ("3, 9", 9),
            ("9,3", 9),
            ("soon, 60", 60),
            ("60, ", 60),
            ("60, Sun, 06 Nov 1994 08:51:37 GMT", 120),
            ("Sunday, 06-Nov-94 08:50:37 GMT, 7, Sun Nov  6 08:49:47 1994", 60),
            ("Sun, 06 Nov 1994 08:49:36 GMT, 5", 5),
        ] {
            assert_eq!(seconds(fields), Some(longest), "{fields}");
        }
        assert_eq!(retry_after(b"\xff, 60", None, now()), Some(Duration::from_secs(60)));
    }

    #[test]
    fn retry_after_date_is_relative_to_the_date_field() {
        let at = |day| format!("{day} Nov 1994 08:49:37 GMT");
        let until = |day| format!("{day} Nov 1994 08:50:07 GMT");
        for day in ["Sat, 05", "Sun, 06", "Mon, 07"] {
            let wait = retry_after(until(day).as_bytes(), Some(at(day).as_bytes()), now());
            assert_eq!(wait, Some(Duration::from_secs(30)), "{day}");
        }
        assert_eq!(retry_after(until("Sun, 06").as_bytes(), Some(b"today"), now()), Some(Duration::from_secs(30)));
        assert_eq!(retry_after(b"30", Some(at("Mon, 07").as_bytes()), now()), Some(Duration::from_secs(30)));
    }
}
