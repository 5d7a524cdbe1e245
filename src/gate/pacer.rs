//! Keeps every host's pace: the waiting around [`Lane`]'s arithmetic. Called by `Gate::admit` and `fetch`.
//!
//! One mutex and at most one timer a lane: while somebody waits, a driver task sleeps until the next turn is due. What
//! finds the lanes is only read on a request to a known host, so that hosts do not wait for each other.

use super::reported::Reported;
use super::store::Store;
use super::watch::PaceFigures;
use crate::policy::pace::{Client, Debt, Lane, Next, Outcome, Refused, Slot, Terms, Ticket, Turn};
use crate::policy::{Authority, PaceKey, Refusal};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};

/// All lanes.
pub(super) struct Pacer {
    shards: Box<[RwLock<Shard>]>,
    hasher: RandomState,
    waiting: Arc<AtomicUsize>,
    store: Arc<Store>,
}

#[derive(Default)]
struct Shard {
    lanes: HashMap<PaceKey, Arc<Pace>>,
    /// Those of subresources that follow their page.
    beside: HashMap<PaceKey, Arc<Pace>>,
    /// At this many, those that owe nothing are dropped.
    sweep_at: usize,
}

/// One key's lane, shared by those who are in it.
pub(super) struct Pace {
    state: Mutex<State>,
    /// Wakes the driver: a slot is free, or somebody gave up.
    changed: Notify,
    waiting: Arc<AtomicUsize>,
    /// The key, and where a restart finds what it owes.
    name: Box<str>,
    store: Arc<Store>,
    /// For a lane of subresources: that of the pages, which is told of the origin's refusals.
    page: Option<Arc<Pace>>,
    /// The delay last told to be clamped, in milliseconds.
    clamp_told: AtomicU64,
}

type Waiters = Lane<oneshot::Sender<Result<Permit, Refused>>>;

struct State {
    lane: Waiters,
    driven: bool,
}

/// The right to one request in flight; gives it back when dropped, with the outcome set until then.
pub struct Permit {
    pace: Arc<Pace>,
    slot: Option<Slot>,
    terms: Terms,
    leaving: bool,
    /// Before its turn came; nothing: it could go at once.
    pub(super) waited: Duration,
    /// How the request ended. Until it is set, the request was never sent.
    pub outcome: Outcome,
}

impl Pacer {
    pub fn new(store: Arc<Store>) -> Self {
        let shards = (0..SHARDS).map(|_| RwLock::new(Shard { sweep_at: MIN_SWEEP, ..Shard::default() }));
        Pacer { shards: shards.collect(), hasher: RandomState::new(), waiting: Arc::new(AtomicUsize::new(0)), store }
    }

    /// How many requests wait, over all hosts.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// How the key stands; `None`: it has no lane, as nobody has asked for it lately.
    pub fn figures(&self, key: &PaceKey) -> Option<PaceFigures> {
        let pace = self.shard(key).read().lanes.get(key)?.clone();
        let (state, now) = (pace.state.lock(), Instant::now());
        let lane = &state.lane;
        let owed = lane.debt(now).map_or(Duration::ZERO, |debt| debt.until - now);
        Some(PaceFigures { waiting: lane.waiting(), in_flight: lane.in_flight(), backoff: lane.backoff(), owed })
    }

    /// The lane of this key.
    pub fn pace(&self, key: &PaceKey) -> Arc<Pace> {
        let shard = self.shard(key);
        if let Some(pace) = shard.read().lanes.get(key) {
            return pace.clone();
        }
        let mut shard = shard.write();
        shard.sweep();
        let new = || {
            let (mut lane, now) = (Lane::default(), Instant::now());
            if let Some(debt) = self.store.debt(key, now) {
                lane.restore(now, debt);
            }
            Arc::new(self.new_pace(lane, key, None))
        };
        shard.lanes.entry(key.clone()).or_insert_with(new).clone()
    }

    /// The lane of the subresources that follow the pages of this one.
    pub fn beside(&self, key: &PaceKey, page: &Arc<Pace>) -> Arc<Pace> {
        let shard = self.shard(key);
        if let Some(pace) = shard.read().beside.get(key) {
            return pace.clone();
        }
        let mut shard = shard.write();
        shard.sweep();
        let new = || Arc::new(self.new_pace(Lane::default(), key, Some(page.clone())));
        shard.beside.entry(key.clone()).or_insert_with(new).clone()
    }

    fn shard(&self, key: &PaceKey) -> &RwLock<Shard> {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }

    fn new_pace(&self, lane: Waiters, key: &PaceKey, page: Option<Arc<Pace>>) -> Pace {
        Pace {
            state: Mutex::new(State { lane, driven: false }),
            changed: Notify::new(),
            waiting: self.waiting.clone(),
            name: key.to_string().into(),
            store: self.store.clone(),
            page,
            clamp_told: AtomicU64::new(0),
        }
    }
}

impl Shard {
    /// Makes room for one more, now and then.
    fn sweep(&mut self) {
        if self.lanes.len() + self.beside.len() < self.sweep_at {
            return;
        }
        let now = Instant::now();
        let is_used = |pace: &Arc<Pace>| Arc::strong_count(pace) > 1 || !pace.state.lock().lane.is_idle(now);
        // These hold on to their pages' lanes.
        self.beside.retain(|_, pace| is_used(pace));
        self.lanes.retain(|_, pace| is_used(pace));
        self.sweep_at = MIN_SWEEP.max((self.lanes.len() + self.beside.len()) * 2);
    }
}

/// The terms of a subresource that follows its page: without the delay. The page may still be in flight.
pub(super) fn without_delay(terms: Terms) -> Terms {
    let max_concurrent = (terms.max_concurrent - 1).max(1);
    Terms { crawl_delay: Duration::ZERO, min_delay: Duration::ZERO, max_concurrent, ..terms }
}

impl Pace {
    /// Waits for a turn. Dropping the future gives the place in the line back.
    pub async fn turn(self: &Arc<Self>, client: Client, terms: Terms) -> Result<Permit, Refusal> {
        let (receiver, ticket) = {
            let mut state = self.state.lock();
            let mut receiver = None;
            let turn = state.lane.request(Instant::now(), client, &terms, || {
                let (sender, waits) = oneshot::channel();
                receiver = Some(waits);
                sender
            });
            match turn {
                Turn::Go(slot) => {
                    self.note_debt(&state);
                    return Ok(self.permit(Some(slot), terms));
                }
                Turn::Refuse(refused) => return Err(told(refused)),
                Turn::Wait { ticket, .. } => {
                    if !std::mem::replace(&mut state.driven, true) {
                        tokio::spawn(self.clone().drive(terms.clone()));
                    } else {
                        self.changed.notify_one();
                    }
                    (receiver.expect("a waiter was made for the line"), ticket)
                }
            }
        };
        let since = Instant::now();
        let _place = Place::take(self, ticket);
        match receiver.await {
            Ok(Ok(mut permit)) => {
                permit.terms = terms;
                permit.waited = since.elapsed();
                Ok(permit)
            }
            Ok(Err(refused)) => Err(told(refused)),
            Err(_) => Err(Refusal::Draining { retry_after: DRAINING }),
        }
    }

    /// A request of report mode: it goes at once. Tells what would have been, unless the request is `refused` anyway.
    pub fn rehearse(self: &Arc<Self>, client: Client, terms: Terms, refused: bool) -> (Permit, Option<Reported>) {
        let wait = match refused {
            true => Duration::ZERO,
            false => self.state.lock().lane.rehearse(Instant::now(), client, &terms),
        };
        let held = if wait > terms.max_wait {
            Some(Reported::Refused(Refusal::CrawlDelay { retry_after: wait }))
        } else {
            (!wait.is_zero()).then_some(Reported::Held(wait))
        };
        (self.permit(None, terms), held)
    }

    /// Whether the origin has asked for time: then nothing goes in a burst.
    pub fn is_held_back(&self) -> bool {
        !self.state.lock().lane.backoff().is_zero()
    }

    /// Logs that a delay is not kept in full, once for each delay that the host asks for.
    pub fn tell_clamp(&self, authority: &Authority, asked: Duration, kept: Duration) {
        let millis = u64::try_from(asked.as_millis()).unwrap_or(u64::MAX);
        if self.clamp_told.swap(millis, Ordering::Relaxed) != millis {
            tracing::warn!(%authority, ?asked, ?kept, "the crawl-delay is cut to `pace.max_crawl_delay`");
        }
    }

    /// Hands out turns as they come due, until nobody waits.
    async fn drive(self: Arc<Self>, terms: Terms) {
        loop {
            let until = {
                let mut state = self.state.lock();
                match state.lane.poll(Instant::now()) {
                    Next::Start(waiter, slot) => {
                        self.note_debt(&state);
                        let permit = self.permit(Some(slot), terms.clone());
                        // If it has just left, the permit comes back here and is given back when the lock is free.
                        let returned = waiter.send(Ok(permit));
                        drop(state);
                        drop(returned);
                        continue;
                    }
                    Next::Refuse(waiter, refused) => {
                        let returned = waiter.send(Err(refused));
                        drop(state);
                        drop(returned);
                        continue;
                    }
                    Next::WaitUntil(until) => until,
                    Next::Idle => {
                        state.driven = false;
                        return;
                    }
                }
            };
            tokio::select! {
                () = tokio::time::sleep_until(until.into()) => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// For the next process, should this one end before the debt is paid.
    fn note_debt(&self, state: &State) {
        if self.page.is_none() {
            let now = Instant::now();
            self.store.owe(&self.name, now, state.lane.debt(now));
        }
    }

    fn permit(self: &Arc<Self>, slot: Option<Slot>, terms: Terms) -> Permit {
        Permit { pace: self.clone(), slot, terms, leaving: false, waited: Duration::ZERO, outcome: Outcome::Unused }
    }

    fn give_back(&self, slot: Slot, outcome: Outcome) {
        let mut state = self.state.lock();
        state.lane.finished(Instant::now(), slot, outcome);
        let now = Instant::now();
        let mut debt = None;
        if matches!(outcome, Outcome::Backoff { .. }) {
            self.note_debt(&state);
            debt = state.lane.debt(now);
        }
        if state.driven {
            self.changed.notify_one();
        }
        drop(state);
        if let (Some(page), Some(debt)) = (&self.page, debt) {
            page.restore(now, debt);
        }
    }

    /// A subresource was told to come later: so are the pages.
    fn restore(&self, now: Instant, debt: Debt) {
        let mut state = self.state.lock();
        state.lane.restore(now, debt);
        self.note_debt(&state);
        if state.driven {
            self.changed.notify_one();
        }
    }
}

impl Permit {
    /// One more request to the host under the same permit, in its turn: a retry.
    pub async fn again(&mut self) -> Result<(), Refusal> {
        // In report mode there is none.
        let Some(slot) = self.slot.take() else { return Ok(()) };
        self.pace.give_back(slot, Outcome::Failure);
        // It has waited for its turn already and stands at the end of the line now.
        let mut next = self.pace.turn(RETRIES, self.terms.clone()).await?;
        self.slot = next.slot.take();
        Ok(())
    }

    /// The request leaves now: the gap to the next is counted from here, not from before the connection was made.
    pub fn leaves(&mut self) {
        // Until an answer says otherwise.
        self.outcome = Outcome::Failure;
        self.leaving = true;
        self.note_start();
    }

    /// Its head has left. What the origin sees is this: writing may have taken a while.
    pub fn has_left(&mut self) {
        if std::mem::take(&mut self.leaving) {
            self.note_start();
        }
    }

    fn note_start(&self) {
        if self.slot.is_some() && !self.terms.gap().is_zero() {
            let mut state = self.pace.state.lock();
            state.lane.note_start(Instant::now() + ARRIVAL);
            self.pace.note_debt(&state);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.pace.give_back(slot, self.outcome);
        }
    }
}

/// A place in the line, given back when its holder goes.
struct Place<'a> {
    pace: &'a Pace,
    ticket: Ticket,
}

impl<'a> Place<'a> {
    fn take(pace: &'a Pace, ticket: Ticket) -> Self {
        pace.waiting.fetch_add(1, Ordering::Relaxed);
        Place { pace, ticket }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.pace.waiting.fetch_sub(1, Ordering::Relaxed);
        let left = self.pace.state.lock().lane.cancel(self.ticket);
        if left.is_some() {
            self.pace.changed.notify_one();
        }
    }
}

/// What the one who is turned away is told: the gap as it was asked for.
fn told(refused: Refused) -> Refusal {
    match refused {
        Refused::TooLong { retry_after } => {
            Refused::TooLong { retry_after: retry_after.saturating_sub(ARRIVAL) }.into()
        }
        Refused::Full { .. } => refused.into(),
    }
}

/// What one request may take longer to arrive than the next: the gap is promised to the origin, which sees arrivals.
const ARRIVAL: Duration = Duration::from_millis(3);
/// Retries share their turns as one client does.
const RETRIES: Client = Client(u64::MAX);
const SHARDS: usize = 256;
const MIN_SWEEP: usize = 64;
const DRAINING: Duration = Duration::from_secs(1);
