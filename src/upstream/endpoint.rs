//! An endpoint: a set of interchangeable connections, with the same authority, upstream proxy and TLS terms. It holds the idle connections,
//! and exists as long as a route to it is known.

use super::http2::EndpointConnections;
use super::stream::Stream;
use super::wide::TlsMemory;
use parking_lot::Mutex;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::task::coop::has_budget_remaining;
use tokio::task::yield_now;
use tokio::time::Instant;

/// An endpoint. Compared by identity: two endpoints never share a connection.
pub(super) struct Endpoint {
    /// Sharded by the thread that returned the connection, so that threads rarely contend.
    idle: Box<[Mutex<Vec<Idle>>]>,
    /// The number of idle connections that are not private.
    count: AtomicUsize,
    /// The number of idle connections of all endpoints.
    all: Arc<AtomicUsize>,
    /// Whether the pool lists this endpoint.
    is_known: AtomicBool,
    pub tls: TlsMemory,
    pub http2: EndpointConnections,
}

/// A connection without a request.
pub(super) struct Idle {
    pub stream: Stream,
    pub address: SocketAddr,
    pub since: Instant,
    /// The client connection and user that this connection is reserved for.
    pub private: Option<PrivateId>,
}

/// Identifies the client connection and user that an idle connection is reserved for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PrivateId(pub u64);

impl Endpoint {
    pub fn new(all: Arc<AtomicUsize>) -> Self {
        let idle = (0..*SHARDS).map(|_| Mutex::default()).collect();
        Endpoint {
            idle,
            count: AtomicUsize::new(0),
            all: all.clone(),
            is_known: AtomicBool::new(false),
            tls: TlsMemory::default(),
            http2: EndpointConnections::new(all),
        }
    }

    /// Takes the most recently used open connection, this thread's first, if it was idle for less than `limit`. `once`: also checks for a
    /// close that the runtime has not noticed yet. `place`: only a connection to this address. `private`: only a connection reserved for
    /// this client connection; `None`: only an unreserved connection.
    pub async fn take(
        &self,
        limit: Duration,
        once: bool,
        place: Option<SocketAddr>,
        private: Option<PrivateId>,
    ) -> Option<Idle> {
        let own = shard();
        for at in 0..self.idle.len() {
            while (private.is_some() || self.len() > 0)
                && let Some(mut idle) = self.pop((own + at) % self.idle.len(), place, private)
            {
                if idle.since.elapsed() >= limit || !is_quiet(&mut idle.stream).await {
                    continue;
                }
                if !once || is_quiet_by_now(&mut idle.stream).await {
                    return Some(idle);
                }
            }
        }
        None
    }

    pub fn put(&self, idle: Idle) {
        // Counted before it can be taken, so that the count never underflows.
        self.count.fetch_add(usize::from(idle.private.is_none()), Relaxed);
        self.all.fetch_add(1, Relaxed);
        let mut shard = self.idle[shard() % self.idle.len()].lock();
        if shard.capacity() == 0 {
            // Most hosts have one connection; growing automatically would allocate room for four.
            shard.reserve_exact(1);
        }
        shard.push(idle);
    }

    /// Number of idle connections that are not private.
    pub fn len(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Closes the connections that have been idle since `then` or longer.
    pub fn close_idle(&self, then: Instant) {
        let mut closed = Vec::new();
        for shard in &self.idle {
            let mut shard = shard.lock();
            // The most recently used connection is at the end.
            let old = shard.iter().take_while(|idle| idle.since <= then).count();
            closed.extend(shard.drain(..old));
            shard.shrink_to_fit();
        }
        self.forget(&closed);
        self.http2.close_idle(then);
    }

    /// Closes the connections reserved for this client connection.
    pub fn close_private(&self, private: PrivateId) {
        let mut closed = Vec::new();
        for shard in &self.idle {
            closed.extend(shard.lock().extract_if(.., |idle| idle.private == Some(private)));
        }
        self.forget(&closed);
    }

    /// Number of idle connections reserved for this client connection.
    pub fn private(&self, private: PrivateId) -> usize {
        let of = |shard: &Mutex<Vec<Idle>>| shard.lock().iter().filter(|idle| idle.private == Some(private)).count();
        self.idle.iter().map(of).sum()
    }

    /// Appends the times at which the idle connections became idle.
    pub fn since(&self, into: &mut Vec<Instant>) {
        self.idle.iter().for_each(|shard| into.extend(shard.lock().iter().map(|idle| idle.since)));
        self.http2.idle_since(into);
    }

    /// Whether the pool has to list this endpoint: true for the first caller only. Call it after the connection was added.
    pub fn is_new(&self) -> bool {
        !self.is_known.load(Relaxed) && !self.is_known.swap(true, Relaxed)
    }

    /// Whether the pool keeps this endpoint in its list. If not, the next idle connection lists it again.
    pub fn stays_known(&self) -> bool {
        // Cleared before the check: whoever adds a connection after the check lists the endpoint again, as both take the same lock.
        self.is_known.store(false, Relaxed);
        let is_empty = self.idle.iter().all(|shard| shard.lock().is_empty()) && self.http2.is_empty();
        !is_empty && self.is_new()
    }

    fn pop(&self, shard: usize, place: Option<SocketAddr>, private: Option<PrivateId>) -> Option<Idle> {
        let mut shard = self.idle[shard].lock();
        let fits = |idle: &Idle| idle.private == private && place.is_none_or(|place| idle.address == place);
        let last = shard.iter().rposition(fits)?;
        let idle = shard.remove(last);
        drop(shard);
        self.forget(std::slice::from_ref(&idle));
        Some(idle)
    }

    fn forget(&self, closed: &[Idle]) {
        self.count.fetch_sub(closed.iter().filter(|idle| idle.private.is_none()).count(), Relaxed);
        self.all.fetch_sub(closed.len(), Relaxed);
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let left: usize = self.idle.iter_mut().map(|shard| shard.get_mut().len()).sum();
        self.all.fetch_sub(left, Relaxed);
    }
}

/// Whether the stream has not ended and has nothing to read. Leaves a waker, which the next read replaces.
async fn is_quiet(stream: &mut Stream) -> bool {
    // If this task had used up its tokio budget, every stream would seem to be pending.
    if !has_budget_remaining() {
        yield_now().await;
    }
    let mut byte = [0; 1];
    let is_pending =
        poll_fn(|cx| Poll::Ready(Pin::new(&mut *stream).poll_read(cx, &mut ReadBuf::new(&mut byte)).is_pending()))
            .await;
    // TLS keeps reading records other than data, such as session tickets; if that uses up the budget, the stream is not quiet.
    is_pending && has_budget_remaining()
}

/// Like [`is_quiet`], but also notices what has just arrived: the runtime learns of that only between two tasks.
async fn is_quiet_by_now(stream: &mut Stream) -> bool {
    if stream.is_surely_quiet() {
        return true;
    }
    yield_now().await;
    is_quiet(stream).await
}

/// This thread's number, assigned at its first call.
fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! { static OWN: usize = NEXT.fetch_add(1, Relaxed) }
    OWN.with(|own| *own)
}

static SHARDS: LazyLock<usize> = LazyLock::new(|| {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    threads.next_power_of_two().min(64)
});

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::{TcpListener, TcpStream};

    #[tokio::test]
    async fn endpoint_allocates_room_only_for_its_idle_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let endpoint = Endpoint::new(Arc::default());
        let room = || endpoint.idle.iter().map(|shard| shard.lock().capacity()).sum::<usize>();
        let stream = Stream::Tcp(TcpStream::connect(address).await.unwrap());
        endpoint.put(Idle { stream, address, since: Instant::now(), private: None });
        assert_eq!((endpoint.len(), room()), (1, 1));
        endpoint.close_idle(Instant::now());
        assert_eq!((endpoint.len(), room()), (0, 0));
    }

    /// The other end has closed the connection, but the runtime has not had a chance to notice.
    #[tokio::test]
    async fn just_closed_connection_is_not_used_for_a_request_that_cannot_be_repeated() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let endpoint = Endpoint::new(Arc::default());
        for (once, is_closed) in [(true, true), (true, false), (false, false)] {
            let ours = TcpStream::connect(address).await.unwrap();
            let theirs = listener.accept().await.unwrap().0.into_std().unwrap();
            let mut stream = Stream::Tcp(ours);
            assert!(is_quiet(&mut stream).await);
            endpoint.put(Idle { stream, address, since: Instant::now(), private: None });
            let theirs = (!is_closed).then_some(theirs);
            let taken = endpoint.take(Duration::from_secs(60), once, None, None).await;
            assert_eq!(taken.is_some(), !is_closed, "{once}");
            drop(theirs);
        }
    }
}
