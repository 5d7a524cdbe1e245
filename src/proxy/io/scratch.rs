//! Short-lived memory for text, reused within a thread.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// A byte vector for output, empty at first.
#[derive(Debug)]
pub struct Scratch(Vec<u8>);

impl Scratch {
    pub fn new() -> Self {
        Scratch(FREE.try_with(|free| free.borrow_mut().pop()).ok().flatten().unwrap_or_default())
    }
}

impl Deref for Scratch {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl fmt::Write for Scratch {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let mut memory = std::mem::take(&mut self.0);
        if memory.capacity() == 0 || memory.capacity() > MOST {
            return;
        }
        memory.clear();
        // Fails while the thread ends.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < KEPT {
                free.push(memory);
            }
        });
    }
}

thread_local! {
    static FREE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

const MOST: usize = 64 * 1024;
/// Maximum number of free vectors per thread.
const KEPT: usize = 4;
