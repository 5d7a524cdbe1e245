//! What goes wrong around the proxies: their clock, the Redis that they share, the disk of one.

use crate::instance::signal;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A clock that can be set while a process runs: Debian's `faketime`, if it is installed.
pub struct Clock {
    library: Option<PathBuf>,
    file: PathBuf,
}

impl Clock {
    pub fn new(directory: &Path) -> Self {
        let library = std::fs::read_dir("/usr/lib").ok().and_then(|entries| {
            let files = entries.flatten().map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"));
            files.into_iter().find(|file| file.exists())
        });
        let clock = Self { library, file: directory.join("clock") };
        clock.set("+0");
        clock
    }

    pub fn is_there(&self) -> bool {
        self.library.is_some()
    }

    /// For processes under it that run already too.
    pub fn set(&self, offset: &str) {
        std::fs::write(&self.file, format!("{offset}\n")).expect("the directory is writable");
    }

    /// `command` with this clock. The monotonic one stays right, as it does when a clock is set.
    pub fn over(&self, command: &mut Command) {
        let Some(library) = &self.library else { return };
        command
            .env("LD_PRELOAD", library)
            .env("FAKETIME_TIMESTAMP_FILE", &self.file)
            .env("FAKETIME_CACHE_DURATION", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }
}

/// A redis-server that hangs and forgets everything.
pub struct Redis {
    child: Child,
    port: u16,
}

impl Redis {
    /// `None` if it is not installed.
    pub fn start() -> Option<Self> {
        let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).ok()?.port();
        Some(Self { child: spawn(port).ok()?, port })
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    pub async fn hang(&self, length: Duration) {
        signal("STOP", self.child.id());
        tokio::time::sleep(length).await;
        signal("CONT", self.child.id());
    }

    pub async fn lose_everything(&mut self, length: Duration) {
        self.child.kill().and_then(|()| self.child.wait()).expect("our child");
        tokio::time::sleep(length).await;
        self.child = spawn(self.port).expect("it started before");
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

/// A file system of its own for one store, that can be filled.
pub struct Disk {
    place: PathBuf,
}

impl Disk {
    /// `None` without the right to mount.
    pub fn mount(place: &Path) -> Option<Self> {
        std::fs::create_dir_all(place).ok()?;
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=48m", "tmpfs"]).arg(place).output().ok()?;
        mounted.status.success().then(|| Self { place: place.to_owned() })
    }

    pub fn fill(&self) {
        let Ok(mut file) = std::fs::File::create(self.place.join("filler")) else { return };
        while file.write_all(&[1; 1 << 16]).is_ok() {}
        while file.write_all(&[1; 64]).is_ok() {}
    }

    pub fn free(&self) {
        _ = std::fs::remove_file(self.place.join("filler"));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        _ = Command::new("umount").arg("-l").arg(&self.place).status();
    }
}
