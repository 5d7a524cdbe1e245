//! The signals that a run receives. The terminal sends some of them to the command, too; the run passes the others on.

use crate::cli::command_error::exit_code;
use crate::cli::hand_over::Control;
use crate::cli::signal_set::{OTHER, STOP, SignalSet, is_ignored};
use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use tokio::signal::unix::SignalKind;

/// Catches the signals of a run.
pub(super) fn catch() -> io::Result<SignalSet> {
    // Registered first, so that the sender of a signal is known before the signal is handled.
    for (kind, is_sent) in SENT {
        let note = move |info: &libc::siginfo_t| _ = is_sent.fetch_or(is_somebodys(info), Ordering::Relaxed);
        // SAFETY: reading the siginfo and an atomic operation may be done in any signal handler.
        unsafe { signal_hook_registry::register_sigaction(kind.as_raw_value(), note) }?;
    }
    // Signals that are ignored, as by nohup, stay ignored here and in the command.
    let others = [SignalKind::hangup()].into_iter().chain(OTHER.map(|(kind, _)| kind));
    let heard = others.filter(|kind| !is_ignored(kind.as_raw_value()));
    let kinds: Vec<_> = STOP.into_iter().chain(heard).collect();
    let signals = SignalSet::catch(&kinds)?;
    // A termination signal must not be lost if it arrives before the command is started.
    for signal in kinds.into_iter().filter(|kind| is_to_end(*kind)).map(|kind| kind.as_raw_value()) {
        // SAFETY: a store to an atomic may be done in any signal handler.
        unsafe { signal_hook_registry::register(signal, move || ENDED_BY.store(signal, Ordering::Relaxed)) }?;
    }
    Ok(signals)
}

/// The exit code, if a termination signal has arrived, even before the command was started.
pub(super) fn interrupted_exit_code() -> Option<ExitCode> {
    let signal = ENDED_BY.load(Ordering::Relaxed);
    (signal != 0).then(|| ExitCode::from(exit_code(None, Some(signal))))
}

/// Runs in the child before exec, while the child still has our signal handlers. Fails if a termination signal has arrived.
pub(super) fn end_if_interrupted() -> io::Result<()> {
    match ENDED_BY.load(Ordering::Relaxed) {
        0 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EINTR)),
    }
}

/// Whether a process sent the signal, and not the terminal.
fn is_somebodys(info: &libc::siginfo_t) -> bool {
    info.si_code != libc::SI_KERNEL
}

/// Passes a signal on to the command, unless the terminal sent it: Ctrl-C and Ctrl-\ reach the command as well, as it is in our process
/// group. The command decides whether to end.
pub(super) fn pass_on(control: &Control, kind: SignalKind) {
    let is_sent =
        SENT.iter().find(|(own, _)| *own == kind).is_none_or(|(_, is_sent)| is_sent.swap(false, Ordering::Relaxed));
    if is_sent {
        control.signal(kind.as_raw_value());
    }
}

/// Whether this is a termination signal: SIGINT, SIGQUIT, SIGTERM or SIGHUP.
pub(super) fn is_to_end(kind: SignalKind) -> bool {
    STOP.contains(&kind) || kind == SignalKind::hangup()
}

/// For each signal of the terminal's keys: whether a process, not the terminal, has sent one that was not passed on yet.
static IS_INT_SENT: AtomicBool = AtomicBool::new(false);
static IS_QUIT_SENT: AtomicBool = AtomicBool::new(false);
const SENT: [(SignalKind, &AtomicBool); 2] =
    [(SignalKind::interrupt(), &IS_INT_SENT), (SignalKind::quit(), &IS_QUIT_SENT)];
static ENDED_BY: AtomicI32 = AtomicI32::new(0);
