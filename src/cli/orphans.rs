//! Process 1 of a container has the processes whose own parents have ended: it takes note of their end, or they stay as zombies.

use rustix::process::{Pid, WaitOptions, waitpid};
use std::io;
use std::process;
use tokio::signal::unix::{SignalKind, signal};

/// Does so from now on, if this is process 1. `command`: our own child, whose end another waits for.
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

/// A child that has ended, and is left as it is.
fn next_ended() -> Option<Pid> {
    // SAFETY: numbers alone; all of it may be zero, which stands for nobody.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes to `info` alone, which outlives it.
    match unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT) } {
        // SAFETY: `waitid` has set it, or left it at zero.
        0 => Pid::from_raw(unsafe { info.si_pid() }),
        _ => None,
    }
}
