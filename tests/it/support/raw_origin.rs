//! An origin for which the test writes every byte: each accepted connection is passed to the test.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

pub struct RawOrigin {
    address: SocketAddr,
    open: Arc<AtomicUsize>,
    _accepting: JoinSet<()>,
}

impl RawOrigin {
    /// `serve` handles one connection, given its number.
    pub async fn start<F: Future<Output = ()> + Send + 'static>(
        serve: impl Fn(TcpStream, usize) -> F + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free loopback port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let open = Arc::new(AtomicUsize::new(0));
        let (now_open, mut accepted) = (open.clone(), 0);
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut tasks = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).ok();
                let (serving, now_open) = (serve(stream, accepted), now_open.clone());
                accepted += 1;
                now_open.fetch_add(1, Ordering::Relaxed);
                tasks.spawn(async move {
                    serving.await;
                    now_open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        Self { address, open, _accepting: accepting }
    }

    pub fn authority(&self, host: &str) -> String {
        format!("{host}:{}", self.address.port())
    }

    pub fn url(&self, target: &str) -> String {
        format!("http://{}{target}", self.authority("a.localhost"))
    }

    /// Connections still being served.
    pub fn open_connections(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}
