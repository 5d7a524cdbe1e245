//! Signals read from a descriptor, with their senders.

use super::processes::checked;
use crate::cli::signal_set::{ENDING, is_ignored};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Signal;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, FromRawFd};
use std::time::Duration;

/// Signals that are blocked, so that they do not end this process, and are read from a descriptor instead.
pub(super) struct SignalFd {
    file: File,
    /// The signals that were blocked before.
    before: libc::sigset_t,
}

impl SignalFd {
    /// Blocks the signals from now on.
    pub fn open() -> io::Result<Self> {
        // SAFETY: all zeros is valid.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        for signal in ENDING.into_iter().chain([libc::SIGCHLD]) {
            if STOP_SIGNALS.contains(&signal) || !is_ignored(signal) {
                // SAFETY: writes only to the set.
                unsafe { libc::sigaddset(&raw mut set, signal) };
            }
        }
        let mut before = set;
        // SAFETY: reads one set and writes the other. The process has one thread.
        checked(unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, &raw mut before) })?;
        // SAFETY: only reads the set.
        let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just opened, and nothing else owns it.
        let file = unsafe { File::from_raw_fd(fd) };
        Ok(Self { file, before })
    }

    /// For use between fork and exec: restores the signals, so that the command gets them as usual.
    pub fn restore(&self) -> impl Fn() -> io::Result<()> + Send + Sync + 'static {
        let before = self.before;
        move || {
            // SAFETY: only reads the set.
            checked(unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) })
        }
    }

    /// Waits for a signal, for `time`, or for the other descriptor to have the events (`poll(2)`) or be closed by its peer. Returns
    /// whether the other descriptor is ready.
    pub fn wait(&self, other: Option<(&impl AsFd, PollFlags)>, time: Option<Duration>) -> bool {
        let time = time.and_then(|time| time.try_into().ok());
        let mut both = vec![PollFd::new(&self.file, PollFlags::IN)];
        both.extend(other.map(|(other, events)| PollFd::new(other, events)));
        poll(&mut both, time.as_ref()).is_ok() && both.get(1).is_some_and(|other| !other.revents().is_empty())
    }

    /// The signals that have arrived, and whether the terminal sent each, in which case all processes of the group got it. Reads no
    /// more signals than there are kinds, so that a flood of signals cannot block the caller.
    pub fn read(&self) -> Vec<(Signal, bool)> {
        let mut all = Vec::new();
        let mut bytes = [0; size_of::<libc::signalfd_siginfo>()];
        while all.len() <= ENDING.len() && (&self.file).read(&mut bytes).is_ok_and(|length| length == bytes.len()) {
            let number = |at: usize| i32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
            let (signal, code) = (number(0), number(8));
            if let Some(signal) = Signal::from_named_raw(signal) {
                let is_terminals = code == libc::SI_KERNEL && matches!(signal, Signal::INT | Signal::QUIT);
                all.push((signal, is_terminals));
            }
        }
        all
    }
}

const STOP_SIGNALS: [libc::c_int; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGCHLD];
