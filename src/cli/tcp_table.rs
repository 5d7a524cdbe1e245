//! The TCP sockets of this machine, as `/proc/net/tcp` lists them.

use std::net::{IpAddr, SocketAddr, TcpStream};
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
        let is_of_all = self.local.ip().is_unspecified() && (self.local.is_ipv6() || address.is_ipv4());
        let is_here = self.local.ip() == address.ip().to_canonical() || is_of_all;
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

/// The kernel's tables for IPv4 and IPv6.
pub fn table() -> String {
    ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default()).concat()
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

/// The user (uid) whose process is at the other end of this connection. Callers send no secrets to a process of another user, who may have
/// taken a free port. `None`: the process is not on this machine, or its user is unknown.
pub fn peer_owner(stream: &TcpStream) -> Option<u32> {
    let (peer, local) = (stream.peer_addr().ok()?, stream.local_addr().ok()?);
    owner_in(&table(), peer, local)
}

/// The owner according to one table, which lists listeners first. A connection that was not accepted yet has no owner, but a listener.
fn owner_in(table: &str, peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    let (peer, local) = [peer, local].map(|it| SocketAddr::new(it.ip().to_canonical(), it.port())).into();
    let accepted = rows(table).find(|row| (row.local, row.remote) == (peer, local) && row.user != 0);
    accepted.or_else(|| rows(table).find(|row| row.listens_at(peer))).map(|row| row.user)
}

const LISTEN: &str = "0A";

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn owner_of_the_other_end_is_read_from_the_tcp_table() {
        let word = |bytes: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(bytes));
        let (local, none) = (word([127, 0, 0, 1]), "00000000");
        let mapped = format!("{none}{none}{}{local}", word([0, 0, 255, 255]));
        let table = format!(
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: {local}:0C39 {none}:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1\n\
             1: {local}:0C3A {none}:0000 01 00000000:00000000 00:00000000 00000000  1001        0 1 1\n\
             2: {none}:0C3B {none}:0000 0A 00000000:00000000 00:00000000 00000000  1002        0 1 1\n\
             3: {mapped}:0C3C {none}{none}{none}{none}:0000 0A 00000000:00000000 00:00000000 00000000  1003        0 1 1\n"
        );
        let from = "127.0.0.9:9".parse().unwrap();
        for (address, owner) in [
            ("127.0.0.1:3129", Some(1000)),
            ("127.0.0.2:3129", None),
            ("127.0.0.1:3130", None),
            ("127.0.0.1:3131", Some(1002)),
            ("127.0.0.1:3132", Some(1003)),
            ("[::ffff:127.0.0.1]:3129", Some(1000)),
        ] {
            assert_eq!(owner_in(&table, address.parse().unwrap(), from), owner, "{address}");
        }
        // The user who accepted the connection counts, even if another has listened since.
        let accepted = format!("{table}4: {local}:0C39 {local}:0009 01 0:0 0:0 0 1004 0 1 1\n");
        let from = "127.0.0.1:9".parse().unwrap();
        assert_eq!(owner_in(&accepted, "127.0.0.1:3129".parse().unwrap(), from), Some(1004));
    }

    #[test]
    fn owner_of_our_own_listener_is_our_user() {
        let ours = Some(rustix::process::geteuid().as_raw());
        for at in ["127.83.1.9:0", "[::1]:0", "0.0.0.0:0"] {
            let Ok(listener) = TcpListener::bind(at) else { continue };
            let mut address = listener.local_addr().unwrap();
            if address.ip().is_unspecified() {
                address.set_ip([127, 83, 1, 9].into());
            }
            assert_eq!(peer_owner(&TcpStream::connect(address).unwrap()), ours, "{at}");
        }
    }
}
