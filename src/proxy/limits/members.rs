//! The open connections, and which of them makes room: the one that has waited longest for its client.

use futures_util::task::AtomicWaker;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;

#[derive(Default)]
pub(super) struct Members {
    /// By client and number.
    pub all: BTreeMap<(IpAddr, u64), Arc<Member>>,
    /// Those that waited at the last look at all of them, and since when, in their order. Who waits since then comes after them.
    waiting: VecDeque<(Arc<Member>, u64)>,
    /// The only client that may have more than half of the places, if none waited then.
    largest: Option<IpAddr>,
    pub looked: Option<Instant>,
}

/// The state of one connection.
#[derive(Default)]
pub(super) struct Member {
    pub number: u64,
    pub is_cut: AtomicBool,
    /// Since when it has waited for its client's first or next request, in milliseconds since the start, plus one; 0: it does not.
    pub waits_since: AtomicU64,
    /// It is to make room.
    pub is_last: AtomicBool,
    /// At once.
    pub is_urgent: AtomicBool,
    pub listener: AtomicU64,
    /// The user of a CONNECT.
    pub user: OnceLock<String>,
    /// The task that serves it.
    pub task: AtomicWaker,
}

impl Members {
    pub fn of(&self, client: IpAddr) -> impl DoubleEndedIterator<Item = &Arc<Member>> {
        self.all.range((client, 0)..=(client, u64::MAX)).map(|(_, member)| member)
    }

    /// Has the one make room that has waited longest; it may do so already. Looks at all only once those that it found then are gone or
    /// have been used, and not again within [`LOOK_AGAIN`], so that a flood at the limit costs little. `now` as in [`Member::waits_since`].
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

    /// Cuts one connection for a new one of `client`: the newest of an address that is not `client` and has more than `half` of the places.
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

/// Of these, those that wait, in the order in which they make room: who does so already, then who has waited longest.
pub(super) fn in_order<'a>(members: impl Iterator<Item = &'a Arc<Member>>, now: u64) -> Vec<&'a Arc<Member>> {
    let mut waiting: Vec<_> = members.filter(|it| (1..=now).contains(&it.waits_since.load(Relaxed))).collect();
    waiting.sort_by_cached_key(|it| (!it.is_last.load(Relaxed), it.waits_since.load(Relaxed), it.number));
    waiting
}

impl Member {
    /// Even if a request comes first: then after that.
    pub fn make_room(&self, is_urgent: bool) {
        self.is_urgent.fetch_or(is_urgent, Relaxed);
        self.is_last.store(true, Relaxed);
        self.task.wake();
    }
}

/// Interval of checks for connections that wait.
pub const LOOK_AGAIN: Duration = Duration::from_millis(100);
