//! The tokio runtime of subcommands that use the network.

use std::io;
use tokio::runtime::{Builder, Runtime};

pub(super) fn runtime() -> io::Result<Runtime> {
    limit_arenas();
    Builder::new_multi_thread().enable_all().build()
}

/// One arena for each core, where glibc has eight: the threads that look up names and read files, dozens of them, would leave a
/// mostly empty one each. What the operator has set for it stays.
fn limit_arenas() {
    #[cfg(target_env = "gnu")]
    {
        let is_tuned = std::env::var("GLIBC_TUNABLES").is_ok_and(|tunables| tunables.contains("malloc.arena_max"));
        if is_tuned || std::env::var_os("MALLOC_ARENA_MAX").is_some() {
            return;
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // SAFETY: it sets a number under a lock of glibc's own. Where it fails all is as it was.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, libc::c_int::try_from(cores).unwrap_or(libc::c_int::MAX)) };
    }
}
