//! The registration of this instance at the server: that it is connected, and whether it still reports its debts.

use super::{PATIENCE, ServerLink, no_answer};
use crate::gate::fleet::keeps::Keeps;
use crate::gate::fleet::membership::BeatReply;
use crate::gate::fleet::scripts::{self, InstanceNews};
use crate::gate::fleet::server::{ServerConnection, words};
use crate::policy::pace::Shares;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::time::timeout;

impl ServerLink {
    /// Registers this instance. False: the server with the paces did not know it, and may have lost all data.
    pub(super) async fn register(&self, connection: &mut ServerConnection, news: InstanceNews) -> Result<bool, String> {
        let script = scripts::register(self.keeps, &self.place.name, news);
        let asked = Instant::now();
        let answer = timeout(PATIENCE, connection.invoke((&script).into())).await;
        let reply: BeatReply = answer.map_err(|_| no_answer())?.map_err(|error| words(&error))?;
        self.calls.fetch_add(1, Ordering::Relaxed);
        let (connected, _, _, is_known, telling, _) = reply;
        self.place.learn(connected);
        let before = self.missing();
        self.live.send_if_modified(|live| {
            let membership = live.membership.heard(reply, asked, Instant::now());
            let is_news = membership != live.membership || !is_known && live.history.is_some();
            live.membership = membership;
            live.history.take_if(|_| !is_known);
            let have_told = telling == 0 && live.has_told();
            live.settled_at.take_if(|at| *at <= asked && (have_told || asked.duration_since(*at) >= MOST_TELLING));
            is_news
        });
        if self.keeps == Keeps::Paces {
            self.log_missing(before);
        }
        Ok(is_known || self.keeps == Keeps::Copies)
    }

    /// Notes that this instance has reported its debts to the server with this number.
    pub fn told(&self, server: u64) {
        self.live.send_modify(|live| live.told = live.told.max(server));
    }

    fn log_missing(&self, before: u32) {
        let (missing, Shares { instances, .. }) = (self.missing(), self.shares());
        if missing == 0 && before > 0 {
            tracing::info!("no instance of the fleet is missing any more");
        } else if missing != before {
            tracing::warn!(
                "{missing} of the fleet's {instances} instances are missing: the others leave a part of each pace unused for them"
            );
        }
    }
}

/// Maximum time for which instances wait for others that report their debts: an instance may be unable to finish its report.
const MOST_TELLING: Duration = Duration::from_secs(300);
