//! Groups of a robots.txt that ask for a delay. Each has its own queue, in which its requests keep the delay one at a time before they
//! wait for the host. What applies to the whole host (`min_delay`, backoff, requests in flight) stays in the host's queue, so that a slow
//! crawler does not delay the others.

use super::super::permit::{Permit, Waiting};
use super::{HostQueue, Stand};
use crate::policy::pace::{ClientId, LastStarts, Observed, Terms};
use crate::policy::{PaceKey, Refusal};
use std::iter::once;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl HostQueue {
    /// Takes a free slot, or else a place in the queue.
    #[inline]
    pub fn stand(self: &Arc<Self>, client: ClientId, terms: &Terms) -> Result<Stand, Refusal> {
        match terms.of_group() {
            None => self.stand_here(client, terms),
            Some(of_group) => self.stand_in_group(client, terms, &of_group),
        }
    }

    fn stand_in_group(self: &Arc<Self>, client: ClientId, terms: &Terms, of_group: &Terms) -> Result<Stand, Refusal> {
        // Refuses first if the wait for the host is too long.
        let refused = {
            let (state, now) = self.current();
            state.schedule.refusal(now, client, &terms.of_host())
        };
        if let Some(refused) = refused {
            return Err(refused.into_refusal(terms.max_wait));
        }
        match self.group(terms.group_delay).stand_here(client, of_group)? {
            Stand::Go(of_group) => self.stand_behind(of_group, client, terms),
            Stand::Wait(waiting) => Ok(waiting.with(Some(self.clone()), None, terms)),
        }
    }

    /// Queues a request that has its group's slot.
    pub(in crate::gate::pacer) fn stand_behind(
        self: &Arc<Self>,
        of_group: Box<Permit>,
        client: ClientId,
        terms: &Terms,
    ) -> Result<Stand, Refusal> {
        Ok(match self.stand_here(client, &terms.of_host())? {
            Stand::Go(permit) => Stand::Go(permit.with_group(of_group, terms)),
            Stand::Wait(waiting) => waiting.with(None, Some(of_group), terms),
        })
    }

    /// The wait that a request would have had in report mode.
    pub(super) fn dry_wait(self: &Arc<Self>, client: ClientId, terms: &Terms) -> Duration {
        let of = |queue: &Self, terms: &Terms| {
            let (mut state, now) = queue.current();
            state.schedule.dry_run(now, client, terms)
        };
        let of_group = terms.of_group().map(|of_group| of(&self.group(terms.group_delay), &of_group));
        of(self, &terms.of_host()).max(of_group.unwrap_or_default())
    }

    /// The queue of the groups with this delay. A new queue counts from the host's last start, as the delay may have changed.
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

    pub(in crate::gate::pacer) fn with_groups(self: Arc<Self>) -> impl Iterator<Item = Arc<Self>> {
        let groups = self.groups.lock().clone();
        once(self).chain(groups)
    }

    /// The host has asked for time, which may be too long for requests that wait in a group.
    pub(super) fn hold_groups(self: &Arc<Self>, until: Instant, observed: Observed) {
        let groups = self.groups.lock().clone();
        groups.iter().for_each(|group| group.hold(until, Observed { backoff: Duration::ZERO, ..observed }));
    }
}

impl Waiting {
    /// In a group's queue: `host` comes next. In the host's: `group` was granted. `terms`: of both.
    fn with(mut self, host: Option<Arc<HostQueue>>, group: Option<Box<Permit>>, terms: &Terms) -> Stand {
        (self.host, self.group, self.terms) = (host, group, Box::new(terms.clone()));
        Stand::Wait(self)
    }

    /// Waits for the slot.
    pub async fn turn(&mut self) -> Result<Box<Permit>, Refusal> {
        let (mut permit, mut is_of_group) = (self.turn_here().await?, self.host.is_some());
        let host = self.queue().clone();
        loop {
            let max_wait = self.terms.max_wait.saturating_sub(self.since.elapsed());
            let terms = Terms { max_wait, ..(*self.terms).clone() };
            if is_of_group {
                permit = host.stand_behind(permit, self.client, &terms)?.turn_here().await?;
            }
            permit.waited = self.since.elapsed();
            let is_over = !permit.holds() && !max_wait.is_zero();
            let Some(of_group) = terms.of_group().filter(|_| is_over) else { return Ok(permit) };
            // Far from the fleet's server, a group's slot may expire before the host's is granted.
            drop(permit);
            permit = host.group(terms.group_delay).stand_here(self.client, &of_group)?.turn_here().await?;
            is_of_group = true;
        }
    }
}

impl Stand {
    async fn turn_here(self) -> Result<Box<Permit>, Refusal> {
        match self {
            Self::Go(permit) => Ok(permit),
            Self::Wait(mut waiting) => waiting.turn_here().await,
        }
    }
}

/// Above this number, idle queues without debt are dropped: a site may change its delays often.
const MOST_IDLE: usize = 16;
