//! Groups of a robots.txt that ask for a delay. Each has its own queue, in which its requests wait for the delay, one at a time, before
//! they wait for the host. What applies to the whole host (`min_delay`, backoff, requests in flight) stays in the host's queue, so that a
//! slow crawler does not delay the others.

use super::super::permit::Permit;
use super::{HostQueue, Stand, Waiting};
use crate::policy::pace::{ClientId, LastStarts, Observed, Terms};
use crate::policy::{PaceKey, Refusal};
use futures_util::FutureExt;
use std::iter::once;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl HostQueue {
    /// Takes a free slot, or else a place in the queue. If a group's delay applies, the request waits in the group's queue first.
    #[inline]
    pub fn stand(self: &Arc<Self>, client: ClientId, terms: &Terms) -> Result<Stand, Refusal> {
        match terms.of_group() {
            None => self.stand_here(client, terms),
            Some(of_group) => self.stand_in_group(client, terms, of_group),
        }
    }

    fn stand_in_group(self: &Arc<Self>, client: ClientId, terms: &Terms, of_group: Terms) -> Result<Stand, Refusal> {
        let (refused, host_due) = {
            let ((state, now), of_host) = (self.current(), terms.of_host());
            let due = Some(state.schedule.forecast(now, client, &of_host)).filter(|due| *due > now);
            (state.schedule.refusal(now, client, &of_host), due)
        };
        // Refuses before the request enters the group's queue, if the wait for the host alone is too long.
        if let Some(refused) = refused {
            return Err(refused.into_refusal(terms.max_wait));
        }
        let first = self.group(terms.group_delay).stand_here(client, &of_group)?;
        let due = if let Stand::Wait(waiting) = &first { waiting.due } else { host_due };
        let mut turn = Box::pin(self.clone().turn_behind(first, client, of_group, terms.clone()));
        Ok(match turn.as_mut().now_or_never() {
            Some(permit) => Stand::Go(permit?),
            None => Stand::Wait(Waiting { queue: self.clone(), terms: terms.clone().into(), due, turn }),
        })
    }

    /// Waits for the group's slot, and then for the host's.
    async fn turn_behind(
        self: Arc<Self>,
        mut group: Stand,
        client: ClientId,
        mut of_group: Terms,
        mut terms: Terms,
    ) -> Result<Box<Permit>, Refusal> {
        let (since, most) = (Instant::now(), terms.max_wait);
        loop {
            let granted = group.turn().await?;
            terms.max_wait = most.saturating_sub(since.elapsed());
            let permit = self.stand_here(client, &terms.of_host())?.turn().await?.with_group(granted, &terms);
            if permit.holds() || terms.max_wait.is_zero() {
                return Ok(permit);
            }
            // If the fleet's server is far away, a group's slot may expire before the host's is granted.
            drop(permit);
            of_group.max_wait = most.saturating_sub(since.elapsed());
            group = self.group(terms.group_delay).stand_here(client, &of_group)?;
        }
    }

    /// For report mode: the wait that a request would have had if the pace were enforced.
    pub(super) fn dry_wait(self: &Arc<Self>, client: ClientId, terms: &Terms) -> Duration {
        let of = |queue: &Self, terms: &Terms| {
            let (state, now) = queue.current();
            state.schedule.forecast(now, client, terms).duration_since(now)
        };
        let of_group = terms.of_group().map(|of_group| of(&self.group(terms.group_delay), &of_group));
        of(self, &terms.of_host()).max(of_group.unwrap_or_default())
    }

    /// Records the start of a request without a slot, and publishes it to the other processes and instances. `at`: when it should reach the
    /// host. While another process waits for a start that it has reserved, nothing is recorded: it would wait for ever.
    pub(in crate::gate::pacer) fn started_freely(self: &Arc<Self>, terms: &Terms, at: Instant) {
        let of = |queue: &Arc<Self>, terms: &Terms| {
            let (mut state, now) = queue.current();
            if state.sharing.machine().is_some_and(|share| share.is_awaited(now)) {
                return;
            }
            state.schedule.record_start(at, terms);
            if let Some(until) = state.schedule.owed(at) {
                queue.owe(&state.schedule, until);
                queue.notify(&mut state, true);
            }
        };
        of(self, &terms.of_host());
        terms.of_group().iter().for_each(|of_group| of(&self.group(terms.group_delay), of_group));
    }

    /// The queue of the groups with this delay. In a new queue, the delay counts from the host's last start, as a group's delay may have
    /// changed.
    fn group(self: &Arc<Self>, delay: Duration) -> Arc<Self> {
        let key = self.key.of_group(delay);
        if let Some(group) = self.named(&key) {
            return group;
        }
        let last_start = self.state.lock().schedule.last_starts().last_start;
        let mut groups = self.groups.lock();
        // Another request may have created the queue meanwhile.
        if let Some(there) = groups.iter().find(|it| it.key == key) {
            return there.clone();
        }
        if groups.len() >= MOST_IDLE {
            let now = Instant::now();
            groups.retain(|group| group.rest(now).is_err());
        }
        let mut group = Self::new(key, None, self.shared.clone());
        let schedule = &mut group.state.get_mut().schedule;
        if schedule.last_starts().last_start.is_none() {
            schedule.adopt(LastStarts { last_start, ..LastStarts::default() });
        }
        let group = Arc::new(group);
        groups.push(group.clone());
        group
    }

    /// This queue, or the queue of its group with this key.
    pub(in crate::gate::pacer) fn named(self: &Arc<Self>, key: &PaceKey) -> Option<Arc<Self>> {
        if self.key == *key { Some(self.clone()) } else { self.groups.lock().iter().find(|it| it.key == *key).cloned() }
    }

    /// This queue and the queues of its groups; with `delay`, only the queue of the groups with this delay.
    pub(in crate::gate::pacer) fn with_groups(self: Arc<Self>, delay: Option<Duration>) -> Vec<Arc<Self>> {
        match delay {
            Some(delay) => vec![self.group(delay)],
            None => once(self.clone()).chain(self.groups.lock().iter().cloned()).collect(),
        }
    }

    /// Lets nothing start in the groups' queues before `until`, as the host has asked for a pause. The pause may be too long for requests
    /// that wait there.
    pub(super) fn hold_groups(self: &Arc<Self>, until: Instant, observed: Observed) {
        let groups = self.groups.lock().clone();
        groups.iter().for_each(|group| group.hold(until, Observed { backoff: Duration::ZERO, ..observed }));
    }
}

impl Stand {
    /// Waits for the slot.
    pub async fn turn(self) -> Result<Box<Permit>, Refusal> {
        match self {
            Self::Go(permit) => Ok(permit),
            Self::Wait(waiting) => waiting.turn.await,
        }
    }
}

/// Number of queues at which the unused ones are dropped, and their debts noted: a site may change its delays often.
const MOST_IDLE: usize = 16;
