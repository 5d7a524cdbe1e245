//! `politely run --isolate`: the command in a network of its own, of which nothing leads out but the proxy's socket, and with nothing
//! left that opens another: no capabilities, no other process in sight. The socket is opened inside, and handed to the proxy outside.

use super::super::hand_over::{INSIDE, hand_over};
use super::bounds;
use super::namespaces::{self, Fork};
use super::processes::{end_with_parent, send};
use super::signal_fd::SignalFd;
use crate::cli::CommandError;
use rustix::process::{Pid, Signal};
use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Goes on in there. `Some`: in the process that stayed outside; it is the exit code of what was inside. `outlives`: how
/// long that may outlive `run`.
///
/// # Errors
/// A part of it cannot be had: there is no isolation with less.
pub(super) fn enter(control: &UnixStream, signals: &SignalFd, outlives: Duration) -> Result<Option<u8>, CommandError> {
    namespaces::enter().map_err(|error| failed(&error, &hint(Path::new("/proc"))))?;
    // Process 1 of a namespace takes all others with it.
    if let Fork::Parent(child) = namespaces::fork().map_err(|error| failed(&error, KERNEL))? {
        return Ok(Some(watch(child, control, signals, outlives)));
    }
    namespaces::own_proc().map_err(|error| failed(&error, MASKED))?;
    bind(control).map_err(|error| failed(&error, KERNEL))?;
    Ok(None)
}

/// Until process 1 has ended, which is killed if it outlives `run` for longer than it takes to end what the command has left.
fn watch(first: Pid, control: &UnixStream, signals: &SignalFd, outlives: Duration) -> u8 {
    let mut until = None;
    loop {
        if let Some(code) = namespaces::ended(first) {
            return code;
        }
        let left = until.map(|until: Instant| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            send(first, Signal::KILL);
            return namespaces::exit_code(first);
        }
        // What comes from `run` is for process 1 to read.
        let is_gone = signals.wait(left.is_none().then_some((control, 0)), left);
        // Its end is one of them.
        signals.read();
        if is_gone {
            until = Some(Instant::now() + outlives);
        }
    }
}

/// Leaves the command what it may have, and gives `run` its way out.
fn bind(control: &UnixStream) -> io::Result<()> {
    end_with_parent(libc::SIGKILL)?;
    bounds::close_descriptors()?;
    bounds::drop_capabilities()?;
    bounds::refuse_calls()?;
    // Where there is no terminal that goes by groups, nothing inside can name the group outside.
    if fs::File::open("/dev/tty").is_err() {
        rustix::process::setpgid(None, None)?;
    }
    bounds::forbid_tracing()?;
    hand_over(control, &TcpListener::bind(INSIDE)?)
}

fn failed(error: &io::Error, hint: &str) -> CommandError {
    let without = "without --isolate the command only gets the proxy variables";
    CommandError::usage(format!("cannot isolate the command: {error}"), format!("{hint}; {without}"))
}

/// What stands in the way, as far as it shows, and what to do. `proc`: where that is mounted.
fn hint(proc: &Path) -> String {
    let is = |file: &str, value: &str| fs::read_to_string(proc.join(file)).is_ok_and(|text| text.trim() == value);
    if is("sys/user/max_user_namespaces", "0") {
        "`user.max_user_namespaces` is 0 on this system; `sysctl -w user.max_user_namespaces=15000` allows it"
            .to_owned()
    } else if is("sys/kernel/unprivileged_userns_clone", "0") {
        "`kernel.unprivileged_userns_clone` is 0 on this system; `sysctl -w kernel.unprivileged_userns_clone=1` allows it"
            .to_owned()
    } else if is("sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        let program = std::env::current_exe().unwrap_or_default();
        format!(
            "AppArmor keeps users from creating namespaces (`kernel.apparmor_restrict_unprivileged_userns` is 1); give {} a \
             profile with `userns`, as docs/troubleshooting.md shows, or run it as root",
            program.display()
        )
    } else if fs::read_to_string(proc.join("self/status")).is_ok_and(|text| text.contains("Seccomp:\t2")) {
        "a seccomp filter forbids it, as in a container; Docker allows it with `--security-opt seccomp=unconfined`, Kubernetes \
         with `seccompProfile: { type: Unconfined }`"
            .to_owned()
    } else {
        "this takes a kernel with user and network namespaces".to_owned()
    }
}

/// Where namespaces can be had, and a /proc of their own cannot.
const MASKED: &str = "this takes a /proc of its own, which a container may not mount while parts of its /proc are masked; Docker allows it with \
     `--security-opt systempaths=unconfined --security-opt apparmor=unconfined`, Kubernetes with `procMount: Unmasked`; as root it also \
     takes Linux 5.12";
const KERNEL: &str = "this takes Linux with filters of system calls (seccomp), on x86-64 or ARM64";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_names_what_stands_in_the_way() {
        for (file, value, part) in [
            ("sys/user/max_user_namespaces", "0\n", "sysctl -w user.max_user_namespaces=15000"),
            ("sys/kernel/unprivileged_userns_clone", "0\n", "sysctl -w kernel.unprivileged_userns_clone=1"),
            ("sys/kernel/apparmor_restrict_unprivileged_userns", "1\n", "a profile with `userns`"),
            ("self/status", "Name:\tx\nSeccomp:\t2\n", "seccomp=unconfined"),
            ("sys/user/max_user_namespaces", "15000\n", "a kernel with user and network namespaces"),
        ] {
            let proc = tempfile::tempdir().unwrap();
            let file = proc.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, value).unwrap();
            let hint = hint(proc.path());
            assert!(hint.contains(part), "{hint}");
        }
    }
}
