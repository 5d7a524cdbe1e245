//! One of the proxies: started, reloaded, replaced by another binary, killed, watched.

use crate::faults::Clock;
use crate::world::World;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

pub struct Instance {
    pub name: &'static str,
    pub address: SocketAddr,
    directory: PathBuf,
    /// Stays open while processes change, so no connection is refused.
    socket: TcpListener,
    clock: Arc<Clock>,
    world: Arc<World>,
    running: Mutex<Running>,
}

struct Running {
    child: Child,
    replaced: Instant,
}

impl Instance {
    /// `yaml` is its configuration but for the places of its files.
    pub fn start(name: &'static str, directory: &Path, yaml: &str, clock: Arc<Clock>, world: Arc<World>) -> Self {
        let directory = directory.join(name);
        std::fs::create_dir_all(directory.join("store")).expect("the directory is writable");
        let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = socket.local_addr().expect("it is bound");
        let at = directory.display();
        let yaml =
            format!("listen: [{{ address: '{address}' }}]\nstore: {{ directory: '{at}/store', memory: 4MiB }}\n{yaml}");
        std::fs::write(directory.join("politely.yaml"), yaml).expect("the directory is writable");
        let child = spawn(name, &directory, &socket, &clock, &world);
        let running = Mutex::new(Running { child, replaced: Instant::now() });
        Self { name, address, directory, socket, clock, world, running }
    }

    pub fn config(&self) -> PathBuf {
        self.directory.join("politely.yaml")
    }

    pub fn pid(&self) -> u32 {
        self.running.lock().expect("no panic").child.id()
    }

    /// Whether a connection that was there at `began`, or came then, may have ended with its process.
    pub fn was_replaced_since(&self, began: Instant) -> bool {
        self.running.lock().expect("no panic").replaced + Duration::from_secs(1) > began
    }

    /// Another bound for what is at work at once, and SIGHUP.
    pub fn reload(&self, turn: u64) {
        let text = std::fs::read_to_string(self.config()).expect("it was written");
        let (from, to) = if turn.is_multiple_of(2) { ("64", "48") } else { ("48", "64") };
        let text = text.replace(&format!("max_concurrent: {from}"), &format!("max_concurrent: {to}"));
        std::fs::write(self.config(), text).expect("it was written");
        signal("HUP", self.pid());
    }

    /// A new file in the binary's place, a new process on the same socket, and the end of the old one.
    pub async fn upgrade(&self, binary: &Path) {
        place(binary, &self.directory);
        let new = spawn(self.name, &self.directory, &self.socket, &self.clock, &self.world);
        let mut old = {
            let mut running = self.running.lock().expect("no panic");
            running.replaced = Instant::now() + Duration::from_secs(35);
            std::mem::replace(&mut running.child, new)
        };
        signal("TERM", old.id());
        let began = Instant::now();
        loop {
            match old.try_wait() {
                Ok(None) if began.elapsed() < Duration::from_secs(45) => {
                    tokio::time::sleep(Duration::from_millis(50)).await
                }
                Ok(Some(status)) if status.success() => break,
                ended => {
                    self.world.violation("an upgrade's old process did not end well", &format!("{ended:?}"));
                    _ = old.kill();
                    break;
                }
            }
        }
        self.running.lock().expect("no panic").replaced = Instant::now();
    }

    /// SIGKILL in the middle of whatever it does, and a start.
    pub fn kill(&self) {
        {
            let mut running = self.running.lock().expect("no panic");
            running.replaced = Instant::now() + Duration::from_secs(30);
            running.child.kill().and_then(|()| running.child.wait()).expect("our child");
        }
        let child = spawn(self.name, &self.directory, &self.socket, &self.clock, &self.world);
        *self.running.lock().expect("no panic") = Running { child, replaced: Instant::now() };
    }

    /// SIGTERM; whether it ended well.
    pub fn stop(&self) -> bool {
        let mut running = self.running.lock().expect("no panic");
        signal("TERM", running.child.id());
        running.child.wait().is_ok_and(|status| status.success())
    }

    /// Memory of its own in KiB, open descriptors, and seconds of CPU; `None` once it has ended.
    pub fn figures(&self) -> Option<(u64, u64, f64)> {
        let pid = self.pid();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let memory =
            status.lines().find_map(|line| line.strip_prefix("RssAnon:")?.split_whitespace().next()?.parse().ok())?;
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
        let ticks = fields[11].parse::<f64>().ok()? + fields[12].parse::<f64>().ok()?;
        Some((memory, descriptors, ticks / 100.0))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let running = self.running.get_mut().expect("no panic");
        _ = running.child.kill().and_then(|()| running.child.wait());
    }
}

/// Puts the binary where an instance's directory has it, as packages do: a new file with the old name.
pub fn place(binary: &Path, directory: &Path) {
    std::fs::copy(binary, directory.join("politely.new")).expect("room for a binary");
    std::fs::rename(directory.join("politely.new"), directory.join("politely")).expect("the same directory");
}

/// `politely ca …` with this instance's configuration.
pub fn ca(instance: &Instance, arguments: &[&str], world: &World) {
    let mut command = Command::new(instance.directory.join("politely"));
    command.arg("ca").args(arguments).arg("--config").arg(instance.config());
    let output = command.output().expect("the binary runs");
    if !output.status.success() {
        world.violation("politely ca", &String::from_utf8_lossy(&output.stderr));
    }
}

/// A process that listens on `socket`, passed as systemd does; returns when it serves.
fn spawn(name: &'static str, directory: &Path, socket: &TcpListener, clock: &Clock, world: &Arc<World>) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" serve --config \"$1\" 3<&0 </dev/null"]);
    command.arg(directory.join("politely")).arg(directory.join("politely.yaml"));
    command.env("STATE_DIRECTORY", directory.join("state")).env("RUST_BACKTRACE", "1");
    std::fs::create_dir_all(directory.join("state")).expect("the directory is writable");
    clock.over(&mut command);
    let socket: OwnedFd = socket.try_clone().expect("a descriptor").into();
    command.stdin(Stdio::from(socket)).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("a shell");
    let (serves, served) = mpsc::channel();
    let log = directory.join("log");
    listen(name, child.stdout.take().expect("a pipe"), log.clone(), world.clone(), serves.clone());
    listen(name, child.stderr.take().expect("a pipe"), log.clone(), world.clone(), serves);
    if served.recv_timeout(Duration::from_secs(20)).is_err() {
        println!("{}", std::fs::read_to_string(&log).unwrap_or_default());
        world.violation("a proxy that did not start", name);
    }
    child
}

/// Keeps what the proxy says, and takes what matters.
fn listen(
    name: &'static str,
    says: impl Read + Send + 'static,
    file: PathBuf,
    world: Arc<World>,
    serves: mpsc::Sender<()>,
) {
    std::thread::spawn(move || {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(file).expect("a log");
        for line in BufReader::new(says).lines().map_while(Result::ok) {
            _ = std::io::Write::write_all(&mut &file, format!("{line}\n").as_bytes());
            if line.contains("listening on") {
                _ = serves.send(());
            } else if line.contains("panicked") {
                world.violation("a panic", &format!("{name}: {line}"));
            } else if line.contains("no complete answer within") {
                world.count("robots.txt given up by a proxy");
                if let Some(host) = line.split("://").nth(1).and_then(|rest| rest.split(':').next()) {
                    world.disturb_host(host);
                }
            }
        }
    });
}

pub fn signal(signal: &str, pid: u32) {
    let sent = Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "{signal} to {pid}");
}
