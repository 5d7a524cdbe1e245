//! Format of log lines: logfmt or JSON, with a field for each fact. Lines that a service writes to the journal begin with their severity
//! and have no time, as the journal adds it.

use crate::config::LogFormat;
use crate::policy::{is_unseen, json_escape};
use crate::rfc3339;
use rustix::fs::fstat;
use std::fmt::{self, Debug, Write};
use std::io::{self, IsTerminal};
use std::time::SystemTime;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Format of the event log and the access log.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineFormat {
    pub format: LogFormat,
    pub events: LineReader,
    pub requests: LineReader,
}

/// The reader for which lines are formatted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineReader {
    File,
    Terminal,
    Journal,
}

impl LineReader {
    /// The reader of standard error.
    pub fn of_standard_error() -> Self {
        if is_journal() {
            Self::Journal
        } else if is_colorful(&io::stderr()) {
            Self::Terminal
        } else {
            Self::File
        }
    }
}

/// Whether to use colour: on terminals, unless NO_COLOR is set (no-color.org).
pub fn is_colorful(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Whether standard error is still the journal's stream that systemd opened (systemd.exec(5)).
fn is_journal() -> bool {
    let Some(stream) = std::env::var("JOURNAL_STREAM").ok() else { return false };
    let Some((device, inode)) = stream.split_once(':') else { return false };
    fstat(io::stderr()).is_ok_and(|file| device.parse() == Ok(file.st_dev) && inode.parse() == Ok(file.st_ino))
}

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let metadata = event.metadata();
        let is_request = metadata.target() == ACCESS;
        let text = self.line(metadata.level(), is_request, |visitor| event.record(visitor))?;
        if self.reader(is_request) != LineReader::Journal {
            return writeln!(writer, "{text}");
        }
        // Each line becomes a separate journal entry.
        text.lines().try_for_each(|line| writeln!(writer, "<{}>{line}", severity(metadata.level())))
    }
}

impl LineFormat {
    fn reader(&self, is_request: bool) -> LineReader {
        if is_request { self.requests } else { self.events }
    }

    /// Formats one line. A request has only fields; an event begins with its message, except in JSON.
    fn line(&self, level: &Level, is_request: bool, record: impl FnOnce(&mut dyn Visit)) -> Result<String, fmt::Error> {
        let reader = self.reader(is_request);
        let now = (reader != LineReader::Journal).then(|| rfc3339::millis(SystemTime::now()));
        let mut fields = EventFields {
            out: String::with_capacity(512),
            message: String::new(),
            is_json: self.format == LogFormat::Json,
        };
        if fields.is_json || is_request {
            now.iter().for_each(|now| fields.text("time", now));
        }
        if fields.is_json && !is_request {
            fields.text("level", &level.as_str().to_ascii_lowercase());
        }
        record(&mut fields);
        let EventFields { out, message, is_json } = fields;
        if is_json {
            return Ok(format!("{{{out}}}"));
        }
        if is_request {
            return Ok(out);
        }
        let mut text = String::with_capacity(message.len() + out.len() + 64);
        let (dim, loud, plain) =
            if reader == LineReader::Terminal { (DIM, colour(level), PLAIN) } else { ("", "", "") };
        if let Some(now) = now {
            write!(text, "{dim}{now}{plain} {loud}{level:>5}{plain} ")?;
        }
        // The message may quote sites and clients.
        text.extend(message.chars().map(|char| if is_unseen(char) && char != '\n' { '\u{fffd}' } else { char }));
        if !out.is_empty() {
            write!(text, "{}{dim}{out}{plain}", if message.is_empty() { "" } else { " " })?;
        }
        Ok(text)
    }
}

/// Names and values of an event, in order.
struct EventFields {
    out: String,
    /// The event's message, if it precedes the fields; in JSON the message is a field.
    message: String,
    is_json: bool,
}

impl EventFields {
    fn text(&mut self, name: &str, value: &str) {
        self.name(name);
        if self.is_json || needs_quotes(value) {
            put_quoted(&mut self.out, value);
        } else {
            self.out += value;
        }
    }

    fn plain(&mut self, name: &str, value: impl fmt::Display) {
        self.name(name);
        // Writing to memory cannot fail.
        let _ = write!(self.out, "{value}");
    }

    fn name(&mut self, name: &str) {
        if !self.out.is_empty() {
            self.out.push(if self.is_json { ',' } else { ' ' });
        }
        if self.is_json {
            put_quoted(&mut self.out, name);
            self.out.push(':');
        } else {
            self.out += name;
            self.out.push('=');
        }
    }
}

impl Visit for EventFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" if !self.is_json => value.clone_into(&mut self.message),
            name => self.text(name, value),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.plain(field.name(), value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.plain(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.plain(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

/// Whether the value has characters that end an unquoted logfmt value, or are invisible.
fn needs_quotes(value: &str) -> bool {
    let special = |c: char| matches!(c, ' ' | '"' | '=' | '\\') || is_unseen(c);
    value.is_empty() || value.contains(special)
}

/// Writes a JSON string (RFC 8259 §7), which logfmt readers accept too. Escapes what a terminal might interpret.
fn put_quoted(out: &mut String, value: &str) {
    out.push('"');
    for c in value.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => *out += "\\n",
            '\r' => *out += "\\r",
            '\t' => *out += "\\t",
            c if is_unseen(c) => *out += &json_escape(c),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// The severity as defined in sd-daemon(3).
fn severity(level: &Level) -> u8 {
    match *level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

fn colour(level: &Level) -> &'static str {
    match *level {
        Level::ERROR => "\x1b[31m",
        Level::WARN => "\x1b[33m",
        Level::INFO => "\x1b[32m",
        _ => "\x1b[34m",
    }
}

const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// The tracing target of access log lines.
pub const ACCESS: &str = "access";

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(value: &str) -> String {
        let mut out = String::new();
        put_quoted(&mut out, value);
        out
    }

    #[test]
    fn quoted_text_round_trips() {
        let all: String = (0..0x250)
            .filter_map(char::from_u32)
            .chain("\u{2028}\u{202e}\u{1f600}\u{3164}\u{fe0f}\u{e0041}\u{e01ef}".chars())
            .collect();
        assert_eq!(serde_json::from_str::<String>(&quoted(&all)).unwrap(), all);
        assert!(!quoted(&all).contains(is_unseen));
    }

    #[test]
    fn text_is_quoted_only_if_necessary() {
        for plain in ["a", "https://a.example/x?y&z", "robots-disallowed", "\u{e9}", "[::1]:80", "1.5", "{a}"] {
            assert!(!needs_quotes(plain), "{plain}");
        }
        for special in ["", "a b", "a=b", "a\"", "a\\b", "a\nb", "\x1b[31m", "\u{9b}31m", "a\tb", "gpj.\u{202e}exe"] {
            assert!(needs_quotes(special), "{special:?}");
        }
    }

    fn spelt(format: LogFormat, reader: LineReader) -> String {
        let line = LineFormat { format, events: reader, requests: reader };
        line.line(&Level::WARN, false, |_| {}).unwrap()
    }

    #[test]
    fn journal_lines_have_no_timestamp() {
        assert_eq!(spelt(LogFormat::Text, LineReader::Journal), "");
        assert_eq!(spelt(LogFormat::Json, LineReader::Journal), r#"{"level":"warn"}"#);
        assert!(spelt(LogFormat::Text, LineReader::File).ends_with("Z  WARN "));
        assert!(spelt(LogFormat::Text, LineReader::Terminal).contains("\x1b[33m WARN\x1b[0m"));
    }
}
