//! The file in which the processes of a machine keep what has been spent of budgets, also for those that come after them.
//!
//! A budget's row is one of the few in its bucket, which is locked while a row in it is changed. A row whose period has
//! ended is free.

use super::locks::{LockFile, ROWS};
use super::slots::Id;
use crate::gate::fleet::Spend;
use crate::policy::Spent;
use parking_lot::Mutex;
use std::io;
use std::path::Path;
use std::time::SystemTime;

/// The file, open.
#[derive(Debug)]
pub(super) struct Budgets(Mutex<LockFile>);

impl Budgets {
    pub fn open(directory: &Path) -> io::Result<Self> {
        let file = LockFile::open(directory, FILE)?;
        if file.file.metadata()?.len() < SIZE {
            // What is never written takes no room on the disk.
            file.file.set_len(SIZE)?;
        }
        Ok(Self(Mutex::new(file)))
    }

    /// `None`: another is at this bucket, which takes microseconds. An error, or no room: each counts for itself.
    pub fn spend(&self, id: Id, spend: &Spend, now: SystemTime) -> io::Result<Option<(bool, Spent)>> {
        let bucket = BUCKET * (id.place % BUCKETS);
        // For this process' own: locks are between processes.
        let file = self.0.lock();
        if !file.lock(bucket, BUCKET)? {
            return Ok(None);
        }
        let spent = spend_locked(&file, id, bucket, spend, now);
        file.unlock(bucket, BUCKET)?;
        spent.map(Some)
    }
}

fn spend_locked(file: &LockFile, id: Id, bucket: u64, spend: &Spend, now: SystemTime) -> io::Result<(bool, Spent)> {
    let rows = file.bucket::<4>(bucket)?;
    let (ends, left) = spend.per.end(now);
    let now = ends.saturating_sub(left.as_secs());
    let known = rows.iter().find(|(_, [tag, ..])| *tag == id.tag);
    // One that ends later than any period does was written by a clock gone wrong.
    let free = || rows.iter().find(|(_, [_, ends, ..])| *ends <= now || *ends > now + FAR);
    let Some(&(place, _)) = known.or_else(free) else {
        return Err(io::Error::other("there are more budgets than fit"));
    };
    let kept = known.map(|&(_, [_, ends, requests, bytes])| Spent { ends, requests, bytes }).unwrap_or_default();
    let (goes, spent) = spend.after(kept.in_period(ends));
    if goes {
        file.write(place, [id.tag, spent.ends, spent.requests, spent.bytes])?;
    }
    Ok((goes, spent))
}

/// With the version of what is in it.
const FILE: &str = "politely.budgets2";
/// A row has a tag, the end of a period, requests and bytes.
const BUCKET: u64 = (ROWS * 4 * 8) as u64;
const BUCKETS: u64 = 8192;
const SIZE: u64 = BUCKET * BUCKETS;
/// Seconds: longer than any period.
const FAR: u64 = 2 * 86_400;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Budget, Period};
    use std::time::Duration;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn one(within: Option<u64>) -> Spend {
        let within = within.map(|most| Budget { requests: Some(most), bytes: None, per: Period::Hour });
        Spend { per: Period::Hour, requests: 1, bytes: 10, within, heard: Spent::default() }
    }

    #[track_caller]
    fn spent(file: &Budgets, key: &str, spend: Spend, now: u64) -> (bool, u64, u64) {
        let (goes, spent) =
            file.spend(Id::of(key), &spend, at(now)).expect("the file is there").expect("nobody is at it");
        (goes, spent.requests, spent.bytes)
    }

    #[test]
    fn what_one_spends_another_finds_spent_and_so_do_later_ones() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (one_file, other) = (Budgets::open(directory.path()).unwrap(), Budgets::open(directory.path()).unwrap());
        assert_eq!(spent(&one_file, "a", one(Some(2)), 10), (true, 1, 10));
        assert_eq!(spent(&other, "a", one(Some(2)), 11), (true, 2, 20));
        assert_eq!(spent(&one_file, "a", one(Some(2)), 12), (false, 2, 20));
        assert_eq!(spent(&other, "b", one(Some(2)), 12), (true, 1, 10));
        drop((one_file, other));
        let next = Budgets::open(directory.path()).unwrap();
        assert_eq!(spent(&next, "a", one(Some(2)), 3599), (false, 2, 20));
        assert_eq!(spent(&next, "a", one(Some(2)), 3600), (true, 1, 10), "another hour");
        let unsent = |ends| Spend { heard: Spent { ends, ..Spent::default() }, ..Spend::of(Period::Hour, -1, 0) };
        assert_eq!(spent(&next, "a", unsent(3600), 3600), (true, 1, 10), "it was paid in the hour before");
        assert_eq!(spent(&next, "a", unsent(7200), 3600), (true, 0, 10));
        let heard = |ends| Spend { heard: Spent { ends, requests: 5, bytes: 5 }, ..one(None) };
        assert_eq!(spent(&next, "a", heard(3600), 3600), (true, 1, 20), "of the hour before");
        assert_eq!(spent(&next, "a", heard(7200), 3600), (true, 6, 30), "more than this one knew of");
    }

    #[test]
    fn rows_are_used_again_when_their_periods_are_over() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = Budgets::open(directory.path()).unwrap();
        let fill = |now: u64| {
            let all = (0..BUCKETS * 16).map(|key| file.spend(Id::of(&key.to_string()), &one(None), at(now)).is_ok());
            all.filter(|is_kept| *is_kept).count()
        };
        let kept = fill(10);
        assert!(kept > BUCKETS as usize * 6 && kept <= BUCKETS as usize * 8, "{kept}");
        assert_eq!(fill(4000), kept);
        assert_eq!(file.0.lock().file.metadata().unwrap().len(), SIZE);
    }

    #[test]
    fn a_clock_gone_wrong_blocks_nothing() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = Budgets::open(directory.path()).unwrap();
        assert_eq!(spent(&file, "a", one(Some(1)), 1_000_000_000), (true, 1, 10));
        assert_eq!(spent(&file, "a", one(Some(1)), 10), (true, 1, 10), "set back, it begins anew");
    }
}
