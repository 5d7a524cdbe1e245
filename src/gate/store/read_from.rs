//! Reads from a file, either only from the system's page cache or also from the disk.

use rustix::io::{ReadWriteFlags, preadv2};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;

/// The source of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) enum ReadFrom {
    /// Only the page cache. On `WouldBlock` or `Unsupported`, read from the disk, on a thread that may block.
    Memory,
    Disk,
}

impl ReadFrom {
    pub fn read_at(self, file: &File, bytes: &mut [u8], from: u64) -> io::Result<usize> {
        match self {
            Self::Memory => Ok(preadv2(file, &mut [IoSliceMut::new(bytes)], from, ReadWriteFlags::NOWAIT)?),
            Self::Disk => file.read_at(bytes, from),
        }
    }

    /// Fills all of `bytes`. False: the file ends earlier.
    pub fn fill(self, file: &File, mut bytes: &mut [u8], mut from: u64) -> io::Result<bool> {
        while !bytes.is_empty() {
            let count = self.read_at(file, bytes, from)?;
            if count == 0 {
                return Ok(false);
            }
            bytes = &mut bytes[count..];
            from += count as u64;
        }
        Ok(true)
    }
}
