//! Signals that `run` forwards to its command, and the end of all processes of the command.

use crate::support::{eventually, within};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};

/// `politely run FLAGS COMMAND` on its own, with a directory for what the command writes.
struct Run {
    child: Child,
    home: tempfile::TempDir,
}

impl Run {
    fn start(flags: &[&str], script: &str) -> Self {
        let mut command = Command::new("env");
        // A shell has what it starts in the background ignore these.
        command.args(["--default-signal=INT,QUIT,HUP", env!("CARGO_BIN_EXE_politely"), "run"]);
        command.args(flags).args(["sh", "-c", script]);
        Self::of(command)
    }

    fn of(mut command: Command) -> Self {
        let home = tempfile::tempdir().expect("a temporary directory");
        command.env("HOME", home.path()).env("XDG_CACHE_HOME", home.path()).env("STATE_DIRECTORY", home.path());
        command.current_dir(home.path()).stdout(Stdio::null()).stderr(Stdio::piped());
        Self { child: command.spawn().expect("it is built"), home }
    }

    fn signal(&self, signal: libc::c_int) {
        let pid = self.child.id().expect("not waited for yet").cast_signed();
        // SAFETY: two numbers; the child is not waited for yet.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }

    /// The numbers that the command has written into the file `pids`, when these are so many.
    async fn pids(&self, count: usize) -> Vec<u32> {
        let file = self.home.path().join("pids");
        let read = || -> Vec<u32> {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            text.lines().filter_map(|line| line.parse().ok()).collect()
        };
        eventually("the command's numbers", || read().len() >= count).await;
        read()
    }

    async fn ended(self) -> (Option<i32>, String) {
        let output = within("its end", self.child.wait_with_output()).await.expect("our child");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Whether the process exists. Zombies do not count.
fn is_there(pid: u32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).unwrap_or_default();
    !stat.is_empty() && !stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X']))
}

/// A command in three parts: the shell, its child, and one that has left group and session.
const THREE: &str = "echo $$ >> pids; setsid sh -c 'echo $$ >> pids; sleep 300; true' & \
                     sh -c 'echo $$ >> pids; exec sleep 300'; true";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signal_to_run_ends_all_processes_that_it_started() {
    for isolate in [&[][..], &["--isolate"]] {
        for (signal, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143), (libc::SIGHUP, 129)] {
            let run = Run::start(isolate, THREE);
            let pids = run.pids(3).await;
            run.signal(signal);
            let (ended, said) = run.ended().await;
            if said.contains("cannot isolate") {
                return eprintln!("skipped: this system lets nobody isolate a command here");
            }
            assert_eq!(ended, Some(code), "{isolate:?} {signal}: {said}");
            if isolate.is_empty() {
                assert!(!pids.iter().any(|pid| is_there(*pid)), "{signal}: {pids:?}: {said}");
            }
            assert!(!said.contains("nothing came through"), "{said}");
        }
    }
}

/// Nothing can forward the signal, so the supervisor has to notice the end of `run`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_run_leaves_no_processes() {
    let run = Run::start(&[], THREE);
    let pids = run.pids(3).await;
    run.signal(libc::SIGKILL);
    run.ended().await;
    eventually("their end", || !pids.iter().any(|pid| is_there(*pid))).await;
}

/// On a busy machine, the command runs before its supervisor has reported its start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_killed_before_the_start_report_leaves_no_processes() {
    let (mut ours, theirs) = UnixStream::pair().expect("two ends");
    ours.write_all(&[0]).expect("there is room");
    let mut command = Command::new("env");
    command.args(["--ignore-signal=TERM", env!("CARGO_BIN_EXE_politely"), "supervise", "9", "--"]);
    command.args(["sh", "-c", "echo $$ >> pids; exec sleep 300"]);
    let inherit = move || match unsafe { libc::dup2(theirs.as_raw_fd(), 9) } {
        -1 => Err(std::io::Error::last_os_error()),
        _ => Ok(()),
    };
    // SAFETY: `dup2` takes two integers, and may be called between fork and exec.
    unsafe { command.pre_exec(inherit) };
    // Nobody reads what it says.
    drop(ours);
    let run = Run::of(command);
    let pids = run.pids(1).await;
    let (ended, said) = run.ended().await;
    assert!(!is_there(pids[0]), "{said}");
    assert_eq!(ended, Some(137), "it was told to end, and then killed: {said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_outliving_the_command_is_ended_and_named() {
    let script = "setsid sh -c 'echo $$ >> pids; exec sleep 300' & echo $$ >> pids; sleep 0.2; exit 3";
    let run = Run::start(&[], script);
    let pids = run.pids(2).await;
    let (ended, said) = run.ended().await;
    assert_eq!(ended, Some(3), "{said}");
    assert!(!pids.iter().any(|pid| is_there(*pid)), "{pids:?}: {said}");
    assert!(said.contains("sh left behind: sleep ("), "{said}");
    let silent = Run::start(&["-q"], script);
    let (ended, said) = silent.ended().await;
    assert!(ended == Some(3) && !said.contains("left behind"), "{ended:?}: {said}");
}

/// The process may be writing the last of the output.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn background_process_about_to_end_is_waited_for() {
    let run = Run::start(&[], "(sleep 1; echo done > last) & exit 0");
    let last = run.home.path().join("last");
    let home = tempfile::tempdir().expect("a temporary directory");
    let copy = home.path().join("last");
    let kept = copy.clone();
    tokio::spawn(async move {
        while std::fs::copy(&last, &kept).is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let (ended, said) = run.ended().await;
    assert!(ended == Some(0) && !said.contains("left behind"), "{ended:?}: {said}");
    eventually("the last of it", || std::fs::read_to_string(&copy).is_ok_and(|text| text == "done\n")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_ignoring_sigterm_is_killed_or_at_once_on_a_second_signal() {
    let stubborn = "sh -c \"trap '' TERM INT; echo \\$\\$ >> pids; while :; do sleep 1; done\" & sleep 0.2; exit 5";
    let run = Run::start(&[], stubborn);
    let pids = run.pids(1).await;
    eventually("the command's end", || !is_there(pids[0]) || is_orphan(pids[0])).await;
    run.signal(libc::SIGTERM);
    tokio::time::sleep(Duration::from_millis(300)).await;
    run.signal(libc::SIGTERM);
    let (ended, said) = run.ended().await;
    assert_eq!(ended, Some(5), "{said}");
    assert!(!is_there(pids[0]), "{said}");
}

/// Ends only by SIGKILL, and says its number once the supervisor knows that the command which has started it is over.
const STUBBORN: &str = "sh -c 'trap \"\" TERM INT HUP; while [ -e /proc/$0 ]; do sleep 0.05; done; \
                        echo $$ >> pids; while :; do sleep 1; done' $$ & exit 3";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signal_after_the_commands_end_kills_leftover_processes_at_once() {
    for flags in [&[][..], &["--isolate"]] {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
            let run = Run::start(flags, STUBBORN);
            let pids = run.pids(1).await;
            tokio::time::sleep(Duration::from_millis(300)).await;
            run.signal(signal);
            let (ended, said) = run.ended().await;
            if said.contains("cannot isolate") {
                return eprintln!("skipped: this system lets nobody isolate a command here");
            }
            assert_eq!(ended, Some(3), "{flags:?} {signal}: {said}");
            assert!(said.contains("killed (SIGKILL)") && !said.contains("told to end"), "{flags:?} {signal}: {said}");
            assert!(!flags.is_empty() || !is_there(pids[0]), "{signal}: {said}");
        }
    }
}

/// The terminal sends the signal to `run` and to the leftover processes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_after_the_commands_end_kills_leftover_processes_at_once() {
    for isolate in ["", "--isolate"] {
        let inner = STUBBORN.replace('\'', "'\\''");
        let shell = format!("exec {} run {isolate} sh -c '{inner}' 2> said", env!("CARGO_BIN_EXE_politely"));
        let keys = "until [ -s pids ]; do sleep 0.05; done; sleep 0.3; printf '\\003'; sleep 5";
        let mut command = Command::new("bash");
        command.args([
            "-c",
            "(eval \"$0\") | script -qec \"$1\" /dev/null; code=$?; cat said >&2; exit $code",
            keys,
            &shell,
        ]);
        let (ended, said) = Run::of(command).ended().await;
        assert_eq!(ended, Some(3), "{isolate}: {said}");
        assert!(said.contains("killed (SIGKILL)") && !said.contains("told to end"), "{isolate}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_hidden_by_hidepid_are_waited_for() {
    // SAFETY: it takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("skipped: only root can mount such a /proc");
    }
    let hidden = "import ctypes,time; ctypes.CDLL(None).prctl(4, 0); open('pids', 'w').write('1\\n'); ";
    let start = |last: &str| {
        let python = format!("{hidden}{last}");
        let script = "chown 61184 . && mount -t proc -o hidepid=2 proc /proc && \
                      exec setpriv --reuid=61184 --regid=61184 --clear-groups --inh-caps=-all \"$0\" run sh -c \
                      '/usr/bin/python3 -c \"$0\" > /dev/null 2>&1 & until [ -s pids ]; do sleep 0.05; done; exit 3' \"$1\"";
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_politely"), &python]);
        Run::of(command)
    };
    let run = start("time.sleep(1); open('last', 'w')");
    let last = run.home.path().join("last");
    let Run { child, home } = run;
    let output = within("its end", child.wait_with_output()).await.expect("our child");
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("ermission denied") {
        return eprintln!("skipped: {said}");
    }
    assert_eq!((output.status.code(), last.exists()), (Some(3), true), "{said}");
    drop(home);
    let run = start("time.sleep(30)");
    run.pids(1).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    run.signal(libc::SIGTERM);
    let (ended, said) = run.ended().await;
    assert_eq!(ended, Some(3), "{said}");
    assert!(said.contains("left behind: processes that /proc does not show: could not be ended"), "{said}");
}

/// Whether its parent is not the shell any more that has started it.
fn is_orphan(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let parent = stat.rsplit(')').next().and_then(|rest| rest.split_ascii_whitespace().nth(1)).unwrap_or_default();
    let of_parent = std::fs::read_to_string(format!("/proc/{parent}/comm")).unwrap_or_default();
    of_parent.trim() == "politely"
}

/// Waits for a SIGINT, and then for another for a second and a half.
const COUNTING: &str = "n=0; trap 'n=$((n+1))' INT; echo $$ >> pids; i=0; \
                        while [ $i -lt 600 ]; do sleep 0.1; i=$((i+1+39*(n>0))); done; exit $((40+n))";

/// Scrapy takes a second SIGINT for impatience.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_receives_sigint_once() {
    let run = Run::start(&["-q"], COUNTING);
    run.pids(1).await;
    run.signal(libc::SIGINT);
    assert_eq!(run.ended().await.0, Some(41));
    // The same with an outer `run`.
    let binary = env!("CARGO_BIN_EXE_politely");
    let run = Run::start(
        &["-q"],
        &format!(
            "trap '' INT; exec env --default-signal=INT {binary} run -q sh -c '{}'",
            COUNTING.replace('\'', "'\\''")
        ),
    );
    run.pids(1).await;
    run.signal(libc::SIGINT);
    assert_eq!(run.ended().await.0, Some(41));
}

/// The terminal sends Ctrl-C to the command itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_receives_ctrl_c_once() {
    for isolate in ["", "--isolate"] {
        let inner = COUNTING.replace('\'', "'\\''");
        let shell = format!("exec {} run -q {isolate} sh -c '{inner}'", env!("CARGO_BIN_EXE_politely"));
        let keys = "until [ -s pids ]; do sleep 0.05; done; sleep 0.2; printf '\\003'; sleep 5";
        let mut command = Command::new("bash");
        command.args(["-c", "(eval \"$0\") | script -qec \"$1\" /dev/null", keys, &shell]);
        let (ended, said) = Run::of(command).ended().await;
        assert_eq!(ended, Some(41), "{isolate}: {said}");
    }
}

/// `timeout` signals its own process group as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_under_timeout_ends_with_its_command() {
    let mut command = Command::new("env");
    let timeout = ["--default-signal=INT,QUIT,HUP", "timeout", "300", env!("CARGO_BIN_EXE_politely")];
    command.args(timeout).args(["run", "sh", "-c", THREE]);
    let run = Run::of(command);
    let pids = run.pids(3).await;
    // `timeout` forwards the signal to its child and to its group, as when its time is over.
    run.signal(libc::SIGINT);
    let (ended, said) = run.ended().await;
    assert_eq!(ended, Some(130), "{said}");
    assert!(!pids.iter().any(|pid| is_there(*pid)), "{pids:?}: {said}");
}

/// `timeout` and others signal their whole group, to which `run` belongs, but not its command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_receives_a_group_signal_once() {
    let counting = "import os, signal, sys, time\nn = 0\ndef count(*_):\n    global n\n    n += 1\n\
                    signal.signal(signal.SIGINT, count)\nif sys.argv[1:]: os.setpgid(0, 0)\n\
                    print(os.getpid(), file=open('pids', 'a'), flush=True)\n\
                    left = 600\nwhile left > 0:\n    time.sleep(0.1)\n    left -= 40 if n else 1\nsys.exit(40 + n)";
    let run = [env!("CARGO_BIN_EXE_politely"), "run", "-q"];
    for before in [&[][..], &["timeout", "300"], &run] {
        for own_group in [false, true] {
            // In a session of its own it has no terminal.
            let mut command = Command::new("setsid");
            command.args(["env", "--default-signal=INT,QUIT,HUP"]).args(before).args(run);
            command.args(["python3", "-c", counting]).args(own_group.then_some("own"));
            let run = Run::of(command);
            run.pids(1).await;
            let group = run.child.id().expect("not waited for yet").cast_signed();
            // SAFETY: two numbers; the child, which leads the group, is not waited for yet.
            assert_eq!(unsafe { libc::kill(-group, libc::SIGINT) }, 0);
            let (ended, said) = run.ended().await;
            assert_eq!(ended, Some(41), "{before:?} {own_group}: {said}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_processes_are_ended() {
    let script = "for i in $(seq 500); do setsid sleep 300 & echo $! >> pids; done; echo $$ >> pids; wait";
    let run = Run::start(&[], script);
    let pids = run.pids(501).await;
    run.signal(libc::SIGTERM);
    let (ended, said) = run.ended().await;
    assert_eq!(ended, Some(143), "{said}");
    assert!(!pids.iter().any(|pid| is_there(*pid)), "{said}");
}

/// For example, an interactive shell. Its leftover processes may have their own groups, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_in_its_own_process_group_is_waited_for() {
    for flags in [&["-q"][..], &["-q", "--isolate"]] {
        let run = Run::start(flags, "exec setsid -w sh -c 'setsid sh -c \"exit 2\" & sleep 0.2; exit 6'");
        let (ended, said) = run.ended().await;
        assert!(ended == Some(6) || said.contains("cannot isolate"), "{flags:?} {ended:?}: {said}");
        let run = Run::start(flags, "exec python3 -c 'import os,sys; os.setpgid(0,0); sys.exit(7)'");
        let (ended, said) = run.ended().await;
        assert!(ended == Some(7) || said.contains("cannot isolate"), "{flags:?} {ended:?}: {said}");
    }
}
