//! One key's queue: adds waiting to [`Schedule`] and the fleet's reservations, which only compute times. Each host queue has at most one
//! task, the driver, which sleeps until the next slot is due, and makes all calls to the fleet.

mod driver;
mod ends;
mod groups;
mod guests;
mod rest;
mod sharing;

use super::machine_share::MachineShare;
use super::pace_figures::PaceFigures;
use super::permit::{Permit, QueuePlace};
use crate::fair_places::{FairPlace, Taker};
use crate::gate::fleet::Fleet;
use crate::gate::report_mode::Reported;
use crate::gate::waiting_requests::{PacedQueue, WaitingRequests};
use crate::policy::pace::{ClientId, Refused, Schedule, Slot, Terms, Ticket, Turn};
use crate::policy::{Authority, PaceKey, Refusal};
use futures_util::future::BoxFuture;
use guests::Guests;
use parking_lot::{Mutex, MutexGuard};
use sharing::Sharing;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

/// The queue of one key, in which requests wait for their slots.
pub(in crate::gate) struct HostQueue {
    state: Mutex<HostQueueState>,
    /// Wakes the driver: a slot is free, a request gave up, or the fleet has a message.
    changed: Notify,
    key: PaceKey,
    /// For a queue of subresources: the queue of the pages, which learns of the origin's refusals.
    page: Option<Weak<HostQueue>>,
    /// The queue of the subresources that follow these pages, dropped with this queue.
    beside: OnceLock<Arc<HostQueue>>,
    guests: OnceLock<Box<Guests>>,
    /// The queues of robots.txt groups that ask for a delay, dropped with this queue.
    groups: Mutex<Vec<Arc<HostQueue>>>,
    /// The delay last logged as clamped, in milliseconds.
    clamp_logged: AtomicU64,
    shared: Arc<PacerShared>,
}

/// Result of asking for a slot.
pub(in crate::gate) enum Stand {
    Go(Box<Permit>),
    Wait(Waiting),
}

/// A request that waits for its slot, and gives up its place when dropped.
pub(in crate::gate) struct Waiting {
    /// The host's queue.
    pub queue: Arc<HostQueue>,
    pub terms: Box<Terms>,
    /// When the slot is likely to be granted. `None`: unknown.
    pub due: Option<Instant>,
    pub turn: BoxFuture<'static, Result<Box<Permit>, Refusal>>,
}

/// State shared by all queues.
pub(super) struct PacerShared {
    pub waiting: Arc<WaitingRequests>,
    pub fleet: Arc<Fleet>,
    /// Number of queues.
    pub queues: AtomicUsize,
}

pub(super) type HostSchedule = Schedule<oneshot::Sender<Result<Slot, Refused>>>;

struct HostQueueState {
    schedule: HostSchedule,
    sharing: Sharing,
    driven: bool,
}

impl HostQueue {
    /// Creates a queue with the key's debts (the times before which nothing may start), as this process or another one has noted them.
    /// `page`: for a queue of subresources, which is not shared with a fleet's server.
    pub(in crate::gate::pacer) fn new(key: PaceKey, page: Option<Weak<HostQueue>>, shared: Arc<PacerShared>) -> Self {
        shared.queues.fetch_add(1, Ordering::Relaxed);
        let (mut schedule, name, fleet) = (Schedule::default(), name(&key, page.is_some()), &shared.fleet);
        let shares = fleet.machine.all().map(|machine| {
            let (now, mut share) = (Instant::now(), MachineShare::new(machine, &name));
            share.look(&mut schedule, now);
            if key.group().is_none() && page.is_none() {
                share.look_at_groups(&mut schedule, now);
            }
            share
        });
        let sharing = match shares.last() {
            Some(share) if page.is_some() || !fleet.has_server() => Sharing::Machine(share),
            _ => Sharing::Server(Box::default()),
        };
        Self {
            state: Mutex::new(HostQueueState { schedule, sharing, driven: false }),
            changed: Notify::new(),
            key,
            page,
            beside: OnceLock::new(),
            guests: OnceLock::new(),
            groups: Mutex::default(),
            clamp_logged: AtomicU64::new(0),
            shared,
        }
    }

    pub fn key(&self) -> &PaceKey {
        &self.key
    }

    /// For a queue of subresources: the queue of the pages. It exists while this queue has a slot in use.
    pub fn page(&self) -> Option<Arc<Self>> {
        self.page.as_ref().and_then(Weak::upgrade)
    }

    /// The queue of the subresources that follow these pages.
    pub fn beside(self: &Arc<Self>) -> &Arc<Self> {
        self.beside.get_or_init(|| {
            let page = Some(Arc::downgrade(self));
            Arc::new(Self::new(self.key.clone(), page, self.shared.clone()))
        })
    }

    pub fn guests(&self) -> &Guests {
        self.guests.get_or_init(|| Box::new(Guests::new()))
    }

    /// Waits until a guest (a redirected fetch) may enter the queue, at most as long as a request may wait for its slot.
    pub async fn guest_place(&self, taker: Taker, terms: &Terms) -> Result<FairPlace, Refusal> {
        let mut waits = self.shared.waiting.unlisted(taker.client, terms.max_waiting);
        let host_start = || self.state.lock().schedule.last_starts().last_start;
        tokio::select! {
            biased;
            place = timeout(terms.max_wait, self.guests().place(taker, terms.gap(), host_start)) => {
                place.map_err(|_| Refused::TooLong { retry_after: GUESTS_AWAITED }.into_refusal(terms.max_wait))
            }
            refusal = waits.crowded_out() => Err(refusal),
        }
    }

    /// Waits for a slot.
    #[cfg(test)]
    pub async fn turn(self: &Arc<Self>, client: ClientId, terms: &Terms) -> Result<Box<Permit>, Refusal> {
        self.stand(client, terms)?.turn().await
    }

    /// Like [`stand`](Self::stand), but ignores the group's queue.
    #[inline]
    fn stand_here(self: &Arc<Self>, client: ClientId, terms: &Terms) -> Result<Stand, Refusal> {
        if let Some(refusal) = self.fleet().refusal() {
            return Err(refusal);
        }
        let (mut state, now) = self.current();
        let mut answer = None;
        let turn = state.schedule.request(now, client, terms, || {
            let (sender, receiver) = oneshot::channel();
            answer = Some(receiver);
            sender
        });
        match turn {
            Turn::Go(slot) => {
                if slot.is_shared {
                    // Notes which reservation this slot uses.
                    let HostQueueState { schedule, sharing, .. } = &mut *state;
                    sharing.started(schedule, &slot);
                    self.wake(&mut state);
                }
                Ok(Stand::Go(Permit::new(self, Some(slot), terms)))
            }
            Turn::Refuse(refused) => Err(refused.into_refusal(terms.max_wait)),
            Turn::Wait { ticket, until: due } => {
                let mut answer = answer.expect("a waiting request has a receiver");
                if matches!(state.sharing, Sharing::Machine(_)) {
                    // Without a call to a server, the slot may be granted at once.
                    self.advance(&mut state, Instant::now());
                    match answer.try_recv() {
                        Ok(Ok(slot)) => return Ok(Stand::Go(Permit::new(self, Some(slot), terms))),
                        Ok(Err(refused)) => return Err(refused.into_refusal(terms.max_wait)),
                        Err(_) => {}
                    }
                }
                self.wake(&mut state);
                drop(state);
                let place = QueuePlace { queue: self.clone(), ticket, answer, terms: terms.clone() };
                let (queue, terms, turn) = (self.clone(), terms.clone().into(), Box::pin(place.turn()));
                Ok(Stand::Wait(Waiting { queue, terms, due, turn }))
            }
        }
    }

    /// Like [`stand`](Self::stand). In report mode, lets the request go at once, and reports the wait that it would have had, unless
    /// `reported` is set already.
    pub fn stand_or_report(
        self: &Arc<Self>,
        client: ClientId,
        terms: &Terms,
        is_reported: bool,
        reported: Option<Reported>,
    ) -> Result<(Stand, Option<Reported>), Refusal> {
        if !is_reported {
            return Ok((self.stand(client, terms)?, reported));
        }
        let held = || match self.dry_wait(client, terms) {
            Duration::ZERO => None,
            wait if wait <= terms.max_wait => Some(Reported::Held(wait)),
            wait => Some(Refusal::CrawlDelay { retry_after: wait, max_wait: Some(terms.max_wait) }.into()),
        };
        Ok((Stand::Go(Permit::new(self, None, terms)), reported.or_else(held)))
    }

    /// Whether the origin has asked any client for a pause, or may have: then no burst is allowed.
    pub fn is_held_back(&self) -> bool {
        let (state, _) = self.current();
        !state.schedule.backoff().is_zero() || state.schedule.is_unknown()
    }

    /// Logs a clamped delay, unless the same delay was the last one logged.
    pub fn log_clamp(&self, authority: &Authority, asked: Duration, kept: Duration) {
        let millis = u64::try_from(asked.as_millis()).unwrap_or(u64::MAX);
        if self.clamp_logged.swap(millis, Ordering::Relaxed) != millis {
            tracing::warn!(%authority, ?asked, ?kept, "the crawl-delay is limited to `pace.max_crawl_delay`");
        }
    }

    /// Whether a request that has its slot may still be sent: connecting may have taken so long that the next instance would not learn of
    /// the late start in time.
    pub(super) fn holds(&self, slot: &Slot) -> bool {
        let (state, now) = self.current();
        state.sharing.holds(&state.schedule, slot, now)
    }

    /// Gives a place in the queue back.
    pub(super) fn cancel(&self, ticket: Ticket) {
        let left = self.state.lock().schedule.cancel(ticket);
        if left.is_some() {
            self.changed.notify_one();
        }
    }

    /// The state, updated with the starts and reservations of other processes and instances, on which forecasts depend.
    fn current(&self) -> (MutexGuard<'_, HostQueueState>, Instant) {
        let mut state = self.state.lock();
        let now = Instant::now();
        self.follow(&mut state, now);
        (state, now)
    }

    fn follow(&self, state: &mut HostQueueState, now: Instant) {
        let HostQueueState { schedule, sharing, .. } = state;
        sharing.follow(schedule, self.fleet(), || self.name(), now);
    }

    pub(super) fn fleet(&self) -> &Fleet {
        &self.shared.fleet
    }

    fn name(&self) -> String {
        name(&self.key, self.page.is_some())
    }
}

/// The name under which the processes of this machine share a key's state.
fn name(key: &PaceKey, is_of_subresources: bool) -> String {
    if is_of_subresources { format!("{key}#subresources") } else { key.to_string() }
}

impl PacedQueue for HostQueue {
    fn figures(&self) -> PaceFigures {
        let (state, now) = (self.state.lock(), Instant::now());
        let groups = self.groups.lock();
        let groups = groups.iter().map(|group| PaceFigures::of(&group.state.lock().schedule, now));
        groups.fold(PaceFigures::of(&state.schedule, now), PaceFigures::with_group)
    }
}

impl Drop for HostQueue {
    fn drop(&mut self) {
        self.shared.queues.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Retry-After for a guest that waited too long: when the earlier guests will end is unknown.
const GUESTS_AWAITED: Duration = Duration::from_secs(1);
