//! The tokio runtime of subcommands that use the network.

use std::io;
use tokio::runtime::Builder;

/// Runs a future to its end. What it has left on other threads is not waited for, such as an unanswered name look-up.
pub(super) fn block_on<F: Future>(future: F) -> io::Result<F::Output> {
    limit_arenas();
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let output = runtime.block_on(future);
    runtime.shutdown_background();
    Ok(output)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_on_other_threads_is_not_waited_for() {
        let (until, busy) = std::sync::mpsc::channel::<()>();
        let begun = async { drop(tokio::task::spawn_blocking(move || busy.recv())) };
        block_on(begun).expect("a runtime");
        drop(until);
    }
}
