//! Queue of lines for a log. A thread writes them, so that a stalled reader or a full disk never blocks the code that logs: lines that
//! do not fit are dropped and counted.

use parking_lot::{Condvar, Mutex};
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A log. Its destination may change while it is in use.
pub struct LineQueue {
    pub name: &'static str,
    writer: Mutex<Option<Arc<LineWriter>>>,
    dropped: AtomicU64,
    losses: Mutex<Losses>,
}

/// The lines for one destination, in order.
#[derive(Default)]
struct LineWriter {
    state: Mutex<LineWriterState>,
    more: Condvar,
    written: Condvar,
}

#[derive(Default)]
struct LineWriterState {
    lines: Vec<u8>,
    is_writing: bool,
    /// The destination was replaced or closed: the thread ends once everything is written.
    is_closed: bool,
}

impl LineQueue {
    /// A log without a destination: its lines are lost.
    pub const fn new(name: &'static str) -> Self {
        let losses = Losses { reported: 0, error: None, failed_at: None };
        Self { name, writer: Mutex::new(None), dropped: AtomicU64::new(0), losses: Mutex::new(losses) }
    }

    /// Writes to `target` from now on. Earlier lines still go to the earlier destination.
    ///
    /// # Errors
    /// The thread cannot be started; nothing has changed then.
    pub fn write_to(&'static self, target: impl Write + Send + 'static) -> io::Result<()> {
        let writer = Arc::new(LineWriter::default());
        let writing = writer.clone();
        thread::Builder::new().name(format!("politely-{}", self.name)).spawn(move || self.run(&writing, target))?;
        self.replace(Some(writer));
        Ok(())
    }

    /// Discards lines from now on.
    pub fn close(&self) {
        self.replace(None);
    }

    /// Lines that were dropped because the queue was full or writing failed.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Returns when all lines so far are written, or after `limit`.
    pub fn flush(&self, limit: Duration) {
        let Some(writer) = self.writer.lock().clone() else { return };
        let until = Instant::now() + limit;
        let mut state = writer.state.lock();
        while !state.lines.is_empty() || state.is_writing {
            if writer.written.wait_until(&mut state, until).timed_out() {
                return;
            }
        }
    }

    fn replace(&self, writer: Option<Arc<LineWriter>>) {
        if let Some(before) = std::mem::replace(&mut *self.writer.lock(), writer) {
            before.state.lock().is_closed = true;
            before.more.notify_one();
        }
    }

    fn put(&self, line: &[u8]) {
        let writer = self.writer.lock();
        let Some(writer) = &*writer else { return };
        let mut state = writer.state.lock();
        if state.lines.len() + line.len() > ROOM {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let was_empty = state.lines.is_empty();
        state.lines.extend_from_slice(line);
        // A thread that is writing checks the queue again by itself.
        let is_asleep = was_empty && !state.is_writing;
        drop(state);
        if is_asleep {
            writer.more.notify_one();
        }
    }

    /// Counts lines that could not be written. Returns the warning to log now: the dropped lines that were not reported yet, and why they
    /// were dropped.
    fn lose(&self, unwritten: u64, error: Option<io::Error>, now: Instant) -> Option<(u64, String)> {
        let mut losses = self.losses.lock();
        let dropped = self.dropped.fetch_add(unwritten, Ordering::Relaxed) + unwritten;
        let fails = error.is_some();
        losses.error = error.or(losses.error.take());
        // Rate-limited while writing fails, since the warning may be a line of the same log.
        let is_soon = fails && losses.failed_at.is_some_and(|at| now.duration_since(at) < REPORTED_EACH);
        if is_soon || dropped == losses.reported {
            return None;
        }
        losses.failed_at = if fails { Some(now) } else { losses.failed_at };
        let lines = dropped - std::mem::replace(&mut losses.reported, dropped);
        Some(match losses.error.take() {
            Some(error) => (lines, format!("the log could not be written: {error}")),
            None => (lines, "the log's reader or disk is too slow".to_owned()),
        })
    }

    fn run(&self, writer: &LineWriter, mut target: impl Write) {
        let mut batch = Vec::new();
        let mut is_cut = false;
        loop {
            {
                let mut state = writer.state.lock();
                state.is_writing = false;
                writer.written.notify_all();
                while state.lines.is_empty() {
                    if state.is_closed {
                        return;
                    }
                    writer.more.wait(&mut state);
                }
                std::mem::swap(&mut state.lines, &mut batch);
                state.is_writing = true;
            }
            let mut error = None;
            let lost = write_lines(&mut target, &batch, &mut is_cut, &mut error);
            batch.clear();
            batch.shrink_to(KEPT);
            if let Some((lines, why)) = self.lose(lost, error, Instant::now()) {
                tracing::warn!(log = self.name, lines, "log lines were dropped: {why}");
            }
        }
    }
}

/// State of the reports about dropped lines, for all destinations.
struct Losses {
    /// Number of dropped lines that were reported.
    reported: u64,
    /// Why lines since the last report could not be written. `None`: they did not fit into the queue.
    error: Option<io::Error>,
    /// When a write failure was last reported.
    failed_at: Option<Instant>,
}

/// Writes lines; returns the number of lines not written, and stores the `error`. `is_cut`: the last line was written only in part, and
/// needs a line end before the next line.
fn write_lines(target: &mut impl Write, lines: &[u8], is_cut: &mut bool, error: &mut Option<io::Error>) -> u64 {
    if *is_cut && !write_all(target, b"\n", error).is_empty() {
        return memchr::memchr_iter(b'\n', lines).count() as u64;
    }
    let left = write_all(target, lines, error);
    let written = &lines[..lines.len() - left.len()];
    *is_cut = written.last().is_some_and(|last| *last != b'\n');
    let _ = target.flush();
    memchr::memchr_iter(b'\n', left).count() as u64
}

/// Writes until an error; returns the bytes that are left.
fn write_all<'a>(target: &mut impl Write, mut bytes: &'a [u8], met: &mut Option<io::Error>) -> &'a [u8] {
    while !bytes.is_empty() {
        match target.write(bytes) {
            Ok(0) => {
                *met = Some(ErrorKind::WriteZero.into());
                break;
            }
            Ok(n) => bytes = &bytes[n..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Another process that shares the pipe made it non-blocking: tries again later.
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::park_timeout(LOOK_AGAIN),
            Err(error) => {
                *met = Some(error);
                break;
            }
        }
    }
    bytes
}

/// Each write is one whole line.
impl Write for &LineQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.put(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Maximum number of bytes in the queue: some thousands of lines.
const ROOM: usize = 1 << 20;
/// Bytes of the buffer that are kept allocated after a burst.
const KEPT: usize = 1 << 16;
/// Time between reports while writing fails.
const REPORTED_EACH: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    /// A destination that accepts a write only when permitted.
    struct Slow(Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.recv().map_err(|_| ErrorKind::BrokenPipe)?;
            self.1.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn slow(queue: &'static LineQueue) -> (SyncSender<()>, Arc<Mutex<Vec<u8>>>) {
        let (let_go, gate) = sync_channel(1000);
        let seen = Arc::<Mutex<Vec<u8>>>::default();
        queue.write_to(Slow(gate, seen.clone())).unwrap();
        (let_go, seen)
    }

    fn text(seen: &Mutex<Vec<u8>>) -> String {
        String::from_utf8(seen.lock().clone()).unwrap()
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn stalled_reader_delays_nobody_and_dropped_lines_are_counted() {
        static QUEUE: LineQueue = LineQueue::new("test");
        let (let_go, seen) = slow(&QUEUE);
        let line = format!("{}\n", "x".repeat(1023));
        let most = 2 * ROOM as u64 / 1024;
        for _ in 0..3 * most {
            (&QUEUE).write_all(line.as_bytes()).unwrap();
        }
        let dropped = QUEUE.dropped();
        assert!(dropped >= 2 * most, "{dropped} of {}", 3 * most);
        (0..100).for_each(|_| let_go.send(()).unwrap());
        QUEUE.flush(LONG);
        assert_eq!(text(&seen).lines().count() as u64, 3 * most - dropped, "all other lines arrive whole");
        assert!(text(&seen).lines().all(|line| line.len() == 1023));
    }

    #[test]
    fn lines_go_to_the_destination_at_the_time_of_writing() {
        static QUEUE: LineQueue = LineQueue::new("test");
        let (first, before) = slow(&QUEUE);
        (&QUEUE).write_all(b"one\n").unwrap();
        let (second, after) = slow(&QUEUE);
        (&QUEUE).write_all(b"two\n").unwrap();
        second.send(()).unwrap();
        QUEUE.flush(LONG);
        assert_eq!(
            (text(&before).as_str(), text(&after).as_str()),
            ("", "two\n"),
            "the first destination is still stalled"
        );
        first.send(()).unwrap();
        while text(&before).is_empty() {
            thread::yield_now();
        }
        assert_eq!(text(&before), "one\n");
    }

    /// A disk with this many free bytes.
    struct Disk(usize, Vec<u8>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = self.0.min(bytes.len());
            if taken == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            self.0 -= taken;
            self.1.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn line_cut_by_a_full_disk_is_terminated_before_the_next() {
        let (mut disk, mut is_cut) = (Disk(6, Vec::new()), false);
        assert_eq!(write_lines(&mut disk, b"one\ntwo\nthree\n", &mut is_cut, &mut None), 2);
        assert_eq!(write_lines(&mut disk, b"four\n", &mut is_cut, &mut None), 1, "the disk is still full");
        disk.0 = 1;
        assert_eq!(write_lines(&mut disk, b"five\n", &mut is_cut, &mut None), 1, "only the end of the cut line fits");
        disk.0 = 100;
        assert_eq!(write_lines(&mut disk, b"six\n", &mut is_cut, &mut None), 0);
        assert_eq!(String::from_utf8(disk.1).unwrap(), "one\ntw\nsix\n");
    }

    #[test]
    fn lost_lines_are_reported_with_the_reason_after_recovery() {
        let (queue, start) = (LineQueue::new("test"), Instant::now());
        let after = |seconds, overflowed, unwritten, is_full: bool| {
            queue.dropped.fetch_add(overflowed, Ordering::Relaxed);
            let error = is_full.then(|| io::Error::from(ErrorKind::StorageFull));
            queue.lose(unwritten, error, start + Duration::from_secs(seconds))
        };
        let full = |lines| Some((lines, "the log could not be written: no storage space".to_owned()));
        let slow = |lines| Some((lines, "the log's reader or disk is too slow".to_owned()));
        assert_eq!(after(0, 2, 0, false), slow(2));
        assert_eq!(after(1, 0, 3, true), full(3));
        assert_eq!(after(2, 0, 4, true), None, "a failure was reported a moment ago");
        assert_eq!(after(3, 1, 0, false), full(5), "reported once the disk has room");
        assert_eq!(after(4, 0, 0, false), None);
        assert_eq!(after(5, 0, 1, true), None, "full again, and reported recently");
        assert_eq!(after(62, 0, 2, true), full(3), "still full a minute later");
        assert_eq!(after(63, 1, 0, false), slow(1));
        assert_eq!(queue.dropped(), 14);
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        static QUEUE: LineQueue = LineQueue::new("test");
        drop(slow(&QUEUE).0);
        (&QUEUE).write_all(b"one\n").unwrap();
        QUEUE.flush(LONG);
        assert_eq!(QUEUE.dropped(), 1);
        QUEUE.flush(Duration::ZERO);
    }
}
