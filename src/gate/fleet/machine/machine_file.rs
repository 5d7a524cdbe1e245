//! A file that the processes of a machine share, with byte-range locks, which the kernel releases when a process ends. The locks belong
//! to the open file, so locks of one open file do not exclude each other.

use crate::config::{control_lock, is_at, open_lock_file, private_directory};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The open file; dropping it releases its locks.
#[derive(Debug)]
pub(super) struct MachineFile {
    pub file: File,
    path: PathBuf,
}

impl MachineFile {
    /// Opens or creates the file. Only its owner and the directory's owner can lock it. On a network file system, where clients differ in
    /// clock and cache, each machine has its own file per boot.
    pub fn open(directory: &Path, name: &str) -> io::Result<Self> {
        private_directory(directory)?;
        let is_shared_by_machines = NETWORK.contains(&rustix::fs::statfs(directory)?.f_type);
        let path = match String::from_utf8_lossy(&boot_id()).trim() {
            boot if is_shared_by_machines => directory.join(format!("{name}.{boot}")),
            _ => directory.join(name),
        };
        let file = open_lock_file(&path)?;
        Ok(Self { file, path })
    }

    /// Reserves disk space: if the disk is full, writing to a mapped page without reserved space raises SIGBUS.
    pub fn allocate(&self, from: u64, to: u64) -> io::Result<()> {
        match fallocate(&self.file, FallocateFlags::empty(), from, to - from) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            reserved => return Ok(reserved?),
        }
        let zeros = vec![0; 1 << 20];
        (from..to).step_by(zeros.len()).try_for_each(|at| {
            let length = zeros.len().min((to - at) as usize);
            self.file.write_all_at(&zeros[..length], at)
        })
    }

    /// Whether the open file still has its name.
    pub fn is_named(&self) -> io::Result<bool> {
        is_at(&self.file, &self.path)
    }

    /// Locks the byte at `at`. Returns false if another process has locked it.
    pub fn lock(&self, at: u64) -> io::Result<bool> {
        match control_lock(&self.file, libc::F_OFD_SETLK, WRITE, at, 1) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub fn unlock(&self, at: u64) -> io::Result<()> {
        control_lock(&self.file, libc::F_OFD_SETLK, FREE, at, 1).map(drop)
    }

    /// Number of bytes from `at` to `end` that other processes have locked.
    pub fn count_locked(&self, at: u64, end: u64) -> io::Result<u32> {
        if at >= end {
            return Ok(0);
        }
        let lock = control_lock(&self.file, libc::F_OFD_GETLK, WRITE, at, end - at)?;
        if lock.l_type == FREE {
            return Ok(0);
        }
        // The kernel reports any lock in the range, not necessarily the first.
        let (start, after) = (lock.l_start.cast_unsigned(), (lock.l_start + lock.l_len).cast_unsigned());
        Ok(1 + self.count_locked(at, start)? + self.count_locked(after.max(start + 1), end)?)
    }
}

/// Identifies the machine's current boot.
pub(super) fn boot_id() -> Vec<u8> {
    fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// Lock types, converted to the type of the field `l_type`.
const WRITE: libc::c_short = libc::F_WRLCK as libc::c_short;
const FREE: libc::c_short = libc::F_UNLCK as libc::c_short;
/// File system types (`f_type` of statfs(2)) of NFS, SMB and 9P.
const NETWORK: [i64; 5] = [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x0102_1997];
