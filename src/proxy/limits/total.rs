//! How many connections clients have in all, whichever listener they came to (`limits.max_connections`), and which of them are
//! idle, so that some can go where this machine has no room for more.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use tokio::sync::watch;
use tokio::time::Instant;

/// The connections that are open.
pub struct Room(Arc<Open>);

struct Open {
    count: watch::Sender<usize>,
    members: Mutex<HashMap<u64, Arc<Member>>>,
    next: AtomicU64,
    began: Instant,
}

/// What is known of one connection.
#[derive(Default)]
struct Member {
    /// In milliseconds since the start, and one more; 0: it is not idle.
    idle_since: AtomicU64,
    is_to_go: AtomicBool,
    /// The listener that it came to, and whether that is closed.
    listener: AtomicU64,
    is_last: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// One connection's place. Given back when it is dropped.
pub struct Seat {
    number: u64,
    member: Arc<Member>,
    open: Arc<Open>,
}

impl Default for Room {
    fn default() -> Self {
        let (count, members, next) = (watch::Sender::new(0), Mutex::default(), AtomicU64::new(0));
        Room(Arc::new(Open { count, members, next, began: Instant::now() }))
    }
}

impl Room {
    /// Resolves when fewer than `limit` are open. Cancel-safe.
    pub async fn seat(&self, limit: usize) -> Seat {
        let mut open = self.0.count.subscribe();
        loop {
            if let Some(seat) = self.take(limit) {
                return seat;
            }
            // The sender is here: it cannot be gone.
            let _ = open.changed().await;
        }
    }

    /// Those that are open, and all that ever were.
    pub fn counts(&self) -> (usize, u64) {
        (*self.0.count.borrow(), self.0.next.load(Relaxed))
    }

    /// One, if fewer than `limit` are open.
    pub fn take(&self, limit: usize) -> Option<Seat> {
        let mut taken = false;
        self.0.count.send_if_modified(|open| {
            taken = *open < limit;
            *open += usize::from(taken);
            // Nobody waits for more to be open.
            false
        });
        taken.then(|| {
            let number = self.0.next.fetch_add(1, Relaxed);
            let member = Arc::<Member>::default();
            self.0.members.lock().insert(number, member.clone());
            Seat { number, member, open: self.0.clone() }
        })
    }

    /// Tells the connections of this listener to go as soon as they are idle.
    pub fn retire(&self, listener: u64) {
        let members: Vec<_> = self.0.members.lock().values().cloned().collect();
        for member in members.iter().filter(|member| member.listener.load(Relaxed) == listener) {
            member.is_last.store(true, Relaxed);
            member.wake();
        }
    }

    /// Tells idle connections to go, those first that have been idle longest: a quarter of them, and `least` if there are as
    /// many. How many those are.
    pub fn close_idle(&self, least: usize) -> usize {
        let mut idle: Vec<_> = {
            let members = self.0.members.lock();
            let since = |member: &Arc<Member>| (member.idle_since.load(Relaxed), member.clone());
            members.values().map(since).filter(|(since, _)| *since > 0).collect()
        };
        idle.sort_unstable_by_key(|(since, _)| *since);
        idle.truncate(least.max(idle.len() / 4));
        for (_, member) in &idle {
            member.is_to_go.store(true, Relaxed);
            member.wake();
        }
        idle.len()
    }
}

impl Member {
    fn wake(&self) {
        if let Some(waker) = self.waker.lock().take() {
            waker.wake();
        }
    }
}

/// By which connections inside a connection are known as its own.
#[derive(Clone)]
pub struct Mark(Arc<Member>);

impl Seat {
    /// Nothing is under way since then. Ready: the connection is to go, for others have no room.
    pub fn poll_idle(&self, cx: &mut Context<'_>, since: Instant) -> Poll<()> {
        let member = &*self.member;
        if member.idle_since.load(Relaxed) == 0 {
            let since = since.saturating_duration_since(self.open.began).as_millis() as u64 + 1;
            member.idle_since.store(since, Relaxed);
        }
        let mut waker = member.waker.lock();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        let goes = member.is_to_go.load(Relaxed) || member.is_last.load(Relaxed);
        if goes { Poll::Ready(()) } else { Poll::Pending }
    }

    /// It came to this listener.
    pub fn came_to(&self, listener: u64) {
        self.member.listener.store(listener, Relaxed);
    }

    pub fn mark(&self) -> Mark {
        Mark(self.member.clone())
    }

    /// It is inside of another.
    pub fn is_inside(&self, outer: &Mark) {
        self.came_to(outer.0.listener.load(Relaxed));
        self.member.is_last.store(outer.0.is_last.load(Relaxed), Relaxed);
    }

    /// Something is under way.
    pub fn busy(&self) {
        self.member.idle_since.store(0, Relaxed);
        self.member.is_to_go.store(false, Relaxed);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.open.members.lock().remove(&self.number);
        self.open.count.send_modify(|open| *open -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::time::Duration;

    #[tokio::test]
    async fn who_waits_gets_the_next_seat_that_is_given_back() {
        let room = Room::default();
        let (first, _second) = (room.seat(2).await, room.seat(2).await);
        assert!(room.take(2).is_none());
        let (third, ()) = tokio::join!(room.seat(2), async { drop(first) });
        assert!(room.take(2).is_none());
        assert!(room.take(3).is_some(), "a reload may make room");
        drop(third);
        assert!(room.take(2).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_have_been_idle_longest_go_first_and_none_that_is_busy() {
        let room = Room::default();
        let mut seats = Vec::new();
        for _ in 0..6 {
            seats.push(room.seat(10).await);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let goes = |seat: &Seat, since| seat.poll_idle(&mut Context::from_waker(Waker::noop()), since).is_ready();
        // The last one to come became idle first, and the first one is busy.
        let now = Instant::now();
        for (age, seat) in seats.iter().enumerate().skip(1) {
            assert!(!goes(seat, now - Duration::from_millis(age as u64)));
        }
        assert_eq!(room.close_idle(2), 2);
        let gone: Vec<_> = seats.iter().map(|seat| seat.member.is_to_go.load(Relaxed)).collect();
        assert_eq!(gone, [false, false, false, false, true, true]);
        let waited = async { poll_fn(|cx| seats[1].poll_idle(cx, now)).await };
        let (_, told) = tokio::join!(waited, async { room.close_idle(5) });
        assert_eq!(told, 5);
        seats[1].busy();
        assert!(!goes(&seats[1], now), "a request has come before it was told");
    }
}
