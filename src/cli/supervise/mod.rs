//! The supervisor between `politely run` and its command: passes signals on, tracks every process that the command starts, and ends all
//! of them once the command or `run` has ended.
//!
//! On a terminal, the supervisor and the command stay in the process group of `run`, so that the terminal treats them as it would treat the
//! command alone; elsewhere the two form a separate group. Signals sent to `run` are passed through a socket, one byte each. When `run`
//! ends, the socket is closed.

mod bounds;
mod isolation;
mod namespaces;
pub(super) mod processes;
mod signal_fd;

pub(super) use isolation::is_isolated;

use super::CommandError;
use super::command_error::exit_code;
use super::hand_over::SuperviseArgs;
use super::signal_set::is_by_signal;
use processes::{Descendant, NOT_KNOWN, descendants, leave_group, leftover_processes, send};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitOptions, getpid, set_child_subreaper, set_parent_process_death_signal, wait};
use signal_fd::SignalFd;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Runs the command. The exit code is the command's.
pub(super) fn run(args: &SuperviseArgs) -> Result<ExitCode, CommandError> {
    let control = args.control()?;
    let signals = SignalFd::open()?;
    if args.isolate
        && let Some(code) = isolation::enter(&control, &signals, ONCE_TOLD + 2 * UNKILLABLE)?
    {
        return Ok(ExitCode::from(code));
    }
    if !args.isolate {
        leave_group()?;
    }
    // Makes this process the new parent of orphaned descendants.
    set_child_subreaper(Some(getpid())).map_err(io::Error::from)?;
    let restore = signals.restore();
    let prepare = move || {
        restore()?;
        Ok(set_parent_process_death_signal(Some(Signal::TERM))?)
    };
    let Some(child) = args.start(&control, prepare)? else { return Ok(ExitCode::FAILURE) };
    control.set_nonblocking(true)?;
    let (command, program) = (Pid::from_child(&child), &args.command[0]);
    Ok(ExitCode::from(Supervisor { command, program, quiet: args.quiet, control: Some(control), signals }.watch()))
}

struct Supervisor<'a> {
    command: Pid,
    program: &'a OsStr,
    quiet: bool,
    /// `None`: `run` has ended, and with it the proxy.
    control: Option<UnixStream>,
    signals: SignalFd,
}

/// The stage of ending the command's processes, with the time of the next step.
#[derive(Clone, Copy)]
enum EndStage {
    /// The command runs.
    Running,
    /// The command has ended; the leftover processes may end by themselves.
    Left(Instant),
    /// The leftover processes were told to end.
    Told(Instant),
    /// The leftover processes are being killed.
    Killed(Instant),
}

impl Supervisor<'_> {
    /// Runs until no process is left, and returns the command's exit code.
    fn watch(mut self) -> u8 {
        let (mut stage, mut code, mut is_to_end) = (EndStage::Running, None, false);
        let mut passed = Passed::default();
        // Signals that arrived before the command started have not reached the command, not even those that the terminal sent.
        let mut heard: Vec<_> = self.signals.read().into_iter().map(|(signal, _)| (signal, false)).collect();
        loop {
            let is_running = matches!(stage, EndStage::Running);
            let is_left = self.reap(&mut code);
            if is_running && code.is_some() {
                // Signals that arrived before the command's end were meant for the command, and may have ended it.
                heard.extend(self.signals.read());
            }
            for (signal, is_terminals) in heard {
                if is_running && !is_terminals {
                    is_to_end |= self.pass_on(signal, &mut passed);
                } else if !is_running && ENDING.contains(&signal) && passed.is_new(signal) {
                    stage = self.kill(stage, &leftover_processes());
                }
            }
            is_to_end |= code.is_some_and(is_by_signal);
            stage = match self.next_stage(stage, code, is_left, is_to_end) {
                Ok(stage) => stage,
                Err(()) => return code.unwrap_or(NOT_KNOWN),
            };
            heard = self
                .read_signals(if matches!(stage, EndStage::Running) { None } else { Some(TICK) })
                .unwrap_or_else(|()| {
                    self.control = None;
                    stage = self.ask_to_end(&leftover_processes());
                    is_to_end = true;
                    Vec::new()
                });
        }
    }

    /// Returns the stage to continue in. `Err`: no process is left, or nothing more can be done.
    fn next_stage(&self, stage: EndStage, code: Option<u8>, is_left: bool, is_to_end: bool) -> Result<EndStage, ()> {
        if matches!(stage, EndStage::Running) && code.is_none() {
            return Ok(stage);
        }
        if !is_left {
            return Err(());
        }
        let left = leftover_processes();
        let now = Instant::now();
        Ok(match stage {
            EndStage::Running if is_to_end => self.ask_to_end(&left),
            EndStage::Running => EndStage::Left(now + BY_ITSELF),
            EndStage::Left(until) if now >= until => self.ask_to_end(&left),
            EndStage::Told(until) if now >= until => self.kill(stage, &left),
            EndStage::Killed(until) => {
                left.iter().for_each(|process| send(process.pid, Signal::KILL));
                if now >= until {
                    self.report_leftovers(&left, "could not be ended");
                    return Err(());
                }
                stage
            }
            EndStage::Left(_) | EndStage::Told(_) => stage,
        })
    }

    fn ask_to_end(&self, left: &[Descendant]) -> EndStage {
        self.report_leftovers(left, "outlived the command; told to end (SIGTERM)");
        for process in left {
            send(process.pid, Signal::TERM);
            send(process.pid, Signal::CONT);
        }
        EndStage::Told(Instant::now() + ONCE_TOLD)
    }

    /// Reports the leftover processes. Returns the stage in which [`next_stage`](Self::next_stage) kills them.
    fn kill(&self, stage: EndStage, left: &[Descendant]) -> EndStage {
        if matches!(stage, EndStage::Killed(_)) {
            return stage;
        }
        self.report_leftovers(left, "outlived the command; killed (SIGKILL)");
        EndStage::Killed(Instant::now() + UNKILLABLE)
    }

    fn report_leftovers(&self, left: &[Descendant], what: &str) {
        let others = left.iter().filter(|process| process.pid != self.command && !process.has_ended);
        let mut names: Vec<_> = others.map(|process| format!("{} ({})", process.name, process.pid)).collect();
        if names.len() > SHOWN {
            let more = names.split_off(SHOWN).len();
            names.push(format!("{more} more"));
        }
        let names = if left.is_empty() { "processes that /proc does not show".into() } else { names.join(", ") };
        // Never blocks: the command may have filled a pipe or stopped the terminal.
        let ready = poll(&mut [PollFd::new(&io::stderr(), PollFlags::OUT)], Some(&Timespec::default()));
        if !self.quiet && !names.is_empty() && ready.is_ok_and(|ready| ready > 0) {
            let _ = io::stderr().write_all(&leftover_message(self.program, &names, what));
        }
    }

    /// The signals since the last call, and whether the terminal sent each: passed on by `run`, or sent directly to this process or its
    /// group. `Err`: `run` is gone.
    fn read_signals(&mut self, wait: Option<Duration>) -> Result<Vec<(Signal, bool)>, ()> {
        self.signals.wait(self.control.as_ref().map(|control| (control, PollFlags::IN)), wait);
        let mut heard = self.signals.read();
        let mut bytes = [0; 64];
        match self.control.as_mut().map(|control| control.read(&mut bytes)) {
            Some(Ok(0)) => return Err(()),
            Some(Ok(length)) => {
                let signals = bytes[..length].iter().filter_map(|byte| Signal::from_named_raw((*byte).into()));
                heard.extend(signals.map(|signal| (signal, false)));
            }
            Some(Err(_)) | None => {}
        }
        Ok(heard)
    }

    /// Passes a signal on. Returns whether the signal asks the command to end.
    fn pass_on(&self, signal: Signal, passed: &mut Passed) -> bool {
        if signal == Signal::CHILD || !passed.is_new(signal) {
            return false;
        }
        if STOP.contains(&signal) {
            descendants(getpid()).iter().for_each(|process| send(process.pid, signal));
        } else {
            send(self.command, signal);
        }
        ENDING.contains(&signal)
    }

    /// Reaps all ended children, and tells whether any process is left. Orphans become children of this process, so that without
    /// children there are no descendants, whatever /proc shows.
    fn reap(&self, code: &mut Option<u8>) -> bool {
        loop {
            let (pid, status) = match retry_on_intr(|| wait(WaitOptions::NOHANG)) {
                Ok(Some(ended)) => ended,
                Ok(None) => return true,
                Err(_) => return false,
            };
            if pid == self.command {
                *code = Some(exit_code(status.exit_status(), status.terminating_signal()));
            }
        }
    }
}

/// Recently passed signals: `timeout` and shells send a signal both to a process and to its group.
#[derive(Default)]
struct Passed(Vec<(Signal, Instant)>);

impl Passed {
    fn is_new(&mut self, signal: Signal) -> bool {
        let now = Instant::now();
        self.0.retain(|(_, at)| now.duration_since(*at) < SAME);
        let is_new = self.0.iter().all(|(known, _)| *known != signal);
        if is_new {
            self.0.push((signal, now));
        }
        is_new
    }
}

/// The message about leftover processes, cut to the bytes that a writable pipe accepts without blocking (`PIPE_BUF`).
fn leftover_message(program: &OsStr, names: &str, what: &str) -> Vec<u8> {
    let (program, names) = (super::inert(&program.to_string_lossy()), super::inert(names));
    let said = format!("politely: {program} left behind: {names}: {what}");
    let said = &said[..said.floor_char_boundary(libc::PIPE_BUF - 1)];
    format!("{said}\n").into_bytes()
}

/// Signals that reach every process of the command, as the terminal's Ctrl-C does.
const STOP: [Signal; 3] = [Signal::INT, Signal::QUIT, Signal::TERM];
/// Signals that end most commands. After the command's end, such a signal ends the leftover processes.
const ENDING: [Signal; 4] = [Signal::INT, Signal::QUIT, Signal::TERM, Signal::HUP];
/// Time for leftover processes to end by themselves, as they may be writing their last output.
const BY_ITSELF: Duration = Duration::from_secs(5);
const ONCE_TOLD: Duration = Duration::from_secs(5);
const UNKILLABLE: Duration = Duration::from_secs(2);
const SHOWN: usize = 20;
const TICK: Duration = Duration::from_millis(50);
const SAME: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_about_leftover_processes_fits_into_one_pipe_write() {
        let said =
            |program: &str| String::from_utf8(leftover_message(program.as_ref(), "sleep (7)", "killed")).unwrap();
        assert_eq!(said("sh"), "politely: sh left behind: sleep (7): killed\n");
        for letter in ["x", "é", "\u{1b}"] {
            let long = said(&letter.repeat(5000));
            assert!(long.len() <= libc::PIPE_BUF && long.ends_with('\n'), "{long}");
        }
    }
}
