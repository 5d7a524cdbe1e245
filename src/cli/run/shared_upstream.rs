//! Detects an upstream proxy that is another `politely` process with the same state directory: if both shared the pace, each would wait for
//! the slot, or the fetch of robots.txt, that the other has reserved.

use crate::cli::tcp_table::{rows, sockets_of, table};
use crate::config::Settings;
use std::collections::HashSet;
use std::fs;
use std::net::UdpSocket;

/// Whether the upstream proxy is, according to /proc, a process on this machine that shares our pace.
pub(super) fn is_shared_upstream(settings: &Settings) -> bool {
    let Some(url) = settings.egress.upstream_proxy.as_ref().map(|url| url.expose()) else { return false };
    let addresses = url.socket_addrs(|| None).unwrap_or_default().into_iter();
    let here: Vec<_> = addresses.filter(|address| UdpSocket::bind((address.ip(), 0)).is_ok()).collect();
    let table = table();
    let listening = rows(&table).filter(|row| here.iter().any(|address| row.listens_at(*address)));
    let sockets: HashSet<u64> = listening.map(|row| row.socket).collect();
    if crate::cli::supervise::is_isolated() && here.contains(&super::INSIDE) {
        return true;
    }
    let Ok(directory) = fs::canonicalize(settings.store.place()) else { return false };
    let shared = format!("{}/politely.pace", directory.display());
    !sockets.is_empty()
        && fs::read_dir("/proc").into_iter().flatten().flatten().any(|process| {
            sockets_of(&process.path()).any(|socket| sockets.contains(&socket))
                && fs::read_to_string(process.path().join("maps")).is_ok_and(|maps| maps.contains(&shared))
        })
}
