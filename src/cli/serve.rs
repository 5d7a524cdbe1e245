//! `politely serve`: runs the proxy as a service, until it is stopped.

use super::running_file::{self, RunningFile, RunningProxy};
use super::signal_set::{OTHER, STOP, SignalSet};
use super::{CommandError, orphans};
use crate::config::{Settings, read_argument};
use crate::server::{self, Running, StartError};
use crate::telemetry;
use serde::de::IgnoredAny;
use serde_json::json;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::ExitCode;
use tokio::signal::unix::SignalKind;

#[derive(Debug, Clone, clap::Args)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    config: super::ConfigArg,
    /// Listen on this address instead of the configured ones
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
}

pub(super) fn run(args: &ServeArgs) -> Result<ExitCode, CommandError> {
    let path = args.config.path();
    let was_empty = path.as_deref().is_some_and(is_empty);
    let settings = load(args)?;
    telemetry::init(&settings.log).map_err(|error| StartError::log(&settings, error))?;
    super::block_on(serve(settings, path.as_deref(), was_empty, args))??;
    Ok(ExitCode::SUCCESS)
}

/// Serves until the proxy is stopped. `was_empty`: whether the file at `path` was empty at the start.
async fn serve(settings: Settings, path: Option<&Path>, was_empty: bool, args: &ServeArgs) -> Result<(), CommandError> {
    settings.log_warnings();
    // Signals are caught before the proxy listens, so that no early signal is missed.
    let mut signals = SignalSet::catch(&[&STOP[..], &[SignalKind::hangup()], &OTHER.map(|(kind, _)| kind)].concat())?;
    orphans::reap(None)?;
    // Starting may block for long, on a lock or a file system. Until the start is complete, this task handles signals to stop.
    let mut early = SignalSet::catch(&STOP)?;
    let early = tokio::spawn(async move {
        early.next_to_stop().await;
        tracing::info!("stopped");
        telemetry::flush();
        std::process::exit(0)
    });
    let running = server::start(settings).await?;
    early.abort();
    for address in running.addresses() {
        tracing::info!("listening on {address}");
    }
    if let Some(address) = running.admin_address() {
        tracing::info!("admin address http://{address}/");
    }
    tracing::info!("name in Via: {}", running.name());
    // Keeps the file until the end, when the admin address no longer answers.
    let _file = write_running_file(&running, path);
    let (file, own) = (path.map(Path::to_owned), args.clone());
    running.reload_from(move || {
        if let Some(file) = file.as_deref().filter(|file| file.metadata().is_ok_and(|it| it.file_type().is_fifo())) {
            let hint = "to reload, write the configuration to a regular file; a pipe is read once, at the start";
            return Err(format!("error: {} is a pipe\nhint: {hint}", file.display()));
        }
        if let Some(file) = file.as_deref().filter(|file| !was_empty && is_empty(file)) {
            let hint = "write the new configuration to another file and rename that; for all defaults, write `{}`";
            return Err(format!("error: {} is empty except for comments\nhint: {hint}", file.display()));
        }
        load(&own).map_err(|failed| failed.to_string())
    });
    tracing::info!("HTTPS clients have to trust {}", running.ca_path().display());
    notify("READY=1");
    loop {
        match signals.next().await {
            // The proxy can be stopped even while a reload waits for a file system.
            kind if kind == SignalKind::hangup() => tokio::select! {
                () = running.reload_from_file() => {}
                () = signals.next_to_stop() => break,
            },
            kind if STOP.contains(&kind) => break,
            kind => {
                let name = OTHER.iter().find(|(other, _)| *other == kind).map_or("a signal", |(_, name)| name);
                tracing::warn!(hint = SIGNALS, "{name} does nothing here");
            }
        }
    }
    notify("STOPPING=1");
    running.leave();
    let delay = running.shutdown_delay();
    if !delay.is_zero() {
        tracing::info!("shutting down in {delay:?}: clients are asked to reconnect");
    }
    let mut is_pressed = false;
    tokio::select! {
        () = tokio::time::sleep(delay) => {}
        () = signals.next_to_stop() => is_pressed = true,
    }
    tracing::info!("shutting down: waiting up to {} s for active requests", running.drain_timeout().as_secs_f32());
    let cut = async {
        if !is_pressed {
            signals.next_to_stop().await;
        }
        tracing::warn!("second signal: active requests are cut off");
    };
    running.shutdown_before(cut).await;
    tracing::info!("stopped");
    Ok(())
}

/// Whether the file has no content besides comments, as for a moment while it is rewritten in place, or if the disk is full. A reload must
/// not treat such a file as a request for all defaults, unless the file was empty at the start.
fn is_empty(path: &Path) -> bool {
    let Some(text) = path.is_file().then(|| read_argument(path).ok()).flatten() else { return false };
    serde_yaml::from_slice::<Option<IgnoredAny>>(&text).is_ok_and(|value| value.is_none())
}

fn load(args: &ServeArgs) -> Result<Settings, CommandError> {
    let listen = args.listen.as_deref();
    let listen = listen.map(|address| super::key_argument("--listen", "listen", &[json!({ "address": address })]));
    Ok(args.config.load_in_layers(Vec::new(), listen)?.0)
}

/// Writes the file by which other commands find this proxy, if it has an admin address.
fn write_running_file(running: &Running, config: Option<&Path>) -> Option<RunningFile> {
    let token = running.admin_token().map(str::to_owned);
    let announced =
        RunningProxy { admin: running.admin_address()?, token }.announce(&running_file::directory(), config);
    announced
        .inspect_err(|error| {
            tracing::warn!("cannot store the admin address for `politely status` and `reload`, so they use the configured one: {error}");
        })
        .ok()
}

/// Notifies systemd, if the process runs under it.
fn notify(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    // The crate sd-notify does not support abstract sockets.
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&name),
    };
    let send = |address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address);
    if let Err(error) = address.and_then(send) {
        tracing::warn!(%error, "cannot notify systemd");
    }
}

const SIGNALS: &str =
    "SIGHUP reloads the configuration and reopens the access log; SIGTERM, SIGINT and SIGQUIT stop the proxy";
