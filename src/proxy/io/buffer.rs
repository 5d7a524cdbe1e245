//! A byte buffer. It holds memory only while it has bytes; memory is reused within a thread, so an idle connection
//! holds none.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

/// Bytes that were read or are to be written, in order.
#[derive(Debug, Default)]
pub struct Buffer {
    memory: Vec<u8>,
    /// The bytes before this index were consumed.
    start: usize,
    /// Whether the last read was long, so that a long body is likely.
    long: bool,
}

impl Buffer {
    pub const fn new() -> Self {
        Buffer { memory: Vec::new(), start: 0, long: false }
    }

    /// A buffer whose first read is large, because most answers arrive whole.
    pub const fn of_answer() -> Self {
        Buffer { memory: Vec::new(), start: 0, long: true }
    }

    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..]
    }

    pub fn len(&self) -> usize {
        self.memory.len() - self.start
    }

    pub fn is_empty(&self) -> bool {
        self.memory.len() == self.start
    }

    /// Removes the first `n` bytes.
    #[inline]
    pub fn consume(&mut self, n: usize) {
        debug_assert!(n <= self.len());
        self.start += n;
        if self.start >= self.memory.len() {
            self.release();
        }
    }

    /// Whether more can be read without growing the buffer.
    pub fn has_room(&self) -> bool {
        self.memory.capacity() == 0 || self.room() > 0
    }

    /// Appends bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        self.make_room(bytes.len());
        self.memory.extend_from_slice(bytes);
    }

    /// Bytes that can be appended without more memory.
    pub fn room(&self) -> usize {
        self.memory.capacity() - self.memory.len()
    }

    /// Lets `write` append bytes.
    pub fn put_with<R>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        self.make_room(0);
        write(&mut self.memory)
    }

    /// Moves the bytes of `other` behind its first `end` bytes into this buffer.
    pub fn put_rest(&mut self, other: &mut Buffer, end: usize) {
        let rest = other.start + end;
        if rest < other.memory.len() {
            self.put(&other.memory[rest..]);
            other.memory.truncate(rest);
        }
    }

    /// Reads once. Returns 0 at the end of the stream. A full buffer grows.
    pub fn poll_fill<S: AsyncRead + Unpin>(&mut self, cx: &mut Context<'_>, io: &mut S) -> Poll<io::Result<usize>> {
        if self.memory.capacity() == 0 {
            self.memory = take(if self.long { LONG } else { SMALL });
        } else if self.room() == 0 {
            self.make_room(self.memory.len() / 2);
        }
        let polled = pin!(io.read_buf(&mut self.memory)).poll(cx);
        if matches!(polled, Poll::Ready(Ok(1..))) {
            self.long = self.memory.len() >= SMALL;
        } else if self.is_empty() {
            self.release();
        }
        polled
    }

    /// Writes everything.
    pub fn poll_drain<S: AsyncWrite + Unpin>(&mut self, cx: &mut Context<'_>, io: &mut S) -> Poll<io::Result<()>> {
        self.poll_drain_with(cx, io, &[]).map_ok(drop)
    }

    /// Writes the whole buffer, and as much of `more` as the last write takes. Returns the number of bytes of `more` written,
    /// which is at least 1 if the buffer was empty and `more` was not.
    #[inline]
    pub fn poll_drain_with<S: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        io: &mut S,
        more: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut taken = 0;
        let mut is_due = !more.is_empty();
        while is_due || !self.is_empty() {
            let io = Pin::new(&mut *io);
            let n = ready!(match (self.bytes(), more) {
                (own, []) => io.poll_write(cx, own),
                ([], more) => io.poll_write(cx, more),
                (own, more) => io.poll_write_vectored(cx, &[IoSlice::new(own), IoSlice::new(more)]),
            })?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let of_own = n.min(self.len());
            self.consume(of_own);
            (taken, is_due) = (n - of_own, false);
        }
        Poll::Ready(Ok(taken))
    }

    /// Drops the content and returns the memory.
    #[inline]
    pub fn release(&mut self) {
        self.start = 0;
        if self.memory.capacity() > 0 {
            give(std::mem::take(&mut self.memory));
        }
    }

    /// Makes room for `more` bytes, by moving the content to the front if that helps.
    #[inline]
    fn make_room(&mut self, more: usize) {
        if self.memory.capacity() == 0 {
            self.memory = take(SMALL);
        }
        if self.start > 0 && self.memory.len() + more.max(START) > self.memory.capacity() {
            self.memory.drain(..std::mem::take(&mut self.start));
        }
        self.memory.reserve(more);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.release();
    }
}

thread_local! {
    static FREE: RefCell<[Vec<Vec<u8>>; 2]> = const { RefCell::new([Vec::new(), Vec::new()]) };
}

fn take(size: usize) -> Vec<u8> {
    let class = usize::from(size == LONG);
    let kept = FREE.try_with(|free| free.borrow_mut()[class].pop()).ok().flatten();
    kept.unwrap_or_else(|| Vec::with_capacity(size))
}

fn give(mut memory: Vec<u8>) {
    let class = match memory.capacity() {
        SMALL => 0,
        LONG => 1,
        // The buffer has grown for a very long head, which is rare: its memory is freed.
        _ => return,
    };
    // Fails while the thread ends.
    let _ = FREE.try_with(|free| {
        let free = &mut free.borrow_mut()[class];
        if free.len() < KEPT[class] {
            memory.clear();
            free.push(memory);
        }
    });
}

const SMALL: usize = 8 * 1024;
/// Size of a large buffer in bytes: for a page of 64 KiB and its head.
const LONG: usize = 72 * 1024;
/// Minimum room for a read in bytes: enough for most heads.
const START: usize = 1024;
/// Maximum number of free buffers of each size, per thread.
const KEPT: [usize; 2] = [128, 16];

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    #[tokio::test]
    async fn memory_is_held_only_until_the_bytes_are_consumed() {
        let mut buffer = Buffer::new();
        let mut source: &[u8] = &[b'x'; 20_000];
        let mut seen = 0;
        loop {
            match poll_fn(|cx| buffer.poll_fill(cx, &mut source)).await.unwrap() {
                0 => break,
                n => {
                    assert_eq!(buffer.bytes(), vec![b'x'; n]);
                    buffer.consume(n);
                    seen += n;
                }
            }
        }
        assert_eq!((seen, buffer.memory.capacity()), (20_000, 0));
    }

    #[tokio::test]
    async fn a_buffer_grows_if_nothing_is_consumed() {
        let mut buffer = Buffer::new();
        let whole: Vec<u8> = (0..30_000).map(|n| n as u8).collect();
        let mut source: &[u8] = &whole;
        while poll_fn(|cx| buffer.poll_fill(cx, &mut source)).await.unwrap() > 0 {}
        assert_eq!(buffer.bytes(), whole);
        buffer.consume(10);
        assert_eq!((buffer.len(), buffer.bytes()[0]), (29_990, 10));
    }

    /// Models a reader that is always one piece behind the writer.
    #[test]
    fn consumed_bytes_take_no_memory() {
        let mut buffer = Buffer::new();
        for round in 0..1000 {
            buffer.put_with(|out| out.extend_from_slice(&[round as u8; 100]));
            if round > 0 {
                buffer.consume(100);
            }
            assert_eq!(buffer.bytes(), [round as u8; 100]);
        }
        assert_eq!(buffer.memory.capacity(), SMALL);
    }

    #[test]
    fn bytes_are_appended_in_order() {
        let mut buffer = Buffer::new();
        buffer.put(b"a");
        buffer.put_with(|out| out.extend_from_slice(b"bc"));
        buffer.consume(1);
        assert_eq!((buffer.bytes(), buffer.room()), (&b"bc"[..], SMALL - 3));
    }
}
