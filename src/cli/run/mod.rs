//! `politely run -- COMMAND`: runs a command behind a proxy of its own, with variables that make its programs use the proxy and our CA.

mod args;
mod bypass;
mod cure;
mod files;
mod lend;
mod progress;
mod report_to;
mod shared_upstream;
mod signals;
mod summary;
mod tally;

use super::hand_over::{Control, INSIDE};
use super::signal_set::is_by_signal;
use super::trust::{PROXY, TrustFiles, direct};
use super::{CommandError, Explained, command_error, last_run, orphans};
use crate::config::{self, AccessLog, Settings};
use crate::policy::is_background;
use crate::proxy::RecentDecision;
use crate::robots::ProductToken;
use crate::server::{self, StartError};
use crate::telemetry::{self, StandardError};
use crate::tls::{Ca, roots};
pub(super) use args::RunArgs;
use bypass::{BypassWatch, knock};
use futures_util::{FutureExt, StreamExt};
use lend::lend;
use progress::{HELD_LONG, Progress};
use report_to::{ReportFile, ReportTo};
use rustix::io::{FdFlags, fcntl_setfd};
use serde_json::json;
use shared_upstream::is_shared_upstream;
use signals::{catch, end_if_interrupted, interrupted_exit_code, is_to_end, pass_on};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::pin::pin;
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant};
use summary::{Summary, without_background};
use tally::Tally;
use tokio::process::Command;
use tokio::task::unconstrained;
use tokio::time::sleep;

pub(super) fn run(args: &RunArgs) -> Result<ExitCode, CommandError> {
    let own = super::key_argument("--listen", "listen", &[json!({ "address": "127.0.0.1:0" })]);
    let (mut settings, layers) = args.config.load_in_layers(args.keys()?, Some(own))?;
    // Settings for a service's clients and admin address do not apply to the proxy of one command.
    settings.access = config::AccessSettings::default();
    settings.admin.address = None;
    let is_set = |keys: &[&str]| args.config.keys.iter().any(|argument| keys.contains(&&*argument.key));
    let is_machines = args.config.path().as_deref() == Some(Path::new(super::MACHINE_CONFIG));
    for (section, directory) in
        [("evidence", &mut settings.evidence.directory), ("cache", &mut settings.cache.directory)]
    {
        // The directories in the machine's configuration belong to the service, so a run does not write to them.
        directory.take_if(|_| is_machines && layers.is_of_file(&[section, "directory"]));
    }
    // Retries files at once that an earlier process failed to fetch: the fault may be gone, or the settings may differ.
    settings.store.is_impatient = true;
    settings.store.is_fresh = args.fresh;
    let most =
        if is_set(&["pace", "pace.max_wait"]) { settings.pace.max_wait } else { settings.pace.max_wait.max(PATIENCE) };
    settings.pace.max_wait = args.max_wait.unwrap_or(most);
    // There is no access log, as the terminal belongs to the command. Errors are still shown.
    settings.log.access = AccessLog::Off;
    settings.log.level = args.log_level();
    telemetry::leave_out_refusals();
    telemetry::init(&settings.log).map_err(|error| StartError::log(&settings, error))?;
    settings.log_warnings();
    if is_shared_upstream(&settings) {
        // The upstream proxy is also a `politely` process: it paces requests and stores copies, so this process stores nothing on disk.
        settings.store.disk = 0;
    }
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty()).map(|value| (name, value));
    if settings.egress.upstream_proxy.is_none()
        && let Some((name, proxy)) = PROXY.into_iter().find_map(set)
    {
        knock(&proxy);
        tracing::warn!(
            hint = "set `egress.upstream_proxy`, or POLITELY_EGRESS__UPSTREAM_PROXY, to send everything through it",
            "the proxy in {name} is not used: this proxy connects to sites itself"
        );
    }
    super::block_on(run_behind_proxy(settings, args))?
}

async fn run_behind_proxy(settings: Settings, args: &RunArgs) -> Result<ExitCode, CommandError> {
    let (began, max_wait) = (Instant::now(), settings.pace.max_wait);
    let (product_tokens, purposes) = (settings.identity.product_tokens.clone(), settings.identity.purpose.clone());
    let report = args.report.as_ref().map(ReportTo::open).transpose();
    let hint = "name a file that you may write to: `--report json=FILE`";
    let report = report.explained("cannot write the report", hint)?.flatten();
    let ca = Ca::configured(&settings)?;
    let roots = roots::configured(&settings)?;
    let program = args.command.first().expect("clap requires a command");
    // Signals are caught before anything is created that must be removed at the end.
    let mut signals = catch()?;
    let directory = files::directory()?;
    // Dropped at the end of this function, which removes the authority from the browsers' certificate databases.
    let _loan = lend(&ca, program);
    if let Some(code) = interrupted_exit_code() {
        return Ok(code);
    }
    let direct = direct(&settings);
    let ports = settings.egress.ports.clone();
    // Gives the command files with the system's roots and our CA, and variables that make clients trust them and use the proxy.
    let equip = |command: &mut Command, proxy: SocketAddr| {
        let proxy = Some((proxy.ip().to_string(), proxy.port()));
        let files = TrustFiles {
            directory: directory.path(),
            roots: &roots,
            ca_pem: &ca.trusted_pem(),
            proxy,
            credentials: "",
            direct,
        };
        let variables = files.variables(|name| std::env::var_os(name))?;
        command.envs(variables);
        config::withheld_variables(std::env::vars_os()).iter().for_each(|name| _ = command.env_remove(name));
        // SAFETY: the function only reads an atomic, and makes an error from a number.
        unsafe { command.pre_exec(end_if_interrupted) };
        Ok::<_, CommandError>(())
    };
    let (control, theirs) = Control::pair()?;
    let supervise = |proxy| {
        let mut command = Command::new(OWN_PROGRAM);
        command.arg0("politely").arg("supervise").arg(theirs.as_raw_fd().to_string());
        command.args(args.isolate.then_some("--isolate")).args(args.quiet.then_some("--quiet"));
        command.arg("--").args(&args.command);
        // In isolation, root cannot create the namespaces of Firefox's sandbox, and Firefox's own check does not notice this.
        if args.isolate && rustix::process::geteuid().is_root() && std::env::var_os(FIREFOX_NAMESPACES).is_none() {
            command.env(FIREFOX_NAMESPACES, "0");
        }
        equip(&mut command, proxy)?;
        // SAFETY: the closure only makes one system call, and an error from a number.
        unsafe { command.pre_exec(move || Ok(fcntl_setfd(&theirs, FdFlags::empty())?)) };
        // `command` owns our copy of the supervisor's end of the control socket, and closes it when dropped.
        command.spawn().map_err(|error| {
            let hint = match error.kind() {
                io::ErrorKind::NotFound => "check that /proc is mounted",
                _ => "check the limits on processes and memory",
            };
            CommandError::usage(format!("cannot start {OWN_PROGRAM} beside the command: {error}"), hint)
        })
    };
    let (running, started) = if args.isolate {
        let mut child = match (supervise(INSIDE), interrupted_exit_code()) {
            (Err(_), Some(code)) => return Ok(code),
            (child, _) => child?,
        };
        let Some(listener) = control.take_over(&mut child).await? else {
            // The supervisor has printed the reason.
            return Ok(ExitCode::from(exit_code(&child.wait().await?)));
        };
        (server::start_on(settings, vec![listener]).await?, Ok(child))
    } else {
        let running = server::start(settings).await?;
        let child = supervise(running.addresses()[0]);
        (running, child)
    };
    let mut child = match (started, interrupted_exit_code()) {
        (Ok(child), None) => child,
        (started, code) => {
            running.shutdown().await;
            return code
                .map_or_else(|| Err(started.expect_err("a started child without a signal is handled above")), Ok);
        }
    };
    control.go();
    orphans::reap(child.id())?;
    let mut refused = pin!(running.decisions().follow(0));
    let (mut tally, mut progress) = (Tally::default(), Progress::new(args.quiet, args.verbose));
    let mut hear = |decision: &RecentDecision| {
        tally.add(decision);
        if args.verbose && !decision.url.as_deref().is_some_and(is_background) {
            print_refusal(decision);
        }
    };
    let mut watch = BypassWatch::new(&child, running.addresses()[0], ports.clone(), !direct.is_empty(), args.isolate);
    let mut still_waiting = 0;
    let status = loop {
        tokio::select! {
            // Handles signals first: a signal that ends the command must not be read later, when it would cut off the requests in flight.
            biased;
            signal = signals.next() => {
                if is_to_end(signal) {
                    still_waiting = running.figures().waiting.max(still_waiting);
                }
                pass_on(&control, signal);
            }
            status = child.wait() => break status?,
            () = running.released() => progress.clear(),
            () = watch.tick() => if let Some(bypass) = watch.look() && !args.is_silent() {
                let _ = writeln!(StandardError, "{}", super::inert(&bypass.warning()));
            },
            () = progress.tick() => progress.show(running.longest_held(HELD_LONG).as_ref(), &running.counts()),
            Some(decision) = refused.next() => hear(&decision),
        }
    };
    if !control.has_started() {
        // The supervisor has printed the reason.
        running.shutdown().await;
        return Ok(ExitCode::from(exit_code(&status)));
    }
    // Waits until the proxy sees that the command's clients have left: shutting down would count their held requests as refused.
    let until = Instant::now() + GONE;
    while running.longest_held(Duration::ZERO).is_some() && Instant::now() < until {
        sleep(GONE / 50).await;
    }
    // Shuts down before reading the counters: a request counts when it ends, which may be a moment after the command has received the
    // answer.
    let totals = running.shutdown_before(signals.next_to_stop()).await;
    while let Some(Some(decision)) = unconstrained(refused.next()).now_or_never() {
        hear(&decision);
    }
    // The configured product tokens, or else the tally's, which come from the last refused request's User-Agent.
    let seen =
        tally.product_tokens.iter().flat_map(|all| all.split(", ")).filter_map(|token| ProductToken::parse(token).ok());
    let product_tokens = if product_tokens.is_empty() { seen.collect() } else { product_tokens };
    if !product_tokens.is_empty() {
        // If this fails, `explain` needs `--product-token`.
        let _ = last_run::remember(&config::state_directory(), &product_tokens);
    }
    let code = exit_code(&status);
    // The exit code tells whether the signal ended the command, which may also have handled the signal and continued.
    let is_cut_off = is_by_signal(code);
    let still_waiting = if is_cut_off { still_waiting } else { 0 };
    let summary = Summary {
        program,
        purposes,
        tally,
        took: began.elapsed(),
        totals: without_background(totals),
        max_wait,
        is_cut_off,
        still_waiting,
        is_isolated: args.isolate,
        bypass: watch.found,
        is_loopback_direct: !direct.is_empty(),
        allowed_ports: ports,
    };
    print_end(&summary, args, report, code);
    Ok(ExitCode::from(code))
}

fn exit_code(status: &ExitStatus) -> u8 {
    command_error::exit_code(status.code(), status.signal())
}

/// Prints the result. Ignores errors, as the command may have closed the terminal.
fn print_end(summary: &Summary<'_>, args: &RunArgs, file: Option<ReportFile>, code: u8) {
    telemetry::flush();
    match (&args.report, file) {
        (Some(_), None) => _ = writeln!(StandardError, "{}", super::inert_json(&summary.json(code).to_string())),
        (_, file) => {
            if let Some(file) = file
                && let Err(error) = file.write(&summary.json(code))
            {
                let _ = writeln!(StandardError, "error: cannot write the report: {error}");
            }
            let said = if args.quiet { summary.warning() } else { Some(summary.text()) };
            if let Some(said) = said {
                let _ = writeln!(StandardError, "{said}");
            }
        }
    }
}

fn print_refusal(decision: &RecentDecision) {
    let url = decision.url.as_deref().unwrap_or("a request that could not be read");
    let said = super::inert(&format!("politely: {url}: {}", decision.what));
    let _ = writeln!(StandardError, "{said}");
}

/// Default of `--max-wait`: longer than nearly every crawl-delay. Few crawlers would wait longer.
const PATIENCE: Duration = Duration::from_secs(600);
/// Maximum time to notice that clients have left. Usually a tenth of this time suffices.
const GONE: Duration = Duration::from_millis(500);
/// The path of the running program, even if its file has been replaced.
const OWN_PROGRAM: &str = "/proc/self/exe";
const FIREFOX_NAMESPACES: &str = "MOZ_ASSUME_USER_NS";
