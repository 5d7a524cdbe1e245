//! Starts the next request, or a request in a place that is lent to it beyond `max_concurrent`. A client's requests in flight may never
//! end (polls, streams, slow downloads) and must not shut out others: a client without a request in flight at the host is lent a place
//! after a wait. So at most `max_concurrent` requests and one for each client are in flight.

use super::terms::SlotRequest;
use super::{NextTurn, Schedule, Slot};
use crate::policy::client_id::ClientId;
use std::time::{Duration, Instant};

/// A place beyond `max_concurrent`, to be lent to a request.
#[derive(Clone, Copy)]
pub(super) struct LentPlace {
    pub at: Instant,
    /// The client. `None`: the place is lent to a renewal of robots.txt.
    pub client: Option<ClientId>,
    pub demand: SlotRequest,
}

impl<W> Schedule<W> {
    /// Starts the first waiting request, of client `of` or of all.
    pub(super) fn start_first(&mut self, now: Instant, demand: SlotRequest, of: Option<ClientId>) -> NextTurn<W> {
        let first = self.wait_queue.as_mut().and_then(|wait_queue| wait_queue.pop(of));
        let (client, waiter) = first.expect("the queue has the request that was chosen");
        self.drop_empty_queue();
        NextTurn::Start(waiter, self.start(now, demand, client))
    }

    pub(super) fn start(&mut self, now: Instant, demand: SlotRequest, client: Option<ClientId>) -> Slot {
        self.starts += 1;
        self.in_flight += 1;
        if let Some(client) = client {
            *self.held.entry(client).or_default() += 1;
        }
        self.owe_gap(now, demand);
        let mark = self.last.of(demand.first_fetch);
        let before = *mark;
        // Callers read the clock before they lock the schedule, so `now` may be a little before the last start.
        *mark = before.max(Some(now));
        let is_shared = self.source.is_shared(demand, self.backoff());
        let (is_exclusive, is_in_flight) = (self.limit(demand) == 1, true);
        let gap = demand.gap(self.observed.latency).max(self.backoff());
        let (number, is_first_fetch, group_gap) = (self.starts, demand.first_fetch, Duration::ZERO);
        self.pending = (!gap.is_zero()).then_some(number);
        Slot { number, client, is_first_fetch, before, is_shared, is_exclusive, is_in_flight, gap, group_gap }
    }

    /// Stops counting a finished request for its client.
    pub(super) fn let_go(&mut self, slot: &Slot) {
        if let Some(client) = slot.client
            && let Some(held) = self.held.get_mut(&client)
        {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&client);
            }
        }
    }

    /// The next place to lend: if `has_turn`, to a request that has the fleet's turn or does not need it, otherwise to a request that lacks
    /// the turn. No place is lent under a crawl-delay, an adaptive gap or a backoff, or before `part`, the next start in the time slices of
    /// a partitioned instance.
    pub(super) fn next_lent(&self, has_turn: bool, part: Option<Instant>) -> Option<LentPlace> {
        // Requests lack the turn only while they wait for another instance.
        let may_be = self.pending.is_none() && (has_turn || self.is_behind_another());
        let wait_queue = self.wait_queue.as_deref().filter(|_| may_be)?;
        let fronts = wait_queue.fronts().filter(|(client, demand, _)| {
            let is_free = client.is_none_or(|client| !self.held.contains_key(&client));
            is_free && (2..=self.in_flight).contains(&self.limit(*demand)) && self.may_turn(*demand) == has_turn
        });
        let lent = fronts.map(|(client, demand, at)| LentPlace {
            at: self.due(demand).max(part).map_or(at, |due| due.max(at)),
            client,
            demand,
        });
        lent.min_by_key(|lent| lent.at)
    }
}
