//! Maps a file that processes share into memory, as 64-bit words that are read and written atomically. Without a file, the words are in the
//! process's own memory.
//!
//! The file's owner may truncate it, and a disk may fail: the kernel answers the next access with SIGBUS, which would end the process. Here
//! a SIGBUS only ends the sharing: the handler maps empty memory over the file. From then on, the file's data is lost, and the words are in
//! the process's own memory.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The words of a file, mapped until this is dropped.
#[derive(Debug)]
pub(super) struct SharedWords {
    first: NonNull<AtomicU64>,
    count: usize,
    /// `None`: memory without a file cannot be lost.
    place: Option<&'static MappedPlace>,
}

/// A memory range in which a SIGBUS is handled.
#[derive(Debug)]
struct MappedPlace {
    /// The range's address. 0: this place is free. 1: it is being taken or freed.
    start: AtomicUsize,
    length: AtomicUsize,
    is_lost: AtomicBool,
}

impl SharedWords {
    /// Maps a file. `count` may exceed its length: words beyond its end become usable when it grows.
    pub fn map(file: &File, count: usize) -> io::Result<Self> {
        HANDLER.get_or_init(install).as_ref().map_err(|errno| io::Error::from_raw_os_error(*errno))?;
        let place =
            PLACES.iter().find(|place| place.start.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok());
        let place = place.ok_or_else(|| io::Error::other("too many files are mapped"))?;
        let mapped = Self::map_at(libc::MAP_SHARED, file.as_raw_fd(), count);
        let mut mapped = mapped.inspect_err(|_| place.start.store(0, Ordering::Release))?;
        place.is_lost.store(false, Ordering::Relaxed);
        place.length.store(count * size_of::<AtomicU64>(), Ordering::Relaxed);
        place.start.store(mapped.first.addr().get(), Ordering::Release);
        mapped.place = Some(place);
        Ok(mapped)
    }

    /// Words without a file: zeros, which take memory only once they are written.
    pub fn unnamed(count: usize) -> io::Result<Self> {
        Self::map_at(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, count)
    }

    fn map_at(kind: libc::c_int, file: RawFd, count: usize) -> io::Result<Self> {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, kind | libc::MAP_NORESERVE);
        // SAFETY: a new mapping at an address of the kernel's choice; nothing else refers to it.
        let start = unsafe { libc::mmap(null_mut(), count * size_of::<AtomicU64>(), access, flags, file, 0) };
        let first = NonNull::new(start.cast()).filter(|_| start != libc::MAP_FAILED);
        Ok(Self { first: first.ok_or_else(io::Error::last_os_error)?, count, place: None })
    }

    /// Whether the file's data is lost. Then the words are in memory of this process alone.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.place.is_some_and(|place| place.is_lost.load(Ordering::Relaxed))
    }

    /// `count` words from `at`.
    #[inline]
    pub fn row(&self, at: usize, count: usize) -> &[AtomicU64] {
        assert!(count <= self.count && at <= self.count - count, "beyond the mapping");
        // SAFETY: inside the mapping, which is aligned to pages and lives as long as `self`. Others write to it as atomic words too.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr().add(at), count) }
    }

    #[inline]
    pub fn word(&self, at: usize) -> &AtomicU64 {
        &self.row(at, 1)[0]
    }
}

// SAFETY: all access is to atomic words.
unsafe impl Send for SharedWords {}
// SAFETY: all access is to atomic words.
unsafe impl Sync for SharedWords {}

impl Drop for SharedWords {
    fn drop(&mut self) {
        let mark = |start| self.place.into_iter().for_each(|place| place.start.store(start, Ordering::Release));
        mark(1);
        // SAFETY: the mapping made above, to which nothing refers any more.
        unsafe { libc::munmap(self.first.as_ptr().cast(), self.count * size_of::<AtomicU64>()) };
        mark(0);
    }
}

/// The previous action for SIGBUS. `Err`: the handler could not be installed.
fn install() -> Result<libc::sigaction, i32> {
    // SAFETY: plain numbers, for which all-zero bytes are valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_bus_error as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    let mut before = action;
    // SAFETY: both outlive the call.
    match unsafe { libc::sigaction(libc::SIGBUS, &raw const action, &raw mut before) } {
        0 => Ok(before),
        _ => Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)),
    }
}

/// Handles SIGBUS. Uses only what is safe in a signal handler: atomics, and C functions that do nothing but make a system call.
extern "C" fn on_bus_error(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel fills in `info` for a handler with SA_SIGINFO.
    let at = unsafe { (*info).si_addr() }.addr();
    for place in &PLACES {
        let (start, length) = (place.start.load(Ordering::Acquire), place.length.load(Ordering::Relaxed));
        if start > 1 && at.checked_sub(start).is_some_and(|offset| offset < length) {
            place.is_lost.store(true, Ordering::Relaxed);
            let (access, flags) = (
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
            );
            let start = std::ptr::with_exposed_provenance_mut::<libc::c_void>(start);
            // SAFETY: replaces our own mapping, which holds only atomic words, for which zeros are valid.
            if unsafe { libc::mmap(start, length, access, flags, -1, 0) } != libc::MAP_FAILED {
                return;
            }
        }
    }
    // The address is not ours, or cannot be mapped. Restores the previous action, with which the access is then repeated.
    // SAFETY: the action is as the kernel gave it to us, or the default.
    unsafe {
        match HANDLER.get() {
            Some(Ok(before)) => libc::sigaction(libc::SIGBUS, before, null_mut()),
            Some(Err(_)) | None => libc::signal(libc::SIGBUS, libc::SIG_DFL) as libc::c_int,
        };
    }
}

static HANDLER: OnceLock<Result<libc::sigaction, i32>> = OnceLock::new();
/// Places for mappings. A process needs only a few; the tests, which share one process, need many.
static PLACES: [MappedPlace; 256] = [const {
    MappedPlace { start: AtomicUsize::new(0), length: AtomicUsize::new(0), is_lost: AtomicBool::new(false) }
}; 256];

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: u64) -> File {
        let file = tempfile::tempfile().expect("a temporary file");
        file.set_len(bytes).expect("there is room");
        file
    }

    #[test]
    fn two_mappings_of_a_file_share_memory() {
        let file = file(4096);
        let (one, other) = (SharedWords::map(&file, 512).unwrap(), SharedWords::map(&file, 512).unwrap());
        one.word(511).store(7, Ordering::Relaxed);
        assert_eq!(other.word(511).load(Ordering::Relaxed), 7);
        assert!(!one.is_lost() && !other.is_lost());
    }

    #[test]
    fn truncated_file_loses_only_its_own_words() {
        let (cut, whole) = (file(1 << 20), file(4096));
        let (one, other) = (SharedWords::map(&cut, 1 << 17).unwrap(), SharedWords::map(&whole, 512).unwrap());
        one.word(5).store(7, Ordering::Relaxed);
        cut.set_len(0).expect("our own file");
        assert_eq!(one.word(5).load(Ordering::Relaxed), 0, "the file's data is gone");
        one.word(100_000).store(8, Ordering::Relaxed);
        assert_eq!(one.word(100_000).load(Ordering::Relaxed), 8, "the memory that replaces the file can be written");
        other.word(5).store(9, Ordering::Relaxed);
        assert!(one.is_lost() && !other.is_lost());
    }

    #[test]
    fn words_beyond_the_end_are_usable_once_the_file_has_grown() {
        let file = file(4096);
        let words = SharedWords::map(&file, 4096).unwrap();
        file.set_len(32_768).expect("there is room");
        words.word(4095).store(1, Ordering::Relaxed);
        assert!(!words.is_lost());
    }
}
