//! The tokio runtime of subcommands that use the network.

use super::CommandError;
use super::command_error::USAGE;
use crate::config::MORE_PROCESSES;
use std::io::{self, Write};
use std::panic::{set_hook, take_hook};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// Runs a future to its end. Does not wait for its tasks on other threads, such as an unanswered name lookup.
pub(super) fn block_on<F: Future>(future: F) -> Result<F::Output, CommandError> {
    tune_allocator();
    let runtime = start()?;
    let output = runtime.block_on(future);
    runtime.shutdown_background();
    Ok(output)
}

/// Starts the runtime. Exits the process if a thread cannot be started, as tokio would panic and wait forever for its other threads.
fn start() -> io::Result<Runtime> {
    let usual = take_hook();
    set_hook(Box::new(|panic| {
        let why = panic.payload_as_str().unwrap_or_default();
        let error = CommandError::usage(format!("cannot start the threads that politely needs: {why}"), MORE_PROCESSES);
        let _ = writeln!(io::stderr(), "{error}");
        std::process::exit(USAGE.into())
    }));
    // Starts one thread for blocking work now, and never ends any: at the limit on threads, blocking work waits for an existing thread.
    // Without any such thread, tokio would panic at each name lookup.
    let started = Builder::new_multi_thread().enable_all().thread_keep_alive(Duration::MAX).build();
    let started = started.inspect(|runtime| drop(runtime.spawn_blocking(|| ())));
    set_hook(usual);
    started
}

/// Makes glibc return freed memory to the system. Does not override an operator's settings.
///
/// - One arena per core instead of eight: otherwise each of the dozens of threads that resolve names and read files leaves a mostly
///   empty arena.
/// - Large blocks, such as long files, are mapped, and unmapped when freed. By default, each one freed raises the threshold for mapping,
///   up to 32 MiB, and the arenas become fragmented.
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

/// Minimum size of a mapped block in bytes: glibc's initial threshold.
#[cfg(target_env = "gnu")]
const LARGE: usize = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtime_does_not_wait_for_blocking_tasks() {
        let (until, busy) = std::sync::mpsc::channel::<()>();
        let begun = async { drop(tokio::task::spawn_blocking(move || busy.recv())) };
        block_on(begun).expect("a runtime");
        drop(until);
    }
}
