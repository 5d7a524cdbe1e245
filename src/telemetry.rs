//! Logs: what happens to standard error, and one line a request where `log.access` says.

use crate::config::{AccessLog, Log, LogFormat, LogLevel};
use std::fs::OpenOptions;
use std::io;
use std::sync::Mutex;
use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets, filter_fn};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Layer, fmt};

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
    let events = layer(log.format, BoxMakeWriter::new(io::stderr)).with_filter(events);
    let access = match &log.access {
        AccessLog::Off => None,
        AccessLog::Stdout => Some(BoxMakeWriter::new(io::stdout)),
        // What a service writes to standard error, systemd puts into the journal.
        AccessLog::Journal => Some(BoxMakeWriter::new(io::stderr)),
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

fn layer<S>(format: LogFormat, writer: BoxMakeWriter) -> Box<dyn Layer<S> + Send + Sync>
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    match format {
        LogFormat::Text => fmt::layer().with_writer(writer).with_ansi(false).boxed(),
        LogFormat::Json => fmt::layer().json().flatten_event(true).with_writer(writer).boxed(),
    }
}
