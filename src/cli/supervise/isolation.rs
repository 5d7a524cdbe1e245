//! `politely run --isolate`: the command runs in a separate network, from which only the proxy's socket leads out. The socket is opened
//! inside and passed to the proxy outside. The command cannot open another way out: it has no capabilities, and sees no processes outside.

use super::super::hand_over::{INSIDE, hand_over};
use super::bounds;
use super::namespaces;
use super::processes::{leave_group, send};
use super::signal_fd::SignalFd;
use crate::cli::CommandError;
use rustix::event::PollFlags;
use rustix::process::{DumpableBehavior, Pid, Signal, set_dumpable_behavior, set_parent_process_death_signal};
use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process;
use std::time::{Duration, Instant};

/// Continues in the isolated environment, in a child process. `Some`: this is the process that stayed outside, and the exit code is the
/// child's. `outlives`: how long the child may outlive `run`.
///
/// # Errors
/// Some part of the isolation is unavailable; there is no partial isolation.
pub(super) fn enter(control: &UnixStream, signals: &SignalFd, outlives: Duration) -> Result<Option<u8>, CommandError> {
    std::env::current_dir()
        .map_err(|error| failed(&error, "the current directory was deleted: run the command in another directory"))?;
    // Made before entering: in the new namespaces, /proc would show a user with all capabilities.
    let hint = hint(Path::new("/proc"));
    namespaces::enter().map_err(|error| failed(&error, &hint))?;
    // When process 1 of a namespace ends, all others in it are killed.
    if let Some(child) = namespaces::fork().map_err(|error| failed(&error, KERNEL))? {
        return Ok(Some(watch(child, control, signals, outlives)));
    }
    namespaces::own_proc().map_err(|error| failed(&error, MASKED))?;
    bind(control).map_err(|error| failed(&error, KERNEL))?;
    Ok(None)
}

/// Waits for the end of process 1. Kills process 1 if it outlives `run` by more than `outlives`, the time that ending leftover processes
/// takes.
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
        // Messages from `run` are for process 1 to read.
        let is_gone = signals.wait(left.is_none().then_some((control, PollFlags::empty())), left);
        // Discards the signals. One of them, SIGCHLD, has ended the wait when process 1 ended.
        signals.read();
        if is_gone {
            until = Some(Instant::now() + outlives);
        }
    }
}

/// Takes from the command what could bypass the proxy (descriptors, capabilities, system calls), then binds the listening socket and passes
/// it to `run`.
fn bind(control: &UnixStream) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    bounds::close_descriptors()?;
    bounds::drop_capabilities()?;
    bounds::refuse_calls()?;
    leave_group()?;
    // Keeps processes of the same user from tracing this process and reading its memory and descriptors (`ptrace(2)`). Child programs are
    // dumpable again. From now on /proc/self belongs to root.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    hand_over(control, &TcpListener::bind(INSIDE)?)
}

/// Whether this process runs inside a `run --isolate`. That run's proxy paces all requests from here, but runs outside, where /proc does
/// not show it.
pub(in crate::cli) fn is_isolated() -> bool {
    if process::id() == 1 {
        // This is the first process of an isolation that is being set up.
        return false;
    }
    let first = fs::read("/proc/1/cmdline").unwrap_or_default();
    let arguments: Vec<_> = first.split(|byte| *byte == 0).collect();
    matches!(arguments[..], [b"politely", b"supervise", _, b"--isolate", ..])
}

fn failed(error: &io::Error, hint: &str) -> CommandError {
    let hint = match is_isolated() {
        true => {
            "an outer `politely run --isolate` isolates the command already: leave out the inner `--isolate`".to_owned()
        }
        false => format!("{hint}; without --isolate the command only gets the proxy variables"),
    };
    CommandError::usage(format!("cannot isolate the command: {error}"), hint)
}

/// The likely obstacle, and what to do. `proc`: where /proc is mounted.
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
    } else if lacks_setfcap(proc) {
        "root lacks the capability CAP_SETFCAP, which it needs to map itself into a user namespace; keep it, or run this as another user"
            .to_owned()
    } else {
        "this requires a kernel with user and network namespaces".to_owned()
    }
}

/// Whether this is root without CAP_SETFCAP.
fn lacks_setfcap(proc: &Path) -> bool {
    let status = fs::read_to_string(proc.join("self/status")).unwrap_or_default();
    let of = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let bits = u64::from_str_radix(of("CapEff:").trim(), 16).unwrap_or(u64::MAX);
    of("Uid:").split_whitespace().nth(1) == Some("0") && bits & (1 << SETFCAP) == 0
}

/// The number of CAP_SETFCAP in capabilities(7).
const SETFCAP: u32 = 31;
/// Hint if namespaces are available, but a separate /proc cannot be mounted.
const MASKED: &str = "this requires a /proc of its own, which a container may not mount while parts of its /proc are masked; Docker allows it with \
     `--security-opt systempaths=unconfined --security-opt apparmor=unconfined`, Kubernetes with `procMount: Unmasked`; as root it also \
     requires Linux 5.12";
const KERNEL: &str = "this requires Linux with system call filters (seccomp), on x86-64 or ARM64";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_names_the_setting_that_prevents_isolation() {
        for (file, value, part) in [
            ("sys/user/max_user_namespaces", "0\n", "sysctl -w user.max_user_namespaces=15000"),
            ("sys/kernel/unprivileged_userns_clone", "0\n", "sysctl -w kernel.unprivileged_userns_clone=1"),
            ("sys/kernel/apparmor_restrict_unprivileged_userns", "1\n", "a profile with `userns`"),
            ("self/status", "Name:\tx\nSeccomp:\t2\n", "seccomp=unconfined"),
            ("self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t000001ff7fffffff\n", "CAP_SETFCAP"),
            (
                "self/status",
                "Uid:\t7\t7\t7\t7\nCapEff:\t0000000000000000\n",
                "a kernel with user and network namespaces",
            ),
            (
                "self/status",
                "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n",
                "a kernel with user and network namespaces",
            ),
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
