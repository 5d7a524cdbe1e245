//! The descendants of a process, from /proc.

use rustix::process::{Pid, Signal, getpid, kill_process};
use std::collections::HashMap;
use std::fs;
use std::io;

pub(in crate::cli) struct Descendant {
    pub pid: Pid,
    pub name: String,
    /// It has ended, and waits for its parent, or for the rest of its threads.
    pub has_ended: bool,
}

/// All descendants of this process.
pub(super) fn left() -> Vec<Descendant> {
    below(getpid(), |_| true)
}

/// The descendants of a process that are not another `politely run`'s, which looks after its own.
pub(in crate::cli) fn descendants(root: Pid) -> Vec<Descendant> {
    let own = program("self");
    below(root, |pid| own.is_none() || program(&pid.to_string()) != own)
}

/// Ignored if the process has ended.
pub(super) fn send(pid: Pid, signal: Signal) {
    let _ = kill_process(pid, signal);
}

/// Without a terminal, which needs the shared process group, a separate group keeps those of the outer one out of reach, and what is sent
/// to that from the command, which gets it from `run`.
pub(super) fn leave_group() -> io::Result<()> {
    if fs::File::open("/dev/tty").is_err() {
        rustix::process::setpgid(None, None)?;
    }
    Ok(())
}

/// The result of a system call that returns 0 for success.
pub(super) fn checked(result: impl Into<libc::c_long>) -> io::Result<()> {
    if result.into() == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `enters`: whether to look for the children of a process.
fn below(root: Pid, enters: impl Fn(Pid) -> bool) -> Vec<Descendant> {
    let mut children: HashMap<i32, Vec<(Pid, String, bool)>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        let Some(pid) = pid else { continue };
        let text = fs::read(entry.path().join("stat")).unwrap_or_default();
        if let Some((name, state, parent)) = stat(&text) {
            children.entry(parent).or_default().push((pid, name, matches!(state, b'Z' | b'X')));
        }
    }
    let (mut found, mut parents) = (Vec::new(), vec![root.as_raw_pid()]);
    while let Some(parent) = parents.pop() {
        for (pid, name, has_ended) in children.remove(&parent).unwrap_or_default() {
            if enters(pid) {
                parents.push(pid.as_raw_pid());
            }
            found.push(Descendant { pid, name, has_ended });
        }
    }
    found
}

/// Parses name, state and parent. A name may contain spaces and brackets.
fn stat(text: &[u8]) -> Option<(String, u8, i32)> {
    let (open, close) = (memchr::memchr(b'(', text)?, memchr::memrchr(b')', text)?);
    let name = String::from_utf8_lossy(text.get(open + 1..close)?).into_owned();
    let mut rest = str::from_utf8(text.get(close + 1..)?).ok()?.split_ascii_whitespace();
    Some((name, *rest.next()?.as_bytes().first()?, rest.next()?.parse().ok()?))
}

/// The name of the program that a process runs, also if another has taken its place.
pub(in crate::cli) fn program(pid: &str) -> Option<String> {
    let path = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    Some(path.file_name()?.to_string_lossy().trim_end_matches(" (deleted)").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_hides_nobodys_parent() {
        assert_eq!(stat(b"7 (a) S 99 (x) y) R 42 7 7 0"), Some(("a) S 99 (x) y".into(), b'R', 42)));
        for wrong in [&b""[..], b"7", b"7 (a", b"7 (a) R", b"7 (a) R x"] {
            assert_eq!(stat(wrong), None, "{}", wrong.escape_ascii());
        }
    }
}
