//! The tokio runtime of subcommands that use the network.

use super::CommandError;
use super::command_error::USAGE;
use crate::config::MORE_PROCESSES;
use std::io::{self, Write};
use std::panic::{set_hook, take_hook};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// Runs a future to its end. What it has left on other threads is not waited for, such as an unanswered name look-up.
pub(super) fn block_on<F: Future>(future: F) -> Result<F::Output, CommandError> {
    tune_allocator();
    let runtime = start()?;
    let output = runtime.block_on(future);
    runtime.shutdown_background();
    Ok(output)
}

/// Where a thread cannot be started, tokio panics, and waits without end for those that were: the process ends instead.
fn start() -> io::Result<Runtime> {
    let usual = take_hook();
    set_hook(Box::new(|panic| {
        let why = panic.payload_as_str().unwrap_or_default();
        let error = CommandError::usage(format!("cannot start the threads that politely needs: {why}"), MORE_PROCESSES);
        let _ = writeln!(io::stderr(), "{error}");
        std::process::exit(USAGE.into())
    }));
    // One thread for what blocks is started now, and none ever ends: at the limit on threads, work waits for those that there are. Were
    // there none, tokio would panic at each look-up.
    let started = Builder::new_multi_thread().enable_all().thread_keep_alive(Duration::MAX).build();
    let started = started.inspect(|runtime| drop(runtime.spawn_blocking(|| ())));
    set_hook(usual);
    started
}

/// Has glibc give memory back. An operator's setting is kept.
///
/// - One arena for each core instead of eight: each of the dozens of threads that resolve names and read files would otherwise leave a
///   mostly empty one.
/// - Large blocks, such as long files, are mapped, and unmapped when they are freed. Otherwise those that are freed raise the limit to
///   32 MiB, and then most of an arena is holes between what is still in use.
fn tune_allocator() {
    #[cfg(target_env = "gnu")]
    for (number, value, name, tunable) in [
        (
            libc::M_ARENA_MAX,
            std::thread::available_parallelism().map_or(1, usize::from),
            "MALLOC_ARENA_MAX",
            "arena_max",
        ),
        (libc::M_MMAP_THRESHOLD, LARGE, "MALLOC_MMAP_THRESHOLD_", "mmap_threshold"),
    ] {
        let is_tuned = std::env::var("GLIBC_TUNABLES").is_ok_and(|all| all.contains(&format!("malloc.{tunable}")));
        if !is_tuned && std::env::var_os(name).is_none() {
            // SAFETY: sets a number under glibc's lock. On failure nothing changes.
            unsafe { libc::mallopt(number, libc::c_int::try_from(value).unwrap_or(libc::c_int::MAX)) };
        }
    }
}

/// Bytes of a block that is mapped: glibc's own first limit.
#[cfg(target_env = "gnu")]
const LARGE: usize = 128 << 10;

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
