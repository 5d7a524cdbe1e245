//! The command `politely`.

use std::process::ExitCode;

fn main() -> ExitCode {
    // The panic has said what and where; the exit code says whose fault it was.
    std::panic::catch_unwind(politely::main).unwrap_or(ExitCode::from(DEFECT))
}

/// A defect of ours (EX_SOFTWARE of sysexits.h).
const DEFECT: u8 = 70;
