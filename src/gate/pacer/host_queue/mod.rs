//! One key's queue, shared by the requests in it: the waiting around [`Schedule`]'s arithmetic, and around the fleet's. At
//! most one task a host queue, the driver, sleeps until the next turn is due; it alone asks the fleet.

mod driver;
mod ends;
mod groups;
mod sharing;

use super::permit::{Permit, Waiting};
use super::refusal::refusal;
use super::waiters::Waiters;
use crate::gate::fair_places::{FairPlace, FairPlaces, Taker};
use crate::gate::fleet::{Fleet, Machine};
use crate::gate::report_mode::Reported;
use crate::policy::pace::{ClientId, Observed, Refused, Schedule, Slot, Terms, Ticket, Turn};
use crate::policy::{Authority, PaceKey, Refusal};
use parking_lot::Mutex;
use sharing::Sharing;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

/// A host queue.
pub(in crate::gate) struct HostQueue {
    state: Mutex<HostQueueState>,
    /// Wakes the driver: a slot is free, a request gave up, or the fleet has a message.
    changed: Notify,
    key: PaceKey,
    /// For a host queue of subresources: that of the pages, which learns of the origin's refusals.
    page: Option<Weak<HostQueue>>,
    /// That of the subresources that follow the pages of this one. It goes with it.
    beside: OnceLock<Arc<HostQueue>>,
    /// The place of the one guest that may be in the queue.
    guests: OnceLock<Box<FairPlaces>>,
    /// Those of the groups of its robots.txt that ask for a delay. They go with it.
    groups: Mutex<Vec<Arc<HostQueue>>>,
    /// The delay last logged as clamped, in milliseconds.
    clamp_logged: AtomicU64,
    shared: Arc<PacerShared>,
}

/// What comes of asking for a turn.
pub(in crate::gate) enum Stand {
    Go(Permit),
    Wait(Waiting),
}

/// One host's pace, for the status and metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PaceFigures {
    pub waiting: usize,
    pub in_flight: u32,
    /// The part of the gap that is due to the origin's 429 and 503 answers.
    pub backoff: Duration,
    /// Nothing starts within this time.
    pub owed: Duration,
    /// To the first byte of an answer, smoothed; zero: not known, or not asked for.
    pub latency: Duration,
    /// Answers in a row that turned requests away, where a breaker counts them.
    pub refusals: u32,
    /// For so long it is left alone for that.
    pub paused: Duration,
}

/// What all queues share.
pub(super) struct PacerShared {
    pub waiters: Arc<Waiters>,
    pub fleet: Option<Arc<Fleet>>,
    /// Where what is owed is kept for later processes.
    pub debts: Option<Arc<Machine>>,
    /// How many there are.
    pub queues: AtomicUsize,
}

pub(super) type HostSchedule = Schedule<oneshot::Sender<Result<Slot, Refused>>>;

struct HostQueueState {
    schedule: HostSchedule,
    sharing: Sharing,
    driven: bool,
}

impl HostQueue {
    pub(super) fn new(
        schedule: HostSchedule,
        key: PaceKey,
        page: Option<Weak<HostQueue>>,
        shared: Arc<PacerShared>,
    ) -> Self {
        shared.queues.fetch_add(1, Ordering::Relaxed);
        let sharing = Sharing::new(shared.fleet.as_deref().filter(|_| page.is_none()), &key);
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

    /// For a host queue of subresources: that of the pages. It is there for as long as a turn in this one is.
    pub fn page(&self) -> Option<Arc<Self>> {
        self.page.as_ref().and_then(Weak::upgrade)
    }

    /// The queue of the subresources that follow the pages of this one.
    pub fn beside(self: &Arc<Self>) -> &Arc<Self> {
        self.beside.get_or_init(|| {
            let page = Some(Arc::downgrade(self));
            Arc::new(Self::new(Schedule::default(), self.key.clone(), page, self.shared.clone()))
        })
    }

    /// The place for guests (fetches that other hosts redirect here): one at a time comes to the queue.
    pub fn guests(&self) -> &FairPlaces {
        self.guests.get_or_init(|| Box::new(FairPlaces::new(1)))
    }

    /// Waits for the guests' place, as long as a request may wait for its turn.
    pub async fn guest_place(&self, taker: Taker, terms: &Terms) -> Result<FairPlace, Refusal> {
        let mut waits = self.shared.waiters.enter(taker.client, terms.max_waiting);
        tokio::select! {
            biased;
            place = timeout(terms.max_wait, self.guests().take(taker)) => {
                place.map_err(|_| refusal(Refused::TooLong { retry_after: GUESTS_AWAITED }, terms.max_wait))
            }
            refusal = waits.crowded_out() => Err(refusal),
        }
    }

    /// Waits for a turn. Dropping the future gives the place in the line back.
    pub async fn turn(self: &Arc<Self>, client: ClientId, terms: &Terms) -> Result<Permit, Refusal> {
        match self.stand(client, terms)? {
            Stand::Go(permit) => Ok(permit),
            Stand::Wait(mut waiting) => waiting.turn().await,
        }
    }

    /// The same as [`stand`](Self::stand), in this queue alone.
    #[inline]
    fn stand_here(self: &Arc<Self>, client: ClientId, terms: &Terms) -> Result<Stand, Refusal> {
        if let Some(refusal) = self.fleet().and_then(Fleet::refusal) {
            return Err(refusal);
        }
        let mut state = self.state.lock();
        let now = Instant::now();
        self.follow(&mut state, now);
        let mut answer = None;
        let turn = state.schedule.request(now, client, terms, || {
            let (sender, receiver) = oneshot::channel();
            answer = Some(receiver);
            sender
        });
        match turn {
            Turn::Go(slot) => {
                if slot.is_shared() {
                    // It is looked after.
                    let HostQueueState { schedule, sharing, .. } = &mut *state;
                    sharing.started(schedule, &slot);
                    self.wake(&mut state);
                }
                self.note_debt(&state, now);
                Ok(Stand::Go(Permit::new(self, Some(slot), terms)))
            }
            Turn::Refuse(refused) => Err(refusal(refused, terms.max_wait)),
            Turn::Wait { ticket, until } => {
                let mut answer = answer.expect("a waiter was made for the line");
                if matches!(state.sharing, Sharing::Machine(_)) {
                    // What nobody has to be asked for may be there at once.
                    self.advance(&mut state);
                    match answer.try_recv() {
                        Ok(Ok(slot)) => return Ok(Stand::Go(Permit::new(self, Some(slot), terms))),
                        Ok(Err(refused)) => return Err(refusal(refused, terms.max_wait)),
                        Err(_) => {}
                    }
                }
                self.wake(&mut state);
                drop(state);
                let waiters = &self.shared.waiters;
                // The request that a first fetch is for has one.
                let place = (!terms.is_renewal && !terms.first_fetch).then(|| waiters.enter(client, terms.max_waiting));
                Ok(Stand::Wait(Waiting::new(self, client, ticket, answer, terms, now, until, place)))
            }
        }
    }

    /// A request of report mode: it goes at once. Tells what would have been, unless the request is `refused` anyway.
    pub fn dry_run(self: &Arc<Self>, client: ClientId, terms: &Terms, refused: bool) -> (Permit, Option<Reported>) {
        let wait = match refused {
            true => Duration::ZERO,
            false => self.dry_wait(client, terms),
        };
        let held = if wait > terms.max_wait {
            Some(Reported::from(Refusal::CrawlDelay { retry_after: wait, max_wait: Some(terms.max_wait) }))
        } else {
            (!wait.is_zero()).then_some(Reported::Held(wait))
        };
        (Permit::new(self, None, terms), held)
    }

    /// Whether the origin has asked for time, of whomever, or may have: then nothing goes in a burst.
    pub fn is_held_back(&self) -> bool {
        let mut state = self.state.lock();
        self.follow(&mut state, Instant::now());
        !state.schedule.backoff().is_zero() || state.schedule.is_unknown()
    }

    /// Logs that a delay is not kept in full, once for each delay that the host asks for.
    pub fn log_clamp(&self, authority: &Authority, asked: Duration, kept: Duration) {
        let millis = u64::try_from(asked.as_millis()).unwrap_or(u64::MAX);
        if self.clamp_logged.swap(millis, Ordering::Relaxed) != millis {
            tracing::warn!(%authority, ?asked, ?kept, "the crawl-delay is limited to `pace.max_crawl_delay`");
        }
    }

    pub fn figures(&self) -> PaceFigures {
        let (state, now) = (self.state.lock(), Instant::now());
        let schedule = &state.schedule;
        let paused = schedule.paused_until(now).map_or(Duration::ZERO, |until| until - now);
        let Observed { latency, refusals } = schedule.observed();
        let (mut waiting, mut owed, in_flight) = (schedule.waiting(), schedule.owed(now), schedule.in_flight());
        for group in &*self.groups.lock() {
            let of_group = group.state.lock();
            (waiting, owed) = (waiting + of_group.schedule.waiting(), owed.max(of_group.schedule.owed(now)));
        }
        PaceFigures { waiting, in_flight, backoff: schedule.backoff(), owed, latency, refusals, paused }
    }

    /// Neither it nor those that go with it are in use, or owe anything.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        let is_free = |inner: &Arc<Self>| Arc::strong_count(inner) == 1 && inner.is_idle(now);
        self.state.lock().schedule.is_idle(now)
            && self.beside.get().is_none_or(is_free)
            && self.groups.lock().iter().all(is_free)
    }

    /// For the next process, should this one end before the debt is paid.
    fn note_debt(&self, state: &HostQueueState, now: Instant) {
        // The processes of a machine note each start.
        if let (Sharing::Server(_), Some(debts)) = (&state.sharing, &self.shared.debts)
            && let Some(debt) = state.schedule.debt(now).filter(|debt| debt.until.duration_since(now) >= LEAST_DEBT)
        {
            debts.owe(debts.id(&self.key.to_string()), debt);
        }
    }

    /// Whether a request that has its turn may leave now: making the connection may have taken so long that the next one of the
    /// fleet would not hear of it in time.
    pub(super) fn holds(&self, slot: &Slot) -> bool {
        if self.fleet().is_none() {
            return true;
        }
        let (mut state, now) = (self.state.lock(), Instant::now());
        self.follow(&mut state, now);
        state.sharing.holds(&state.schedule, slot, now)
    }

    /// Gives a place in the line back.
    pub(super) fn cancel(&self, ticket: Ticket) {
        let left = self.state.lock().schedule.cancel(ticket);
        if left.is_some() {
            self.changed.notify_one();
        }
    }

    fn follow(&self, state: &mut HostQueueState, now: Instant) {
        let HostQueueState { schedule, sharing, .. } = state;
        sharing.follow(schedule, self.fleet(), now);
    }

    /// Subresources that follow their page are this instance's own affair.
    pub(super) fn fleet(&self) -> Option<&Fleet> {
        self.shared.fleet.as_deref().filter(|_| self.page.is_none())
    }
}

impl Drop for HostQueue {
    fn drop(&mut self) {
        self.shared.queues.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Nobody knows when the guests ahead will be done.
const GUESTS_AWAITED: Duration = Duration::from_secs(1);
/// Less is not missed after a restart.
const LEAST_DEBT: Duration = Duration::from_secs(1);
