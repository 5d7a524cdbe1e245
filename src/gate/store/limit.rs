//! The size limit in force for all processes of the store, noted in the head of the index.

use super::snapshot::millis;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

/// The highest limit that a process has noted within a day. `own`: this process's limit, which is noted unless another's is higher.
/// `noted`: the limit that this process noted last; if it is still in the index, `own` replaces it even if lower.
pub(super) fn in_force(index: &File, own: u64, noted: &AtomicU64) -> io::Result<u64> {
    let ([limit, at], now) = (read(index)?.map(u64::from_le_bytes), millis(SystemTime::now()));
    if limit > own && limit != noted.load(Relaxed) && now.checked_sub(at).is_some_and(|age| age < NOTED_FOR) {
        return Ok(limit);
    }
    noted.store(own, Relaxed);
    index.write_all_at([own, now].map(u64::to_le_bytes).as_flattened(), PLACE)?;
    Ok(own)
}

/// Copies the noted limit to the index that is to replace this index.
pub(super) fn pass_on(index: &File, next: &File) -> io::Result<()> {
    next.write_all_at(read(index)?.as_flattened(), PLACE)
}

/// The noted limit and its time; zeros if the index was truncated.
fn read(index: &File) -> io::Result<[[u8; 8]; 2]> {
    let mut words = [[0; 8]; 2];
    index.read_at(words.as_flattened_mut(), PLACE)?;
    Ok(words)
}

/// Offset in the index, after the number of buckets, of two words: the noted limit in bytes, and its time in milliseconds since 1970.
const PLACE: u64 = 32;
/// Milliseconds for which a noted limit counts.
const NOTED_FOR: u64 = 24 * 60 * 60 * 1000;
