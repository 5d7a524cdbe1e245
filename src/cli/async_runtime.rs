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
        let error =
            CommandError::usage(format!("cannot start the threads that this program needs: {why}"), MORE_PROCESSES);
        let _ = writeln!(io::stderr(), "{error}");
        std::process::exit(USAGE.into())
    }));
    // Starts one thread for blocking work now. No such thread ever ends: at the limit on threads, blocking work waits for an existing one.
    // Without any, tokio would panic at each name lookup.
    let started = Builder::new_multi_thread().enable_all().thread_keep_alive(Duration::MAX).build();
    let started = started.inspect(|runtime| drop(runtime.spawn_blocking(|| ())));
    set_hook(usual);
    started
}

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
