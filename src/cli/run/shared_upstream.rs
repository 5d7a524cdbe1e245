//! An upstream proxy that is a politely with the same state directory. Each of the two would wait for the start, or the robots.txt, that the
//! other has reserved.

use crate::cli::tcp_table::{TcpRow, rows, tables};
use crate::config::{Settings, state_directory};
use std::collections::HashSet;
use std::fs;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::Path;

/// Whether the upstream proxy shares the pace of this machine, by /proc.
pub(super) fn is_shared_upstream(settings: &Settings) -> bool {
    let Some(url) = settings.egress.upstream_proxy.as_ref().map(|url| url.expose()) else { return false };
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else { return false };
    let addresses = (host.trim_matches(['[', ']']), port).to_socket_addrs().into_iter().flatten();
    let here: Vec<_> = addresses.filter(|address| UdpSocket::bind((address.ip(), 0)).is_ok()).collect();
    let tables = tables().concat();
    let listening = rows(&tables).filter(|row| here.iter().any(|address| listens_at(row, *address)));
    let sockets: HashSet<u64> = listening.map(|row| row.socket).collect();
    let directory = settings.store.directory.clone().unwrap_or_else(state_directory);
    let Ok(directory) = fs::canonicalize(directory) else { return false };
    let shared = format!("{}/politely.pace", directory.display());
    !sockets.is_empty()
        && fs::read_dir("/proc").into_iter().flatten().flatten().any(|process| {
            has_one_of(&process.path(), &sockets)
                && fs::read_to_string(process.path().join("maps")).is_ok_and(|maps| maps.contains(&shared))
        })
}

fn listens_at(row: &TcpRow, address: SocketAddr) -> bool {
    let is_here = row.local.ip() == address.ip().to_canonical() || row.local.ip().is_unspecified();
    row.is_listening && row.local.port() == address.port() && is_here
}

fn has_one_of(process: &Path, sockets: &HashSet<u64>) -> bool {
    let held = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    held.filter_map(|entry| {
        let link = fs::read_link(entry.path()).ok()?;
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok()
    })
    .any(|socket| sockets.contains(&socket))
}
