//! Signals as they are read from a descriptor, with who sent them.

use rustix::process::Signal;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::time::Duration;

/// Those that end nobody here any more.
pub(super) struct SignalFd {
    file: File,
    /// Which were blocked before.
    before: libc::sigset_t,
}

impl SignalFd {
    /// From now on.
    pub fn open() -> io::Result<Self> {
        // SAFETY: all of it may be zero.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        for signal in SIGNALS {
            if STOP_SIGNALS.contains(&signal) || !is_ignored(signal) {
                // SAFETY: it writes to the set alone.
                unsafe { libc::sigaddset(&raw mut set, signal) };
            }
        }
        let mut before = set;
        // SAFETY: it reads one set and writes the other. The process has one thread.
        if unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, &raw mut before) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it reads the set alone.
        let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it has just been opened.
        let file = unsafe { File::from_raw_fd(fd) };
        Ok(Self { file, before })
    }

    /// For what runs between fork and exec: the command gets them as it would without us.
    pub fn restore(&self) -> impl Fn() -> io::Result<()> + Send + Sync + 'static {
        let before = self.before;
        move || {
            // SAFETY: it reads the set alone.
            match unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    /// Until one has come, this is over, or the other descriptor has the events (`poll(2)`) or is closed at its other end: whether
    /// that is so.
    pub fn wait(&self, other: Option<(&impl AsRawFd, libc::c_short)>, time: Option<Duration>) -> bool {
        let milliseconds = time.map_or(-1, |time| i32::try_from(time.as_millis() + 1).unwrap_or(i32::MAX));
        let (fd, events) = other.map_or((-1, 0), |(fd, events)| (fd.as_raw_fd(), events));
        let own = libc::pollfd { fd: self.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut both = [own, libc::pollfd { fd, events, revents: 0 }];
        // SAFETY: it writes to these two, which outlive it.
        unsafe { libc::poll(both.as_mut_ptr(), 2, milliseconds) > 0 && both[1].revents != 0 }
    }

    /// Those that have come, and whether the terminal has sent each, which it does to all processes of the group. None waits twice, so
    /// that who sends them without end keeps nobody here.
    pub fn read(&self) -> Vec<(Signal, bool)> {
        let mut all = Vec::new();
        let mut bytes = [0; size_of::<libc::signalfd_siginfo>()];
        while all.len() < SIGNALS.len() && (&self.file).read(&mut bytes).is_ok_and(|length| length == bytes.len()) {
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

impl AsRawFd for SignalFd {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// As by nohup.
fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: all of it may be zero.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: it writes to `now` alone.
    unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut now) == 0 && now.sa_sigaction == libc::SIG_IGN }
}

const STOP_SIGNALS: [libc::c_int; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGCHLD];
const SIGNALS: [libc::c_int; 8] = [
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGCHLD,
];
