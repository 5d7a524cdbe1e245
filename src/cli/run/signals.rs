//! The signals that a run gets: which of them reach the command by themselves, which it gets from us, and what its end says.

use crate::cli::command_error::{BY_SIGNAL, exit_code};
use crate::cli::hand_over::Control;
use crate::cli::signal_set::{OTHER, STOP, SignalSet, is_ignored};
use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use tokio::signal::unix::SignalKind;

/// Those that somebody sends to us.
pub(super) struct RunSignals(SignalSet);

impl RunSignals {
    pub fn catch() -> io::Result<Self> {
        // Before anybody hears of one, it is known who sent it.
        for (kind, is_sent) in SENT {
            let note = move |info: &libc::siginfo_t| is_sent.fetch_or(is_somebodys(info), Ordering::Relaxed);
            // SAFETY: a store to an atomic may be done in any signal handler.
            unsafe { signal_hook_registry::register_sigaction(kind.as_raw_value(), move |info| _ = note(info)) }?;
        }
        // What is ignored, as by nohup, is so here and by the command.
        let others = [SignalKind::hangup()].into_iter().chain(OTHER.map(|(kind, _)| kind));
        let heard = others.filter(|kind| !is_ignored(kind.as_raw_value()));
        let kinds: Vec<_> = STOP.into_iter().chain(heard).collect();
        let signals = SignalSet::catch(&kinds)?;
        // One that came before there was a command did not reach it.
        for signal in kinds.into_iter().filter(|kind| is_to_end(*kind)).map(|kind| kind.as_raw_value()) {
            // SAFETY: a store to an atomic may be done in any signal handler.
            unsafe { signal_hook_registry::register(signal, move || ENDED_BY.store(signal, Ordering::Relaxed)) }?;
        }
        Ok(Self(signals))
    }

    pub async fn next(&mut self) -> SignalKind {
        self.0.next().await
    }

    /// Until somebody is tired of waiting for what the command has left.
    pub async fn cut(&mut self) {
        self.0.next_to_stop().await;
    }
}

/// The exit code, if a signal to end has come, if only before there was a command.
pub(super) fn interrupted() -> Option<ExitCode> {
    let signal = ENDED_BY.load(Ordering::Relaxed);
    (signal != 0).then(|| ExitCode::from(exit_code(None, Some(signal))))
}

/// In what becomes the command, which has our handlers until it is that.
pub(super) fn end_if_interrupted() -> io::Result<()> {
    match ENDED_BY.load(Ordering::Relaxed) {
        0 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EINTR)),
    }
}

/// Whether a process has sent it, and not the terminal.
fn is_somebodys(info: &libc::siginfo_t) -> bool {
    #[cfg(target_os = "linux")]
    return info.si_code != libc::SI_KERNEL;
    // <sys/signal.h> of Darwin and the BSDs: SI_USER.
    #[cfg(not(target_os = "linux"))]
    return info.si_code == 0x10001;
}

/// To the command, unless it reaches it by itself: the terminal's Ctrl-C or Ctrl-\ does, as it is in our process group; it decides,
/// and we report its end.
pub(super) fn pass_on(control: &Control, kind: SignalKind) {
    let is_sent =
        SENT.iter().find(|(own, _)| *own == kind).is_none_or(|(_, is_sent)| is_sent.swap(false, Ordering::Relaxed));
    if is_sent {
        control.signal(kind.as_raw_value());
    }
}

/// Whether it ends all but a command that has another use for it.
pub(super) fn is_to_end(kind: SignalKind) -> bool {
    STOP.contains(&kind) || kind == SignalKind::hangup()
}

/// Whether that is the code of a command that a signal ended which somebody sends to end it.
pub(super) fn is_by_signal(code: u8) -> bool {
    ENDING.contains(&i32::from(code.saturating_sub(BY_SIGNAL)))
}

/// Those of the terminal's keys, and whether somebody else has sent the last.
static IS_INT_SENT: AtomicBool = AtomicBool::new(false);
static IS_QUIT_SENT: AtomicBool = AtomicBool::new(false);
const SENT: [(SignalKind, &AtomicBool); 2] =
    [(SignalKind::interrupt(), &IS_INT_SENT), (SignalKind::quit(), &IS_QUIT_SENT)];
static ENDED_BY: AtomicI32 = AtomicI32::new(0);
/// Signals that end a command.
const ENDING: [i32; 7] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2, libc::SIGALRM, libc::SIGTERM];
