//! Removes segments older than `keep`, and records this in the chain.

use super::Writer;
use super::retention::ages;
use super::start::is_full;
use crate::evidence::record::Draft;
use crate::evidence::segment::Stored;
use crate::evidence::timestamp;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};

impl Writer {
    /// Removes the segments that ended more than `keep` ago, the oldest first; stops at the first that did not. Returns whether any was
    /// removed.
    pub(super) fn remove_old(&mut self, now: SystemTime) -> io::Result<bool> {
        let keep = Duration::from_secs(self.queue.keep.load(Relaxed));
        let all = Stored::all(&self.directory)?;
        let begun: Vec<_> = all.iter().map(|stored| stored.began).collect();
        let mut removed = false;
        for (pair, age) in all.windows(2).zip(ages(&begun, keep, now)) {
            if age <= keep {
                break;
            }
            let number = pair[0].number;
            let line = removal(pair, now.checked_sub(age).unwrap_or(now), now);
            let said = match self.stuck.contains(&number) {
                true => Ok(()),
                false => self.catch_up().and_then(|()| self.chain.line(&line)).and_then(|()| self.chain.sync()),
            };
            let is_said = match said {
                Err(error) if !is_full(&error) => return Err(error),
                said => said.is_ok(),
            };
            if let Err(error) = pair[0].remove() {
                tracing::error!(segment = %pair[0].path.display(), "old evidence cannot be removed: {error}");
                self.stuck.extend(is_said.then_some(number));
                continue;
            }
            removed = true;
            if !is_said {
                // The line about the removal uses the space that the removal has freed.
                self.pending.push(line);
                let _ = self.catch_up();
            }
        }
        if removed && let Some(first) = Stored::all(&self.directory)?.first() {
            timestamp::remove_before(&self.directory, first.number)?;
        }
        Ok(removed)
    }
}

/// The line that records the removal of the first of these two segments.
fn removal(pair: &[Stored], ended: SystemTime, now: SystemTime) -> Vec<u8> {
    let mut draft = Draft::new("removed", now);
    draft.number("segment", pair[0].number);
    draft.hash("head", &pair[0].head(&pair[1]));
    draft.time("from", pair[0].began);
    draft.time("to", ended);
    draft.end(<[u8]>::to_vec)
}
