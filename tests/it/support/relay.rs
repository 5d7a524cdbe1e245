//! A TCP relay in front of a server that delays or holds traffic, drops answers, and cuts connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

/// Listens until dropped.
pub struct Relay {
    pub address: SocketAddr,
    pub faults: Arc<Faults>,
    _ends: tokio::task::JoinSet<()>,
}

/// The faults of a relay.
pub struct Faults {
    /// Delay towards the server in milliseconds; `back`: towards the client.
    there: AtomicU64,
    back: AtomicU64,
    /// Whether answers are dropped.
    pub swallows: AtomicBool,
    /// Whether all traffic is held.
    pub holds: watch::Sender<bool>,
    /// Number of cuts.
    pub cuts: watch::Sender<u64>,
    /// Number of connections.
    pub accepted: AtomicU64,
}

impl Relay {
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let faults = Arc::new(Faults {
            there: AtomicU64::new(0),
            back: AtomicU64::new(0),
            swallows: AtomicBool::new(false),
            holds: watch::Sender::new(false),
            cuts: watch::Sender::new(0),
            accepted: AtomicU64::new(0),
        });
        let mut ends = tokio::task::JoinSet::new();
        ends.spawn({
            let faults = faults.clone();
            async move {
                let mut connections = tokio::task::JoinSet::new();
                while let Ok((client, _)) = listener.accept().await {
                    faults.accepted.fetch_add(1, Ordering::Relaxed);
                    let faults = faults.clone();
                    connections.spawn(async move {
                        let mut cuts = faults.cuts.subscribe();
                        cuts.mark_unchanged();
                        tokio::select! {
                            () = relay(client, server, faults.clone()) => {}
                            _ = cuts.changed() => {}
                        }
                    });
                    while connections.try_join_next().is_some() {}
                }
            }
        });
        Self { address, faults, _ends: ends }
    }

    /// Sets the delays in both directions.
    pub fn delay(&self, there: Duration, back: Duration) {
        self.faults.there.store(there.as_millis() as u64, Ordering::Relaxed);
        self.faults.back.store(back.as_millis() as u64, Ordering::Relaxed);
    }
}

async fn relay(client: TcpStream, server: SocketAddr, faults: Arc<Faults>) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    for stream in [&client, &server] {
        stream.set_nodelay(true).expect("a socket");
    }
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::select! {
        () = pass(from_client, to_server, &faults, &faults.there, false) => {}
        () = pass(from_server, to_client, &faults, &faults.back, true) => {}
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, faults: &Faults, delay: &AtomicU64, is_answer: bool) {
    let (sender, mut on_the_way) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let read = async {
        let mut part = vec![0; 65536];
        while let Ok(length @ 1..) = from.read(&mut part).await {
            if !(is_answer && faults.swallows.load(Ordering::Relaxed)) {
                let at = Instant::now() + Duration::from_millis(delay.load(Ordering::Relaxed));
                let _ = sender.send((at, part[..length].to_vec()));
            }
        }
    };
    let write = async {
        let mut holds = faults.holds.subscribe();
        while let Some((at, part)) = on_the_way.recv().await {
            sleep_until(at).await;
            let _ = holds.wait_for(|holds| !holds).await;
            if to.write_all(&part).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = read => {}
        () = write => {}
    }
}
