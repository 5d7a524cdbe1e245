//! Shows that a request is held: on a terminal in one line that is rewritten; elsewhere, with `--verbose`, in a new line from time to time.

use super::super::{about, inert};
use crate::gate::{HeldFor, HeldRequest};
use crate::proxy::Counts;
use crate::telemetry::StandardError;
use rustix::termios::tcgetwinsize;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

pub(super) struct Progress {
    way: ProgressStyle,
    /// Time of the next update.
    next: Instant,
    printed_at: Option<Instant>,
    /// The counts at the last update.
    counts: Counts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProgressStyle {
    Terminal,
    Lines,
    Off,
}

impl Progress {
    pub fn new(quiet: bool, verbose: bool) -> Self {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let way = match (quiet, io::stderr().is_terminal() && !is_dumb) {
            (true, _) => ProgressStyle::Off,
            (false, true) => ProgressStyle::Terminal,
            (false, false) if verbose => ProgressStyle::Lines,
            (false, false) => ProgressStyle::Off,
        };
        Progress { way, next: Instant::now() + TICK, printed_at: None, counts: Counts::default() }
    }

    /// Waits until the next update; forever if nothing is shown.
    pub async fn tick(&mut self) {
        match self.way {
            ProgressStyle::Off => std::future::pending().await,
            ProgressStyle::Terminal | ProgressStyle::Lines => sleep_until(self.next).await,
        }
        self.next = Instant::now() + TICK;
    }

    /// Clears the line when a held request continues, as the command may print something about the answer.
    pub fn clear(&mut self) {
        if self.way == ProgressStyle::Terminal {
            StandardError::show(None);
            self.next = Instant::now() + 2 * TICK;
        }
    }

    /// Shows a request that has been held for [`HELD_LONG`]; on a terminal, only if nothing was answered since the last update.
    pub fn show(&mut self, held: Option<&HeldRequest>, counts: &Counts) {
        let is_answered = std::mem::replace(&mut self.counts, counts.clone()) != *counts;
        match (self.way, held) {
            (ProgressStyle::Off, _) | (ProgressStyle::Lines, None) => {}
            (ProgressStyle::Terminal, None) => StandardError::show(None),
            (ProgressStyle::Terminal, Some(_)) if is_answered => StandardError::show(None),
            (ProgressStyle::Terminal, Some(held)) => {
                let columns = tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_col));
                let width = if columns == 0 { USUAL_WIDTH } else { columns };
                let line = line(held, counts, width - 1);
                StandardError::show(Some(&line));
            }
            (ProgressStyle::Lines, Some(held)) => {
                if self.printed_at.is_none_or(|printed_at| printed_at.elapsed() >= PRINT_INTERVAL) {
                    self.printed_at = Some(Instant::now());
                    let _ = writeln!(StandardError, "{}", line(held, counts, usize::MAX));
                }
            }
        }
    }
}

/// Formats the line: the most important part comes first, then as much of the rest as fits.
fn line(held: &HeldRequest, counts: &Counts, width: usize) -> String {
    let HeldRequest { authority, reason, since, left, waiting, .. } = held;
    let host = authority.host_header();
    let each = |gap: Duration| format!("1 page every {} s", gap.as_secs_f32());
    let next = left.map_or(format!("{} s so far", since.as_secs()), |left| format!("next in {} s", left.as_secs() + 1));
    let (first, then) = match (*reason, reason.gap(), left, waiting) {
        (HeldFor::Gap(gap), _, _, 0 | 1) => (format!("{} at {host}", each(gap)), next),
        (_, Some(gap), Some(left), 2..) => {
            let others = u32::try_from(waiting - 1).unwrap_or(u32::MAX);
            let all = about(left.saturating_add(gap.saturating_mul(others)));
            let why = if let HeldFor::Gap(gap) = *reason { each(gap) } else { reason.to_string() };
            (format!("about {all} for {waiting} waiting at {host}"), format!("{why}, {next}"))
        }
        _ => (format!("waiting for {host}: {reason}"), next),
    };
    let refused = counts.refused.values().sum::<u64>();
    let so_far = [(counts.forwarded, "done"), (refused, "refused")].into_iter().filter(|(count, _)| *count > 0);
    let so_far = so_far.map(|(count, what)| format!("{count} {what}")).collect::<Vec<_>>().join(", ");
    let mut line: String = inert(&format!("politely: {first}")).chars().take(width).collect();
    for part in [then, so_far].into_iter().filter(|part| !part.is_empty()) {
        if line.chars().count() + ", ".len() + part.len() <= width {
            line = format!("{line}, {part}");
        }
    }
    line
}

/// How long a request is held before it is shown.
pub(super) const HELD_LONG: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(500);
const PRINT_INTERVAL: Duration = Duration::from_secs(10);
const USUAL_WIDTH: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Authority;

    #[test]
    fn progress_line_shows_the_most_important_wait_first() {
        let authority = Authority::from_url("https://a.example").expect("a URL");
        let since = Duration::from_secs(3);
        let gap = HeldFor::Gap(Duration::from_secs(30));
        let one = HeldRequest {
            authority,
            url: "https://a.example/x".into(),
            user: None,
            from: None,
            reason: gap,
            since,
            left: Some(Duration::from_millis(26_500)),
            waiting: 16,
        };
        let (none, all) = (Counts::default(), usize::MAX);
        let some = Counts { forwarded: 12, refused: [("robots-disallowed", 3)].into(), ..Counts::default() };
        let told = "politely: about 8 min for 16 waiting at a.example";
        let pace = "1 page every 30 s, next in 27 s";
        assert_eq!(line(&one, &some, all), format!("{told}, {pace}, 12 done, 3 refused"));
        assert_eq!(line(&one, &none, all), format!("{told}, {pace}"));
        assert_eq!(line(&one, &some, 79), format!("{told}, 12 done, 3 refused"), "parts that do not fit are left out");
        let alone = HeldRequest { waiting: 1, ..one.clone() };
        let each = "politely: 1 page every 30 s at a.example, next in 27 s, 12 done, 3 refused";
        assert_eq!(line(&alone, &some, 79), each);
        for (waiting, about) in [(4, "about 117 s for 4 "), (1000, "about 8 h 20 min for 1000 ")] {
            let line = line(&HeldRequest { waiting, ..one.clone() }, &none, 79);
            assert!(line.contains(about), "{line}");
        }
        let long = Authority::from_url(&format!("https://{}.example:8443", "a".repeat(60))).expect("a URL");
        let long = line(&HeldRequest { authority: long, ..one.clone() }, &some, 79);
        assert!(long.len() == 79 && long.starts_with("politely: about 8 min for 16 waiting at aaa"), "{long}");
        let backoff = HeldRequest { reason: HeldFor::Backoff(Duration::from_secs(30)), ..one.clone() };
        let why = "backing off 30.0 s after 429 or 503, next in 27 s";
        assert_eq!(line(&backoff, &none, all), format!("{told}, {why}"));
        let robots = HeldRequest { reason: HeldFor::Robots, left: None, waiting: 1, ..one };
        let told = "politely: waiting for a.example: its robots.txt is being fetched, 3 s so far";
        assert_eq!(line(&robots, &none, 79), told);
    }
}
