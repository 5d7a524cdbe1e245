//! Formats times and durations, and escapes untrusted text, for HTML.

use crate::cli::report::page::put_text;
use crate::rfc3339;
use std::time::{Duration, SystemTime};

/// Formats a time to the second.
pub fn time(at: SystemTime) -> String {
    let text = rfc3339::millis(at);
    format!("<time datetime=\"{text}\">{} {} UTC</time>", &text[..10], &text[11..19])
}

pub fn held(millis: u64) -> String {
    let seconds = Duration::from_millis(millis).as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

/// Escapes untrusted text: the result has neither tags nor characters that change the direction of text.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => put_text(&mut out, c),
        }
    }
    out
}

pub fn between(times: Option<(SystemTime, SystemTime)>) -> String {
    match times {
        None => String::new(),
        Some((from, to)) if from == to => time(from),
        Some((from, to)) => format!("{}<br>{}", time(from), time(to)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untrusted_text_is_escaped_for_html() {
        assert_eq!(escape("<script>\"'&\u{202e}\u{0}"), "&lt;script&gt;&quot;&#39;&amp;\\u{202e}\\u{0}");
    }

    #[test]
    fn waits_are_readable() {
        assert_eq!([900, 61_000, 3_660_000].map(held), ["0 s", "1 min 1 s", "1 h 1 min"]);
    }
}
