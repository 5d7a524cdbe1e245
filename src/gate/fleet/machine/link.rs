//! The link to the file that the machine's processes share (`slots`). The file cannot be opened while its disk is full, and somebody may
//! remove it: then requests try to open it again. Until that succeeds, or if nothing is to be shared, the state is in this process's own
//! memory.

use super::{Machine, warn};
use crate::gate::fleet::{Reach, ServerLost};
use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// This process's link to the other processes of its machine.
pub(in crate::gate) struct MachineLink {
    /// `None`: nothing is to be shared.
    directory: Option<PathBuf>,
    /// Upper limit of a debt, that is, of the time for which nothing may start.
    most: Duration,
    /// The shared state in use, in the file or in this process's own memory.
    last: ArcSwap<Machine>,
    /// The state that was in use before the file was opened again. It may hold debts of hosts, that is, times before which nothing may
    /// start.
    before: ArcSwapOption<Machine>,
    /// When this process last checked that the file is in its place.
    looked: Mutex<Instant>,
}

impl MachineLink {
    /// Opens the file in `directory`; if that fails, uses memory instead. `directory`: `None` if nothing is to be shared. `most`: upper
    /// limit of a debt.
    pub fn open(directory: Option<&Path>, most: Duration) -> Arc<Self> {
        let directory = directory.map(Path::to_owned);
        let opened = directory.as_deref().and_then(|directory| {
            let opened = Machine::open(directory, most, WAIT);
            opened.inspect_err(|error| warn(&directory.display().to_string(), error)).ok()
        });
        let last = Arc::new(opened.unwrap_or_else(|| Machine::unnamed(most)));
        let (before, looked) = (ArcSwapOption::empty(), Mutex::new(Instant::now()));
        Arc::new(Self { directory, most, last: last.into(), before, looked })
    }

    /// The state in use. Checks once a second at most whether the file is still in its place, and opens it again if not.
    pub fn machine(&self) -> Arc<Machine> {
        let last = self.last.load_full();
        let Some(directory) = &self.directory else { return last };
        let Some(mut looked) = self.looked.try_lock().filter(|looked| looked.elapsed() >= AGAIN) else {
            return last;
        };
        *looked = Instant::now();
        if last.is_there() {
            return last;
        }
        let Ok(opened) = Machine::open(directory, self.most, Duration::ZERO) else { return last };
        tracing::info!("paces are shared with the other proxies on this machine again");
        self.last.store(Arc::new(opened));
        self.before.store(Some(last));
        self.last.load_full()
    }

    /// The state that was in use before, if any, and the state in use.
    pub fn all(&self) -> impl Iterator<Item = Arc<Machine>> {
        let now = self.machine();
        self.before.load_full().into_iter().chain([now])
    }

    /// The state in use. Fails if it should be shared with other processes but is not.
    pub fn shared(&self) -> Result<Arc<Machine>, ServerLost> {
        let machine = self.machine();
        if self.directory.is_none() || machine.is_shared() { Ok(machine) } else { Err(ServerLost) }
    }

    #[inline]
    pub fn reach(&self) -> Reach {
        Reach { link: 1, alone: self.last.load().part(), ..Reach::default() }
    }

    /// The state in use, if it has replaced `machine`.
    #[inline]
    pub fn instead_of(&self, machine: &Arc<Machine>) -> Option<Arc<Machine>> {
        let may_be = self.directory.is_some() && !machine.is_shared();
        may_be.then(|| self.machine()).filter(|now| !Arc::ptr_eq(now, machine))
    }
}

/// Time for which this process, while it starts, waits for another process that opens the file.
const WAIT: Duration = Duration::from_secs(2);
/// Minimum time between two checks.
const AGAIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_that_lost_the_file_shares_nothing_until_it_opens_another() {
        let above = tempfile::tempdir().expect("a temporary directory");
        let directory = above.path().join("store");
        let link = MachineLink::open(Some(&directory), Duration::from_secs(3600));
        let first = link.machine();
        assert!(link.shared().is_ok());
        std::fs::remove_dir_all(&directory).expect("our own file");
        std::fs::write(&directory, "no directory").expect("is writable");
        let look = || {
            *link.looked.lock() -= AGAIN;
            link.machine()
        };
        assert!(Arc::ptr_eq(&look(), &first) && !first.is_shared());
        assert!(link.shared().is_err() && link.instead_of(&first).is_none());
        std::fs::remove_file(&directory).expect("our own file");
        let second = look();
        assert!(second.is_shared() && link.shared().is_ok());
        assert!(link.instead_of(&first).is_some_and(|now| Arc::ptr_eq(&now, &second)));
        assert!(link.instead_of(&second).is_none());
    }

    #[test]
    fn process_uses_its_own_memory_until_it_can_open_the_file() {
        let above = tempfile::tempdir().expect("a temporary directory");
        let directory = above.path().join("store");
        std::fs::write(&directory, "no directory").expect("is writable");
        let link = MachineLink::open(Some(&directory), Duration::from_secs(3600));
        assert!(!link.machine().is_shared() && link.shared().is_err());
        std::fs::remove_file(&directory).expect("our own file");
        *link.looked.lock() -= AGAIN;
        assert!(link.shared().is_ok_and(|machine| machine.is_shared()));
        assert!(MachineLink::open(None, AGAIN).shared().is_ok(), "nothing is to be shared");
    }
}
