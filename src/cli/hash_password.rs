//! `politely hash-password`: what `access.users` has in place of a password.

use super::CommandError;
use argon2::{Argon2, PasswordHasher};
use std::io::{self, IsTerminal, Read};
use std::process::ExitCode;

pub(super) fn run() -> Result<ExitCode, CommandError> {
    let password = read()?;
    if let Some(what) = complaint(&password) {
        return Err(CommandError::usage(what, "a password is one line of text without control characters"));
    }
    let hash = Argon2::default().hash_password(password.as_bytes()).map_err(io::Error::other)?;
    super::print(&format!("{hash}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// From the terminal twice, without showing it, else what standard input has.
fn read() -> Result<String, CommandError> {
    if !io::stdin().is_terminal() {
        let mut text = String::new();
        io::stdin().lock().take(MOST + 1).read_to_string(&mut text)?;
        return Ok(text
            .strip_suffix('\n')
            .map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line))
            .to_owned());
    }
    let password = rpassword::prompt_password("Password: ")?;
    if password != rpassword::prompt_password("Again: ")? {
        return Err(CommandError::usage("the two passwords differ", "run it again"));
    }
    Ok(password)
}

fn complaint(password: &str) -> Option<&'static str> {
    if password.is_empty() {
        return Some("the password is empty");
    }
    if password.len() as u64 > MOST {
        return Some("the password is longer than 4096 bytes");
    }
    // RFC 7617 §2.
    password.chars().any(char::is_control).then_some("the password has a control character, or more than one line")
}

/// Bytes of a password.
const MOST: u64 = 4096;
