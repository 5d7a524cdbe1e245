//! The open connections, and the choice of one that makes room for a new one: the connection that has waited longest for
//! its client.

use futures_util::task::AtomicWaker;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;

#[derive(Default)]
pub(super) struct Members {
    /// All connections, by client and number.
    pub all: BTreeMap<(IpAddr, u64), Arc<Member>>,
    /// The connections that waited at the last scan, with their `waits_since`, sorted by [`in_order`]. A connection that began to wait
    /// after the scan comes after all of these.
    waiting: VecDeque<(Arc<Member>, u64)>,
    /// The only client that may have more than half of the places. Found by the last scan, if no connection waited.
    largest: Option<IpAddr>,
    /// Time of the last scan of all connections.
    pub looked: Option<Instant>,
}

/// The state of one connection.
#[derive(Default)]
pub(super) struct Member {
    pub number: u64,
    pub is_cut: AtomicBool,
    /// Since when the connection has waited for its client, in milliseconds after the `Room` was created, plus 1. If this is in the
    /// future, the connection counts as waiting from then on. 0: it does not wait.
    pub waits_since: AtomicU64,
    /// Whether the connection was asked to make room, so that its next answer is its last.
    pub is_last: AtomicBool,
    /// Whether the connection must make room as soon as it waits, without the delay `SPARED`.
    pub is_urgent: AtomicBool,
    pub listener: AtomicU64,
    /// The user of a CONNECT.
    pub user: OnceLock<String>,
    /// The task that serves the connection.
    pub task: AtomicWaker,
}

impl Members {
    pub fn of(&self, client: IpAddr) -> impl DoubleEndedIterator<Item = &Arc<Member>> {
        self.all.range((client, 0)..=(client, u64::MAX)).map(|(_, member)| member)
    }

    /// Asks the waiting connection that is first by [`in_order`] to make room. Returns false if none waits. Scans all connections only when
    /// the waiting ones of the last scan have ended or were used, and at most once in [`LOOK_AGAIN`], so that a flood at the limit costs
    /// little. `now`: as in [`Member::waits_since`].
    pub fn close_longest(&mut self, at: Instant, now: u64) -> bool {
        loop {
            while let Some((member, since)) = self.waiting.front() {
                if member.waits_since.load(Relaxed) == *since {
                    member.make_room(false);
                    return true;
                }
                self.waiting.pop_front();
            }
            if self.looked.is_some_and(|looked| at - looked < LOOK_AGAIN) {
                return false;
            }
            self.looked = Some(at);
            let waiting = in_order(self.all.values(), now).into_iter();
            self.waiting = waiting.map(|it| (it.clone(), it.waits_since.load(Relaxed))).collect();
            let middle = self.all.keys().nth(self.all.len() / 2).filter(|_| self.waiting.is_empty());
            self.largest = middle.map(|(client, _)| *client);
        }
    }

    /// Makes room for a new connection of `client`: if another client has more than `half` of the places, cuts that client's newest
    /// connection.
    pub fn cut(&mut self, client: IpAddr, half: usize) {
        let Some(largest) = self.largest.filter(|largest| *largest != client) else { return };
        let newest = self.of(largest).rev().nth(half).and_then(|_| self.of(largest).next_back()).cloned();
        if let Some(newest) = newest {
            newest.is_cut.store(true, Relaxed);
            newest.task.wake();
            self.all.remove(&(largest, newest.number));
        }
    }
}

/// Sorts the waiting connections in the order in which they make room: first those already asked to, then by length of wait.
pub(super) fn in_order<'a>(members: impl Iterator<Item = &'a Arc<Member>>, now: u64) -> Vec<&'a Arc<Member>> {
    let mut waiting: Vec<_> = members.filter(|it| (1..=now).contains(&it.waits_since.load(Relaxed))).collect();
    waiting.sort_by_cached_key(|it| (!it.is_last.load(Relaxed), it.waits_since.load(Relaxed), it.number));
    waiting
}

impl Member {
    /// Asks the connection to make room. If a request arrives first, that request is still answered.
    pub fn make_room(&self, is_urgent: bool) {
        self.is_urgent.fetch_or(is_urgent, Relaxed);
        self.is_last.store(true, Relaxed);
        self.task.wake();
    }
}

/// Minimum interval between scans for connections that wait.
pub const LOOK_AGAIN: Duration = Duration::from_millis(100);
