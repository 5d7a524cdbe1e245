//! What goes wrong around the proxy: its clock, and the Redis that it shares copies and paces through.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A clock that can be set while a process runs: Debian's `faketime`, if it is installed.
pub struct Clock {
    library: Option<PathBuf>,
    file: PathBuf,
}

/// Ten days ahead, right, a day back.
const STEPS: [&str; 6] = ["+0", "+10d", "+0", "-1d", "+0", "+2h"];

impl Clock {
    pub fn new(directory: &Path, with: bool) -> Self {
        let library = std::fs::read_dir("/usr/lib").ok().and_then(|entries| {
            let files = entries.flatten().map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"));
            files.into_iter().find(|file| file.exists())
        });
        let library = library.filter(|_| with);
        if library.is_none() && with {
            println!("faketime is not installed: the clock stays right");
        }
        let clock = Self { library, file: directory.join("clock") };
        clock.set(0);
        clock
    }

    /// Sets the clock to the step of this number, for processes under it that run already too.
    pub fn set(&self, step: usize) -> &'static str {
        let offset = STEPS[step % STEPS.len()];
        std::fs::write(&self.file, format!("{offset}\n")).expect("the directory is writable");
        if self.library.is_some() { offset } else { "+0" }
    }

    /// `command` with this clock. The monotonic one stays right, as it does when a clock is set.
    pub fn over<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let Some(library) = &self.library else { return command };
        command
            .env("LD_PRELOAD", library)
            .env("FAKETIME_TIMESTAMP_FILE", &self.file)
            .env("FAKETIME_CACHE_DURATION", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    }
}

/// A redis-server that hangs and forgets everything. `None` if it is not installed.
pub struct Redis {
    child: Child,
    port: u16,
}

impl Redis {
    pub fn start() -> Option<Self> {
        let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).ok()?.port();
        match spawn(port) {
            Ok(child) => Some(Self { child, port }),
            Err(error) => {
                println!("redis-server: {error}: there is no fleet");
                None
            }
        }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// For a while, one of its faults.
    pub async fn fault(&mut self, number: u32) -> &'static str {
        match number % 3 {
            0 => {
                self.signal(libc::SIGSTOP);
                tokio::time::sleep(Duration::from_secs(3)).await;
                self.signal(libc::SIGCONT);
                "Redis hung for 3 s"
            }
            1 => {
                self.child.kill().and_then(|()| self.child.wait()).expect("our child");
                tokio::time::sleep(Duration::from_secs(2)).await;
                self.child = spawn(self.port).expect("it started before");
                "Redis lost everything"
            }
            _ => "Redis was left alone",
        }
    }

    fn signal(&self, signal: libc::c_int) {
        let pid = libc::pid_t::try_from(self.child.id()).expect("a process id");
        // SAFETY: `kill` takes two integers; the child is not waited for yet, so the id is still its own.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "the child can be signalled");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

fn spawn(port: u16) -> std::io::Result<Child> {
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()
}
