//! `politely serve`: the proxy as a service, until it is told to stop.

use super::Failed;
use crate::config::Settings;
use crate::server::{self, Running};
use crate::telemetry;
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;
use tokio::signal::unix::{Signal, SignalKind, signal};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    config: super::ConfigArg,
    /// Listen here instead of where the configuration says
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failed> {
    let path = args.config.path();
    let settings = load(path.as_deref(), args.listen.as_deref())?;
    telemetry::init(&settings.log).map_err(|error| Failed::log(&settings.log, &error))?;
    super::runtime()?.block_on(serve(settings, path.as_deref(), args.listen.as_deref()))?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(settings: Settings, path: Option<&Path>, listen: Option<&str>) -> Result<(), Failed> {
    for warning in settings.warnings() {
        tracing::warn!(hint = warning.hint, "configuration: {}", warning.what);
    }
    // Before anything listens, so that no early signal is missed.
    let mut signals = Signals::watch()?;
    let running = server::start(settings).await?;
    for address in running.addresses() {
        tracing::info!("listening on {address}");
    }
    if let Some(address) = running.admin_address() {
        tracing::info!("admin address http://{address}/");
    }
    let (file, own) = (path.map(Path::to_owned), listen.map(str::to_owned));
    running.reload_from(move || {
        let loaded = load(file.as_deref(), own.as_deref()).map_err(|failed| failed.to_string());
        loaded.inspect(|_| tracing::info!("configuration loaded anew"))
    });
    tracing::info!("clients of HTTPS have to trust {}", running.ca_path().display());
    notify(&[sd_notify::NotifyState::Ready]);
    loop {
        match signals.next().await {
            Told::Stop => break,
            Told::Reload => reload(&running, path, listen),
        }
    }
    tracing::info!("stopping: requests under way may finish");
    notify(&[sd_notify::NotifyState::Stopping]);
    running.shutdown().await;
    tracing::info!("stopped");
    Ok(())
}

fn load(path: Option<&Path>, listen: Option<&str>) -> Result<Settings, Failed> {
    let listen = listen.map(|address| super::override_key("LISTEN", &[json!({ "address": address })]));
    Ok(Settings::load(path, std::env::vars_os().chain(listen))?)
}

/// A file with faults changes nothing.
fn reload(running: &Running, path: Option<&Path>, listen: Option<&str>) {
    let loaded = load(path, listen).map_err(|error| error.to_string());
    match loaded.and_then(|settings| running.reload(settings).map_err(|error| error.to_string())) {
        Ok(()) => tracing::info!("configuration loaded anew"),
        Err(error) => tracing::error!("configuration not loaded, the old one stays in force:\n{error}"),
    }
}

/// Without systemd there is nobody to tell.
fn notify(states: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "cannot notify systemd");
    }
}

enum Told {
    Stop,
    Reload,
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn watch() -> std::io::Result<Self> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::Stop,
            _ = self.interrupt.recv() => Told::Stop,
            _ = self.hang_up.recv() => Told::Reload,
        }
    }
}
