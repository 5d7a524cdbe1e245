//! An allocator that counts the bytes of each thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static TAKEN: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// Bytes that this thread has allocated and not freed.
pub fn taken() -> isize {
    TAKEN.get()
}

/// The most bytes that this thread had allocated at a time while `act` ran, beyond those at its start.
pub fn peak<T>(act: impl FnOnce() -> T) -> (T, isize) {
    let begin = taken();
    PEAK.set(begin);
    (act(), PEAK.get() - begin)
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Counts an allocation as glibc makes it: eight bytes more, in steps of sixteen.
fn count(bytes: isize) {
    let size = (bytes.abs() + 8 + 15) / 16 * 16;
    let _ = TAKEN.try_with(|taken| {
        taken.set(taken.get() + size * bytes.signum());
        PEAK.try_with(|peak| peak.set(peak.get().max(taken.get())))
    });
}
