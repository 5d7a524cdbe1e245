//! Faults that a test injects into a [`Relay`]: lost answers, silence, cut connections.

use super::relay::Relay;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::sleep;

impl Relay {
    /// Ends all connections.
    pub fn cut(&self) {
        self.faults.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Lets nothing pass for `time`.
    pub async fn hold(&self, time: Duration) {
        self.faults.holds.send_replace(true);
        sleep(time).await;
        self.faults.holds.send_replace(false);
    }

    /// Loses answers, and the connections with them, for `time`.
    pub async fn lose_answers(&self, time: Duration) {
        self.faults.swallows.store(true, Ordering::Relaxed);
        sleep(time).await;
        self.cut();
        self.faults.swallows.store(false, Ordering::Relaxed);
    }
}
