//! Tells when data handed to an HTTP/2 connection was written: the connection's own task writes when it is scheduled.

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};

/// Counts the polls (turns) of a connection's task, and tells after which turn everything was written.
#[derive(Debug, Default, Clone)]
pub struct TaskTurns(Arc<TurnCounts>);

#[derive(Debug, Default)]
struct TurnCounts {
    /// Number of turns begun. Each turn takes all data that was handed over before it began.
    begun: AtomicU64,
    /// Number of the last turn after which nothing was left to write; `u64::MAX` after the task has ended.
    written: AtomicU64,
    /// Whether data was taken, but not all of it is written.
    has_rest: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
    /// Whether somebody may be waiting.
    is_awaited: AtomicBool,
    task: AtomicWaker,
}

/// A position in the data handed to the connection.
#[derive(Debug)]
pub struct HandedOver {
    turns: TaskTurns,
    /// Number of the first turn that is certain to take the data.
    turn: u64,
}

impl TaskTurns {
    /// Runs `task` and counts its turns.
    pub async fn of<F: Future>(self, task: F) -> F::Output {
        let _over = TurnsEnd(&self);
        let mut task = pin!(task);
        poll_fn(|cx| {
            self.0.task.register(cx.waker());
            let turn = self.0.begun.fetch_add(1, SeqCst) + 1;
            let polled = task.as_mut().poll(cx);
            if !self.0.has_rest.load(SeqCst) {
                self.written(turn);
            }
            polled
        })
        .await
    }

    /// The position after all data handed over so far.
    pub fn handed_over(&self) -> HandedOver {
        HandedOver { turns: self.clone(), turn: self.begun() + 1 }
    }

    pub(super) fn begun(&self) -> u64 {
        self.0.begun.load(SeqCst)
    }

    pub(super) fn set_has_rest(&self, rest: bool) {
        self.0.has_rest.store(rest, SeqCst);
    }

    /// Reports that nothing was left to write after a turn. Turns are reported in increasing order.
    fn written(&self, turn: u64) {
        self.0.written.store(turn, SeqCst);
        if self.0.is_awaited.load(SeqCst) {
            let mut waiting = self.0.waiting.lock();
            self.0.is_awaited.store(false, SeqCst);
            waiting.drain(..).for_each(Waker::wake);
        }
    }
}

/// Marks the end of the task: nothing will be written any more.
struct TurnsEnd<'a>(&'a TaskTurns);

impl Drop for TurnsEnd<'_> {
    fn drop(&mut self) {
        self.0.written(u64::MAX);
    }
}

impl HandedOver {
    /// Ready when the data was written, or never will be.
    pub fn poll_written(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut waiting = self.turns.0.waiting.lock();
        self.turns.0.is_awaited.store(true, SeqCst);
        if self.turns.0.written.load(SeqCst) >= self.turn {
            return Poll::Ready(());
        }
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        // If the current turn has already taken the data, no further turn would follow without this wake-up.
        self.turns.0.task.wake();
        Poll::Pending
    }

    pub async fn written(&self) {
        poll_fn(|cx| self.poll_written(cx)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::write_batch::Gathered;
    use super::*;
    use futures_util::FutureExt;
    use std::io;
    use std::pin::Pin;
    use std::sync::OnceLock;
    use std::task::Wake;
    use tokio::io::AsyncWrite;

    fn is_written(handed: &HandedOver) -> bool {
        handed.written().now_or_never().is_some()
    }

    /// A stream that accepts nothing for a while.
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
    fn head_counts_as_written_only_once_the_connections_task_has_written_it() {
        for takes in [true, false] {
            let turns = TaskTurns::default();
            let mut io = Gathered::new(Narrow(takes), turns.clone());
            let head = turns.handed_over();
            assert!(!is_written(&head), "the head waits for the task");
            let mut is_first = true;
            let mut task = pin!(turns.of(poll_fn(|cx| {
                if std::mem::take(&mut is_first) {
                    let _ = Pin::new(&mut io).poll_write(cx, b"head");
                } else {
                    let _ = Pin::new(&mut io).poll_flush(cx);
                }
                Poll::<()>::Pending
            })));
            assert!(task.as_mut().now_or_never().is_none());
            assert!(!is_written(&head), "the head waits to be written together with other streams' data");
            assert!(task.as_mut().now_or_never().is_none());
            assert_eq!(is_written(&head), takes);
        }
    }

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, SeqCst);
        }
    }

    #[test]
    fn data_handed_over_during_a_turn_causes_another_turn() {
        let (turns, woken, handed) = (TaskTurns::default(), Arc::new(Woken::default()), OnceLock::new());
        let mut task = pin!(turns.clone().of(poll_fn(|_| {
            handed.get_or_init(|| turns.handed_over());
            Poll::<()>::Pending
        })));
        let mut turn = || {
            assert!(task.as_mut().poll(&mut Context::from_waker(&Waker::from(woken.clone()))).is_pending());
            is_written(handed.get().expect("the data was handed over"))
        };
        assert!(!turn() && woken.0.load(SeqCst));
        assert!(turn());
    }

    #[test]
    fn wait_ends_with_the_connections_task() {
        let turns = TaskTurns::default();
        let handed = turns.handed_over();
        assert!(turns.clone().of(async {}).now_or_never().is_some());
        assert!(is_written(&handed) && is_written(&turns.handed_over()));
    }
}
