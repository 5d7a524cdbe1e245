//! What the command's processes have connected to, by /proc.

use super::{Bypass, BypassWatch};
use crate::cli::supervise::processes::{Descendant, descendants, program};
use crate::cli::tcp_table::{rows, sockets_of, tables};
use rustix::process::Pid;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

impl BypassWatch {
    pub(super) fn find(&self) -> Option<Bypass> {
        let sockets = direct(&tables().concat(), |address| self.is_site(address));
        if sockets.is_empty() {
            return None;
        }
        let (root, own) = (Pid::from_raw(self.root?.cast_signed())?, program("self"));
        descendants(root).into_iter().find_map(|Descendant { pid, .. }| {
            let process = Path::new("/proc").join(pid.to_string());
            let address = sockets_of(&process).find_map(|socket| sockets.get(&socket).copied())?;
            let name = program(&pid.to_string())?;
            // Another `politely run` looks after what is behind it.
            if own.as_ref() == Some(&name) {
                return None;
            }
            let environment = fs::read(process.join("environ")).unwrap_or_default();
            let mut variables = environment.split(|byte| *byte == 0);
            let has_variables = variables.any(|one| one.to_ascii_lowercase().starts_with(b"https_proxy="));
            Some(Bypass { program: name, pid: pid.as_raw_pid().cast_unsigned(), address, has_variables })
        })
    }

    fn is_site(&self, address: SocketAddr) -> bool {
        address != self.proxy
            && self.ports.iter().any(|range| range.contains(address.port()))
            && !(self.is_loopback_direct && address.ip().is_loopback())
    }
}

/// The connections to sites in the kernel's table, by socket. A connection that a listening socket of this machine has accepted is not
/// one.
fn direct(table: &str, is_site: impl Fn(SocketAddr) -> bool) -> HashMap<u64, SocketAddr> {
    let rows: Vec<_> = rows(table).collect();
    let listening: HashSet<u16> = rows.iter().filter(|row| row.is_listening).map(|row| row.local.port()).collect();
    let to_sites = rows.iter().filter(|row| !listening.contains(&row.local.port()) && is_site(row.remote));
    to_sites.map(|row| (row.socket, row.remote)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PortRange;
    use tokio::time::Instant;

    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
         0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0 100 0 0 10 0\n\
         1: 0100007F:9C40 0100007F:0C38 01 00000000:00000000 00:00000000 00000000     0        0 12 1 0 20 4 30 10 -1\n\
         2: 0100007F:1F90 07070707:01BB 01 00000000:00000000 00:00000000 00000000     0        0 13 1 0 20 4 30 10 -1\n\
         3: 0100007F:9C41 22D8B85D:01BB 02 00000000:00000000 00:00000000 00000000     0        0 14 1 0 20 4 30 10 -1\n\
         0: 00000000000000000000000001000000:9C42 B80D0120000000000000000001000000:0050 01 00000000:00000000 00:00000000 00000000     0        0 15 1\n";

    fn watch(is_loopback_direct: bool) -> BypassWatch {
        let ports = vec![PortRange { first: 1, last: 65535 }];
        let proxy = "127.0.0.1:3128".parse().unwrap();
        BypassWatch { root: None, proxy, ports, is_loopback_direct, next: Instant::now(), found: None }
    }

    /// The table is in the machine's byte order; this one is of a little-endian machine.
    #[test]
    #[cfg(target_endian = "little")]
    fn connections_to_sites_are_told_from_those_to_the_proxy_and_those_accepted() {
        let watch = watch(true);
        let found = direct(TABLE, |address| watch.is_site(address));
        let site = |text: &str| text.parse::<SocketAddr>().unwrap();
        let expected = [(14, site("93.184.216.34:443")), (15, site("[2001:db8::1]:80"))];
        assert_eq!(found, HashMap::from(expected));
    }

    #[test]
    fn a_port_that_the_proxy_does_not_serve_is_another_matter() {
        let mut watch = watch(true);
        watch.ports = vec![PortRange { first: 80, last: 80 }, PortRange { first: 443, last: 443 }];
        let is_site = |text: &str| watch.is_site(text.parse().unwrap());
        assert!(is_site("93.184.216.34:443") && !is_site("93.184.216.34:5432") && !is_site("127.0.0.1:80"));
    }

    #[test]
    fn the_cure_for_a_process_without_the_variables_is_to_pass_them_on() {
        let mut bypass = Bypass {
            program: "python3.11".into(),
            pid: 7,
            address: "192.0.2.1:443".parse().unwrap(),
            has_variables: false,
        };
        assert!(bypass.warning().contains("started without HTTPS_PROXY") && bypass.warning().contains("--isolate"));
        bypass.has_variables = true;
        assert!(bypass.warning().contains("ProxyAgent"), "{}", bypass.warning());
    }
}
