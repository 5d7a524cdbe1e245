//! The command `politely`.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // The panic hook has printed the message; the exit code marks a bug in politely.
    std::panic::catch_unwind(politely::main).unwrap_or(ExitCode::from(DEFECT))
}

/// Exit code for a bug in politely itself (EX_SOFTWARE of sysexits.h).
const DEFECT: u8 = 70;
