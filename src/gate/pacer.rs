//! Keeps every host's pace: the waiting around [`Lane`]'s arithmetic. Called by `Gate::admit` and `fetch`.
//!
//! One mutex and at most one timer a lane: while somebody waits, a driver task sleeps until the next turn is due.

use super::store::Store;
use super::watch::PaceFigures;
use crate::policy::pace::{Client, Lane, Next, Outcome, Refused, Slot, Terms, Ticket, Turn};
use crate::policy::{PaceKey, Refusal};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};

/// All lanes.
pub(super) struct Pacer {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    waiting: Arc<AtomicUsize>,
    store: Arc<Store>,
}

#[derive(Default)]
struct Shard {
    lanes: HashMap<PaceKey, Arc<Pace>>,
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
}

struct State {
    lane: Lane<oneshot::Sender<Result<Permit, Refused>>>,
    driven: bool,
}

/// The right to one request in flight; gives it back when dropped, with the outcome set until then.
pub struct Permit {
    pace: Arc<Pace>,
    slot: Option<Slot>,
    terms: Terms,
    /// How the request ended. Until it is set, the request was never sent.
    pub outcome: Outcome,
}

impl Pacer {
    pub fn new(store: Arc<Store>) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard { lanes: HashMap::new(), sweep_at: MIN_SWEEP }));
        Pacer { shards: shards.collect(), hasher: RandomState::new(), waiting: Arc::new(AtomicUsize::new(0)), store }
    }

    /// How many requests wait, over all hosts.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// How the key stands; `None`: it has no lane, as nobody has asked for it lately.
    pub fn figures(&self, key: &PaceKey) -> Option<PaceFigures> {
        let pace = self.shards[self.hasher.hash_one(key) as usize % SHARDS].lock().lanes.get(key)?.clone();
        let (state, now) = (pace.state.lock(), Instant::now());
        let lane = &state.lane;
        let owed = lane.debt(now).map_or(Duration::ZERO, |debt| debt.until - now);
        Some(PaceFigures { waiting: lane.waiting(), in_flight: lane.in_flight(), backoff: lane.backoff(), owed })
    }

    /// The lane of this key.
    pub fn pace(&self, key: PaceKey) -> Arc<Pace> {
        let mut shard = self.shards[self.hasher.hash_one(&key) as usize % SHARDS].lock();
        if let Some(pace) = shard.lanes.get(&key) {
            return pace.clone();
        }
        if shard.lanes.len() >= shard.sweep_at {
            let now = Instant::now();
            shard.lanes.retain(|_, pace| Arc::strong_count(pace) > 1 || !pace.state.lock().lane.is_idle(now));
            shard.sweep_at = MIN_SWEEP.max(shard.lanes.len() * 2);
        }
        let mut lane = Lane::default();
        let now = Instant::now();
        if let Some(debt) = self.store.debt(&key, now) {
            lane.restore(now, debt);
        }
        let state = Mutex::new(State { lane, driven: false });
        let (name, store) = (key.to_string().into(), self.store.clone());
        let pace = Arc::new(Pace { state, changed: Notify::new(), waiting: self.waiting.clone(), name, store });
        shard.lanes.insert(key, pace.clone());
        pace
    }
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
                    return Ok(self.permit(slot, terms));
                }
                Turn::Refuse(refused) => return Err(refused.into()),
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
        let _place = Place::take(self, ticket);
        match receiver.await {
            Ok(Ok(mut permit)) => {
                permit.terms = terms;
                Ok(permit)
            }
            Ok(Err(refused)) => Err(refused.into()),
            Err(_) => Err(Refusal::Draining { retry_after: DRAINING }),
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
                        let permit = self.permit(slot, terms.clone());
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
        let now = Instant::now();
        self.store.owe(&self.name, now, state.lane.debt(now));
    }

    fn permit(self: &Arc<Self>, slot: Slot, terms: Terms) -> Permit {
        Permit { pace: self.clone(), slot: Some(slot), terms, outcome: Outcome::Unused }
    }

    fn give_back(&self, slot: Slot, outcome: Outcome) {
        let mut state = self.state.lock();
        state.lane.finished(Instant::now(), slot, outcome);
        if matches!(outcome, Outcome::Backoff { .. }) {
            self.note_debt(&state);
        }
        if state.driven {
            self.changed.notify_one();
        }
    }
}

impl Permit {
    /// One more request to the host under the same permit, in its turn: a retry.
    pub async fn again(&mut self) -> Result<(), Refusal> {
        if let Some(slot) = self.slot.take() {
            self.pace.give_back(slot, Outcome::Failure);
        }
        // It has waited for its turn already and stands at the end of the line now.
        let mut next = self.pace.turn(RETRIES, self.terms.clone()).await?;
        self.slot = next.slot.take();
        Ok(())
    }

    /// The request leaves now: the gap to the next is counted from here, not from before the connection was made.
    pub fn leaves(&mut self) {
        // Until an answer says otherwise.
        self.outcome = Outcome::Failure;
        if !self.terms.gap().is_zero() {
            let mut state = self.pace.state.lock();
            state.lane.note_start(Instant::now());
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

/// Retries share their turns as one client does.
const RETRIES: Client = Client(u64::MAX);
const SHARDS: usize = 64;
const MIN_SWEEP: usize = 256;
const DRAINING: Duration = Duration::from_secs(1);
