//! Waits for several signals at once.

use super::command_error::BY_SIGNAL;
use std::future::poll_fn;
use std::io;
use std::task::Poll;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that are caught instead of ending the process.
pub(super) struct SignalSet(Vec<(SignalKind, Signal)>);

impl SignalSet {
    pub fn catch(kinds: &[SignalKind]) -> io::Result<Self> {
        kinds.iter().map(|kind| Ok((*kind, signal(*kind)?))).collect::<io::Result<_>>().map(Self)
    }

    /// The next signal; if several arrived, the one first in the list given to `catch`.
    pub async fn next(&mut self) -> SignalKind {
        self.next_of(|_| true).await
    }

    /// The next signal that asks the process to stop. Others are left for [`next`](Self::next).
    pub async fn next_to_stop(&mut self) {
        self.next_of(|kind| STOP.contains(&kind)).await;
    }

    async fn next_of(&mut self, is_wanted: impl Fn(SignalKind) -> bool) -> SignalKind {
        poll_fn(|context| {
            let came = |(kind, signal): &mut (SignalKind, Signal)| {
                (is_wanted(*kind) && signal.poll_recv(context).is_ready()).then_some(*kind)
            };
            self.0.iter_mut().find_map(came).map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// Whether the signal is ignored, as by nohup. Call it before a handler is set.
pub(super) fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: all zeros is valid.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: writes only to `now`.
    unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut now) == 0 && now.sa_sigaction == libc::SIG_IGN }
}

/// Whether this is the exit code of a command that one of the [`ENDING`] signals ended.
pub(super) fn is_by_signal(code: u8) -> bool {
    ENDING.contains(&i32::from(code.saturating_sub(BY_SIGNAL)))
}

/// Signals that are sent to end a command.
pub(super) const ENDING: [libc::c_int; 7] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGALRM, libc::SIGUSR1, libc::SIGUSR2];
/// Signals on which the process stops in an orderly way.
pub(super) const STOP: [SignalKind; 3] = [SignalKind::interrupt(), SignalKind::quit(), SignalKind::terminate()];
/// Signals without a fixed meaning: some programs reopen their logs, others ignore them.
pub(super) const OTHER: [(SignalKind, &str); 3] = [
    (SignalKind::user_defined1(), "SIGUSR1"),
    (SignalKind::user_defined2(), "SIGUSR2"),
    (SignalKind::alarm(), "SIGALRM"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    /// The signal may be a SIGHUP during a reload.
    #[tokio::test]
    async fn waiting_for_a_stop_signal_keeps_other_signals_pending() {
        let kind = SignalKind::hangup();
        let mut signals = SignalSet::catch(&[&STOP[..], &[kind]].concat()).unwrap();
        let mut other = signal(kind).unwrap();
        // SAFETY: the signal is caught.
        assert_eq!(unsafe { libc::raise(kind.as_raw_value()) }, 0);
        other.recv().await;
        assert!(signals.next_to_stop().now_or_never().is_none());
        assert_eq!(signals.next().now_or_never(), Some(kind));
    }
}
