//! The fleet of one machine: all processes with the same store keep one pace for each host and fetch each robots.txt once
//! (docs/fleet.md).
//!
//! No process serves the others. They share a memory-mapped file of atomic 64-bit integers, the words (`slots`). Each key, such as a host,
//! has a slot there. A process reserves a start in the slot, takes the key's turn (a lock) when the start is due, and records the start
//! before it sends the request. Copies of robots.txt are in the store.

mod budgets;
mod clock;
mod key_id;
mod link;
mod machine_file;
mod order;
mod slot;
mod slots;
mod start;
mod words;

use super::{ServerLost, Spend};
use crate::config::hint_for;
use crate::policy::Spent;
use crate::policy::pace::{LastStarts, Observed, Phase};
use clock::{instant, micros, micros_up, span};
pub(in crate::gate) use link::MachineLink;
use machine_file::MachineFile;
use parking_lot::Mutex;
use slot::KeySlot;
pub(in crate::gate) use start::{MachineStart, MachineTurn, MachineView};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tokio::time::sleep;
use words::SharedWords;

/// The state that the processes of this machine share in one file, as one process sees it.
pub(in crate::gate) struct Machine {
    /// `None`: nothing is shared.
    file: Option<MachineFile>,
    words: SharedWords,
    /// Secret hash key, created with the file: no site can choose names that share a bucket.
    key: u64,
    /// This process's number, with the number's generation in the upper half.
    me: u32,
    /// Held while a key is added: the file lock excludes other processes, but not this process's own threads.
    inserting: Mutex<()>,
    /// Number of segments known to exist.
    segments: AtomicUsize,
    most_segments: usize,
    /// Number of slots that this process was the first to use.
    used: AtomicUsize,
    is_full_told: AtomicBool,
    /// Whether somebody has removed or damaged the file, which has been logged: later processes use another file.
    is_gone: AtomicBool,
    /// Upper limit of a debt, that is, of the time for which nothing may start.
    most: Duration,
    /// The number of processes when the file was lost, and this process's rank among them.
    parted: OnceLock<(u32, u32)>,
    /// Process ID (pid) of the suspended process that was warned of last.
    warned_of: AtomicU32,
}

impl Machine {
    fn with(
        file: Option<MachineFile>,
        words: SharedWords,
        (key, segments, most_segments): (u64, usize, usize),
        me: u32,
        most: Duration,
    ) -> Self {
        Self {
            file,
            words,
            key,
            me,
            inserting: Mutex::default(),
            segments: AtomicUsize::new(segments),
            used: AtomicUsize::default(),
            most_segments,
            is_full_told: AtomicBool::default(),
            is_gone: AtomicBool::default(),
            most,
            parted: OnceLock::new(),
            warned_of: AtomicU32::default(),
        }
    }

    /// The id of a key: a host, a group, or the file of an authority (`key_id`).
    pub fn id(&self, name: &str) -> u64 {
        key_id::id(self.key, name)
    }

    /// A key's state. `None`: unknown.
    #[inline]
    pub fn view(&self, id: u64, at: Instant) -> Option<MachineView> {
        Some(self.find(id)?.view(at, self.most))
    }

    /// The last start at a host, including the starts of its groups; and the end of the longest gap owed.
    pub fn debt(&self, id: u64, at: Instant) -> [Option<Instant>; 2] {
        let debts = self.of_host(id).map(|slot| slot.view(at, self.most));
        debts.fold([None; 2], |[start, owed], view| [start.max(view.starts.last_start), owed.max(view.owed)])
    }

    /// Reserves the next free start of a key for this process.
    pub fn reserve(&self, id: u64, start: MachineStart, at: Instant) -> Option<MachineStart> {
        let now = micros(at);
        Some(MachineStart { own: Some(self.with_slot(id, now, |slot| slot.reserve(start, now))?), ..start })
    }

    /// The time of a reserved start, which is postponed while the key is late (`order`). `None`: the reservation is lost.
    pub fn reserved(&self, id: u64, start: &mut MachineStart, at: Instant) -> Option<Instant> {
        instant(self.find(id)?.reserved(start, micros(at))?)
    }

    /// Gives back an unused start.
    pub fn give_back(&self, id: u64, start: MachineStart) {
        if let Some(slot) = self.find(id) {
            slot.give_back(start);
        }
    }

    /// Takes the key's turn, a lock: while this process has it, no other process starts a request. Call only without the turn.
    pub fn take(&self, id: u64, start: MachineStart, at: Instant) -> MachineTurn {
        let times = (micros(at), span(self.most));
        // If the file is gone, no request starts before this process has looked for another file.
        if self.is_shared() && !self.is_there() {
            return MachineTurn::Busy;
        }
        loop {
            let take = |slot: KeySlot<'_>| slot.take(start, self.me, times, |process| self.lives(process));
            let Some(taken) = self.with_slot(id, times.0, take) else { return MachineTurn::Busy };
            if let Some(turn) = taken {
                return turn;
            }
        }
    }

    /// Records that the request with the key's turn is about to be sent or, if `is_gone`, was sent. `at`: when it should reach the host.
    pub fn left(&self, id: u64, start: MachineStart, at: Instant, is_gone: bool) {
        self.of(id, |slot| slot.left(start, self.me, micros_up(at), is_gone));
    }

    /// Releases the key's turn, if this process has it.
    pub fn release(&self, id: u64) {
        if let Some(slot) = self.find(id) {
            slot.release(self.me);
        }
    }

    /// Records a host's backoff, latency and refusals, and until when it has asked for no requests (`hold`).
    pub fn learn(&self, id: u64, observed: Observed, hold: Option<Instant>) {
        self.of(id, |slot| slot.learn(observed, hold.map_or(0, micros_up)));
    }

    /// Records the last starts of a key, and when the debts that they cause end.
    pub fn owe(&self, id: u64, starts: LastStarts, until: Instant) {
        self.of(id, |slot| slot.owe(starts, micros_up(until)));
    }

    /// Warns of the process with the key's turn, if it is suspended. `what_waits`: the middle of the message, which says what that process
    /// does and which requests wait for it.
    pub fn warn_of_stopped(&self, id: u64, what_waits: &str) {
        let process = self.find(id).and_then(|slot| slot.process());
        let Some(pid) = process.and_then(|process| self.pid(process)).filter(|pid| is_stopped(*pid)) else { return };
        if self.warned_of.swap(pid, Ordering::Relaxed) != pid {
            tracing::warn!(
                hint = "continue it (`fg`, or `kill -CONT`), or end it",
                "another `politely` (process {pid}) is suspended {what_waits} wait until it continues or ends"
            );
        }
    }

    /// Takes the right to fetch a file, which is the turn of a separate key. False: this or another process has the right, or another asks
    /// for it now.
    pub fn take_right(&self, name: &str) -> bool {
        self.of(self.id(name), |slot| slot.take_right(self.me, |process| self.lives(process))).unwrap_or(false)
    }

    /// Gives the right back, if this process has it.
    pub fn give_right(&self, name: &str) {
        self.release(self.id(name));
    }

    /// Spends from a budget shared by all processes, including later ones.
    pub async fn spend(&self, of: &str, spend: &Spend) -> Result<(bool, Spent), ServerLost> {
        let id = key_id::of_budget(self.key, &format!("{of} {}", spend.per.as_str()));
        let began = tokio::time::Instant::now();
        while began.elapsed() < STOPPED {
            let spends = |slot: KeySlot<'_>| budgets::spend(slot, spend, SystemTime::now());
            if let Some(spent) = self.with_slot(id, micros(Instant::now()), spends) {
                return Ok(spent);
            }
            sleep(AGAIN).await;
        }
        tracing::debug!(of, "the spending from a budget cannot be shared now");
        Err(ServerLost)
    }

    /// Uses the key's slot. Tries several times, as another process may be adding a key, which takes microseconds.
    fn of<R>(&self, id: u64, uses: impl Fn(KeySlot<'_>) -> R) -> Option<R> {
        let now = micros(Instant::now());
        (0..NOTE_TRIES).find_map(|_| self.with_slot(id, now, &uses))
    }

    /// Whether the file is still in its place, where other processes find it.
    fn is_there(&self) -> bool {
        let is_missing =
            |error: io::Error| matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
        let is_named = |file: &MachineFile| file.is_named().unwrap_or_else(|error| !is_missing(error));
        let is_there = self.is_shared() && self.file.as_ref().is_some_and(is_named);
        if !is_there && self.file.is_some() && !self.is_gone.swap(true, Ordering::Relaxed) {
            let why = "it was removed, or cannot be read any more";
            warn("the shared file of paces", &io::Error::new(io::ErrorKind::NotFound, why));
            if self.part().is_some() {
                self.give_up();
            }
        }
        is_there
    }

    /// The time slices in which this process may start requests, if the file is lost: all processes have then lost it, and each keeps to
    /// its own slices.
    #[inline]
    pub fn part(&self) -> Option<Phase> {
        self.words.is_lost().then(|| {
            let (instances, rank) = *self.parted.get_or_init(|| self.processes());
            Phase { instances, rank, epoch: instant(1).unwrap_or_else(Instant::now) }
        })
    }

    /// Whether other processes see this state, as far as is known.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.file.is_some() && !self.words.is_lost() && !self.is_gone.load(Ordering::Relaxed)
    }
}

/// Whether the process is suspended.
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['T', 't']))
}

fn warn(place: &str, why: &io::Error) {
    let hint = match why.kind() {
        io::ErrorKind::StorageFull => "make room on its disk",
        io::ErrorKind::NotFound => "leave the files of the store where they are while a proxy uses them",
        _ => "set `store.directory` to a place on a local disk that this user can write, and restart the proxy",
    };
    let hint = hint_for(&why.to_string(), hint);
    tracing::warn!(
        hint,
        "nothing is shared with other proxies on this machine for now: each paces requests alone, and this process forgets \
         delays when it ends ({place}: {why})"
    );
}

const AGAIN: Duration = Duration::from_millis(1);
const STOPPED: Duration = Duration::from_secs(2);
const NOTE_TRIES: u32 = 1000;

#[cfg(test)]
mod tests;
