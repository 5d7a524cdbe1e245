//! Several signals to wait for at once.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that end nobody any more, but are heard.
pub(super) struct SignalSet(Vec<(SignalKind, Signal)>);

impl SignalSet {
    pub fn catch(kinds: &[SignalKind]) -> io::Result<Self> {
        kinds.iter().map(|kind| Ok((*kind, signal(*kind)?))).collect::<io::Result<_>>().map(Self)
    }

    /// The next one that came: of several, the one that was named first.
    pub async fn next(&mut self) -> SignalKind {
        poll_fn(|context| {
            let came =
                |(kind, signal): &mut (SignalKind, Signal)| signal.poll_recv(context).is_ready().then_some(*kind);
            self.0.iter_mut().find_map(came).map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// The next one by which somebody asks for the end.
    pub async fn next_to_stop(&mut self) {
        while !STOP.contains(&self.next().await) {}
    }
}

/// What a program that has nothing else to do with them ends by, in good order.
pub(super) const STOP: [SignalKind; 3] = [SignalKind::interrupt(), SignalKind::quit(), SignalKind::terminate()];
/// Those for whatever a program likes: some reopen their logs, others do nothing.
pub(super) const OTHER: [(SignalKind, &str); 3] = [
    (SignalKind::user_defined1(), "SIGUSR1"),
    (SignalKind::user_defined2(), "SIGUSR2"),
    (SignalKind::alarm(), "SIGALRM"),
];
