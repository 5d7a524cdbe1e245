//! The descendants of a process, from /proc.

use rustix::process::{Pid, Signal, getpid, kill_process};
use std::collections::HashMap;
use std::fs;
use std::io;

pub(in crate::cli) struct Descendant {
    pub pid: Pid,
    pub name: String,
    /// The process has ended, but its parent has not reaped it, or other threads of it still run.
    pub has_ended: bool,
}

/// All descendants of this process.
pub(super) fn leftover_processes() -> Vec<Descendant> {
    below(getpid(), |_| true)
}

/// The descendants of a process. Leaves out the descendants of another `politely run` among them, which watches its own command.
pub(in crate::cli) fn descendants(root: Pid) -> Vec<Descendant> {
    let own = program("self");
    below(root, |pid| own.is_none() || program(&pid.to_string()) != own)
}

/// Sends a signal; ignored if the process has ended.
pub(super) fn send(pid: Pid, signal: Signal) {
    let _ = kill_process(pid, signal);
}

/// Moves this process to a process group of its own, unless there is a terminal, whose signals need the shared group. From its own group,
/// the command cannot signal the processes of the outer group, and it gets signals to the outer group only once, from `run`.
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

/// The descendants of `root`. `enters`: whether to look for the children of a process.
fn below(root: Pid, enters: impl Fn(Pid) -> bool) -> Vec<Descendant> {
    let mut children: HashMap<i32, Vec<Descendant>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        let Some(pid) = pid else { continue };
        let text = fs::read(entry.path().join("stat")).unwrap_or_default();
        if let Some((name, state, parent)) = stat(&text) {
            let has_ended = matches!(state, b'Z' | b'X');
            children.entry(parent).or_default().push(Descendant { pid, name, has_ended });
        }
    }
    let (mut found, mut parents) = (Vec::new(), vec![root.as_raw_pid()]);
    while let Some(parent) = parents.pop() {
        let below = children.remove(&parent).unwrap_or_default();
        parents.extend(below.iter().map(|child| child.pid).filter(|pid| enters(*pid)).map(Pid::as_raw_pid));
        found.extend(below);
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

/// The name of the program that a process runs, even if its file has been replaced.
pub(in crate::cli) fn program(pid: &str) -> Option<String> {
    let path = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    Some(path.file_name()?.to_string_lossy().trim_end_matches(" (deleted)").to_owned())
}

/// The exit code of a process that ended in an unknown way.
pub(super) const NOT_KNOWN: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_is_parsed_despite_brackets_in_the_process_name() {
        assert_eq!(stat(b"7 (a) S 99 (x) y) R 42 7 7 0"), Some(("a) S 99 (x) y".into(), b'R', 42)));
        for wrong in [&b""[..], b"7", b"7 (a", b"7 (a) R", b"7 (a) R x"] {
            assert_eq!(stat(wrong), None, "{}", wrong.escape_ascii());
        }
    }
}
