//! What a request may wait for: a robots.txt under way, its host's turn; and no longer than the proxy serves.

use super::pacer::{Permit, Waiting};
use super::robots::Fetching;
use super::{Gate, rules};
use crate::config::Hosts;
use crate::policy::{Refusal, Request};
use std::time::{Duration, Instant};
use tokio::time::{sleep_until, timeout};

impl Gate {
    /// Until a fetch is over, but no longer than a request may wait for its turn and a fetch may take then.
    pub(super) async fn wait_for_robots(
        &self,
        request: &Request<'_>,
        hosts: Option<&Hosts>,
        fetching: Fetching,
        waited: Duration,
    ) -> Result<(), Refusal> {
        let (most, retry_after, max_waiting) = {
            let settings = self.settings.load();
            let terms = self.terms(request, rules(request, hosts, &settings), &settings, None, waited);
            // One may wait, or nothing would ever be fetched.
            (terms.max_wait + settings.robots.timeout, terms.gap().max(AWHILE), terms.max_waiting.max(1))
        };
        let mut place = self.pacer.wait_place(request.client, max_waiting);
        tokio::select! {
            biased;
            fetched = timeout(most, fetching.end()) => {
                fetched.unwrap_or(Err(Refusal::CrawlDelay { retry_after, max_wait: None }))
            }
            refusal = place.crowded_out() => Err(refusal),
            refusal = self.drained(None) => Err(refusal),
        }
    }

    pub(super) async fn turn(&self, waiting: &mut Waiting) -> Result<Permit, Refusal> {
        let due = waiting.due();
        tokio::select! {
            biased;
            permit = waiting.turn() => permit,
            refusal = self.drained(due) => Err(refusal),
        }
    }

    /// Returns when the proxy stops and a request whose turn is `due` then cannot have it any more. `None`: nobody knows.
    async fn drained(&self, due: Option<Instant>) -> Refusal {
        let mut drain = self.drain.subscribe();
        // The sender lives as long as we do.
        let until = drain.wait_for(Option::is_some).await.ok().and_then(|until| *until);
        if let Some(until) = until.filter(|until| due.is_none_or(|due| due <= *until)) {
            sleep_until(until.into()).await;
        }
        Refusal::Draining { retry_after: DRAINING }
    }
}

/// By then another instance may serve.
const DRAINING: Duration = Duration::from_secs(5);
/// When nobody knows when.
const AWHILE: Duration = Duration::from_secs(1);
