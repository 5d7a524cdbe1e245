//! The listening sockets: opened here, or inherited from systemd.

use super::StartError;
use crate::config::ListenAddress;
use rustix::net::SocketType;
use rustix::net::sockopt::{set_socket_reuseport, socket_acceptconn, socket_type};
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpSocket};

/// Opens the sockets for an address: several, if systemd passes several with the same name. `closing`: our sockets that will be closed once
/// the new socket is open, and may block its address until then.
pub(super) fn open(address: &ListenAddress, closing: &[Arc<TcpListener>]) -> Result<Vec<TcpListener>, StartError> {
    match address {
        ListenAddress::Socket(address) => {
            // Prefers an inherited socket, as a socket unit may listen on the configured address.
            let same = |socket: &StdListener| {
                socket.local_addr().is_ok_and(|own| own == *address) && accepts_connections(socket)
            };
            match inherited()?.into_iter().map(|(_, socket)| socket).find(same) {
                Some(socket) => Ok(vec![TcpListener::from_std(socket)?]),
                None => Ok(vec![
                    bind_beside(*address, closing)
                        .map_err(|source| StartError::Listen { address: address.to_string(), source })?,
                ]),
            }
        }
        ListenAddress::Inherited(name) => {
            let named = inherited()?.into_iter().filter(|(known, _)| known == name).map(|(_, socket)| socket);
            let sockets = named.map(|socket| match accepts_connections(&socket) {
                true => Ok(TcpListener::from_std(socket)?),
                false => Err(StartError::NotListening(name.clone())),
            });
            let sockets = sockets.collect::<Result<Vec<_>, _>>()?;
            if sockets.is_empty() { Err(StartError::NotInherited(name.clone())) } else { Ok(sockets) }
        }
    }
}

/// Warns of each inherited socket whose address is not in `own`; the socket is kept for a later reload. `before`: the addresses before a
/// reload; a socket whose address is missing there was warned of earlier.
pub(super) fn warn_of_unclaimed(own: &[SocketAddr], before: Option<&[SocketAddr]>) {
    for (name, socket) in inherited().into_iter().flatten() {
        let address = socket.local_addr().ok();
        let is_in = |all: &[SocketAddr]| address.is_some_and(|address| all.contains(&address));
        if !is_in(own) && before.is_none_or(is_in) {
            let address = address.map(|address| format!(", {address},")).unwrap_or_default();
            let write = format!("write `listen: [{{ address: \"fd:{name}\" }}]`, or ");
            let write = if accepts_connections(&socket) { &write } else { "" };
            tracing::warn!(
                hint = format!("{write}stop the socket unit"),
                "systemd passed the socket `{name}`{address} which `listen` does not name: connections to it are never accepted"
            );
        }
    }
}

fn accepts_connections(socket: &StdListener) -> bool {
    // `local_addr` fails for non-IP sockets.
    let is_tcp = socket.local_addr().is_ok() && socket_type(socket) == Ok(SocketType::STREAM);
    is_tcp && socket_acceptconn(socket) == Ok(true)
}

/// Binds an address although sockets in `closing` may block it. For example, a socket at `0.0.0.0:3128` blocks `127.0.0.1:3128`, unless
/// both sockets have SO_REUSEPORT when the new one is bound.
fn bind_beside(address: SocketAddr, closing: &[Arc<TcpListener>]) -> io::Result<TcpListener> {
    let in_the_way =
        || closing.iter().filter(|socket| socket.local_addr().is_ok_and(|own| own.port() == address.port()));
    match bind(address, false) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && in_the_way().next().is_some() => {
            let share = |may: bool| in_the_way().try_for_each(|socket| set_socket_reuseport(socket, may));
            share(true)?;
            let bound = bind(address, true);
            share(false)?;
            let bound = bound?;
            set_socket_reuseport(&bound, false)?;
            Ok(bound)
        }
        bound => bound,
    }
}

fn bind(address: SocketAddr, is_shared: bool) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    if is_shared {
        socket.set_reuseport(true)?;
    }
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The sockets that systemd opened (sd_listen_fds(3)), with their names. The descriptors are copies, so that a later reload can use a
/// socket again after its listener was closed.
fn inherited() -> io::Result<Vec<(String, StdListener)>> {
    let copy = |(fd, name)| {
        // SAFETY: systemd passed the descriptor to this process, and nothing here closes it.
        let socket = StdListener::from(unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()?);
        socket.set_nonblocking(true)?;
        Ok((name, socket))
    };
    sd_notify::listen_fds_with_names()?.map(copy).collect()
}

const BACKLOG: u32 = 1024;
