//! Output of commands: plurals, and control characters made harmless.

use super::command_error::CommandError;
use crate::policy::{Manners, is_unseen, json_escape};
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

/// Prints the result of a command.
pub(super) fn print(text: &str) -> Result<ExitCode, CommandError> {
    print_bytes(text.as_bytes())
}

pub(super) fn print_bytes(bytes: &[u8]) -> Result<ExitCode, CommandError> {
    let mut output = io::stdout().lock();
    let written = output.write_all(bytes).and_then(|()| output.flush());
    written.map(|()| ExitCode::SUCCESS).map_err(CommandError::not_written)
}

/// Escapes in JSON the characters that [`inert`] escapes.
pub(super) fn inert_json(json: &str) -> String {
    // In JSON, only strings contain such characters, except for line ends.
    escaped(json, |c, inert| *inert += &json_escape(c))
}

/// Label of a count of refused requests that the site has seen, because its answer caused the refusal.
pub(super) const REFUSED_AFTER_ANSWER: &str = "refused after the site's answer (fetched, not delivered)";

/// Formats a count with its noun: `1 request`, `2 requests`.
pub(super) fn counted(count: impl Into<u64>, one: &str) -> String {
    let count = count.into();
    let plural = match one.strip_suffix('y') {
        Some(stem) if count != 1 => format!("{stem}ies"),
        _ if count != 1 => format!("{one}s"),
        _ => one.to_owned(),
    };
    format!("{count} {plural}")
}

/// Formats a duration, rounded up to seconds, minutes, or hours and minutes.
pub(super) fn about(duration: Duration) -> String {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    match (seconds, seconds.div_ceil(60)) {
        (seconds, _) if seconds < 120 => format!("{seconds} s"),
        (_, minutes) if minutes < 120 => format!("{minutes} min"),
        (_, minutes) => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}

/// The limits of a host besides its crawl delay, each with its key in `pace`.
pub(super) fn pace_limits(manners: &Manners) -> impl Iterator<Item = (&'static str, String)> {
    let Manners { adaptive, breaker, budget, min_revisit } = manners;
    let kept = [
        ("adaptive", adaptive.map(|kept| kept.to_string())),
        ("breaker", breaker.map(|kept| kept.to_string())),
        ("budget", budget.map(|kept| kept.to_string())),
        ("min_revisit", min_revisit.map(|after| format!("the same page again only after {} s", after.as_secs_f64()))),
    ];
    kept.into_iter().filter_map(|(key, kept)| Some((key, kept?)))
}

/// Escapes invisible characters in text that others have written, so that the text cannot control the terminal or hide anything.
pub(super) fn inert(text: &str) -> String {
    escaped(text, |c, inert| inert.extend(c.escape_unicode()))
}

/// Copies text, but lets `escape` write the invisible characters, except for line ends.
fn escaped(text: &str, escape: impl Fn(char, &mut String)) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match is_unseen(c) && c != '\n' {
            true => escape(c, &mut escaped),
            false => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_up() {
        for (millis, shown) in [
            (0, "0 s"),
            (1, "1 s"),
            (30_000, "30 s"),
            (30_001, "31 s"),
            (119_000, "119 s"),
            (120_000, "2 min"),
            (120_001, "3 min"),
            (7_200_000, "2 h 0 min"),
        ] {
            assert_eq!(about(Duration::from_millis(millis)), shown);
        }
    }
}
