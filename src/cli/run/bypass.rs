//! Searches from time to time for connections of the command that bypass the proxy. Misses connections that are opened and closed between
//! two searches.

use super::cure::cure;
use crate::cli::supervise::processes::{Descendant, descendants, program};
use crate::cli::tcp_table::{rows, sockets_of, table};
use crate::config::PortRange;
use rustix::process::Pid;
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;
use tokio::process::Child;
use tokio::time::{Instant, sleep_until};

/// Searches for a connection that bypasses the proxy, until one is found.
pub(super) struct BypassWatch {
    /// The process whose descendants are examined. `None`: the watch is off.
    root: Option<u32>,
    proxy: SocketAddr,
    /// Ports that sites use; other connections are ignored.
    ports: Vec<PortRange>,
    /// Whether `NO_PROXY` names this machine.
    is_loopback_direct: bool,
    next: Instant,
    pub found: Option<Bypass>,
}

/// A process that has connected to a site directly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Bypass {
    pub program: String,
    pub pid: u32,
    pub address: SocketAddr,
    /// Whether the process was started with the proxy variables.
    pub has_variables: bool,
}

impl Bypass {
    /// The warning, with a hint.
    pub fn warning(&self) -> String {
        let Self { program, pid, address, has_variables } = self;
        let cure = match has_variables {
            true => cure(program),
            false => "it was started without HTTPS_PROXY: its parent process must pass on its environment",
        };
        format!(
            "politely: warning: {program} ({pid}) bypassed the proxy: it connected to {address}, and robots.txt was not applied\n\
             hint: {cure}; with `--isolate` nothing can bypass the proxy"
        )
    }
}

impl BypassWatch {
    /// `supervisor`: the command's parent.
    pub fn new(
        supervisor: &Child,
        proxy: SocketAddr,
        ports: Vec<PortRange>,
        is_loopback_direct: bool,
        is_isolated: bool,
    ) -> Self {
        let root = supervisor.id().filter(|_| !is_isolated);
        Self { root, proxy, ports, is_loopback_direct, next: Instant::now() + INTERVAL, found: None }
    }

    /// Waits until the next search is due; forever once a connection has been found.
    pub async fn tick(&self) {
        match (self.root, &self.found) {
            (Some(_), None) => sleep_until(self.next).await,
            (None, _) | (_, Some(_)) => std::future::pending().await,
        }
    }

    /// Searches, and returns the first connection found.
    pub fn look(&mut self) -> Option<&Bypass> {
        let began = Instant::now();
        self.found = self.find();
        self.next = Instant::now() + INTERVAL.max(began.elapsed() * SHARE);
        self.found.as_ref()
    }

    fn find(&self) -> Option<Bypass> {
        let sockets = direct(&table(), |address| self.is_site(address));
        if sockets.is_empty() {
            return None;
        }
        let (root, own) = (Pid::from_raw(self.root?.cast_signed())?, program("self"));
        descendants(root).into_iter().find_map(|Descendant { pid, .. }| {
            let process = Path::new("/proc").join(pid.to_string());
            let address = sockets_of(&process).find_map(|socket| sockets.get(&socket).copied())?;
            let name = program(&pid.to_string())?;
            // Skips another `politely run`, which watches its own command.
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

/// Connects to the proxy that our environment names, if it is on this machine. It may be the proxy of an outer `politely run`, which
/// learns by the connection that its command uses the proxy.
pub(super) fn knock(proxy: &str) {
    let address = proxy.strip_prefix("http://").and_then(|rest| rest.trim_end_matches('/').parse::<SocketAddr>().ok());
    if let Some(address) = address.filter(|address| address.ip().is_loopback()) {
        let _ = TcpStream::connect_timeout(&address, INTERVAL);
    }
}

/// The connections to sites in the kernel's table, by socket, without those that a listening socket of this machine has accepted.
fn direct(table: &str, is_site: impl Fn(SocketAddr) -> bool) -> HashMap<u64, SocketAddr> {
    let rows: Vec<_> = rows(table).collect();
    let listening: HashSet<u16> = rows.iter().filter(|row| row.is_listening).map(|row| row.local.port()).collect();
    let to_sites = rows.iter().filter(|row| !listening.contains(&row.local.port()) && is_site(row.remote));
    to_sites.map(|row| (row.socket, row.remote)).collect()
}

const INTERVAL: Duration = Duration::from_millis(200);
/// The time between two searches is at least this multiple of the duration of a search, so that searching takes at most 2 % of the time.
const SHARE: u32 = 50;

#[cfg(test)]
mod tests {
    use super::*;

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

    /// A table is in the byte order of its machine; this table comes from a little-endian machine.
    #[test]
    #[cfg(target_endian = "little")]
    fn only_outgoing_connections_to_sites_count_as_bypass() {
        let watch = watch(true);
        let found = direct(TABLE, |address| watch.is_site(address));
        let site = |text: &str| text.parse::<SocketAddr>().unwrap();
        let expected = [(14, site("93.184.216.34:443")), (15, site("[2001:db8::1]:80"))];
        assert_eq!(found, HashMap::from(expected));
    }

    #[test]
    fn connections_to_ports_outside_egress_are_not_a_bypass() {
        let mut watch = watch(true);
        watch.ports = vec![PortRange { first: 80, last: 80 }, PortRange { first: 443, last: 443 }];
        let is_site = |text: &str| watch.is_site(text.parse().unwrap());
        assert!(is_site("93.184.216.34:443") && !is_site("93.184.216.34:5432") && !is_site("127.0.0.1:80"));
    }

    #[test]
    fn hint_for_a_process_without_proxy_variables_is_to_pass_them_on() {
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
