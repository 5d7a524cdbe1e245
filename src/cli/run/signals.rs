//! The signals that end a run: which of them reach the command by themselves, which it gets from us, and what its end says.

use crate::cli::signal_set::SignalSet;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::process::Child;
use tokio::signal::unix::SignalKind;

/// Those that somebody sends to us.
pub(super) struct EndSignals(SignalSet);

impl EndSignals {
    pub fn catch() -> io::Result<Self> {
        let mut kinds = vec![SignalKind::interrupt(), SignalKind::quit(), SignalKind::terminate()];
        // Ignored, as under nohup, it is so here and by the command.
        if !hang_up_is_ignored() {
            kinds.push(SignalKind::hangup());
        }
        let signals = SignalSet::catch(&kinds)?;
        // One that came before there was a command did not reach it.
        // SAFETY: a store to an atomic may be done in any signal handler.
        unsafe { signal_hook_registry::register(libc::SIGINT, || IS_INTERRUPTED.store(true, Ordering::Relaxed)) }?;
        Ok(Self(signals))
    }

    /// The next that ends the command: sent on to it, if it does not reach it by itself. A Ctrl-C or Ctrl-\ does, as it is in our
    /// process group; it decides, and we report its end.
    pub async fn next(&mut self) -> Option<Signal> {
        match self.0.next().await {
            kind if kind == SignalKind::terminate() => Some(Signal::TERM),
            kind if kind == SignalKind::hangup() => Some(Signal::HUP),
            _ => None,
        }
    }

    /// Until somebody is tired of waiting for what the command has left.
    pub async fn cut(&mut self) {
        self.0.next_but_hangup().await;
    }
}

/// A Ctrl-C has come, if only before there was a command.
pub(super) fn is_interrupted() -> bool {
    IS_INTERRUPTED.load(Ordering::Relaxed)
}

/// In what becomes the command, which has our handlers until it is that.
pub(super) fn end_if_interrupted() -> io::Result<()> {
    match is_interrupted() {
        true => Err(io::Error::from_raw_os_error(libc::EINTR)),
        false => Ok(()),
    }
}

/// As the parent process has left it; read before a handler is set.
fn hang_up_is_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    ignored.is_some_and(|signals| signals & (1 << (Signal::HUP.as_raw() - 1)) != 0)
}

pub(super) fn pass_on(child: &Child, signal: Signal) {
    // Our own child, not waited for yet, so the number is still its; it may have ended.
    if let Some(pid) = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())) {
        let _ = kill_process(pid, signal);
    }
}

/// As a shell reports it: 128 and the signal's number for a command that a signal ended.
pub(super) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| BY_SIGNAL + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

/// Whether that is the code of a command that a signal ended which somebody sends to end it.
pub(super) fn is_by_signal(code: u8) -> bool {
    ENDING.contains(&i32::from(code).saturating_sub(BY_SIGNAL))
}

static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);
pub(super) const INTERRUPTED: u8 = 128 + libc::SIGINT as u8;
const BY_SIGNAL: i32 = 128;
/// Signals that end a command.
const ENDING: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];
