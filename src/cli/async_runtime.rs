//! The tokio runtime of subcommands that use the network.

use std::io;
use std::thread::available_parallelism;
use tokio::runtime::{Builder, Runtime};

pub(super) fn runtime() -> io::Result<Runtime> {
    limit_arenas();
    Builder::new_multi_thread().enable_all().build()
}

/// One arena for each core, where glibc has eight: the threads that look up names and read files, dozens of them, would leave a
/// mostly empty one each.
fn limit_arenas() {
    #[cfg(target_env = "gnu")]
    {
        let cores = available_parallelism().map_or(1, usize::from);
        // SAFETY: no thread has been started yet. Where it fails all is as it was.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, libc::c_int::try_from(cores).unwrap_or(libc::c_int::MAX)) };
    }
}
