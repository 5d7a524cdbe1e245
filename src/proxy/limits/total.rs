//! Limit on all client connections (`limits.max_connections`, and the limit on open files). Tracks which are idle, so
//! that they can make room for new ones. If none is, it cuts others.

use futures_util::task::AtomicWaker;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// The open connections.
pub struct Room {
    open: Arc<Open>,
    /// Connections for which there are descriptors.
    most: usize,
}

struct Open {
    count: watch::Sender<usize>,
    members: Mutex<HashMap<u64, Arc<Member>>>,
    next: AtomicU64,
    began: Instant,
    is_over: AtomicBool,
}

/// The state of one connection.
struct Member {
    client: IpAddr,
    began: Instant,
    /// It has sent a whole head, and not been turned away.
    is_heard: AtomicBool,
    is_cut: AtomicBool,
    /// Milliseconds since the start, plus one; 0: busy.
    idle_since: AtomicU64,
    /// Input has arrived.
    is_used: AtomicBool,
    is_to_go: AtomicBool,
    /// Its listener, and whether that is closed.
    listener: AtomicU64,
    is_last: AtomicBool,
    /// The task that serves it.
    task: AtomicWaker,
}

/// A connection's place, released on drop.
pub struct ConnectionPermit {
    number: u64,
    member: Arc<Member>,
    open: Arc<Open>,
}

impl Room {
    /// `most`: connections for which there are descriptors.
    pub fn new(most: usize) -> Self {
        let (count, members, next) = (watch::Sender::new(0), Mutex::default(), AtomicU64::new(0));
        let (began, is_over) = (Instant::now(), false.into());
        Room { open: Arc::new(Open { count, members, next, began, is_over }), most }
    }

    /// Waits until fewer than `limit` are open. Meanwhile closes idle ones or, if there are none, cuts others.
    /// `limit` is called again each time. Cancel-safe.
    pub async fn permit(&self, client: IpAddr, limit: impl Fn() -> usize) -> ConnectionPermit {
        let mut open = self.open.count.subscribe();
        loop {
            if let Some(permit) = self.take(client, limit()) {
                return permit;
            }
            if self.close_longest_idle(|_| 1) == 0 {
                self.cut(client, limit());
            }
            // A connection may become idle. The sender is in `self`, so it cannot be gone.
            let _ = timeout(LOOK_AGAIN, open.changed()).await;
        }
    }

    /// Connections that are open, and all that ever were.
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
            // Nobody waits for an increase.
            false
        });
        taken.then(|| {
            let number = self.open.next.fetch_add(1, Relaxed);
            let member = Arc::new(Member::new(client));
            self.open.members.lock().insert(number, member.clone());
            ConnectionPermit { number, member, open: self.open.clone() }
        })
    }

    /// Half of the places: more of one client's give way to others.
    pub fn half(&self, limit: usize) -> usize {
        (limit.min(self.most) / 2).max(1)
    }

    /// Cuts one connection for a new one of `client`: the oldest that has not sent a whole head or, if an address that
    /// is not `client` has more than half of the places, its newest.
    fn cut(&self, client: IpAddr, limit: usize) {
        let members = self.open.members.lock();
        let open = || members.iter().filter(|(_, member)| !member.is_cut.load(Relaxed));
        let is_silent = |member: &Member| !member.is_heard.load(Relaxed) && member.began.elapsed() >= FRESH;
        let silent = open().filter(|(_, member)| is_silent(member)).min_by_key(|(number, _)| **number);
        let greedy = || {
            let mut counts = HashMap::new();
            open().for_each(|(_, member)| *counts.entry(member.client).or_insert(0) += 1);
            let (&most, &count) = counts.iter().max_by_key(|(_, count)| **count)?;
            let newest = open().filter(|(_, member)| member.client == most).max_by_key(|(number, _)| **number);
            newest.filter(|_| most != client && count > self.half(limit))
        };
        if let Some((_, member)) = silent.or_else(greedy) {
            member.is_cut.store(true, Relaxed);
            member.task.wake();
        }
    }

    /// Asks the connections of this listener to close once idle.
    pub fn retire(&self, listener: u64) {
        let members: Vec<_> = self.open.members.lock().values().cloned().collect();
        for member in members.iter().filter(|member| member.listener.load(Relaxed) == listener) {
            member.is_last.store(true, Relaxed);
            member.task.wake();
        }
    }

    /// Tells all connections that the proxy stops: those without a request in flight end.
    pub fn close(&self) {
        self.open.is_over.store(true, Relaxed);
        let members: Vec<_> = self.open.members.lock().values().cloned().collect();
        members.iter().for_each(|member| member.task.wake());
    }

    /// Asks the longest idle connections to close: a quarter of the idle ones, at least `least`. Returns how many.
    pub fn close_idle(&self, least: usize) -> usize {
        self.close_longest_idle(|idle| least.max(idle / 4))
    }

    /// Asks this client's longest idle connection to close. False: none is idle.
    pub fn close_idle_of(&self, client: IpAddr) -> bool {
        let is_its = |member: &Member| member.client == client && !member.is_last.load(Relaxed);
        let longest = self.idle(is_its).into_iter().min_by_key(|(since, _)| *since);
        longest.is_some_and(|(_, member)| {
            // Even if a request comes first: then after that.
            member.is_last.store(true, Relaxed);
            member.task.wake();
            true
        })
    }

    /// `count`: how many of the idle ones.
    fn close_longest_idle(&self, count: impl Fn(usize) -> usize) -> usize {
        let mut idle = self.idle(|_| true);
        idle.sort_unstable_by_key(|(since, _)| *since);
        idle.truncate(count(idle.len()));
        for (_, member) in &idle {
            member.is_to_go.store(true, Relaxed);
            member.task.wake();
        }
        idle.len()
    }

    /// The idle ones among these, and since when. New connections without input are spared for a moment: their clients are
    /// about to send and would not retry.
    fn idle(&self, is_wanted: impl Fn(&Member) -> bool) -> Vec<(u64, Arc<Member>)> {
        let fresh = self.open.began.elapsed().checked_sub(FRESH).map_or(0, |age| age.as_millis() as u64 + 1);
        let members = self.open.members.lock();
        let idle = members.values().filter(|member| is_wanted(member)).filter_map(|member| {
            let since = member.idle_since.load(Relaxed);
            (since > 0 && (member.is_used.load(Relaxed) || since <= fresh)).then(|| (since, member.clone()))
        });
        idle.collect()
    }
}

impl Member {
    fn new(client: IpAddr) -> Self {
        Member {
            client,
            began: Instant::now(),
            is_heard: false.into(),
            is_cut: false.into(),
            idle_since: 0.into(),
            is_used: false.into(),
            is_to_go: false.into(),
            listener: 0.into(),
            is_last: false.into(),
            task: AtomicWaker::new(),
        }
    }
}

impl ConnectionPermit {
    /// Marks the connection as idle. Ready when it must make room.
    pub fn poll_idle(&self, cx: &mut Context<'_>, since: Instant) -> Poll<()> {
        let member = &*self.member;
        if member.idle_since.load(Relaxed) == 0 {
            let since = since.saturating_duration_since(self.open.began).as_millis() as u64 + 1;
            member.idle_since.store(since, Relaxed);
        }
        member.task.register(cx.waker());
        let goes = member.is_to_go.load(Relaxed) || member.is_last.load(Relaxed);
        if goes { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Serves the connection until it ends or is cut for another.
    pub async fn serve<F: Future<Output = ()>>(self, serve: impl FnOnce(Self) -> F) {
        let member = self.member.clone();
        let mut serving = pin!(serve(self));
        poll_fn(|cx| {
            member.task.register(cx.waker());
            if member.is_cut.load(Relaxed) {
                tracing::debug!(client = %member.client, "cut a connection for another client");
                return Poll::Ready(());
            }
            serving.as_mut().poll(cx)
        })
        .await;
    }

    /// Whether the proxy stops. [`serve`](Self::serve) is woken when it does.
    pub fn is_over(&self) -> bool {
        self.open.is_over.load(Relaxed)
    }

    /// Whether it has sent a whole head, and was not turned away.
    pub fn heard(&self, is_heard: bool) {
        self.member.is_heard.store(is_heard, Relaxed);
    }

    /// Sets the listener.
    pub fn set_listener(&self, listener: u64) {
        self.member.listener.store(listener, Relaxed);
    }

    /// Marks the connection as nested in `outer`.
    pub fn set_outer(&self, outer: &ConnectionPermit) {
        self.set_listener(outer.member.listener.load(Relaxed));
        self.member.is_last.store(outer.member.is_last.load(Relaxed), Relaxed);
    }

    /// Marks the connection as busy.
    pub fn busy(&self) {
        self.member.is_used.store(true, Relaxed);
        self.member.idle_since.store(0, Relaxed);
        self.member.is_to_go.store(false, Relaxed);
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.open.members.lock().remove(&self.number);
        self.open.count.send_if_modified(|open| {
            *open -= 1;
            // A waiter subscribes before it looks.
            self.open.count.receiver_count() > 0
        });
    }
}

/// How long new connections are spared.
const FRESH: Duration = Duration::from_secs(1);
/// Interval of checks for idle connections.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::task::Waker;

    const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

    /// Holds a place until it is cut.
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
        assert!(room.take(ONE, 3).is_some(), "a reload may make room");
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
        let goes = |permit: &ConnectionPermit, since| {
            permit.poll_idle(&mut Context::from_waker(Waker::noop()), since).is_ready()
        };
        // All have had a request. The last connection became idle first; the first is busy.
        permits.iter().for_each(ConnectionPermit::busy);
        let now = Instant::now();
        for (age, permit) in permits.iter().enumerate().skip(1) {
            assert!(!goes(permit, now - Duration::from_millis(age as u64)));
        }
        assert_eq!(room.close_idle(2), 2);
        let gone: Vec<_> = permits.iter().map(|permit| permit.member.is_to_go.load(Relaxed)).collect();
        assert_eq!(gone, [false, false, false, false, true, true]);
        let waited = async { poll_fn(|cx| permits[1].poll_idle(cx, now)).await };
        let (_, told) = tokio::join!(waited, async { room.close_idle(5) });
        assert_eq!(told, 5);
        permits[1].busy();
        assert!(!goes(&permits[1], now), "a request has come before it was told");
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_is_spared_for_a_moment() {
        let room = Room::new(100);
        let permit = room.permit(ONE, || 10).await;
        let goes = || permit.poll_idle(&mut Context::from_waker(Waker::noop()), Instant::now()).is_ready();
        assert!(!goes());
        assert_eq!(room.close_idle(1), 0, "its request may be under way");
        tokio::time::sleep(FRESH).await;
        assert_eq!(room.close_idle(1), 1);
        assert!(goes());
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_gets_the_place_of_an_idle_connection() {
        let room = Room::new(2);
        let permits = [room.permit(ONE, || 10).await, room.permit(ONE, || 10).await];
        permits.iter().for_each(ConnectionPermit::busy);
        let [busy, idle] = permits;
        let since = Instant::now();
        let leaves = async {
            poll_fn(|cx| idle.poll_idle(cx, since)).await;
            drop(idle);
        };
        tokio::join!(room.permit(ONE, || 10), leaves);
        drop(busy);
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_that_has_sent_no_whole_head_makes_room() {
        let room = Room::new(3);
        let mut permits = Vec::new();
        for _ in 0..3 {
            permits.push(room.permit(ONE, || 10).await);
        }
        permits[0].heard(true);
        let numbers: Vec<_> = permits.iter().map(|permit| permit.number).collect();
        let mut held: Vec<_> = permits.into_iter().map(|permit| Box::pin(hold(permit))).collect();
        let began = Instant::now();
        let permit = tokio::select! {
            permit = room.permit(ONE, || 10) => permit,
            _ = futures_util::future::join_all(&mut held) => panic!("one stays"),
        };
        assert!(began.elapsed() >= FRESH, "their heads may be under way");
        assert!(!room.open.members.lock().contains_key(&numbers[1]));
        assert_eq!(room.open.members.lock().len(), 3);
        permit.heard(true);
        room.open.members.lock().values().for_each(|member| member.is_heard.store(true, Relaxed));
        let waits = timeout(FRESH * 100, room.permit(ONE, || 10)).await;
        assert!(waits.is_err(), "who has sent a head stays");
        permit.heard(false);
        room.cut(ONE, 10);
        assert!(permit.member.is_cut.load(Relaxed), "who was turned away does not");
    }

    #[tokio::test(start_paused = true)]
    async fn what_one_address_has_of_more_than_half_gives_way_to_another_address() {
        let room = Room::new(8);
        let mut held = Vec::new();
        while let Some(permit) = room.take(ONE, 10) {
            permit.heard(true);
            held.push(Box::pin(hold(permit)));
        }
        assert_eq!(held.len(), 8, "alone, it has all");
        let mut held = futures_util::future::join_all(held);
        let mut others = Vec::new();
        for _ in 0..4 {
            let permit = tokio::select! {
                permit = room.permit(OTHER, || 10) => permit,
                _ = &mut held => panic!("half of them stay"),
            };
            permit.heard(true);
            others.push(permit);
        }
        let left: Vec<_> = {
            let members = room.open.members.lock();
            let mut left: Vec<_> =
                members.iter().filter(|(_, it)| it.client == ONE).map(|(number, _)| *number).collect();
            left.sort_unstable();
            left
        };
        assert_eq!(left, [0, 1, 2, 3], "the newest goes");
        for client in [ONE, OTHER] {
            let waits = async { timeout(FRESH * 100, room.permit(client, || 10)).await };
            let waited = tokio::select! { waited = waits => waited, _ = &mut held => panic!("they stay") };
            assert!(waited.is_err(), "each has half");
        }
    }
}
