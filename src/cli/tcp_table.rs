//! The TCP sockets of this machine, as Linux lists them in `/proc/net/tcp`; unknown elsewhere.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

pub struct TcpRow {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub is_listening: bool,
    /// User (uid) of the socket.
    pub user: u32,
    /// Inode of the socket.
    pub socket: u64,
}

impl TcpRow {
    /// Whether the socket listens at this address. A socket on the unspecified address listens at every address.
    pub fn listens_at(&self, address: SocketAddr) -> bool {
        let is_here = self.local.ip() == address.ip().to_canonical() || self.local.ip().is_unspecified();
        self.is_listening && self.local.port() == address.port() && is_here
    }
}

/// The inodes of the sockets that a process has open. `process`: its directory in `/proc`.
pub fn sockets_of(process: &Path) -> impl Iterator<Item = u64> {
    let held = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    held.filter_map(|entry| {
        let link = std::fs::read_link(entry.path()).ok()?;
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    })
}

#[cfg(target_os = "linux")]
pub fn tables() -> [String; 2] {
    ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default())
}

#[cfg(not(target_os = "linux"))]
pub fn tables() -> [String; 0] {
    []
}

/// Parses a table with lines `sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode …`.
pub fn rows(table: &str) -> impl Iterator<Item = TcpRow> {
    table.lines().filter_map(|line| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        Some(TcpRow {
            local: address(fields.get(1)?)?,
            remote: address(fields.get(2)?)?,
            is_listening: *fields.get(3)? == LISTEN,
            user: fields.get(7)?.parse().ok()?,
            socket: fields.get(9)?.parse().ok()?,
        })
    })
}

/// Parses an address such as `0100007F:0050`: 32-bit words, each in the machine's byte order, and the port in hexadecimal.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let words = ip.as_bytes().chunks(8).map(|word| {
        let number = u32::from_str_radix(str::from_utf8(word).ok()?, 16).ok()?;
        Some(number.to_ne_bytes())
    });
    let bytes = words.collect::<Option<Vec<_>>>()?.concat();
    let ip = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        _ => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
    };
    Some(SocketAddr::new(ip.to_canonical(), u16::from_str_radix(port, 16).ok()?))
}

const LISTEN: &str = "0A";
