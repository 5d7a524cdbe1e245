//! Two redis-servers, a master and its replica, and the Sentinel that watches them: for the master that is killed.

use super::super::processes::{Ends, free_address, listening};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};
use tokio::time::sleep;

/// A master that has no replica takes no writes (docs/fleet.md).
const OPTIONS: [&str; 6] = ["--bind", "127.0.0.1", "--save", "", "--min-replicas-to-write", "1"];

pub struct Watched {
    /// Where each server has its own directory: a replica writes what it is sent to a file.
    directory: PathBuf,
    servers: [(u16, Ends); 2],
    sentinel: (u16, Ends),
}

impl Watched {
    pub async fn start(directory: &Path) -> Self {
        let [master, replica, sentinel] = [(); 3].map(|()| free_address().port());
        let servers = [(master, server(directory, master, None)), (replica, server(directory, replica, Some(master)))];
        let file = directory.join("sentinel.conf");
        let text = format!(
            "port {sentinel}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {master} 1\n\
             sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 5000\n"
        );
        std::fs::write(&file, text).expect("the directory is writable");
        let mut command = Command::new("redis-server");
        command.arg(&file).arg("--sentinel").stdout(Stdio::null());
        let sentinel = (sentinel, Ends(command.spawn().expect("redis-server is installed")));
        let watched = Self { directory: directory.to_owned(), servers, sentinel };
        listening(SocketAddr::from(([127, 0, 0, 1], watched.sentinel.0))).await;
        watched.is_whole().await;
        watched
    }

    pub fn url(&self) -> String {
        format!("redis+sentinel://127.0.0.1:{}/0?master=main", self.sentinel.0)
    }

    /// Kills the master, and starts it again as a replica of the one that was its own. Returns when that has begun.
    pub async fn fail_over(&mut self) -> SystemTime {
        let (began, before) = (SystemTime::now(), self.master());
        let (port, master) = self.servers.iter_mut().find(|(port, _)| *port == before).expect("it is one of the two");
        master.kill();
        let port = *port;
        while self.master() == before {
            sleep(Duration::from_millis(100)).await;
        }
        let now = self.master();
        let (_, master) = self.servers.iter_mut().find(|(it, _)| *it == port).expect("it is one of the two");
        *master = server(&self.directory, port, Some(now));
        self.is_whole().await;
        began
    }

    /// Returns when the master has a replica that the Sentinel knows.
    async fn is_whole(&self) {
        let has = |port: u16, ask: &[&str], word: &str| said(port, ask).contains(word);
        let is_whole = || {
            has(self.master(), &["info", "replication"], "state=online")
                && has(self.sentinel.0, &["sentinel", "master", "main"], "num-slaves\n1")
        };
        while !is_whole() {
            sleep(Duration::from_millis(100)).await;
        }
    }

    fn master(&self) -> u16 {
        let said = said(self.sentinel.0, &["sentinel", "get-master-addr-by-name", "main"]);
        said.lines().nth(1).and_then(|port| port.parse().ok()).expect("the Sentinel names one")
    }
}

fn server(directory: &Path, port: u16, master: Option<u16>) -> Ends {
    let directory = directory.join(port.to_string());
    std::fs::create_dir_all(&directory).expect("the directory is writable");
    let mut command = Command::new("redis-server");
    command.args(OPTIONS).args(["--port", &port.to_string()]).arg("--dir").arg(directory).stdout(Stdio::null());
    if let Some(master) = master {
        command.args(["--replicaof", "127.0.0.1", &master.to_string()]);
    }
    Ends(command.spawn().expect("redis-server is installed"))
}

fn said(port: u16, ask: &[&str]) -> String {
    let answer = Command::new("redis-cli").args(["-p", &port.to_string()]).args(ask).output().expect("redis-cli");
    String::from_utf8_lossy(&answer.stdout).replace('\r', "")
}
