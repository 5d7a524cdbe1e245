//! What stands between `politely run` and its command on systems other than Linux: it passes signals on, and ends the command when `run`
//! has gone. Of what the command has started it knows nothing.

use super::CommandError;
use super::command_error::exit_code;
use super::hand_over::SuperviseArgs;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitCode};
use std::thread;
use std::time::Duration;

/// Runs the command. The exit code is the command's.
#[cfg_attr(target_os = "linux", allow(dead_code))]
pub(super) fn run(args: &SuperviseArgs) -> Result<ExitCode, CommandError> {
    if args.isolate {
        return Err(CommandError::usage(
            "`--isolate` needs Linux",
            "leave it out: then a command that ignores the proxy variables bypasses the proxy",
        ));
    }
    let control = args.control()?;
    // The terminal sends them to the command, too, which decides.
    let before = SIGNALS.map(|signal| (signal, ignore(signal)));
    let restore = move || before.iter().try_for_each(|(signal, handler)| restore(*signal, *handler));
    let Some(child) = args.start(&control, restore)? else { return Ok(ExitCode::FAILURE) };
    Ok(ExitCode::from(watch(child, control)?))
}

/// Until the command has ended.
fn watch(mut child: Child, mut control: UnixStream) -> io::Result<u8> {
    let command = Pid::from_child(&child);
    // It may have ended.
    let send = move |signal| _ = kill_process(command, signal);
    thread::spawn(move || {
        let mut byte = [0];
        while matches!(control.read(&mut byte), Ok(1..)) {
            Signal::from_named_raw(byte[0].into()).into_iter().for_each(send);
        }
        // `run` has gone, and with it the way out.
        send(Signal::TERM);
        #[expect(clippy::disallowed_methods, reason = "this process serves nothing")]
        thread::sleep(ONCE_TOLD);
        send(Signal::KILL);
    });
    let status = child.wait()?;
    Ok(exit_code(status.code(), status.signal()))
}

/// Returns what was done before.
fn ignore(signal: libc::c_int) -> libc::sighandler_t {
    // SAFETY: nothing of ours runs in its handler.
    unsafe { libc::signal(signal, libc::SIG_IGN) }
}

fn restore(signal: libc::c_int, handler: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: it is what was there before.
    match unsafe { libc::signal(signal, handler) } {
        libc::SIG_ERR => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// What `run` passes on, or a terminal sends to all.
const SIGNALS: [libc::c_int; 7] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2, libc::SIGALRM];
const ONCE_TOLD: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    /// A shell that has set its traps.
    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        let mut child = command.args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        child
    }

    #[test]
    fn signals_reach_the_command_and_its_exit_code_comes_back() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let child = shell("trap 'exit 7' USR1; echo ready; while :; do sleep 0.01; done");
        ours.write_all(&[libc::SIGUSR1 as u8]).unwrap();
        assert_eq!(watch(child, theirs).unwrap(), 7);
    }

    #[test]
    fn the_command_ends_when_run_has_gone() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let child = shell("echo ready; exec sleep 60");
        drop(ours);
        assert_eq!(watch(child, theirs).unwrap(), 128 + libc::SIGTERM as u8);
    }
}
