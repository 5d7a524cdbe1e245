//! The command `politely`.

fn main() -> std::process::ExitCode {
    politely::cli::main()
}
