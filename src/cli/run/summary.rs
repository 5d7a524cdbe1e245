//! What came of a run, told at its end: for people, or as one JSON object for scripts.

use super::cure::cure;
use super::tally::Tally;
use crate::proxy::{Counts, Distrusted};
use crate::server::Totals;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the report for scripts goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReportTo {
    /// In place of the summary for people, as one line.
    StandardError,
    File(PathBuf),
}

impl ReportTo {
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            None if text == "json" => Ok(Self::StandardError),
            Some(("json", file)) if !file.is_empty() => Ok(Self::File(file.into())),
            _ => Err("it is `json`, for standard error, or `json=FILE`".into()),
        }
    }

    /// The file, which is to be found out before the command runs.
    pub fn open(&self) -> std::io::Result<Option<File>> {
        match self {
            Self::StandardError => Ok(None),
            Self::File(path) => File::create(path).map(Some),
        }
    }
}

/// All there is to tell.
pub(super) struct Summary<'a> {
    pub program: &'a OsStr,
    pub tally: Tally,
    pub took: Duration,
    pub totals: Totals,
    pub max_wait: Duration,
}

impl Summary<'_> {
    fn total(&self) -> u64 {
        let counts = &self.totals.counts;
        counts.forwarded + counts.failed + counts.client_gone + counts.refused.values().sum::<u64>()
    }

    fn program_name(&self) -> String {
        Path::new(self.program).file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// By its User-Agent; most clients keep that for what is inside of the CONNECT.
    fn cure_of(&self, one: &Distrusted) -> &'static str {
        one.how.cure(one.agent.as_deref().or(Some(&self.program_name())))
    }

    /// For `--max-wait`: so that the last that was turned away would have had its turn.
    fn enough(&self) -> String {
        match (self.max_wait + self.tally.longest_wait).as_secs() + 1 {
            seconds @ 0..120 => format!("{seconds}s"),
            seconds => format!("{}m", seconds.div_ceil(60)),
        }
    }

    /// The first line, and one for each thing that is worth it.
    pub fn text(&self) -> String {
        let Totals { counts, held, failures, distrusted } = &self.totals;
        let (tally, total) = (&self.tally, self.total());
        let mut text = format!("politely: {total} requests, {} forwarded", counts.forwarded);
        if counts.failed > 0 {
            text += &format!(", {} failed", counts.failed);
        }
        if counts.client_gone > 0 {
            text += &format!(", {} given up by the client", counts.client_gone);
        }
        for (slug, count) in &counts.refused {
            text += &format!(", {count} {slug}");
        }
        for (slug, count) in &counts.reported {
            text += &format!(", {count} {slug} (reported)");
        }
        let mut line = |what: String| text += &format!("\n  {}", super::super::inert(&what));
        for (rule, count) in tally.top(SHOWN) {
            line(format!("{count} by {rule}"));
        }
        if held.requests > 0 {
            line(format!("{} held for their turn, {:.1} s in all", held.requests, held.total.as_secs_f64()));
        }
        if tally.too_long_in_all > 0 {
            line(format!("{} refused that would have had to wait longer than may be:", tally.too_long_in_all));
            tally.too_long.iter().take(SHOWN).for_each(|url| line(format!("  {url}")));
            line(format!("hint: `--max-wait {}` holds them until their turn", self.enough()));
        }
        for (host, failures) in failures.iter().take(SHOWN) {
            line(format!("{} failed at {host}: {}", failures.count, failures.last));
        }
        for one in distrusted.iter().take(SHOWN) {
            let (host, times, what) = (&one.host, one.times, one.how.what());
            line(format!("the certificate for {host} was turned down {times} times: {what}"));
            line(format!("hint: {}", self.cure_of(one)));
        }
        if counts.tunnels > 0 {
            line(format!("{} tunnels, of whose inside robots.txt was not kept: `intercept: tunnel`", counts.tunnels));
        }
        if total == counts.tunnels && distrusted.is_empty() {
            let what = if total == 0 { "nothing" } else { "nothing but tunnels" };
            text += &format!(
                "\npolitely: warning: {what} came through the proxy; if the command fetched something, it went round it, \
                 and robots.txt was not kept\nhint: {}",
                cure(&self.program_name())
            );
        }
        text
    }

    pub fn json(&self, exit_code: u8) -> Value {
        let Counts { forwarded, failed, client_gone, tunnels, refused, reported, .. } = &self.totals.counts;
        let rules =
            self.tally.top(MOST_RULES).into_iter().map(
                |(rule, count)| json!({ "file": rule.file, "line": rule.line, "rule": rule.text, "requests": count }),
            );
        let failures =
            self.totals.failures.iter().map(
                |(host, failures)| json!({ "authority": host, "requests": failures.count, "last": failures.last }),
            );
        let distrusted = self.totals.distrusted.iter().map(|one| {
            json!({ "authority": one.host, "user_agent": one.agent, "how": one.how.slug(), "times": one.times,
                "cure": self.cure_of(one) })
        });
        let too_long = &self.tally.too_long;
        json!({
            "program": self.program.to_string_lossy(),
            "exit_code": exit_code,
            "seconds": self.took.as_secs_f64(),
            "requests": { "total": self.total(), "forwarded": forwarded, "failed": failed, "client_gone": client_gone, "refused": refused,
                "reported": reported },
            "tunnels": tunnels,
            "held": { "requests": self.totals.held.requests, "seconds": self.totals.held.total.as_secs_f64() },
            "rules": rules.collect::<Vec<_>>(),
            "refused_for_waiting": {
                "requests": self.tally.too_long_in_all,
                "urls": too_long,
                "max_wait": (self.tally.too_long_in_all > 0).then(|| self.enough()),
            },
            "failures": failures.collect::<Vec<_>>(),
            "distrusted": distrusted.collect::<Vec<_>>(),
        })
    }
}

/// Of each kind, in the summary for people.
const SHOWN: usize = 5;
const MOST_RULES: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_goes_to_standard_error_or_to_a_file() {
        assert_eq!(ReportTo::parse("json"), Ok(ReportTo::StandardError));
        assert_eq!(ReportTo::parse("json=a=b.json"), Ok(ReportTo::File("a=b.json".into())));
        for wrong in ["", "text", "json=", "text=x"] {
            assert!(ReportTo::parse(wrong).is_err(), "{wrong}");
        }
    }
}
