//! Limit on all client connections (`limits.max_connections`, and the limit on open files). At the limit, connections that
//! wait for a request or for the rest of a head or handshake make room for new ones: they end after their next answer,
//! which announces it, or once they have waited for [`SPARED`] (RFC 9112 §9.6). If no connection waits, a client that has
//! more than half of the places loses its newest connection to others.

use super::members::{LOOK_AGAIN, Member, Members, in_order};
use parking_lot::Mutex;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

/// The open connections and their places.
pub struct Room {
    open: Arc<Open>,
    /// Maximum number of connections, as limited by file descriptors.
    most: usize,
}

struct Open {
    count: watch::Sender<usize>,
    members: Mutex<Members>,
    next: AtomicU64,
    began: Instant,
    is_over: AtomicBool,
}

/// A connection's place, released on drop.
pub struct ConnectionPermit {
    client: IpAddr,
    member: Arc<Member>,
    open: Arc<Open>,
}

impl Room {
    /// Creates `most` places, for which there must be descriptors.
    pub fn new(most: usize) -> Self {
        let (count, members, next) = (watch::Sender::new(0), Mutex::default(), AtomicU64::new(0));
        let (began, is_over) = (Instant::now(), false.into());
        Room { open: Arc::new(Open { count, members, next, began, is_over }), most }
    }

    /// Waits until fewer than `limit` connections are open. Meanwhile, a waiting connection makes room or, if none waits, a client that has
    /// more than half of the places loses its newest connection. Calls `limit` again for each attempt. Cancel-safe.
    pub async fn permit(&self, client: IpAddr, limit: impl Fn() -> usize) -> ConnectionPermit {
        let mut open = self.open.count.subscribe();
        loop {
            if let Some(permit) = self.take(client, limit()) {
                return permit;
            }
            let now = Instant::now();
            {
                let mut members = self.open.members.lock();
                if !members.close_longest(now, self.open.millis(now)) {
                    members.cut(client, self.half(limit()));
                }
            }
            // Times out, because a connection may begin to wait. `changed` cannot fail: the sender is in `self`.
            let _ = timeout(LOOK_AGAIN, open.changed()).await;
        }
    }

    /// The number of open connections, and of all since the start.
    pub fn counts(&self) -> (usize, u64) {
        (*self.open.count.borrow(), self.open.next.load(Relaxed))
    }

    /// Takes a place if fewer than `limit` are open.
    pub fn take(&self, client: IpAddr, limit: usize) -> Option<ConnectionPermit> {
        let limit = limit.min(self.most);
        let mut taken = false;
        self.open.count.send_if_modified(|open| {
            taken = *open < limit;
            *open += usize::from(taken);
            // Only a decrease has to wake waiters.
            false
        });
        taken.then(|| {
            let number = self.open.next.fetch_add(1, Relaxed);
            let waits_since = self.open.millis(Instant::now()).into();
            let member = Arc::new(Member { number, waits_since, ..Member::default() });
            self.open.members.lock().all.insert((client, number), member.clone());
            ConnectionPermit { client, member, open: self.open.clone() }
        })
    }

    /// Half of the places. A client that has more gives way to others.
    pub fn half(&self, limit: usize) -> usize {
        (limit.min(self.most) / 2).max(1)
    }

    /// Asks the connections of this listener to make room.
    pub fn retire(&self, listener: u64) {
        let members: Vec<_> = self.open.members.lock().all.values().cloned().collect();
        let is_its = |member: &&Arc<Member>| member.listener.load(Relaxed) == listener;
        members.iter().filter(is_its).for_each(|member| member.make_room(false));
    }

    /// Tells all connections that the proxy stops. Connections without a request in flight end.
    pub fn close(&self) {
        self.open.is_over.store(true, Relaxed);
        let members: Vec<_> = self.open.members.lock().all.values().cloned().collect();
        members.iter().for_each(|member| member.task.wake());
    }

    /// Asks a quarter of the waiting connections, and at least `least`, to make room at once: those asked before, then those that have
    /// waited longest. Returns how many it asks.
    pub fn close_idle(&self, least: usize) -> usize {
        let (now, members) = (self.open.millis(Instant::now()), self.open.members.lock());
        let mut waiting = in_order(members.all.values(), now);
        waiting.truncate(least.max(waiting.len() / 4));
        waiting.iter().for_each(|member| member.make_room(true));
        waiting.len()
    }

    /// Asks one waiting connection of this client that was not asked before to make room. Returns false if there is none.
    pub fn close_idle_of(&self, client: IpAddr) -> bool {
        self.close_another(self.open.members.lock().of(client))
    }

    /// Like [`close_idle_of`](Self::close_idle_of), for the tunnels of a user.
    pub fn close_idle_of_user(&self, user: &str) -> bool {
        let is_its = |member: &&Arc<Member>| member.user.get().is_some_and(|name| name == user);
        self.close_another(self.open.members.lock().all.values().filter(is_its))
    }

    fn close_another<'a>(&self, of: impl Iterator<Item = &'a Arc<Member>>) -> bool {
        let others = of.filter(|member| !member.is_last.load(Relaxed));
        let waiting = in_order(others, self.open.millis(Instant::now()));
        waiting.first().map(|member| member.make_room(false)).is_some()
    }
}

impl Open {
    /// Converts a time to the form of [`Member::waits_since`].
    fn millis(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.began).as_millis() as u64 + 1
    }
}

impl Member {
    /// When the connection ends to make room, unless its client sends something. `None`: the connection was not asked to make room, or does
    /// not wait for its client.
    fn goes_at(&self, open: &Open) -> Option<Instant> {
        let since = self.is_last.load(Relaxed).then(|| self.waits_since.load(Relaxed))?.checked_sub(1)?;
        let spared = if self.is_urgent.load(Relaxed) { Duration::ZERO } else { SPARED };
        Some(open.began + Duration::from_millis(since) + spared)
    }
}

impl ConnectionPermit {
    /// Notes since when the connection has waited for its client.
    pub fn waits(&self, since: Instant) {
        self.member.waits_since.store(self.open.millis(since), Relaxed);
    }

    /// Whether the connection must make room now; [`serve`](Self::serve) is woken then.
    pub fn makes_room(&self) -> bool {
        self.member.goes_at(&self.open).is_some_and(|at| at <= Instant::now())
    }

    /// Whether the connection was asked to make room: its next answer is the last. [`serve`](Self::serve) is woken then.
    pub fn is_last(&self) -> bool {
        self.member.is_last.load(Relaxed)
    }

    /// Serves the connection until it ends, makes room or is cut for another.
    pub async fn serve<F: Future<Output = ()>>(self, serve: impl FnOnce(Self) -> F) {
        let (client, member, open) = (self.client, self.member.clone(), self.open.clone());
        let (mut serving, mut spared) = (pin!(serve(self)), None);
        poll_fn(|cx| {
            member.task.register(cx.waker());
            if member.is_cut.load(Relaxed) {
                tracing::debug!(%client, "cut a connection for another client");
                return Poll::Ready(());
            }
            // Polls the connection once more before it is dropped: it reads what has arrived, or sends its protocol's closing message.
            let goes_now = member.goes_at(&open).is_some_and(|at| at <= Instant::now());
            if serving.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            match member.goes_at(&open) {
                None => Poll::Pending,
                Some(_) if goes_now => Poll::Ready(()),
                Some(at) => spared.insert(Box::pin(sleep_until(at))).as_mut().poll(cx),
            }
        })
        .await;
    }

    /// Whether the proxy stops. [`serve`](Self::serve) is woken when it does.
    pub fn is_over(&self) -> bool {
        self.open.is_over.load(Relaxed)
    }

    /// Sets the number of the listener, for [`Room::retire`].
    pub fn set_listener(&self, listener: u64) {
        self.member.listener.store(listener, Relaxed);
    }

    /// Marks the connection as nested in `outer`.
    pub fn set_outer(&self, outer: &ConnectionPermit) {
        self.set_listener(outer.member.listener.load(Relaxed));
        self.member.is_last.store(outer.member.is_last.load(Relaxed), Relaxed);
    }

    /// Sets the user of a tunnel. An idle tunnel makes room for other connections of its user.
    pub fn set_user(&self, user: Option<&str>) {
        user.into_iter().for_each(|user| _ = self.member.user.set(user.to_owned()));
    }

    /// Notes that the connection does not wait for its client.
    pub fn busy(&self) {
        self.member.waits_since.store(0, Relaxed);
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.member.waits_since.store(0, Relaxed);
        self.open.members.lock().all.remove(&(self.client, self.member.number));
        self.open.count.send_if_modified(|open| {
            *open -= 1;
            // A waiter subscribes before it tries to take a place: without receivers, nobody has to be woken.
            self.open.count.receiver_count() > 0
        });
    }
}

/// Time for which a connection that was asked to make room may wait for its client before it ends.
const SPARED: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashSet, VecDeque};
    use std::net::Ipv4Addr;

    const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

    /// Holds a place until the connection is cut.
    async fn hold(permit: ConnectionPermit) {
        let forever = |permit| async move {
            let () = std::future::pending().await;
            drop::<ConnectionPermit>(permit);
        };
        permit.serve(forever).await;
    }

    #[tokio::test]
    async fn a_waiter_gets_the_next_free_place() {
        let room = Room::new(100);
        let (first, _second) = (room.permit(ONE, || 2).await, room.permit(ONE, || 2).await);
        assert!(room.take(ONE, 2).is_none());
        let (third, ()) = tokio::join!(room.permit(ONE, || 2), async { drop(first) });
        assert!(room.take(ONE, 2).is_none());
        assert!(room.take(ONE, 3).is_some(), "a reload may raise the limit");
        drop(third);
        assert!(room.take(ONE, 2).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_connections_close_first_and_busy_ones_stay() {
        let room = Room::new(100);
        let mut permits = Vec::new();
        for _ in 0..6 {
            permits.push(room.permit(ONE, || 10).await);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // The last connection in the list has waited longest; the first is busy.
        permits[0].busy();
        let now = Instant::now();
        for (age, permit) in permits.iter().enumerate().skip(1) {
            permit.waits(now - Duration::from_millis(age as u64));
        }
        for _ in 0..2 {
            assert_eq!(room.close_idle(2), 2, "the connections that were asked before are asked again");
            let gone: Vec<_> = permits.iter().map(ConnectionPermit::is_last).collect();
            assert_eq!(gone, [false, false, false, false, true, true]);
        }
        assert_eq!(room.close_idle(9), 5);
        permits[1].busy();
        let gone: Vec<_> = permits.iter().map(ConnectionPermit::makes_room).collect();
        assert_eq!(gone, [false, false, true, true, true, true]);
        assert!(permits[1].is_last(), "a busy connection ends after its answer");
    }

    /// A connection waits before its first request, and again after an answer.
    #[tokio::test(start_paused = true)]
    async fn connection_can_be_evicted_after_a_moment_of_idleness() {
        for is_used in [false, true] {
            let room = Room::new(1);
            let permit = room.permit(ONE, || 10).await;
            tokio::time::sleep(Duration::from_secs(7)).await;
            if is_used {
                permit.busy();
            }
            permit.waits(Instant::now());
            let (mut held, began) = (Box::pin(hold(permit)), Instant::now());
            let next = tokio::select! {
                next = room.permit(OTHER, || 10) => next,
                () = &mut held => room.permit(OTHER, || 10).await,
            };
            assert!((SPARED..SPARED * 2).contains(&began.elapsed()), "{:?}", began.elapsed());
            drop(next);
        }
    }

    /// At the limit, the cost of finding a connection to evict must not grow with the number of open ones.
    #[tokio::test(start_paused = true)]
    async fn next_connection_to_evict_is_found_without_a_scan() {
        for open in [100, 100_000] {
            let room = Room::new(open);
            let began = Instant::now();
            let mut permits: VecDeque<_> = (0..open).map_while(|_| room.take(ONE, open)).collect();
            for (age, permit) in permits.iter().rev().enumerate() {
                permit.waits(began + Duration::from_millis(age as u64));
            }
            tokio::time::advance(Duration::from_secs(1000)).await;
            let mut looks = HashSet::new();
            let close_longest = || {
                let (now, mut members) = (Instant::now(), room.open.members.lock());
                (members.close_longest(now, room.open.millis(now)), members.looked)
            };
            for _ in 0..open {
                let (found, looked) = close_longest();
                looks.insert(looked);
                assert!(found && room.take(OTHER, open).is_none());
                tokio::time::advance(Duration::from_millis(1)).await;
                assert!(permits.pop_back().unwrap().is_last(), "the connection that has waited longest is asked");
                permits.push_front(room.take(OTHER, open).unwrap());
            }
            assert_eq!(looks.len(), 1, "number of scans of {open} connections");
            permits.iter().for_each(ConnectionPermit::busy);
            let (found, looked) = close_longest();
            assert!(!found);
            permits[0].waits(Instant::now());
            assert_eq!(close_longest(), (false, looked), "the next scan comes after `LOOK_AGAIN`");
            tokio::time::advance(LOOK_AGAIN).await;
            assert!(close_longest().0 && permits[0].is_last());
        }
    }

    /// Models a tunnel, which counts as waiting only from a later time on.
    #[tokio::test(start_paused = true)]
    async fn connection_not_idle_yet_is_not_evicted_and_a_users_only_for_that_user() {
        let room = Room::new(9);
        let permit = room.permit(ONE, || 10).await;
        permit.set_user(Some("alice"));
        permit.waits(Instant::now() + SPARED);
        assert!(!room.close_idle_of_user("alice") && !room.close_idle_of(ONE));
        tokio::time::sleep(SPARED).await;
        assert!(!room.close_idle_of_user("bob") && !room.close_idle_of(OTHER));
        assert!(room.close_idle_of_user("alice"));
        assert!(!room.close_idle_of_user("alice"), "the user's only idle connection has already been asked to close");
    }

    #[tokio::test(start_paused = true)]
    async fn address_with_over_half_of_the_places_makes_room_for_another() {
        let room = Room::new(8);
        let mut held = Vec::new();
        while let Some(permit) = room.take(ONE, 10) {
            permit.busy();
            held.push(Box::pin(hold(permit)));
        }
        assert_eq!(held.len(), 8, "a single client gets all places");
        let mut held = futures_util::future::join_all(held);
        let mut others = Vec::new();
        for _ in 0..4 {
            let permit = tokio::select! {
                permit = room.permit(OTHER, || 10) => permit,
                _ = &mut held => panic!("all connections were cut, but half should stay"),
            };
            permit.busy();
            others.push(permit);
        }
        let left: Vec<_> = room.open.members.lock().of(ONE).map(|member| member.number).collect();
        assert_eq!(left, [0, 1, 2, 3], "the newest connections are cut");
        for client in [ONE, OTHER] {
            let waits = async { timeout(SPARED * 100, room.permit(client, || 10)).await };
            let waited =
                tokio::select! { waited = waits => waited, _ = &mut held => panic!("a remaining connection was cut") };
            assert!(waited.is_err(), "each client has half of the places");
        }
    }
}
