//! Restrictions for an isolated command. It has no capabilities and cannot gain any from set-user-id programs. It inherits no descriptors
//! that lead out of its namespaces. It cannot use what namespaces do not separate: vsock, kernel keyrings, input into the terminal.

use super::namespaces::is_in_them;
use super::processes::checked;
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};
use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

/// Closes inherited descriptors beyond standard input and outputs, except files, pipes and harmless devices. An inherited socket, namespace
/// or process descriptor would be a way out. So would a directory: relative paths lead from it to the mounts outside, such as their /proc.
pub(super) fn close_descriptors() -> io::Result<()> {
    let open: Vec<_> = fs::read_dir("/proc/self/fd")?.collect::<io::Result<_>>()?;
    let numbers = open.iter().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    for number in numbers.filter(|number| *number > libc::STDERR_FILENO) {
        if !is_harmless(number) && !is_ours(number) {
            // SAFETY: our own descriptors stay open, and no code in this process uses the others.
            unsafe { libc::close(number) };
        }
    }
    Ok(())
}

fn is_harmless(number: RawFd) -> bool {
    let Ok(found) = fs::metadata(format!("/proc/self/fd/{number}")) else { return false };
    let kind = found.file_type();
    let [major, minor] = [libc::major(found.rdev()), libc::minor(found.rdev())];
    // First the devices null, zero, full, random and urandom, then terminals.
    let is_quiet_device = matches!((major, minor), (1, 3 | 5 | 7 | 8 | 9) | (4 | 5 | 136..=143, _));
    // A namespace is a file of a special file system, without a name in any directory. An inherited file in /proc or /sys belongs to a
    // mount of the system outside.
    let is_named = || {
        let path = fs::read_link(format!("/proc/self/fd/{number}"));
        path.is_ok_and(|path| path.is_absolute() && !is_in_them(&path))
    };
    match kind.is_file() {
        true => is_named(),
        false => kind.is_fifo() || kind.is_char_device() && is_quiet_device,
    }
}

/// Whether this process opened the descriptor. Such a descriptor is close-on-exec, so the command does not inherit it anyway.
fn is_ours(number: RawFd) -> bool {
    // SAFETY: passes integers only.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    flags >= 0 && flags & libc::FD_CLOEXEC != 0
}

/// Clears all capability sets, so that no program started later regains any.
pub(super) fn drop_capabilities() -> io::Result<()> {
    set_no_new_privs(true)?;
    clear_ambient_capability_set()?;
    for number in 0..64 {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            // The kernel has no capability with this or a higher number.
            Err(Errno::INVAL) => break,
            dropped => dropped?,
        }
    }
    let none = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}

/// Installs a seccomp filter. Virtual machine sockets (vsock) belong to no network namespace, and io_uring can open them without a
/// filterable call. The command must not push input into the terminal, which the shell would read after the command's end. Keyrings are not
/// separated by namespaces: the session keyring is inherited, and root's keyrings are shared without a user namespace.
pub(super) fn refuse_calls() -> io::Result<()> {
    if CALLS.is_empty() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let filter = filter();
    let program = libc::sock_fprog {
        len: libc::c_ushort::try_from(filter.len()).expect("a filter has a few dozen steps"),
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: the call copies the filter, which outlives it.
    checked(unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) })
}

/// The system call numbers of one architecture.
struct Calls {
    audit: u32,
    socket: u32,
    ioctl: u32,
    /// The number of `add_key`. The next two are `request_key` and `keyctl`.
    keys: u32,
    /// The multiplexed socket call, whose arguments hide the family from the filter.
    socketcall: Option<u32>,
}

fn filter() -> Vec<libc::sock_filter> {
    let step = |code: u32, k: u32, yes: u8, no: u8| libc::sock_filter {
        code: u16::try_from(code).expect("BPF codes have 16 bits"),
        jt: yes,
        jf: no,
        k,
    };
    let load = |offset| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0);
    let unless = |value, skip| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, 0, skip);
    let end = |with| step(libc::BPF_RET | libc::BPF_K, with, 0, 0);
    let refuse = |error: libc::c_int| end(libc::SECCOMP_RET_ERRNO | error.cast_unsigned());
    let allow = || end(libc::SECCOMP_RET_ALLOW);
    let mut all = vec![load(ARCHITECTURE)];
    for calls in CALLS {
        let mut own = vec![load(NUMBER), unless(IO_URING_SETUP, 1), refuse(libc::ENOSYS)];
        own.extend([
            unless(calls.socket, 4),
            load(FIRST_ARGUMENT),
            unless(VSOCK, 1),
            refuse(libc::EAFNOSUPPORT),
            allow(),
        ]);
        own.extend([unless(calls.ioctl, 6), load(SECOND_ARGUMENT)]);
        own.extend([unless(TIOCSTI, 1), refuse(libc::EPERM), unless(TIOCLINUX, 1), refuse(libc::EPERM), allow()]);
        for call in calls.keys..calls.keys + 3 {
            own.extend([unless(call, 1), refuse(libc::ENOSYS)]);
        }
        if let Some(socketcall) = calls.socketcall {
            own.extend([unless(socketcall, 4), load(FIRST_ARGUMENT), unless(SOCKET, 1), refuse(libc::ENOSYS), allow()]);
        }
        // x32 has the same architecture, but other system call numbers: refuses all its calls.
        own.extend([step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, X32, 0, 1), refuse(libc::ENOSYS), allow()]);
        all.push(unless(calls.audit, u8::try_from(own.len()).expect("the steps are about a dozen")));
        all.extend(own);
    }
    all.push(allow());
    all
}

#[cfg(target_arch = "x86_64")]
const CALLS: &[Calls] = &[
    Calls { audit: 0xC000_003E, socket: 41, ioctl: 16, keys: 248, socketcall: None },
    Calls { audit: 0x4000_0003, socket: 359, ioctl: 54, keys: 286, socketcall: Some(102) },
];
#[cfg(target_arch = "aarch64")]
const CALLS: &[Calls] = &[
    Calls { audit: 0xC000_00B7, socket: 198, ioctl: 29, keys: 217, socketcall: None },
    Calls { audit: 0x4000_0028, socket: 281, ioctl: 54, keys: 309, socketcall: None },
];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const CALLS: &[Calls] = &[];

const IO_URING_SETUP: u32 = 425;
const VSOCK: u32 = 40;
/// The ioctl that pushes input into a terminal.
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541C;
/// The subcall of `socketcall` that opens a socket.
const SOCKET: u32 = 1;
const X32: u32 = 0x4000_0000;
/// Offsets in the data that a filter sees.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;
const SECOND_ARGUMENT: u32 = 24;
