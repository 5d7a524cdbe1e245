//! Separate namespaces for the command: network, processes, mounts, users, shared memory and message queues, host names and cgroups.

use super::processes::{NOT_KNOWN, checked};
use crate::cli::command_error;
use rustix::io::retry_on_intr;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change};
use rustix::process::{Pid, WaitOptions, waitpid};
use std::ffi::CString;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Joins new namespaces, for processes started after this. Root skips the user namespace if it is forbidden, or if /proc could then not be
/// mounted, as in a container in which parts of /proc are masked.
pub(super) fn enter() -> io::Result<()> {
    let is_root = rustix::process::geteuid().is_root();
    join(!is_root || is_possible(true) || !is_possible(false))?;
    raise_loopback()
}

/// Whether [`enter`] can succeed: tried in a child process, as it cannot be undone.
fn is_possible(with_users: bool) -> bool {
    in_child(|| {
        join(with_users)?;
        raise_loopback()?;
        if in_child(own_proc) { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    })
}

/// Joins new namespaces, and keeps user and group ids: for root all of them, for a user only the user's own.
fn join(with_users: bool) -> io::Result<()> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    if !with_users {
        return unshare(OTHERS);
    }
    if user.is_root() && join_with_all_ids().is_ok() {
        return Ok(());
    }
    // A failed attempt above may have left the process in a new user namespace with an empty map: uses that namespace.
    if fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| !map.is_empty()) {
        unshare(libc::CLONE_NEWUSER | OTHERS)?;
    }
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{0} {0} 1", user.as_raw()))?;
    fs::write("/proc/self/gid_map", format!("{0} {0} 1", group.as_raw()))
}

/// Joins new namespaces, and maps all ids. Only a process outside can map ids other than its own.
fn join_with_all_ids() -> io::Result<()> {
    let maps = ["uid_map", "gid_map"].map(|name| {
        let map = fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        let same = map.lines().filter_map(|line| {
            let mut numbers = line.split_ascii_whitespace();
            let (inside, count) = (numbers.next()?, numbers.nth(1)?);
            Some(format!("{inside} {inside} {count}\n"))
        });
        (name, same.collect::<String>())
    });
    let (mut is_in, mut tell) = io::pipe()?;
    let own = std::process::id();
    let Some(helper) = fork()? else {
        drop(tell);
        let mut write = || -> io::Result<()> {
            is_in.read_exact(&mut [0])?;
            maps.iter().try_for_each(|(name, map)| fs::write(format!("/proc/{own}/{name}"), map))
        };
        exit(u8::from(write().is_err()))
    };
    drop(is_in);
    let joined = unshare(libc::CLONE_NEWUSER | OTHERS);
    if joined.is_ok() {
        let _ = tell.write_all(&[0]);
    }
    drop(tell);
    let is_written = exit_code(helper) == 0;
    joined?;
    if is_written { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Mounts a /proc that shows only this namespace's processes, and a file system that shows only its message queues. For root, makes
/// /sys and the system-wide files in /proc read-only, which root could otherwise change.
pub(super) fn own_proc() -> io::Result<()> {
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM).map_err(at("/"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", PROC, "proc", flags, None).map_err(at(PROC))?;
    if Path::new(QUEUES).exists() {
        mount("mqueue", QUEUES, "mqueue", flags, None).map_err(at(QUEUES))?;
    }
    if rustix::process::geteuid().is_root() {
        for entry in fs::read_dir(PROC)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            // Skips the entries of processes, whose names are numbers, as an entry vanishes when its process ends.
            if name.bytes().all(|byte| byte.is_ascii_digit()) {
                continue;
            }
            let found = entry.metadata()?;
            if found.is_dir() || found.is_file() && found.mode() & 0o222 != 0 {
                make_readable(&format!("{PROC}/{name}"))?;
            }
        }
        if Path::new(SYS).exists() {
            make_readable(SYS)?;
        }
    }
    let current = std::env::current_dir().map_err(at("the current directory"))?;
    if is_in_them(&current) {
        // Enters the directory again, as the new mount hides the old one.
        std::env::set_current_dir(&current).map_err(at(&current))?;
    }
    Ok(())
}

/// Whether the path is in one of the new mounts.
pub(super) fn is_in_them(path: &Path) -> bool {
    [PROC, SYS].iter().any(|mounted| path.starts_with(mounted))
}

/// Makes a mount read-only, with everything mounted below.
fn make_readable(path: &str) -> io::Result<()> {
    mount_bind_recursive(path, path).map_err(at(path))?;
    let target = CString::new(path)?;
    let attributes = [libc::MOUNT_ATTR_RDONLY, 0, 0, 0];
    // SAFETY: the call reads the path and the struct, which outlive it.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            target.as_ptr(),
            libc::AT_RECURSIVE,
            attributes.as_ptr(),
            size_of_val(&attributes),
        )
    };
    checked(done).map_err(at(path))
}

/// Adds the path to an error.
fn at<E: Into<io::Error>>(place: impl AsRef<Path>) -> impl FnOnce(E) -> io::Error {
    move |error| {
        let error = error.into();
        io::Error::new(error.kind(), format!("{}: {error}", place.as_ref().display()))
    }
}

fn unshare(what: libc::c_int) -> io::Result<()> {
    // SAFETY: passes no pointer, and this process has no other thread that the call could affect.
    checked(unsafe { libc::unshare(what) })
}

fn raise_loopback() -> io::Result<()> {
    let any = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    // SAFETY: all zeros is valid.
    let mut interface: libc::ifreq = unsafe { std::mem::zeroed() };
    interface.ifr_name[..2].copy_from_slice(&[b'l' as libc::c_char, b'o' as libc::c_char]);
    interface.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: the request takes an `ifreq`, which outlives the call.
    checked(unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCSIFFLAGS as libc::Ioctl, &raw const interface) })
}

/// Whether `what` succeeds in a child process.
fn in_child(what: impl FnOnce() -> io::Result<()>) -> bool {
    match fork() {
        Ok(None) => exit(u8::from(what().is_err())),
        Ok(Some(child)) => exit_code(child) == 0,
        Err(_) => false,
    }
}

/// Forks. Returns the child's id; `None` in the child.
pub(super) fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: this process has one thread, so the child may do anything.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        child => Ok(Pid::from_raw(child)),
    }
}

/// Waits for the child to end, and returns its exit code.
pub(super) fn exit_code(child: Pid) -> u8 {
    code(child, WaitOptions::empty()).unwrap_or(NOT_KNOWN)
}

/// The child's exit code, if it has ended.
pub(super) fn ended(child: Pid) -> Option<u8> {
    code(child, WaitOptions::NOHANG)
}

fn code(child: Pid, options: WaitOptions) -> Option<u8> {
    match retry_on_intr(|| waitpid(Some(child), options)) {
        Ok(ended) => {
            ended.map(|(_, status)| command_error::exit_code(status.exit_status(), status.terminating_signal()))
        }
        Err(_) => Some(NOT_KNOWN),
    }
}

/// Ends a forked child without flushing or dropping anything twice.
fn exit(code: u8) -> ! {
    // SAFETY: does not return.
    unsafe { libc::_exit(code.into()) }
}

const OTHERS: libc::c_int = libc::CLONE_NEWNET
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;
const PROC: &str = "/proc";
const SYS: &str = "/sys";
const QUEUES: &str = "/dev/mqueue";
