//! The way to the machine's file. It cannot be opened while its disk is full, and somebody may remove it: while requests come, it is
//! opened again.

use super::{Machine, warn};
use crate::gate::fleet::Reach;
use crate::policy::pace::Phase;
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// This process's place among those of its machine.
pub(in crate::gate) struct MachineLink {
    directory: PathBuf,
    /// Upper limit of a debt.
    most: Duration,
    /// The file that was opened last, which may be lost.
    last: ArcSwapOption<Machine>,
    /// When somebody last looked for the file.
    looked: Mutex<Instant>,
}

impl MachineLink {
    /// `most`: upper limit of a debt. `None`: not on this system.
    pub fn open(directory: &Path, most: Duration) -> Option<Arc<Self>> {
        if cfg!(not(target_os = "linux")) {
            tracing::debug!("processes share paces only on Linux or through a fleet's server");
            return None;
        }
        let opened = Machine::open(directory, most, WAIT);
        let opened = opened.inspect_err(|error| warn(&directory.display().to_string(), error));
        let (last, looked) = (ArcSwapOption::from(opened.ok().map(Arc::new)), Mutex::new(Instant::now()));
        Some(Arc::new(Self { directory: directory.to_owned(), most, last, looked }))
    }

    /// The processes that share the file, which may be lost. `None`: it could never be opened.
    pub fn machine(&self) -> Option<Arc<Machine>> {
        let last = self.last.load_full();
        let Some(mut looked) = self.looked.try_lock().filter(|looked| looked.elapsed() >= AGAIN) else {
            return last;
        };
        *looked = Instant::now();
        if last.as_ref().is_some_and(|machine| machine.is_there()) {
            return last;
        }
        let Ok(opened) = Machine::open(&self.directory, self.most, Duration::ZERO) else { return last };
        tracing::info!("paces are shared with the other politely processes on this machine again");
        self.last.store(Some(Arc::new(opened)));
        self.last.load_full()
    }

    #[inline]
    pub fn reach(&self) -> Reach {
        let alone = || Phase { instances: 1, rank: 0, epoch: Instant::now() };
        let last = self.last.load();
        last.as_ref().map_or_else(|| Reach { alone: Some(alone()), ..Reach::default() }, |machine| machine.reach())
    }
}

/// How long the start waits for another process that opens the file.
const WAIT: Duration = Duration::from_secs(2);
/// Between two looks.
const AGAIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_has_lost_the_file_knows_so_until_it_has_another() {
        let above = tempfile::tempdir().expect("a temporary directory");
        let directory = above.path().join("store");
        let link = MachineLink::open(&directory, Duration::from_secs(3600)).expect("on Linux");
        let first = link.machine().expect("it is open");
        std::fs::remove_dir_all(&directory).expect("it is ours");
        std::fs::write(&directory, "no directory").expect("it is writable");
        let look = || {
            *link.looked.lock() -= AGAIN;
            link.machine().expect("it was open")
        };
        assert!(Arc::ptr_eq(&look(), &first) && first.is_lost());
        assert_eq!(link.reach().alone.map(|phase| phase.instances), Some(1));
        std::fs::remove_file(&directory).expect("it is ours");
        let second = look();
        assert!(!second.is_lost() && link.reach().link > 0);
    }
}
