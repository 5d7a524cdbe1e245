//! `politely hash-password`: prints the hash for `access.users`.

use super::signal_set::ENDING;
use super::{CommandError, Explained, INTERRUPTED};
use argon2::{Argon2, PasswordHasher};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use std::io::{self, IsTerminal, Read};
use std::os::fd::BorrowedFd;
use std::process::ExitCode;
use std::sync::OnceLock;

pub(super) fn run() -> Result<ExitCode, CommandError> {
    let password = read()?;
    if let Some(what) = complaint(&password) {
        return Err(CommandError::usage(what, "a password is one line of text without control characters"));
    }
    let hash = Argon2::default().hash_password(password.as_bytes()).map_err(io::Error::other)?;
    super::print(&format!("{hash}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the password twice from the terminal, without echo, or else once from standard input.
fn read() -> Result<String, CommandError> {
    if !io::stdin().is_terminal() {
        let mut text = String::new();
        let read = io::stdin().lock().take(MOST + 1).read_to_string(&mut text);
        read.explained("cannot read the password", "write one line of UTF-8")?;
        return Ok(text
            .strip_suffix('\n')
            .map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line))
            .to_owned());
    }
    let terminal = SilentTerminal::begin()?;
    let (password, again) = (terminal.ask("Password: ")?, terminal.ask("Again: ")?);
    if password != again {
        return Err(CommandError::usage("the two passwords differ", "run it again"));
    }
    Ok(password)
}

/// Keeps the terminal's echo off until dropped.
struct SilentTerminal {
    before: Termios,
}

impl SilentTerminal {
    fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO | LocalModes::ISIG);
        silent.local_modes.insert(LocalModes::ECHONL);
        // No signal may leave the terminal without echo: Ctrl-C and Ctrl-\ end the line instead, and are handled here.
        for (end, key) in
            [(SpecialCodeIndex::VEOL, SpecialCodeIndex::VINTR), (SpecialCodeIndex::VEOL2, SpecialCodeIndex::VQUIT)]
        {
            silent.special_codes[end] = before.special_codes[key];
        }
        restore_at_signals(&before);
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self { before })
    }

    fn ask(&self, prompt: &str) -> Result<String, CommandError> {
        let hint = "type one line of UTF-8";
        eprint!("{prompt}");
        // A terminal gives one line for each read.
        let mut line = vec![0; MOST as usize + 2];
        let length = rustix::io::read(io::stdin(), &mut line).map_err(io::Error::from)?;
        line.truncate(length);
        let line = String::from_utf8(line).map_err(|_| CommandError::usage("this is not UTF-8", hint))?;
        let ends =
            [SpecialCodeIndex::VINTR, SpecialCodeIndex::VQUIT].map(|key| char::from(self.before.special_codes[key]));
        if line.ends_with(ends) {
            eprintln!();
            return Err(CommandError { message: "error: interrupted".into(), code: ExitCode::from(INTERRUPTED) });
        }
        Ok(line.strip_suffix('\n').unwrap_or(&line).to_owned())
    }
}

impl Drop for SilentTerminal {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.before);
    }
}

/// Makes a signal from outside, such as SIGTERM or a terminal's SIGHUP, restore the echo before it ends this program.
fn restore_at_signals(before: &Termios) {
    let _ = BEFORE.set(before.clone());
    for signal in ENDING {
        // SAFETY: the handler only makes async-signal-safe calls.
        unsafe {
            if libc::signal(signal, restore as *const () as libc::sighandler_t) == libc::SIG_IGN {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
    }
}

extern "C" fn restore(signal: libc::c_int) {
    if let Some(before) = BEFORE.get() {
        // SAFETY: nothing closes standard input.
        let input = unsafe { BorrowedFd::borrow_raw(libc::STDIN_FILENO) };
        let _ = tcsetattr(input, OptionalActions::Flush, before);
    }
    // SAFETY: these take only numbers. The signal takes effect when this handler returns.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

static BEFORE: OnceLock<Termios> = OnceLock::new();

fn complaint(password: &str) -> Option<&'static str> {
    if password.is_empty() {
        return Some("the password is empty");
    }
    if password.len() as u64 > MOST {
        return Some("the password is longer than 4096 bytes");
    }
    // RFC 7617 §2 forbids control characters.
    password.chars().any(char::is_control).then_some("the password has a control character, or more than one line")
}

/// Longest password, in bytes.
const MOST: u64 = 4096;
