//! The programs of a bench on one machine: proxies by the built binary, redis-server, and what clients read.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufRead, AsyncBufReadExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

/// What follows this on the command line.
pub fn argument(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != name).nth(1)
}

/// Cargo's, unless `--binary` names one.
pub fn binary() -> PathBuf {
    argument("--binary").unwrap_or_else(|| env!("CARGO_BIN_EXE_politely").to_owned()).into()
}

/// A program that ends with us.
pub struct Ends(pub Child);

impl Ends {
    pub fn kill(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Nothing is saved to disk.
pub fn spawn_redis(port: u16) -> Ends {
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""]).stdout(Stdio::null());
    Ends(command.spawn().expect("redis-server is installed"))
}

/// A `politely serve` that listens, with files in `directory`, which is made. `with`: adds to the command.
pub async fn serve(directory: &Path, yaml: &str, with: impl FnOnce(&mut Command)) -> (Ends, SocketAddr) {
    std::fs::create_dir(directory).expect("a directory");
    let (file, at, address) = (directory.join("politely.yaml"), directory.display(), free_address());
    let yaml = format!(
        "admin: {{ address: 'off' }}\nintercept: {{ ca: {{ directory: '{at}/ca' }} }}\n\
         egress: {{ allow: [127.0.0.0/8], ports: ['1-65535'] }}\n{yaml}"
    );
    std::fs::write(&file, yaml).expect("the directory is writable");
    let mut command = Command::new(binary());
    command.args(["serve", "--listen", &address.to_string(), "--config"]).arg(&file).stdin(Stdio::null());
    with(&mut command);
    let child = Ends(command.spawn().expect("the binary is built"));
    listening(address).await;
    (child, address)
}

/// An address that is free now, and free a moment later.
pub fn free_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port")
}

pub async fn listening(address: SocketAddr) {
    while TcpStream::connect(address).await.is_err() {
        sleep(Duration::from_millis(10)).await;
    }
}

/// A head and the length of the body after it. `None`: the connection has ended.
pub async fn read_head(stream: &mut (impl AsyncBufRead + Unpin)) -> Option<(String, usize)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    Some((head, length.unwrap_or(0)))
}
