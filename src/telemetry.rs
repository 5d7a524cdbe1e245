//! Logs: what happens to standard error, and one line a request where `log.access` says.

use crate::config::{AccessLog, Log, LogFormat, LogLevel};
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, StderrLock, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets, filter_fn};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Layer, fmt as lines};

/// The target of a request's line.
pub const ACCESS: &str = "access";

/// Begins to log, once in a process.
///
/// # Errors
/// The access log cannot be opened.
pub fn init(log: &Log) -> io::Result<()> {
    let level = match log.level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Trace => Level::TRACE,
    };
    // What pingora and its kin say at `info` is about their insides.
    let others = level.min(if level > Level::INFO { level } else { Level::ERROR });
    let events = Targets::new()
        .with_target("politely", level)
        .with_default(others)
        // An idle connection that was just being closed: another is made, and what fails then is told by us.
        .with_target("pingora_core::connectors", if level > Level::INFO { level.into() } else { LevelFilter::OFF })
        .with_target(ACCESS, LevelFilter::OFF);
    let events = layer(log.format, BoxMakeWriter::new(|| StandardError)).with_filter(events);
    let access = match &log.access {
        AccessLog::Off => None,
        AccessLog::Stdout => Some(BoxMakeWriter::new(io::stdout)),
        // What a service writes to standard error, systemd puts into the journal.
        AccessLog::Journal => Some(BoxMakeWriter::new(|| StandardError)),
        AccessLog::File(path) => {
            Some(BoxMakeWriter::new(Mutex::new(OpenOptions::new().create(true).append(true).open(path)?)))
        }
    };
    let only_access = filter_fn(|metadata| metadata.target() == ACCESS);
    let access = access.map(|writer| layer(log.format, writer).with_filter(only_access));
    // A test or an embedding program may log already.
    let _ = tracing_subscriber::registry().with(events).with(access).try_init();
    Ok(())
}

/// Standard error, where what is written takes the place of the line that is shown there for the moment.
#[derive(Debug, Clone, Copy)]
pub struct StandardError;

impl StandardError {
    /// Shows a line until something else is written; `None` takes it away. For a terminal alone.
    pub fn show(line: Option<&str>) {
        let mut stderr = io::stderr().lock();
        let was_shown = IS_SHOWN.swap(line.is_some(), Ordering::Relaxed);
        if was_shown || line.is_some() {
            let _ = write!(stderr, "{CLEAR}{}", line.unwrap_or_default());
        }
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

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        Self::lock().write_all(bytes)
    }

    fn write_fmt(&mut self, text: fmt::Arguments<'_>) -> io::Result<()> {
        Self::lock().write_fmt(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Only whoever has locked standard error changes it.
static IS_SHOWN: AtomicBool = AtomicBool::new(false);
/// To the start of the line, and nothing on it.
const CLEAR: &str = "\r\x1b[K";

fn layer<S>(format: LogFormat, writer: BoxMakeWriter) -> Box<dyn Layer<S> + Send + Sync>
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    match format {
        LogFormat::Text => lines::layer().with_writer(writer).with_ansi(false).boxed(),
        LogFormat::Json => lines::layer().json().flatten_event(true).with_writer(writer).boxed(),
    }
}
