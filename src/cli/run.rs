//! `politely run -- COMMAND`: a command behind a proxy of its own, with its environment set and our CA trusted.

use super::trust::{BUNDLE, variables};
use super::{Failed, isolate};
use crate::config::{self, AccessLog, LogLevel, Network, Settings, units};
use crate::proxy::{Counts, RecentDecision};
use crate::server::{self, Running};
use crate::telemetry;
use crate::tls::{Ca, roots};
use futures_util::FutureExt;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;
use tempfile::{NamedTempFile, TempDir};
use tokio::net::UnixListener;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::task::unconstrained;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    config: super::ConfigArg,
    /// Read robots.txt for this crawler, whatever its User-Agent says; may be given several times
    #[arg(long = "product-token", value_name = "T")]
    product_tokens: Vec<String>,
    /// Hold a request for its host's turn no longer than this, such as `90s` [default: 10m, or `pace.max_wait` if longer]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    max_wait: Option<Duration>,
    /// Give the command a network of its own that only the proxy leads out of: what reads no proxy variable fails there
    #[arg(long)]
    isolate: bool,
    /// Leave the terminal to the command
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Tell of each refusal as it comes
    #[arg(short, long)]
    verbose: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failed> {
    let mut overrides = vec![super::override_key("LISTEN", &[json!({ "address": "127.0.0.1:0" })])];
    if !args.product_tokens.is_empty() {
        overrides.push(super::override_key("IDENTITY__PRODUCT_TOKENS", &args.product_tokens));
    }
    let path = args.config.path();
    let mut settings = Settings::load(path.as_deref(), std::env::vars_os().chain(overrides))?;
    // What is written of a service's clients, watchers and logs is not about one command's proxy, which keeps its copies
    // where other programs keep theirs.
    settings.access = config::Access::default();
    settings.admin.address = None;
    settings.store.directory.get_or_insert_with(config::cache_directory);
    settings.pace.max_wait = args.max_wait.unwrap_or_else(|| settings.pace.max_wait.max(PATIENCE));
    // The terminal is the command's; faults are told all the same.
    settings.log.access = AccessLog::Off;
    settings.log.level = match (args.quiet, args.verbose) {
        (true, _) => LogLevel::Error,
        (false, true) => LogLevel::Info,
        (false, false) => LogLevel::Warn,
    };
    telemetry::init(&settings.log).map_err(|error| Failed::log(&settings.log, &error))?;
    super::runtime()?.block_on(behind(settings, args))
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    units::parse_duration(text).map_err(|complaint| complaint.to_string())
}

async fn behind(settings: Settings, args: &Args) -> Result<ExitCode, Failed> {
    let (directory, mut trust) = trust(&settings)?;
    let wgetrc = wgetrc(&directory.path().join(BUNDLE))?;
    let direct = direct(&settings);
    let mut equip = |mut command: Command, proxy: SocketAddr| {
        tell_java(&mut trust, proxy, direct);
        command.envs(environment(proxy, direct)).envs(trust.drain(..)).env("WGETRC", wgetrc.path());
        command.kill_on_drop(true).spawn()
    };
    // A Ctrl-C goes to the command too, as it is in our process group; it decides, and we tell its end.
    let (mut interrupts, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut hang_up = signal(SignalKind::hangup())?;
    let (program, arguments) = args.command.split_first().expect("clap requires one");
    let (running, mut child) = if args.isolate {
        let socket = directory.path().join("socket");
        let handed = UnixListener::bind(&socket)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("isolated").arg(&socket).arg("--").args(&args.command);
        let mut child = equip(command, isolate::INSIDE)?;
        let listener = tokio::select! {
            // A short command may be over already.
            biased;
            taken = isolate::take_over(&handed) => taken?,
            // It has said why.
            status = child.wait() => return Ok(exit_code(status?)),
        };
        (server::start_on(settings, vec![listener]).await?, child)
    } else {
        let running = server::start(settings).await?;
        let mut command = Command::new(program);
        command.args(arguments);
        match equip(command, running.addresses()[0]) {
            Ok(child) => (running, child),
            Err(error) => {
                running.shutdown().await;
                return Err(not_run(program, &error));
            }
        }
    };
    let (before, mut refused) = running.decisions().follow(0);
    before.iter().filter(|_| args.verbose).for_each(|decision| tell(decision));
    let status = loop {
        tokio::select! {
            Some(decision) = heard(&mut refused), if args.verbose => tell(&decision),
            status = child.wait() => break status?,
            _ = interrupts.recv() => {}
            _ = terminate.recv() => pass_on(&child, Signal::TERM),
            _ = hang_up.recv() => pass_on(&child, Signal::HUP),
        }
    };
    while args.verbose
        && let Some(Some(decision)) = unconstrained(heard(&mut refused)).now_or_never()
    {
        tell(&decision);
    }
    let counts = finish(running).await;
    if !args.quiet {
        summarize(&counts, program);
    }
    Ok(exit_code(status))
}

/// As a shell tells it.
pub(super) fn not_run(program: &OsStr, error: &io::Error) -> Failed {
    let (code, hint) = match error.kind() {
        io::ErrorKind::NotFound => (NOT_FOUND, "is it installed, and spelled so?"),
        _ => (NOT_RUNNABLE, "is it a program, and may you execute it?"),
    };
    let message = format!("error: cannot run `{}`: {error}\nhint: {hint}", program.display());
    Failed { message, code: ExitCode::from(code) }
}

async fn finish(running: Running) -> Counts {
    let counts = running.counts();
    running.shutdown().await;
    counts
}

/// For the command's environment.
type Variables = Vec<(&'static str, OsString)>;

/// The system's roots and our CA, and the variables that make clients behind us trust them.
fn trust(settings: &Settings) -> Result<(TempDir, Variables), Failed> {
    let ca = Ca::configured(&settings.intercept.ca).map_err(server::StartError::from)?;
    let roots = roots::bundle(settings.egress.ca_file.as_deref()).map_err(server::StartError::from)?;
    let directory = tempfile::Builder::new().prefix("politely-trust-").tempdir()?;
    let all = variables(directory.path(), &roots, &ca, |name| std::env::var_os(name));
    Ok((directory, all.map_err(server::StartError::from)?))
}

/// wget built on GnuTLS takes its roots from no variable: what the user has set up for it, and our bundle.
fn wgetrc(bundle: &Path) -> io::Result<NamedTempFile> {
    let own = std::env::var_os("WGETRC").map(PathBuf::from);
    let own = own.or_else(|| std::env::home_dir().map(|home| home.join(".wgetrc")));
    let mut settings = own.and_then(|path| std::fs::read(path).ok()).unwrap_or_default();
    settings.extend_from_slice(b"\nca_certificate = ");
    settings.extend_from_slice(bundle.as_os_str().as_bytes());
    settings.push(b'\n');
    let mut file = tempfile::Builder::new().prefix("politely-wgetrc-").tempfile()?;
    file.write_all(&settings)?;
    Ok(file)
}

/// Hosts that are asked without the proxy: this machine, where browsers are steered by their drivers, and where the proxy
/// goes for nobody unless `egress.allow` says so. None then.
fn direct(settings: &Settings) -> &'static str {
    let opens = |network: &Network| network.0.contains(&IpAddr::V4(Ipv4Addr::LOCALHOST));
    if settings.egress.allow.iter().any(opens) { "" } else { "localhost,127.0.0.1,::1" }
}

/// What makes common clients use the proxy.
fn environment(proxy: SocketAddr, direct: &str) -> Variables {
    const PROXY: [&str; 6] = ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
    let url = format!("http://{proxy}");
    let proxy = PROXY.iter().map(|name| (*name, OsString::from(&url)));
    let rest = [("NO_PROXY", direct), ("no_proxy", direct), ("NODE_USE_ENV_PROXY", "1"), ("PERL_LWP_ENV_PROXY", "1")];
    proxy.chain(rest.map(|(name, value)| (name, value.into()))).collect()
}

/// Java reads no proxy variable, but options, and goes to this machine without a proxy unless told otherwise. What makes it
/// trust us is among them already.
fn tell_java(trust: &mut Variables, proxy: SocketAddr, direct: &str) {
    let (host, port) = (proxy.ip(), proxy.port());
    let mut options = String::new();
    for scheme in ["http", "https"] {
        options += &format!(" -D{scheme}.proxyHost={host} -D{scheme}.proxyPort={port}");
    }
    if direct.is_empty() {
        options += " -Dhttp.nonProxyHosts=";
    }
    trust.iter_mut().filter(|(name, _)| *name == "JAVA_TOOL_OPTIONS").for_each(|(_, value)| value.push(&options));
}

/// The next one that is there still: of many at once the first are missed, and what follows is not.
async fn heard<T: Clone>(live: &mut broadcast::Receiver<T>) -> Option<T> {
    loop {
        match live.recv().await {
            Ok(one) => return Some(one),
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return None,
        }
    }
}

fn tell(decision: &RecentDecision) {
    let url = decision.url.as_deref().unwrap_or("a request that could not be read");
    let said = super::inert(&format!("politely: {url}: {}", decision.what));
    let _ = writeln!(io::stderr(), "{said}");
}

fn summarize(counts: &Counts, program: &OsStr) {
    let refused: u64 = counts.refused.values().sum();
    let total = counts.forwarded + counts.failed + refused;
    let mut text = format!("politely: {total} requests, {} forwarded", counts.forwarded);
    if counts.failed > 0 {
        text += &format!(", {} failed", counts.failed);
    }
    for (slug, count) in &counts.refused {
        text += &format!(", {count} {slug}");
    }
    if total == 0 {
        text += "\npolitely: warning: nothing came through the proxy; if the command fetched something, it went round it, and \
            robots.txt was not kept";
        text += &format!("\nhint: {}", cure(program));
    }
    // The command may have closed the terminal.
    let _ = writeln!(io::stderr(), "{text}");
}

/// What makes a program that reads no proxy variables use a proxy.
fn cure(program: &OsStr) -> &'static str {
    let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
    match name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.') {
        "node" | "npm" | "npx" | "nodejs" => {
            "Node.js reads HTTPS_PROXY from version 24 on, by NODE_USE_ENV_PROXY; before it, give \
            the client a ProxyAgent of the package undici, or of proxy-agent"
        }
        "java" | "gradle" | "mvn" | "jbang" => {
            "a client made with a proxy of its own, or with NO_PROXY, takes no notice of \
            -Dhttps.proxyHost; take that out"
        }
        "php" => {
            "PHP's streams read no variable: set `proxy` and `request_fulluri` in stream_context_set_default, or use curl"
        }
        "ruby" => "Mechanize reads no variable: call `set_proxy` with the host and port of ENV[\"https_proxy\"]",
        "httrack" => "httrack takes its proxy from -P host:port, for http alone",
        "python" | "uv" | "pipx" => "aiohttp reads HTTPS_PROXY only in a ClientSession(trust_env=True)",
        _ => "does it read HTTPS_PROXY? else give it the proxy by its own option; $HTTPS_PROXY holds the address",
    }
}

fn pass_on(child: &tokio::process::Child, signal: Signal) {
    // Our own child, not waited for yet, so the number is still its; it may have ended.
    if let Some(pid) = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())) {
        let _ = kill_process(pid, signal);
    }
}

/// As a shell tells it: 128 and the signal's number for a command that a signal ended.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// No page is lost for a crawl-delay, and few crawlers wait for longer.
const PATIENCE: Duration = Duration::from_secs(600);
const NOT_FOUND: u8 = 127;
const NOT_RUNNABLE: u8 = 126;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_comes_behind_too_many_at_once_is_heard() {
        let (sender, mut live) = broadcast::channel(2);
        (1..=5).for_each(|number| _ = sender.send(number).unwrap());
        assert_eq!(heard(&mut live).now_or_never(), Some(Some(4)));
        assert_eq!(heard(&mut live).now_or_never(), Some(Some(5)));
        assert_eq!(heard(&mut live).now_or_never(), None);
        drop(sender);
        assert_eq!(heard(&mut live).await, None);
    }
}
