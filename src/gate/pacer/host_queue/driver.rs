//! The driver of a host queue: sleeps until the next slot is due, grants it, and reserves starts with the fleet.

use super::{HostQueue, HostQueueState};
use crate::gate::fleet::{PaceAnswer, PaceCall, ServerLost, WaitNews};
use crate::policy::pace::{NextTurn, PaceOutcome};
use futures_util::future::OptionFuture;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{sleep, sleep_until, timeout};

impl HostQueue {
    /// Grants slots when they are due and maintains reservations, until no request waits and nothing has to be reported.
    async fn drive(self: Arc<Self>) {
        let mut call = None;
        loop {
            let until = {
                let mut state = self.state.lock();
                // Reads the clock once: a start that came due between two readings would be missed by both.
                let now = Instant::now();
                let until = self.advance(&mut state, now);
                let HostQueueState { schedule, sharing, driven } = &mut *state;
                if let (None, Some(share)) = (&call, sharing.server()) {
                    call = share.call(schedule, now).map(|call| Box::pin(self.ask(call, now)));
                }
                if call.is_none() {
                    let is_at_stake = sharing.server().is_some_and(|share| share.is_at_stake(schedule));
                    if schedule.waiting() == 0 && !is_at_stake {
                        *driven = false;
                        return;
                    }
                }
                [until, sharing.server().and_then(|share| share.next(schedule, now))].into_iter().flatten().min()
            };
            tokio::select! {
                Some((told, asked, answer)) = OptionFuture::from(call.as_mut()) => {
                    call = None;
                    let (now, HostQueueState { schedule, sharing, .. }) = (Instant::now(), &mut *self.state.lock());
                    tracing::trace!(key = %self.key, call = ?told, ?answer, took = ?(now - asked), "the fleet was asked");
                    if let Some(share) = sharing.server() {
                        share.answered(schedule, &told, answer.ok(), asked, now);
                    }
                }
                Some(()) = OptionFuture::from(until.map(|until| sleep_until(until.into()))) => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// Grants the slots that are due. Returns when to call again at the latest; `None`: no request waits.
    pub(super) fn advance(self: &Arc<Self>, state: &mut HostQueueState, now: Instant) -> Option<Instant> {
        loop {
            self.follow(state, now);
            let HostQueueState { schedule, sharing, .. } = state;
            if let Some(share) = sharing.machine() {
                share.prepare(schedule, &self.key, now);
            }
            let until = match schedule.poll(now) {
                NextTurn::Start(waiter, slot) => {
                    sharing.started(schedule, &slot);
                    if let Err(Ok(slot)) = waiter.send(Ok(slot)) {
                        // The waiting request has just given up.
                        sharing.ended(&slot, false);
                        schedule.finished(|| now, slot, PaceOutcome::Unused);
                    }
                    continue;
                }
                NextTurn::Refuse(waiter, refused) => {
                    let _ = waiter.send(Err(refused));
                    continue;
                }
                NextTurn::WaitUntil(until) => Some(until),
                NextTurn::Idle => None,
            };
            let next = sharing.machine().and_then(|share| share.settle(schedule, now));
            return [until, next].into_iter().flatten().min();
        }
    }

    /// Calls the fleet. Returns the call, the time of the call, and the answer. Slots are granted meanwhile.
    async fn ask(&self, call: PaceCall, asked: Instant) -> (PaceCall, Instant, Result<PaceAnswer, ServerLost>) {
        let answer = self.fleet().pace(&self.key.to_string(), &call).await;
        (call, asked, answer)
    }

    /// Handles a new link to the server: messages may have been lost. Returns true once the queue has reported its debts (the times before
    /// which nothing may start) to the server, or false if that is impossible for now.
    pub(in crate::gate::pacer) async fn link_changed(self: Arc<Self>) -> bool {
        {
            let state = &mut *self.state.lock();
            let Some(share) = state.sharing.server() else { return true };
            let now = Instant::now();
            share.hears(None, now);
            share.follow(&mut state.schedule, self.fleet().reach(), now);
            if !state.driven && !share.is_at_stake(&state.schedule) && !share.owes(&state.schedule, now) {
                return true;
            }
            self.wake(state);
        }
        let told = async {
            while self.still_owes() {
                sleep(POLL_INTERVAL).await;
            }
        };
        timeout(REPORTS, told).await.is_ok() || !self.still_owes()
    }

    /// Whether this queue must report starts that the fleet's server may not know. If so, starts the driver again if it has ended, as it
    /// does after a failed report.
    fn still_owes(self: &Arc<Self>) -> bool {
        let state = &mut *self.state.lock();
        let owes = state.sharing.server().is_some_and(|share| share.owes(&state.schedule, Instant::now()));
        if owes && !state.driven {
            self.wake(state);
        }
        owes
    }

    /// Handles a message that the key's state has changed in the fleet. `news`: for holders of a reservation.
    pub(in crate::gate::pacer) fn hear(&self, news: Option<WaitNews>) {
        if let Some(share) = self.state.lock().sharing.server() {
            share.hears(news, Instant::now());
            self.changed.notify_one();
        }
    }

    /// Wakes the driver if it runs. If it does not run, starts it if `is_needed` and the fleet has a server.
    pub(super) fn notify(self: &Arc<Self>, state: &mut HostQueueState, is_needed: bool) {
        if is_needed && state.sharing.server().is_some() || state.driven {
            self.wake(state);
        }
    }

    /// Wakes the driver, or starts it.
    pub(super) fn wake(self: &Arc<Self>, state: &mut HostQueueState) {
        if std::mem::replace(&mut state.driven, true) {
            self.changed.notify_one();
        } else {
            tokio::spawn(self.clone().drive());
        }
    }
}

/// Maximum time to report debts: a call to the server takes up to two seconds, and its answer must be handled.
const REPORTS: Duration = Duration::from_secs(3);
/// Interval for polling whether the driver has reported the debts.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
