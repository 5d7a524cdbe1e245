//! Batches the writes of the streams of one HTTP/2 connection: each frame waits until the other ready tasks have run, instead
//! of being written as soon as its stream's task has run. Disconnects a peer that floods the connection with frames.

use super::frame_balance::FrameBalance;
use super::http2::Vitals;
use super::turns::TaskTurns;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection whose writes wait for the next turn (poll) of its task.
pub struct Gathered<T> {
    io: T,
    turns: TaskTurns,
    waiting: Vec<u8>,
    /// Bytes of `waiting` that were written.
    sent: usize,
    /// The turn in which the first waiting byte was added.
    since: u64,
    /// Whether something was received. Before that, writes do not wait, because the peer may be waiting for our bytes.
    is_heard: bool,
    balance: FrameBalance,
    /// The state of a connection to an origin; `None`: to a client.
    vitals: Option<Arc<Vitals>>,
    /// The last turn in which something was read, and the number of frames read in it.
    reads: (u64, u32),
}

impl<T: AsyncWrite + Unpin> Gathered<T> {
    /// Batches the writes to `io`. `turns`: the count of turns of the task that drives the connection.
    pub fn new(io: T, turns: TaskTurns) -> Self {
        let (waiting, balance) = (Vec::new(), FrameBalance::of_origin());
        Gathered { io, turns, waiting, sent: 0, since: 0, is_heard: false, balance, vitals: None, reads: (0, 0) }
    }

    /// Like [`new`](Self::new), for a connection to an origin. Notes reads in `vitals`.
    pub(super) fn to_origin(io: T, vitals: Arc<Vitals>) -> Self {
        let turns = vitals.turns.clone();
        Gathered { vitals: Some(vitals), ..Self::new(io, turns) }
    }

    /// Like [`new`](Self::new), for a connection to a client, which sends requests.
    pub fn to_client(io: T, turns: TaskTurns) -> Self {
        Gathered { balance: FrameBalance::of_client(), ..Self::new(io, turns) }
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.waiting.len() {
            match ready!(Pin::new(&mut self.io).poll_write(cx, &self.waiting[self.sent..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                n => self.sent += n,
            }
        }
        // Idle connections hold no memory.
        (self.waiting, self.sent) = (Vec::new(), 0);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Gathered<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let turn = self.turns.begun();
        if self.reads.0 == turn && self.reads.1 > FRAMES {
            // Yields, so that other tasks run in between, however short the frames are.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        if self.reads.1 > FRAMES {
            // If many frames were read last time, read less at once.
            let room = buf.remaining().min(FRAMES as usize * 8);
            let mut part = ReadBuf::new(buf.initialize_unfilled_to(room));
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut part))?;
            let read = part.filled().len();
            buf.advance(read);
        } else {
            ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        }
        self.is_heard = true;
        let read = &buf.filled()[before..];
        if self.vitals.as_ref().is_some_and(|vitals| !vitals.come(read.len())) {
            return Poll::Ready(Err(io::Error::other("the origin sends more than was requested")));
        }
        let frames = self.balance.read(read);
        let frames = frames.ok_or_else(|| io::Error::other("a flood of HTTP/2 frames without content"))?;
        self.reads = (turn, if self.reads.0 == turn { self.reads.1.saturating_add(frames) } else { frames });
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Gathered<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.waiting.len() == ROOM {
            ready!(self.poll_drain(cx))?;
        }
        if self.waiting.is_empty() {
            self.waiting.reserve_exact(ROOM);
            self.since = self.turns.begun();
            cx.waker().wake_by_ref();
        }
        self.turns.set_has_rest(true);
        let before = self.waiting.len();
        for part in parts {
            let n = part.len().min(ROOM - self.waiting.len());
            self.waiting.extend_from_slice(&part[..n]);
        }
        let Gathered { waiting, balance, .. } = &mut *self;
        balance.written(&waiting[before..]);
        Poll::Ready(Ok(waiting.len() - before))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let is_next_turn = self.since != self.turns.begun();
        if !self.waiting.is_empty() && self.is_heard && !is_next_turn {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_drain(cx))?;
        ready!(Pin::new(&mut self.io).poll_flush(cx))?;
        self.turns.set_has_rest(false);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// Once a turn has read more frames than this, the next read waits for the next turn.
const FRAMES: u32 = 128;
/// Maximum number of waiting bytes: two frames of the usual size.
const ROOM: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{poll_fn, ready};
    use std::pin::pin;
    use std::task::Waker;

    /// A stream that records the length of each write, and the shutdown.
    #[derive(Default)]
    struct Seen {
        writes: Vec<usize>,
        is_shut: bool,
    }

    impl AsyncRead for Seen {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            buf.put_slice(b"x");
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Seen {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.writes.push(bytes.len());
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.is_shut = true;
            Poll::Ready(Ok(()))
        }
    }

    struct Driven {
        io: Gathered<Seen>,
        turns: TaskTurns,
    }

    impl Driven {
        /// A connection on which the peer has already sent something.
        fn new() -> Self {
            let turns = TaskTurns::default();
            let mut io = Gathered::new(Seen::default(), turns.clone());
            let read =
                Pin::new(&mut io).poll_read(&mut Context::from_waker(Waker::noop()), &mut ReadBuf::new(&mut [0]));
            assert!(matches!(read, Poll::Ready(Ok(()))));
            Driven { io, turns }
        }

        fn next_turn(&mut self) {
            let turn = pin!(self.turns.clone().of(ready(())));
            assert!(turn.poll(&mut Context::from_waker(Waker::noop())).is_ready());
        }

        fn frame(&mut self, length: usize) {
            let (mut cx, frame) = (Context::from_waker(Waker::noop()), vec![0; length]);
            let written = Pin::new(&mut self.io).poll_write_vectored(&mut cx, &[IoSlice::new(&frame)]);
            assert!(matches!(written, Poll::Ready(Ok(n)) if n == length));
            self.flush();
        }

        fn flush(&mut self) {
            let flushed = Pin::new(&mut self.io).poll_flush(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(flushed, Poll::Ready(Ok(()))));
        }
    }

    #[test]
    fn frames_of_one_turn_are_written_together_in_the_next() {
        let mut driven = Driven::new();
        (0..10).for_each(|_| driven.frame(1000));
        assert!(driven.io.io.writes.is_empty());
        driven.next_turn();
        driven.frame(1000);
        assert_eq!(driven.io.io.writes, [11_000]);
        assert_eq!(driven.io.waiting.capacity(), 0, "the buffer is freed while nothing waits");
    }

    #[test]
    fn full_buffer_is_written_at_once() {
        let mut driven = Driven::new();
        (0..3).for_each(|_| driven.frame(ROOM / 2));
        assert_eq!(driven.io.io.writes, [ROOM]);
    }

    #[test]
    fn writes_do_not_wait_before_the_peer_has_sent_anything() {
        let turns = TaskTurns::default();
        let mut driven = Driven { io: Gathered::new(Seen::default(), turns.clone()), turns };
        driven.frame(100);
        assert_eq!(driven.io.io.writes, [100]);
    }

    #[test]
    fn waiting_bytes_are_written_before_shutdown() {
        let mut driven = Driven::new();
        driven.frame(100);
        let shut = Pin::new(&mut driven.io).poll_shutdown(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(shut, Poll::Ready(Ok(()))));
        assert_eq!((driven.io.io.writes.as_slice(), driven.io.io.is_shut), (&[100][..], true));
    }

    #[tokio::test]
    async fn task_is_woken_to_write_waiting_bytes() {
        let turns = TaskTurns::default();
        let (near, mut far) = tokio::io::duplex(64);
        let task = async {
            let mut io = Gathered { is_heard: true, ..Gathered::new(near, turns.clone()) };
            poll_fn(|cx| {
                if turns.begun() == 1 {
                    let written = Pin::new(&mut io).poll_write(cx, b"frame");
                    assert!(matches!(written, Poll::Ready(Ok(5))));
                }
                let flushed = Pin::new(&mut io).poll_flush(cx);
                assert!(matches!(flushed, Poll::Ready(Ok(()))));
                if io.waiting.is_empty() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        };
        turns.clone().of(task).await;
        let mut read = [0; 5];
        tokio::io::AsyncReadExt::read_exact(&mut far, &mut read).await.unwrap();
        assert_eq!(&read, b"frame");
    }
}
