//! Limits concurrent fetches of robots.txt: `limits.max_robots_fetches` in all. Each takes a slot of its host as well.

use super::fetch_table::Fetch;
use crate::config::Settings;
use crate::gate::fair_places::{FairPlace, FairPlaces};
use crate::gate::pacer::{HostQueue, Permit, Stand, one_at_a_time};
use crate::policy::Refusal;
use crate::policy::pace::{ClientId, Terms};
use futures_util::FutureExt;
use rustix::process::{Resource, getrlimit};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// Most concurrent fetches: as configured, but at most a quarter of the limit on open files.
pub fn most_fetches(settings: &Settings) -> usize {
    let files = getrlimit(Resource::Nofile).current.and_then(|files| usize::try_from(files).ok());
    settings.limits.max_robots_fetches.get().min(files.unwrap_or(usize::MAX) / 4).max(1)
}

impl FairPlaces {
    /// Takes a place and the host's slot. Neither is held for longer than `a_while` while waiting for the other.
    pub(super) async fn take_in_turn(
        &self,
        client: ClientId,
        queue: &Arc<HostQueue>,
        line: FetchLine,
        terms: &Terms,
        a_while: Duration,
        fetch: &Fetch,
    ) -> Result<(FairPlace, FetchTurn), Refusal> {
        let mut place = None;
        loop {
            let most = if place.is_some() { a_while } else { Duration::MAX };
            let turn = timeout(most, FetchTurn::take(queue, line, terms, fetch)).await;
            fetch.set_due(None);
            match (turn, place.take().or_else(|| self.take(client).now_or_never())) {
                (Ok(turn), Some(place)) => return Ok((place, turn?)),
                (Ok(turn), None) => {
                    drop(turn?);
                    place = Some(self.take(client).await);
                }
                (Err(_), _) => {}
            }
        }
    }
}

/// Where a fetch waits for a host's slot.
#[derive(Debug, Clone, Copy)]
pub(super) enum FetchLine {
    /// At the host whose file is wanted.
    Own,
    /// Redirected from another host, to the host's own file: all that wait for it share one fetch.
    Shared,
    /// A guest for this client: redirected from another host, to any other URL.
    Guest(ClientId),
}

/// A host's slot for a fetch. Of the guests (fetches redirected from other hosts), one at a time has or awaits the host's slot, and their
/// clients take turns: however many sites redirect to this host, its own clients come first.
pub(super) struct FetchTurn {
    pub permit: Permit,
    _among_guests: Option<Box<Permit>>,
}

impl FetchTurn {
    async fn take(queue: &Arc<HostQueue>, line: FetchLine, terms: &Terms, fetch: &Fetch) -> Result<Self, Refusal> {
        let turn = async |queue: &Arc<HostQueue>, client, terms: &Terms| match queue.stand(client, terms)? {
            Stand::Go(permit) => Ok(permit),
            Stand::Wait(mut waiting) => {
                fetch.set_due(Some(waiting.due().unwrap_or_else(Instant::now)));
                let turn = waiting.turn().await;
                fetch.set_due(None);
                turn
            }
        };
        let (client, _among_guests) = match line {
            FetchLine::Own => (FETCHES, None),
            FetchLine::Shared => (ClientId::GUESTS, None),
            FetchLine::Guest(client) => {
                let place = turn(queue.guests(), client, &one_at_a_time(terms)).await?;
                (ClientId::GUESTS, Some(Box::new(place)))
            }
        };
        Ok(Self { permit: turn(queue, client, terms).await?, _among_guests })
    }
}

/// Resolves when a guest that is in flight has had its time, and others wait for its place.
pub(super) async fn guests_wait(queue: &Arc<HostQueue>) {
    sleep(GUEST_TIME).await;
    while queue.guests().figures().waiting == 0 {
        sleep(LOOK_AGAIN).await;
    }
}

/// Fetches queue at their own host as a single client.
const FETCHES: ClientId = ClientId(0);
/// Time for a guest's answer while other guests wait: sites that redirect to what is never answered cost the others this much each.
const GUEST_TIME: Duration = Duration::from_secs(4);
const LOOK_AGAIN: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::fair_places::tests::all_that;
    use crate::gate::pacer::Pacer;
    use crate::gate::robots::FetchReason;
    use crate::policy::PaceKey;
    use std::pin::pin;

    const SOON: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn a_turn_is_not_held_while_a_place_is_waited_for() {
        let places = FairPlaces::new(8);
        let mut taken = all_that(&places, 1);
        let queue = Pacer::new(None, None).queue(&PaceKey::from_text("a.example").unwrap());
        let terms = Terms { max_concurrent: 1, ..Terms::default() };
        let under_way = Fetch::new(FetchReason::FirstUse);
        let mut fetch = pin!(places.take_in_turn(ClientId(1), &queue, FetchLine::Own, &terms, SOON, &under_way));
        assert!((&mut fetch).now_or_never().is_none());
        let page = queue.turn(ClientId(2), &terms).now_or_never();
        assert!(page.is_some_and(|turn| turn.is_ok()), "whoever can use it has it");
        let page = queue.turn(ClientId(2), &terms).await.unwrap();
        taken.pop();
        assert!(timeout(SOON * 10, &mut fetch).await.is_err(), "it has to wait for its turn now");
        assert!(places.take(ClientId(1)).now_or_never().is_some(), "and keeps no place meanwhile");
        drop(page);
        assert!(timeout(SOON * 10, &mut fetch).await.unwrap().is_ok());
    }
}
