//! Locks on a file's bytes that belong to the open file description. Unlike `flock`, such a lock can be tested without being taken.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Takes or releases a lock (`command`: `F_OFD_SETLK`), or returns an existing lock that conflicts with it (`F_OFD_GETLK`).
///
/// # Errors
/// Another process has a conflicting lock, or the file system does not support such locks.
pub fn control_lock(
    file: &File,
    command: libc::c_int,
    kind: libc::c_short,
    at: u64,
    length: u64,
) -> io::Result<libc::flock> {
    // SAFETY: plain numbers, for which all-zero bytes are valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_whence) = (kind, libc::SEEK_SET as libc::c_short);
    (lock.l_start, lock.l_len) = (at.cast_signed(), length.cast_signed());
    // SAFETY: these commands read and write one `flock`, which outlives the call; the file is open.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(lock),
    }
}
