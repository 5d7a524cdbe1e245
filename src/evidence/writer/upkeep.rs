//! What is done beside writing: segments that were kept long enough are removed, full ones compressed.

use super::super::bodies::Bodies;
use super::super::draft::Draft;
use super::super::segment::Stored;
use super::Writer;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime};

impl Writer {
    /// Removes what was kept long enough, and compresses what is full.
    pub(super) fn look_after(&mut self, now: SystemTime) {
        self.looked = Instant::now();
        // So that it can be removed in its time, however little is written.
        if self.records > 0 && self.segment.is_over(now, u64::MAX) {
            self.next_segment(now);
        }
        // Both change what lies there.
        if self.helper.as_ref().is_some_and(|helper| !helper.is_finished()) {
            return;
        }
        let removed = match self.clock.is_steady(now) {
            true => self.remove_old(now).unwrap_or_else(|error| {
                tracing::error!(directory = %self.directory.display(), "old evidence cannot be removed: {error}");
                false
            }),
            false => false,
        };
        let (directory, bodies) = (self.directory.clone(), self.bodies.clone());
        let helper = std::thread::Builder::new().name("politely-evidence-gzip".into());
        self.helper = helper.spawn(move || help(&directory, &bodies, removed)).ok();
    }

    /// The oldest segments, up to one that ended less than `keep` ago. Whether there were any.
    fn remove_old(&mut self, now: SystemTime) -> Result<bool, String> {
        let keep = Duration::from_secs(self.shared.keep.load(Relaxed));
        let mut removed = false;
        let all = Stored::all(&self.directory).map_err(|error| error.to_string())?;
        let begun: Vec<_> = all.iter().map(|stored| stored.beginning().ok()).collect();
        for (old, after) in all.iter().zip((1..).map_while(|next| begun.get(next..))) {
            // The first line of the next names its last. It ended before any later one began, whatever the clock of then said.
            let Some(Some((_, head))) = after.first() else { break };
            let Some(ended) = after.iter().flatten().map(|(began, _)| *began).min() else { break };
            if now.duration_since(ended).is_ok_and(|age| age > keep) {
                let mut draft = Draft::new("removed", now);
                draft.number("segment", old.number);
                draft.hash("head", head);
                if let Ok((began, _)) = old.beginning() {
                    draft.time("from", began);
                }
                draft.time("to", ended);
                self.say(draft).and_then(|()| self.segment.sync(false)).map_err(|error| error.to_string())?;
                fs::remove_file(&old.path).map_err(|error| error.to_string())?;
                removed = true;
            } else {
                break;
            }
        }
        Ok(removed)
    }
}

fn help(directory: &Path, bodies: &Bodies, removed: bool) {
    let done = (|| {
        let all = Stored::all(directory)?;
        if let Some((_, full)) = all.split_last() {
            full.iter().filter(|stored| !stored.is_packed).try_for_each(Stored::pack)?;
        }
        if removed {
            // A clock that went back has dated some before those that came earlier.
            let began = all.iter().map(|stored| stored.beginning().map(|(began, _)| began));
            let oldest = began.collect::<Result<Vec<_>, _>>().ok().and_then(|all| all.into_iter().min());
            oldest.map_or(Ok(()), |oldest| bodies.sweep(oldest))?;
        }
        io::Result::Ok(())
    })();
    if let Err(error) = done {
        tracing::error!(directory = %directory.display(), "evidence cannot be compressed or cleared: {error}");
    }
}

/// Tells a clock that was set from time that has passed.
#[derive(Default)]
pub struct Clock {
    seen: Option<(SystemTime, Instant)>,
    stepped: Option<Instant>,
}

impl Clock {
    /// Whether it has not been set forward lately: what is old by a wrong clock is not removed at once.
    pub fn is_steady(&mut self, now: SystemTime) -> bool {
        let (wall, since) = *self.seen.get_or_insert_with(|| (now, Instant::now()));
        let expected = wall + since.elapsed();
        if now.duration_since(expected).is_ok_and(|ahead| ahead > STEP) {
            (self.seen, self.stepped) = (Some((now, Instant::now())), Some(Instant::now()));
        }
        self.stepped.is_none_or(|stepped| stepped.elapsed() > DISTRUST)
    }
}

/// Between two looks at what is old.
pub(super) const LOOK: Duration = Duration::from_secs(3600);
const STEP: Duration = Duration::from_secs(60);
const DISTRUST: Duration = Duration::from_secs(6 * 3600);
