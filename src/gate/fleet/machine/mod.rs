//! The fleet that the processes of one machine are: all that use one store keep one pace for each host and fetch each
//! robots.txt once (docs/fleet.md).
//!
//! No process serves the others. A key's lease is a lock on bytes of a file (`slots`), which the
//! kernel releases when a process ends; a start is recorded there before it is sent, so that the next holder of the lease
//! knows of it. A process that waits looks again when the next start could be due. Copies of robots.txt are in a file (`copies`).

mod budgets;
mod clock;
mod copies;
mod key_slot;
mod lease;
mod locks;
mod slots;

use super::{LeaseOp, LeaseRequest, LeaseStatus, Reach, ServerLost, Spend, TurnPlace};
use crate::policy::Spent;
use crate::policy::pace::LastStarts;
use budgets::Budgets;
use clock::nanos;
use copies::Copies;
use parking_lot::Mutex;
use slots::{Id, Slots};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};
use tokio::time::sleep;

/// This process's part in it.
pub(super) struct Machine {
    slots: Slots,
    parts: Mutex<LockedParts>,
    copies: Arc<Copies>,
    /// Once there is one. `None`: it cannot be had, which has been logged.
    budgets: OnceLock<Option<Budgets>>,
    directory: PathBuf,
    /// Its process id, and what distinguishes it from others that have had that.
    me: u64,
    /// Nothing can be shared any more.
    is_broken: AtomicBool,
    /// The stopped process that has been logged.
    warned_of: AtomicU32,
    /// Processes that wanted the key asked for last.
    rivals: AtomicU32,
}

/// The byte that this process has locked of a key's: the first is its lease, the others are for those that wait.
type LockedParts = HashMap<Id, u64>;

impl Machine {
    /// `None`: there is no place to meet, which has been logged.
    pub fn open(directory: &Path) -> Option<Self> {
        let open = || {
            Ok(Self {
                slots: Slots::open(directory)?,
                parts: Mutex::default(),
                copies: Arc::new(Copies::open(directory)?),
                budgets: OnceLock::new(),
                directory: directory.to_owned(),
                me: u64::from(std::process::id()) << 32 | u64::from(fastrand::u32(..)),
                is_broken: AtomicBool::default(),
                warned_of: AtomicU32::default(),
                rivals: AtomicU32::new(1),
            })
        };
        open().inspect_err(|error: &io::Error| warn(&directory.display().to_string(), error)).ok()
    }

    /// All can be asked at any time, or this process goes on alone.
    #[inline]
    pub fn reach(&self) -> Reach {
        let link = u64::from(!self.is_broken.load(Ordering::Relaxed));
        Reach { link, alone: Some(self.rivals.load(Ordering::Relaxed)), ..Reach::default() }
    }

    /// Asks for a key's lease, or renews or returns it.
    pub async fn lease(&self, key: &str, request: &LeaseRequest) -> Result<LeaseStatus, ServerLost> {
        let id = self.slots.id(key);
        let had_lease = self.parts.lock().get(&id) == Some(&id.lease());
        let asked = || self.ask(key, request, Instant::now()).map_err(|error| self.give_up(&error));
        let answer = unlocked(key, asked).await;
        if answer.is_err() && (request.op == LeaseOp::Give || !had_lease) {
            // Nobody is to wait for what this process does nothing with. What is in flight keeps its turn.
            let _ = self.let_go(&mut self.parts.lock(), id);
        }
        answer
    }

    /// Spends of a budget that all processes share, later ones included.
    pub async fn spend(&self, of: &str, spend: &Spend) -> Result<(bool, Spent), ServerLost> {
        let open = || {
            let warn = |error: &io::Error| {
                let place = self.directory.display();
                tracing::warn!("each politely process on this machine counts its own budgets: {place}: {error}");
            };
            Budgets::open(&self.directory).inspect_err(warn).ok()
        };
        let budgets = self.budgets.get_or_init(open).as_ref().ok_or(ServerLost)?;
        let id = self.slots.id(&format!("{of} {}", spend.per.as_str()));
        let spent = || {
            budgets.spend(id, spend, SystemTime::now()).map_err(|error| {
                tracing::debug!(%error, of, "what is spent of a budget is not shared");
                ServerLost
            })
        };
        unlocked(of, spent).await
    }

    /// What this process has started is being sent, or has been. The caller has the lease.
    pub fn note(&self, key: &str, starts: LastStarts, leaving: bool) {
        let id = self.slots.id(key);
        let note = || {
            // For as long as it is noted.
            let parts = self.parts.lock();
            if parts.get(&id) == Some(&id.lease())
                && let Some((place, mut slot)) = self.slots.find(id)?
            {
                slot.learn(starts);
                slot.leaving = leaving;
                self.slots.write_starts((place, slot))?;
            }
            Ok(())
        };
        if let Err(error) = note() {
            self.give_up(&error);
        }
    }

    /// Whether the origin has asked any of the processes for time.
    pub fn is_held_back(&self, key: &str, now: Instant) -> bool {
        let found = self.slots.find(self.slots.id(key)).ok().flatten();
        found.is_some_and(|(_, slot)| slot.holds_back(nanos(now)))
    }

    fn give_up(&self, error: &io::Error) -> ServerLost {
        if !self.is_broken.swap(true, Ordering::Relaxed) {
            warn("from now on", error);
            // Nobody is to wait for this process.
            let _ = self.slots.unlock(0, 0);
        }
        ServerLost
    }
}

/// Once no other process is at the bucket, which takes microseconds. One that was stopped just then is not waited for.
async fn unlocked<T>(of: &str, mut get: impl FnMut() -> Result<Option<T>, ServerLost>) -> Result<T, ServerLost> {
    let began = tokio::time::Instant::now();
    while began.elapsed() < STOPPED {
        match get()? {
            Some(it) => return Ok(it),
            None => sleep(AGAIN).await,
        }
    }
    tracing::debug!(of, "another process on this machine has locked what is shared, and does not go on");
    Err(ServerLost)
}

fn warn(place: &str, why: &io::Error) {
    tracing::warn!(
        hint = "set `store.directory` to a place on a local disk that this user can write, and start politely again",
        "nothing is shared with other politely processes on this machine, and each paces requests alone: {place}: {why}"
    );
}

const AGAIN: Duration = Duration::from_millis(1);
const STOPPED: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
