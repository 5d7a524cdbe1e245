//! Retry-After (RFC 9110 §10.2.3). Pure.

use std::time::{Duration, SystemTime};

/// The time from `now` that a field value asks for, be it seconds or a date; zero for a date in the past, `None` for
/// what is neither.
pub fn retry_after(value: &[u8], now: SystemTime) -> Option<Duration> {
    let text = str::from_utf8(value).ok()?.trim_matches([' ', '\t']);
    if let Some(seconds) = delta_seconds(text) {
        return Some(seconds);
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or(Duration::ZERO))
}

/// RFC 9111 §1.2.2: what does not fit is as good as for ever.
pub(super) fn delta_seconds(text: &str) -> Option<Duration> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(Duration::from_secs(text.parse::<u32>().unwrap_or(u32::MAX).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(value: &str) -> Option<u64> {
        // Sun, 06 Nov 1994 08:49:37 GMT
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        retry_after(value.as_bytes(), now).map(|wait| wait.as_secs())
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
    fn a_date_in_the_past_is_no_wait() {
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:36 GMT"), Some(0));
    }

    #[test]
    fn anything_else_is_no_advice() {
        for value in ["", "soon", "-1", "+1", "1.5", "1e3", "120, 60", "Sun, 06 Nov 1994"] {
            assert_eq!(seconds(value), None, "{value}");
        }
        assert_eq!(retry_after(b"\xff", SystemTime::now()), None);
    }
}
