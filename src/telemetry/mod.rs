//! Logs: events to standard error, and one line for each request to `log.access`.

mod line_format;
mod line_queue;

pub use line_format::{ACCESS, is_colorful};

use crate::config::{AccessLog, LogLevel, LogSettings, refuse_foreign};
use line_format::{LineFormat, LineReader};
use line_queue::LineQueue;
use parking_lot::Mutex;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, StderrLock, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing::{Level, Metadata};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::DefaultFields;
use tracing_subscriber::fmt::{self as lines, MakeWriter};
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Registry, reload};

/// Starts logging. Call once in a process.
///
/// # Errors
/// The access log cannot be opened.
pub fn init(log: &LogSettings) -> io::Result<()> {
    let change = LogChange::prepare(log)?;
    EVENT_LINES.write_to(StandardError)?;
    let (layer, layers) = reload::Layer::new(layer(log));
    let (filter, filters) = reload::Layer::new(filter(log));
    // A test or an embedding program may have a logger already.
    if tracing_subscriber::registry().with(layer).with(filter).try_init().is_ok() {
        let _ = SWITCH.set(Box::new(move |log| {
            // Cannot fail, because the registry lives as long as the process.
            let _ = layers.reload(self::layer(log));
            let _ = filters.reload(self::filter(log));
        }));
    }
    change.apply()
}

/// Excludes refusals from the log, as the caller shows refusals itself. Call it before [`init`].
pub fn leave_out_refusals() {
    LEAVES_OUT_REFUSALS.store(true, Ordering::Relaxed);
}

static LEAVES_OUT_REFUSALS: AtomicBool = AtomicBool::new(false);
/// The target of the proxy's refusals.
const REFUSALS: &str = "politely::refusals";

/// Changed log settings, ready to apply. Unchanged settings reopen the access log, as is necessary after its file was moved.
pub struct LogChange {
    log: LogSettings,
    file: Option<File>,
}

impl LogChange {
    /// # Errors
    /// The access log cannot be opened; nothing is changed then.
    pub fn prepare(log: &LogSettings) -> io::Result<Self> {
        let file = match &log.access {
            AccessLog::File(path) => Some(open(path)?),
            AccessLog::Off | AccessLog::Stdout | AccessLog::Journal => None,
        };
        Ok(Self { log: log.clone(), file })
    }

    /// # Errors
    /// The thread for the access log cannot be started.
    pub fn apply(self) -> io::Result<()> {
        let mut written_to = WRITTEN_TO.lock();
        match (&self.log.access, self.file) {
            (AccessLog::File(_), Some(file)) => ACCESS_LINES.write_to(file)?,
            // The queue is kept: replacing it would leave one more thread blocked on a stalled reader at each call.
            (same, _) if *written_to == *same => {}
            (AccessLog::Stdout, _) => ACCESS_LINES.write_to(File::from(io::stdout().as_fd().try_clone_to_owned()?))?,
            // systemd puts a service's standard error into the journal.
            (AccessLog::Journal, _) => ACCESS_LINES.write_to(StandardError)?,
            (AccessLog::Off | AccessLog::File(_), _) => ACCESS_LINES.close(),
        }
        written_to.clone_from(&self.log.access);
        if let Some(switch) = SWITCH.get() {
            switch(&self.log);
        }
        Ok(())
    }
}

/// Checks that the access log can be written, if it is a file. Does not create it.
///
/// # Errors
/// The file cannot be written.
pub fn check(log: &LogSettings) -> io::Result<()> {
    let AccessLog::File(path) = &log.access else { return Ok(()) };
    match OpenOptions::new().append(true).custom_flags(libc::O_NONBLOCK).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            rustix::fs::access(directory, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)?;
            Ok(())
        }
        opened => opened.map(drop),
    }
}

/// Waits briefly for everything logged so far to be written.
pub fn flush() {
    EVENT_LINES.flush(LAST_WORDS);
    ACCESS_LINES.flush(LAST_WORDS);
}

/// Lines dropped so far, by log.
pub fn dropped() -> [(&'static str, u64); 2] {
    [&EVENT_LINES, &ACCESS_LINES].map(|log| (log.name, log.dropped()))
}

/// The filter for events and access log lines.
fn filter(log: &LogSettings) -> Targets {
    let level = match log.level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Trace => Level::TRACE,
    };
    // Logs only errors of other crates, unless the level is `debug` or `trace`: what pingora and similar crates log at `info` is internal.
    let others = level.min(if level > Level::INFO { level } else { Level::ERROR });
    Targets::new()
        .with_target("politely", level)
        .with_target(
            REFUSALS,
            if LEAVES_OUT_REFUSALS.load(Ordering::Relaxed) { LevelFilter::OFF } else { level.into() },
        )
        .with_default(others)
        .with_target(ACCESS, if log.access == AccessLog::Off { LevelFilter::OFF } else { LevelFilter::INFO })
}

fn layer(log: &LogSettings) -> lines::Layer<Registry, DefaultFields, LineFormat, Queues> {
    let events = LineReader::of_standard_error();
    let requests = match (&log.access, events) {
        (AccessLog::Journal, LineReader::Journal) => LineReader::Journal,
        _ => LineReader::File,
    };
    lines::layer().event_format(LineFormat { format: log.format, events, requests }).with_writer(Queues)
}

/// Selects the queue of each line's log.
struct Queues;

impl MakeWriter<'_> for Queues {
    type Writer = &'static LineQueue;

    fn make_writer(&self) -> Self::Writer {
        &EVENT_LINES
    }

    fn make_writer_for(&self, metadata: &Metadata<'_>) -> Self::Writer {
        if metadata.target() == ACCESS { &ACCESS_LINES } else { &EVENT_LINES }
    }
}

/// Opens a log file. A pipe without a reader is an error instead of blocking. Only owner and group can read a new file, as it will
/// contain users and URLs.
fn open(path: &Path) -> io::Result<File> {
    refuse_foreign(path)?;
    OpenOptions::new().create(true).append(true).mode(0o640).custom_flags(libc::O_NONBLOCK).open(path)
}

type LogSwitch = Box<dyn Fn(&LogSettings) + Send + Sync>;

static EVENT_LINES: LineQueue = LineQueue::new("events");
static ACCESS_LINES: LineQueue = LineQueue::new("access");
static WRITTEN_TO: Mutex<AccessLog> = Mutex::new(AccessLog::Off);
/// Set once logging has started.
static SWITCH: OnceLock<LogSwitch> = OnceLock::new();
/// Maximum time to write the last lines when the process ends.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Standard error; output replaces the status line that is currently shown.
#[derive(Debug, Clone, Copy)]
pub struct StandardError;

impl StandardError {
    /// Shows a status line until something else is written; `None` removes it. Only for terminals. Output of
    /// other processes overwrites the line.
    pub fn show(line: Option<&str>) {
        let mut stderr = io::stderr().lock();
        let was_shown = IS_SHOWN.swap(line.is_some(), Ordering::Relaxed);
        let _ = match line {
            Some(line) => write!(stderr, "{CLEAR}{line}\r"),
            None if was_shown => write!(stderr, "{CLEAR}"),
            None => Ok(()),
        };
    }

    fn lock() -> StderrLock<'static> {
        let mut stderr = io::stderr().lock();
        if IS_SHOWN.swap(false, Ordering::Relaxed) {
            let _ = write!(stderr, "{CLEAR}");
        }
        stderr
    }
}

impl Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Self::lock().write(bytes)
    }

    fn write_fmt(&mut self, text: fmt::Arguments<'_>) -> io::Result<()> {
        Self::lock().write_fmt(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Whether a status line is shown. Changed only while standard error is locked.
static IS_SHOWN: AtomicBool = AtomicBool::new(false);
/// Returns to the start of the line and clears it.
const CLEAR: &str = "\r\x1b[K";
