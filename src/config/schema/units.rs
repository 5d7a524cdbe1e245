//! Durations and sizes as an operator writes them: `500ms`, `10s`, `24h`; `512KiB`, `1MiB`, plain bytes. Pure.

use std::time::Duration;

use super::text::from_text;
use crate::config::read::error::Complaint;

/// Reads `500ms`, `10s`, `5m`, `24h`, `30d` or `0`: a whole number and its unit.
///
/// # Errors
/// The text has another form, or the duration is longer than [`MAX_DURATION`].
pub fn parse_duration(text: &str) -> Result<Duration, Complaint> {
    let fault = |what: String| Err(Complaint::new(what, DURATION_FORMS));
    let (number, unit) = split(text);
    let Ok(number) = number.parse::<u64>() else {
        return fault(format!("`{text}` is not a duration"));
    };
    let milliseconds = match (unit, number) {
        ("", 0) => Some(1),
        ("", _) => {
            let hint = format!("write `{number}s` for seconds or `{number}ms` for milliseconds");
            return Err(Complaint::new(format!("the duration `{text}` lacks its unit"), hint));
        }
        _ => size_of(unit, &DURATIONS),
    };
    let Some(milliseconds) = milliseconds else { return fault(format!("`{text}` is not a duration")) };
    match number.checked_mul(milliseconds).map(Duration::from_millis) {
        Some(duration) if duration <= MAX_DURATION => Ok(duration),
        Some(_) | None => Err(Complaint::new(format!("the duration `{text}` is too long"), "write `3650d` or less")),
    }
}

/// Reads `512KiB`, `1MiB`, `2GiB`, `1TiB` or plain bytes.
///
/// # Errors
/// The text has another form, or the size does not fit into 64 bits.
pub fn parse_size(text: &str) -> Result<u64, Complaint> {
    let (number, unit) = split(text);
    let fault = || Complaint::new(format!("`{text}` is not a size"), SIZE_FORMS);
    let number = number.parse::<u64>().map_err(|_| fault())?;
    let factor = if unit == "B" { 1 } else { size_of(unit, &SIZES).ok_or_else(fault)? };
    number.checked_mul(factor).ok_or_else(|| Complaint::new(format!("the size `{text}` is too large"), SIZE_FORMS))
}

/// The duration in the form that [`parse_duration`] reads, in the largest unit that keeps it exact (to the millisecond).
pub fn show_duration(duration: Duration) -> String {
    show(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX), &DURATIONS)
}

/// The size in the largest unit that keeps it exact.
pub fn show_size(bytes: u64) -> String {
    show(bytes, &SIZES)
}

fn size_of(unit: &str, units: &[(&str, u64)]) -> Option<u64> {
    units.iter().find(|(name, _)| *name == unit).map(|(_, size)| *size)
}

fn show(number: u64, units: &[(&str, u64)]) -> String {
    let whole = units.iter().find(|(_, size)| number != 0 && number.is_multiple_of(*size));
    whole.map_or_else(|| number.to_string(), |(unit, size)| format!("{}{unit}", number / size))
}

fn split(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

from_text! {
    Duration, "a duration", DURATION_FORMS, parse_duration;
    u64, "a size", SIZE_FORMS, parse_size;
}

/// The units of durations in milliseconds, the largest first.
const DURATIONS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
/// The units of sizes in bytes, the largest first.
const SIZES: [(&str, u64); 5] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("", 1)];
/// Ten years. A longer duration is probably a typing error, and could overflow when added to a clock's time.
pub const MAX_DURATION: Duration = Duration::from_secs(3650 * 86_400);

const DURATION_FORMS: &str = "a duration is a whole number and its unit: `500ms`, `10s`, `5m`, `24h`, `30d`, or `0`";
const SIZE_FORMS: &str = "a size is a whole number and its unit: `512KiB`, `1MiB`, `2GiB`, or a plain number of bytes";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_five_units_and_zero() {
        for (text, milliseconds) in
            [("500ms", 500), ("10s", 10_000), ("5m", 300_000), ("24h", 86_400_000), ("30d", 2_592_000_000), ("0", 0)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn duration_without_a_unit_is_refused_with_a_hint() {
        let complaint = parse_duration("10").unwrap_err();
        assert_eq!(complaint.what, "the duration `10` lacks its unit");
        assert_eq!(complaint.hint, "write `10s` for seconds or `10ms` for milliseconds");
    }

    #[test]
    fn other_durations_are_refused() {
        for text in ["", "s", "-1s", "1.5s", "10 s", "1h30m", "10S", "1w", "10sec", "٣s"] {
            assert_eq!(parse_duration(text).unwrap_err().what, format!("`{text}` is not a duration"));
        }
    }

    #[test]
    fn a_duration_never_overflows_a_clock() {
        assert_eq!(parse_duration("3650d"), Ok(MAX_DURATION));
        for text in ["3651d", "18446744073709551615d", "18446744073709551615ms"] {
            assert_eq!(parse_duration(text).unwrap_err().what, format!("the duration `{text}` is too long"));
        }
        assert!(parse_duration("18446744073709551616ms").is_err());
    }

    #[test]
    fn sizes_are_binary_or_plain_bytes() {
        for (text, bytes) in
            [("0", 0), ("512000", 512_000), ("7B", 7), ("512KiB", 524_288), ("1MiB", 1 << 20), ("2GiB", 2 << 30)]
        {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "KiB", "1MB", "1 MiB", "-1", "1.5MiB", "1mib"] {
            assert_eq!(parse_size(text).unwrap_err().what, format!("`{text}` is not a size"));
        }
        assert_eq!(parse_size("99999999999TiB").unwrap_err().what, "the size `99999999999TiB` is too large");
    }

    #[test]
    fn a_shown_duration_reads_back() {
        for text in ["0", "500ms", "1500ms", "10s", "90s", "5m", "1h", "30d"] {
            assert_eq!(show_duration(parse_duration(text).unwrap()), text);
        }
        assert_eq!(show_duration(Duration::from_secs(86_400)), "1d");
    }
}
