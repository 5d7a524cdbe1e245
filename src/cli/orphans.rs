//! As process 1 of a container, reaps processes whose parents have ended; otherwise they would remain as zombies.

use rustix::process::{Pid, WaitOptions, waitpid};
use std::io;
use std::process;
use tokio::signal::unix::{SignalKind, signal};

/// Starts reaping if this is process 1. `command`: our own child, which other code waits for.
pub(super) fn reap(command: Option<u32>) -> io::Result<()> {
    if process::id() != 1 {
        return Ok(());
    }
    let mut ended = signal(SignalKind::child())?;
    tokio::spawn(async move {
        loop {
            while let Some(orphan) = next_ended().filter(|pid| Some(pid.as_raw_pid().cast_unsigned()) != command) {
                let _ = waitpid(Some(orphan), WaitOptions::NOHANG);
            }
            if ended.recv().await.is_none() {
                break;
            }
        }
    });
    Ok(())
}

/// Finds an ended child, without reaping it.
fn next_ended() -> Option<Pid> {
    // SAFETY: a struct of integers; all zeros means no process.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes only to `info`, which outlives it.
    match unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT) } {
        // SAFETY: `waitid` has set it, or left it zero.
        0 => Pid::from_raw(unsafe { info.si_pid() }),
        _ => None,
    }
}
