//! The owner of a listener on this machine: secrets are not sent to a process of another user, who may have taken a port that was
//! free.

use super::tcp_table::{rows, tables};
use std::net::SocketAddr;

/// The user (uid) whose process listens there. `None`: no process listens there, or its user is unknown.
pub(super) fn listener_owner(address: SocketAddr) -> Option<u32> {
    tables().iter().find_map(|table| owner_in(table, address))
}

/// The owner according to one table.
fn owner_in(table: &str, address: SocketAddr) -> Option<u32> {
    rows(table).find(|row| row.listens_at(address)).map(|row| row.user)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn the_table_says_who_listens() {
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
        for (address, owner) in [
            ("127.0.0.1:3129", Some(1000)),
            ("127.0.0.2:3129", None),
            ("127.0.0.1:3130", None),
            ("127.0.0.1:3131", Some(1002)),
            ("127.0.0.1:3132", Some(1003)),
            ("[::ffff:127.0.0.1]:3129", Some(1000)),
        ] {
            assert_eq!(owner_in(&table, address.parse().unwrap()), owner, "{address}");
        }
    }

    #[test]
    fn our_own_listeners_are_ours() {
        let ours = Some(rustix::process::geteuid().as_raw());
        for at in ["127.83.1.9:0", "[::1]:0", "0.0.0.0:0"] {
            let Ok(listener) = TcpListener::bind(at) else { continue };
            let mut address = listener.local_addr().unwrap();
            if address.ip().is_unspecified() {
                address.set_ip([127, 83, 1, 9].into());
            }
            assert_eq!(listener_owner(address), ours, "{at}");
        }
        // An address that no test uses: a closed socket may still be open in a process that another test has just forked.
        assert_eq!(listener_owner("127.83.1.10:9".parse().unwrap()), None);
    }
}
