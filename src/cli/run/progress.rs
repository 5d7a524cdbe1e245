//! While a request is held: one line of the terminal, rewritten. Where there is no terminal, a line now and then if asked for.

use crate::gate::HeldRequest;
use crate::proxy::Counts;
use crate::telemetry::StandardError;
use rustix::termios::tcgetwinsize;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

pub(super) struct Progress {
    way: ProgressStyle,
    /// When to look again.
    next: Instant,
    printed_at: Option<Instant>,
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
        Progress { way, next: Instant::now() + TICK, printed_at: None }
    }

    /// It is time to look. Never, if nobody is to be shown anything.
    pub async fn tick(&mut self) {
        match self.way {
            ProgressStyle::Off => std::future::pending().await,
            ProgressStyle::Terminal | ProgressStyle::Lines => sleep_until(self.next).await,
        }
        self.next = Instant::now() + TICK;
    }

    /// What is held, if for longer than [`HELD_LONG`].
    pub fn show(&mut self, held: Option<&HeldRequest>, counts: &Counts) {
        match (self.way, held) {
            (ProgressStyle::Off, _) | (ProgressStyle::Lines, None) => {}
            (ProgressStyle::Terminal, None) => StandardError::show(None),
            (ProgressStyle::Terminal, Some(held)) => {
                let columns = tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_col));
                let width = if columns == 0 { USUAL_WIDTH } else { columns };
                let line: String = line(held, counts).chars().take(width - 1).collect();
                StandardError::show(Some(&line));
            }
            (ProgressStyle::Lines, Some(held)) => {
                if self.printed_at.is_none_or(|printed_at| printed_at.elapsed() >= PRINT_INTERVAL) {
                    self.printed_at = Some(Instant::now());
                    let _ = writeln!(StandardError, "{}", line(held, counts));
                }
            }
        }
    }
}

fn line(held: &HeldRequest, counts: &Counts) -> String {
    let (done, refused) = (counts.forwarded, counts.refused.values().sum::<u64>());
    let so_far = [(done, "done"), (refused, "refused")].into_iter().filter(|(count, _)| *count > 0);
    let so_far: Vec<String> = so_far.map(|(count, what)| format!("{count} {what}")).collect();
    let separator = if so_far.is_empty() { "" } else { "; " };
    let mut line = format!("politely: {}{separator}waiting for {}: {}", so_far.join(", "), held.authority, held.reason);
    match held.left {
        Some(left) => line += &format!(", {} s left", left.as_secs() + 1),
        None => line += &format!(", {} s so far", held.since.as_secs()),
    }
    if held.waiting > 1 {
        line += &format!(", {} waiting", held.waiting);
        if let (Some(left), Some(gap)) = (held.left, held.reason.gap()) {
            let others = u32::try_from(held.waiting - 1).unwrap_or(u32::MAX);
            line += &format!(": about {}", about(left.saturating_add(gap.saturating_mul(others))));
        }
    }
    super::super::inert(&line)
}

/// Rounded up to seconds, minutes, or hours and minutes.
fn about(duration: Duration) -> String {
    match (duration.as_secs() + 1, duration.as_secs() / 60 + 1) {
        (seconds, _) if seconds < 120 => format!("{seconds} s"),
        (_, minutes) if minutes < 120 => format!("{minutes} min"),
        (_, minutes) => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}

/// A shorter wait is not shown.
pub(super) const HELD_LONG: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(500);
const PRINT_INTERVAL: Duration = Duration::from_secs(10);
const USUAL_WIDTH: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::HeldFor;
    use crate::policy::Authority;

    #[test]
    fn the_line_names_host_reason_and_time_left() {
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
            waiting: 4,
        };
        let none = Counts::default();
        let told = "waiting for https://a.example: crawl-delay 30 s, 27 s left, 4 waiting: about 117 s";
        assert_eq!(line(&one, &none), format!("politely: {told}"));
        let some = Counts { forwarded: 12, refused: [("robots-disallowed", 3)].into(), ..Counts::default() };
        assert_eq!(line(&one, &some), format!("politely: 12 done, 3 refused; {told}"));
        for (waiting, about) in [(1, ""), (17, ": about 9 min"), (1000, ": about 8 h 20 min")] {
            let line = line(&HeldRequest { waiting, ..one.clone() }, &none);
            assert!(line.ends_with(about) && line.contains("about") != about.is_empty(), "{line}");
        }
        let robots = HeldRequest { reason: HeldFor::Robots, left: None, waiting: 1, ..one };
        let printed_at = "politely: waiting for https://a.example: its robots.txt is being fetched, 3 s so far";
        assert_eq!(line(&robots, &none), printed_at);
    }
}
