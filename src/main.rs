//! The command `politely`.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Makes the allocator reserve address space in steps of 32 MiB. With its default of 1 GiB, `ulimit -v` leaves no room for the shared file
/// of paces.
extern "C" fn limit_reserved_memory() {
    // SAFETY: the call only stores a number.
    unsafe { libmimalloc_sys::mi_option_set(ARENA_RESERVE, 32 << 10) };
}

// SAFETY: the loader calls the functions of this section before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = limit_reserved_memory;

fn main() -> ExitCode {
    // The panic hook has printed the message; the exit code marks a bug in this program.
    std::panic::catch_unwind(politely::main).unwrap_or(ExitCode::from(DEFECT))
}

/// Exit code for a bug in this program (EX_SOFTWARE of sysexits.h).
const DEFECT: u8 = 70;
/// `mi_option_arena_reserve` of mimalloc.h, in KiB.
const ARENA_RESERVE: libmimalloc_sys::mi_option_t = 23;
