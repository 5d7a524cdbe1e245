//! When what was handed to an HTTP/2 connection has been written: its own task writes, whenever that is scheduled.

use super::gathered::TaskTurns;
use parking_lot::Mutex;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use tokio::sync::Notify;

/// What a connection's task has written.
#[derive(Debug, Default)]
pub(super) struct Writes {
    /// Rounds that have begun: each writes all that it finds.
    begun: AtomicU64,
    /// The last round after which nothing was left to write; none comes any more: all ones.
    done: AtomicU64,
    waiting: Mutex<Vec<Waker>>,
    /// One more round is wanted.
    pub wanted: Notify,
}

/// The head of a request that was handed to the connection.
#[derive(Debug)]
pub struct SentHead {
    writes: Arc<Writes>,
    /// The first round that surely finds it.
    round: u64,
}

impl Writes {
    /// One round of the connection's task.
    pub fn round<T>(&self, turns: &TaskTurns, write: impl FnOnce() -> Poll<T>) -> Poll<T> {
        let number = self.begun.fetch_add(1, SeqCst) + 1;
        let polled = write();
        if polled.is_ready() {
            self.end();
        } else if turns.are_written() {
            self.done(number);
        }
        polled
    }

    /// Nothing is written any more.
    pub fn end(&self) {
        self.done(u64::MAX);
    }

    /// What has just been handed over.
    pub fn sent_head(self: &Arc<Self>) -> SentHead {
        SentHead { writes: self.clone(), round: self.begun.load(SeqCst) + 1 }
    }

    fn done(&self, number: u64) {
        self.done.fetch_max(number, SeqCst);
        let waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl SentHead {
    /// Ready when it has been written, or never will be.
    pub fn poll_written(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut waiting = self.writes.waiting.lock();
        if self.writes.done.load(SeqCst) >= self.round {
            return Poll::Ready(());
        }
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        // The round under way may have found it: then no other would come by itself.
        self.writes.wanted.notify_one();
        Poll::Pending
    }

    pub async fn written(&self) {
        poll_fn(|cx| self.poll_written(cx)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::gathered::Gathered;
    use super::*;
    use futures_util::FutureExt;
    use std::io;
    use std::pin::Pin;
    use tokio::io::AsyncWrite;

    const GOES_ON: Poll<()> = Poll::Pending;

    fn is_written(head: &SentHead) -> bool {
        head.written().now_or_never().is_some()
    }

    /// A stream that takes nothing for a while.
    struct Narrow(bool);

    impl AsyncWrite for Narrow {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            if self.0 { Poll::Ready(Ok(bytes.len())) } else { Poll::Pending }
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn a_head_has_left_when_the_connections_task_has_written_it() {
        for takes in [true, false] {
            let (turns, mut cx) = (TaskTurns::default(), Context::from_waker(Waker::noop()));
            let (writes, mut io) = (Arc::new(Writes::default()), Gathered::new(Narrow(takes), turns.clone()));
            let head = writes.sent_head();
            assert!(!is_written(&head), "it waits for the task");
            let _ = writes.round(&turns, || {
                let _ = Pin::new(&mut io).poll_write(&mut cx, b"head");
                GOES_ON
            });
            assert!(!is_written(&head), "it is gathered with what others write");
            let _ = writes.round(&turns, || {
                let _ = Pin::new(&mut io).poll_flush(&mut cx);
                GOES_ON
            });
            assert_eq!(is_written(&head), takes);
        }
    }

    #[test]
    fn a_round_under_way_may_have_missed_it_and_another_is_asked_for() {
        let writes = Arc::new(Writes::default());
        let mut head = None;
        let _ = writes.round(&TaskTurns::default(), || {
            head = Some(writes.sent_head());
            GOES_ON
        });
        let head = head.expect("it was handed over");
        assert!(!is_written(&head));
        assert!(writes.wanted.notified().now_or_never().is_some(), "the task is woken");
        let _ = writes.round(&TaskTurns::default(), || GOES_ON);
        assert!(is_written(&head));
    }

    #[test]
    fn nobody_waits_for_a_connection_that_is_over() {
        let writes = Arc::new(Writes::default());
        let head = writes.sent_head();
        writes.end();
        assert!(is_written(&head) && is_written(&writes.sent_head()));
    }
}
