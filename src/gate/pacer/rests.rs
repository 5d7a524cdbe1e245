//! What hosts owe while nobody asks for them: a few numbers each, from which a queue is made anew.

use crate::policy::PaceKey;
use crate::policy::pace::{LastStarts, Observed, Rested};
use hashbrown::HashTable;
use parking_lot::Mutex;
use std::hash::{BuildHasher, RandomState};
use std::iter::once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// All unused queues that owe something.
pub(super) struct Rests {
    shards: Box<[Mutex<RestShard>]>,
    /// Keyed, so that no site can choose names of one hash.
    hasher: RandomState,
    /// The zero of all times.
    began: Instant,
    bytes: AtomicUsize,
}

#[derive(Default)]
struct RestShard {
    rests: HashTable<Rest>,
    /// Bytes outside the table.
    boxed: usize,
    /// Number at which those that owe nothing any more are dropped.
    sweep_at: usize,
}

/// One unused queue.
struct Rest {
    /// The key's hash.
    id: u64,
    /// The last start of the host and of its group, in nanoseconds.
    start: u64,
    /// The host's gap, rounded up, and the delay of its group, in milliseconds; 0: none.
    gap: u32,
    group: u32,
    /// `None`: the numbers above say it all.
    more: Option<Box<More>>,
}

struct More {
    /// Known in a fleet whose server may have to be told what is owed.
    key: Option<PaceKey>,
    /// In place of the numbers, with the end of all that is owed.
    uncommon: Option<Box<(RestedHost, Instant)>>,
}

/// What a queue is made of.
#[derive(Clone)]
pub(super) struct RestedHost {
    pub host: Rested,
    /// Its groups, by their delays.
    pub groups: Box<[(Duration, Rested)]>,
    /// The delay last logged as clamped, in milliseconds.
    pub clamp_logged: u64,
}

impl RestedHost {
    /// The host and its groups.
    pub fn all(&self) -> impl Iterator<Item = &Rested> {
        once(&self.host).chain(self.groups.iter().map(|(_, group)| group))
    }

    /// When nothing is owed any more.
    pub fn until(&self) -> Option<Instant> {
        self.all().filter_map(Rested::until).max()
    }
}

impl Rests {
    pub fn new() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, hasher: RandomState::new(), began: Instant::now(), bytes: AtomicUsize::new(0) }
    }

    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Keeps what an unused queue knows, `until` then. `is_named`: [`keys`](Self::keys) has it.
    pub fn put(&self, key: &PaceKey, kept: RestedHost, (now, until): (Instant, Instant), is_named: bool) {
        let id = self.hasher.hash_one(key);
        let key = is_named.then(|| key.clone());
        let rest = match self.common(id, &kept, now) {
            Some(common) => Rest { more: key.map(|key| Box::new(More { key: Some(key), uncommon: None })), ..common },
            None => {
                let more = More { key, uncommon: Some(Box::new((kept, until))) };
                Rest { id, start: 0, gap: 0, group: 0, more: Some(Box::new(more)) }
            }
        };
        self.change(id, |shard| {
            shard.remove(id);
            if shard.rests.len() >= shard.sweep_at {
                shard.sweep(|rest| self.until(rest) > now);
            }
            shard.boxed += rest.boxed();
            shard.rests.insert_unique(id, rest, |rest| rest.id);
        });
    }

    /// Takes what is kept, for a new queue.
    pub fn take(&self, key: &PaceKey) -> Option<RestedHost> {
        let id = self.hasher.hash_one(key);
        self.change(id, |shard| shard.remove(id)).map(|rest| self.kept(&rest))
    }

    /// What is kept.
    pub fn get(&self, key: &PaceKey) -> Option<RestedHost> {
        let id = self.hasher.hash_one(key);
        self.shard(id).lock().rests.find(id, |rest| rest.id == id).map(|rest| self.kept(rest))
    }

    /// The keys that were put with their names, by shard.
    pub fn keys(&self) -> impl Iterator<Item = Vec<PaceKey>> {
        let name = |rest: &Rest| rest.more.as_ref().and_then(|more| more.key.clone());
        self.shards.iter().map(move |shard| shard.lock().rests.iter().filter_map(name).collect())
    }

    /// Drops what is not owed any more.
    pub fn sweep(&self) {
        let now = Instant::now();
        for number in 0..SHARDS as u64 {
            self.change(number << 32, |shard| {
                shard.sweep(|rest| self.until(rest) > now);
                shard.rests.shrink_to_fit(|rest| rest.id);
            });
        }
    }

    /// The last start and the gap of a host, and of one group if they started together.
    fn common(&self, id: u64, kept: &RestedHost, now: Instant) -> Option<Rest> {
        let last_start = kept.all().map(|rested| rested.last.last_start).max()??;
        let is_common = |Rested { last, gap, gap_until, observed, .. }: &Rested| {
            *observed == Observed::default()
                && (gap.is_zero() || *gap_until == last.last_start.map(|start| start + *gap))
                && last.last_start.is_some_and(|start| start + TOGETHER >= last_start)
                && last.last_fetch <= last.last_start
                && last.hold.is_none_or(|hold| hold <= now)
        };
        let is_common = kept.clamp_logged == 0 && kept.groups.len() <= 1 && kept.all().all(is_common);
        let start = last_start.checked_duration_since(self.began).filter(|_| is_common)?;
        let millis = |duration: Duration| u32::try_from(duration.as_nanos().div_ceil(1_000_000)).ok();
        let group = kept.groups.first();
        let delay = group.map_or(Duration::ZERO, |(delay, _)| *delay);
        let (start, gap, group) = (u64::try_from(start.as_nanos()).ok()?, millis(kept.host.gap)?, millis(delay)?);
        // The delay is part of the group's key.
        (delay == MILLI * group).then_some(Rest { id, start, gap, group, more: None })
    }

    fn kept(&self, rest: &Rest) -> RestedHost {
        if let Some((kept, _)) = rest.uncommon() {
            return kept.clone();
        }
        let (start, observed, pauses_after) = (self.at(rest.start), Observed::default(), None);
        let last = LastStarts { last_start: Some(start), ..LastStarts::default() };
        let of = |millis| {
            let gap = MILLI * millis;
            Rested { last, gap, gap_until: Some(start + gap), observed, pauses_after }
        };
        let group = (rest.group > 0).then(|| (MILLI * rest.group, of(rest.group)));
        RestedHost { host: of(rest.gap), groups: group.into_iter().collect(), clamp_logged: 0 }
    }

    fn until(&self, rest: &Rest) -> Instant {
        match rest.uncommon() {
            Some((_, until)) => *until,
            None => self.at(rest.start) + MILLI * rest.gap.max(rest.group),
        }
    }

    fn at(&self, nanos: u64) -> Instant {
        self.began + Duration::from_nanos(nanos)
    }

    fn change<T>(&self, id: u64, change: impl FnOnce(&mut RestShard) -> T) -> T {
        let mut shard = self.shard(id).lock();
        let before = shard.bytes();
        let changed = change(&mut shard);
        self.bytes.fetch_add(shard.bytes().wrapping_sub(before), Ordering::Relaxed);
        changed
    }

    fn shard(&self, id: u64) -> &Mutex<RestShard> {
        // The table uses the other bits.
        &self.shards[(id >> 32) as usize % SHARDS]
    }
}

impl Rest {
    fn uncommon(&self) -> Option<&(RestedHost, Instant)> {
        self.more.as_ref()?.uncommon.as_deref()
    }

    fn boxed(&self) -> usize {
        let uncommon = self.uncommon().map_or(0, |(kept, _)| UNCOMMON_BYTES + size_of_val(&*kept.groups));
        self.more.as_ref().map_or(0, |_| MORE_BYTES + uncommon)
    }
}

impl RestShard {
    fn remove(&mut self, id: u64) -> Option<Rest> {
        let (rest, _) = self.rests.find_entry(id, |rest| rest.id == id).ok()?.remove();
        self.boxed -= rest.boxed();
        Some(rest)
    }

    fn sweep(&mut self, is_kept: impl Fn(&Rest) -> bool) {
        self.rests.retain(|rest| is_kept(rest));
        self.boxed = self.rests.iter().map(Rest::boxed).sum();
        self.sweep_at = self.rests.len() + self.rests.len() / 2 + MIN_SWEEP;
    }

    fn bytes(&self) -> usize {
        self.rests.allocation_size() + self.boxed
    }
}

const MILLI: Duration = Duration::from_millis(1);
/// A group's start is its host's: both are noted, one after the other.
const TOGETHER: Duration = Duration::from_millis(10);
const SHARDS: usize = 256;
const MIN_SWEEP: usize = 8;
/// With what an allocation takes; the name is the authority's.
const MORE_BYTES: usize = size_of::<More>() + 2 * size_of::<usize>();
const UNCOMMON_BYTES: usize = size_of::<(RestedHost, Instant)>() + 2 * size_of::<usize>();

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn rested(last_start: Option<Instant>, gap: Duration) -> Rested {
        let last = LastStarts { last_start, ..LastStarts::default() };
        let gap_until = last_start.map(|start| start + gap);
        Rested { last, gap, gap_until, observed: Observed::default(), pauses_after: None }
    }

    #[test]
    fn what_is_kept_comes_back_and_nothing_is_kept_for_longer_than_it_is_owed() {
        let rests = Rests::new();
        let (now, empty) = (rests.began + secs(60), rests.bytes());
        let host = |start| rested(Some(now - start), secs(100));
        let group = |delay, start| (delay, rested(Some(now - start), delay));
        let latency = Observed { latency: secs(1), ..Observed::default() };
        let all = [
            (host(secs(1)), vec![]),
            (rested(Some(now - secs(1)), Duration::ZERO), vec![group(secs(50), secs(1))]),
            // All that does not fit into few numbers.
            (host(secs(61)), vec![]),
            (host(secs(1)), vec![group(secs(50), secs(2))]),
            (host(secs(1)), vec![group(Duration::from_nanos(50_000_000_100), secs(1))]),
            (host(secs(1)), vec![group(secs(50), secs(1)), group(secs(20), secs(1))]),
            (Rested { observed: latency, ..host(secs(1)) }, vec![]),
            (Rested { gap_until: Some(now + secs(40)), ..host(secs(1)) }, vec![]),
            (
                Rested { last: LastStarts { hold: Some(now + secs(9)), ..LastStarts::default() }, ..host(secs(1)) },
                vec![],
            ),
        ];
        for (number, (host, groups)) in all.into_iter().enumerate() {
            for is_named in [false, true] {
                let key = PaceKey::from_text(&format!("{number}.example")).unwrap();
                let kept = RestedHost { host, groups: groups.clone().into(), clamp_logged: 0 };
                let until = kept.until().unwrap();
                rests.put(&key, kept, (now, until), is_named);
                assert_eq!(rests.keys().flatten().count(), usize::from(is_named));
                assert_eq!(rests.get(&key).unwrap().until(), Some(until), "{number}");
                let back = rests.take(&key).unwrap();
                assert_eq!((back.host, &*back.groups, back.until()), (host, &*groups, Some(until)), "{number}");
                assert!(rests.take(&key).is_none() && rests.shards.iter().all(|shard| shard.lock().boxed == 0));
            }
        }
        // Between them, the table is swept.
        for number in 0..100_000 {
            let key = PaceKey::from_text(&format!("{number}.example")).unwrap();
            let now = now + Duration::from_millis(number);
            let kept = RestedHost { host: rested(Some(now), secs(1)), groups: Box::default(), clamp_logged: 0 };
            rests.put(&key, kept, (now, now + secs(1)), false);
        }
        assert!(rests.bytes() < empty + SHARDS * 64 * size_of::<Rest>(), "{}", rests.bytes());
    }
}
