//! The tokio runtime of subcommands that use the network.

use std::io;
use tokio::runtime::{Builder, Runtime};

pub(super) fn runtime() -> io::Result<Runtime> {
    limit_arenas();
    Builder::new_multi_thread().enable_all().build()
}

/// Limits glibc to one arena for each core instead of eight: each of the dozens of threads that resolve names and read files would
/// otherwise leave a mostly empty one. An operator's setting is kept.
fn limit_arenas() {
    #[cfg(target_env = "gnu")]
    {
        let is_tuned = std::env::var("GLIBC_TUNABLES").is_ok_and(|tunables| tunables.contains("malloc.arena_max"));
        if is_tuned || std::env::var_os("MALLOC_ARENA_MAX").is_some() {
            return;
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // SAFETY: sets a number under glibc's lock. On failure nothing changes.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, libc::c_int::try_from(cores).unwrap_or(libc::c_int::MAX)) };
    }
}
