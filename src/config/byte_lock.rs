//! Open file description locks on byte ranges of a file. Unlike with `flock`, a process can test for such a lock without taking it.

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
    // SAFETY: all fields of a `flock` are plain numbers, for which zero bytes are valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_whence) = (kind, libc::SEEK_SET as libc::c_short);
    (lock.l_start, lock.l_len) = (at.cast_signed(), length.cast_signed());
    // SAFETY: these commands read and write one `flock`, which outlives the call; the file is open.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(lock),
    }
}
