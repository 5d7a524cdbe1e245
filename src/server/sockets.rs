//! The listening sockets: opened here, or inherited from systemd.

use super::StartError;
use crate::config::ListenAddress;
use rustix::net::sockopt::set_socket_reuseport;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpSocket};

/// The sockets for an address: several, if systemd passes several of one name. `going`: our sockets that will be closed once this one
/// is open, and may block its address until then.
pub(super) fn open(address: &ListenAddress, going: &[Arc<TcpListener>]) -> Result<Vec<TcpListener>, StartError> {
    match address {
        ListenAddress::Socket(address) => {
            // A socket unit may listen on the configured address.
            let same = |socket: &StdListener| socket.local_addr().is_ok_and(|own| own == *address);
            match inherited()?.into_iter().map(|(_, socket)| socket).find(same) {
                Some(socket) => Ok(vec![TcpListener::from_std(socket)?]),
                None => Ok(vec![
                    bind_beside(*address, going)
                        .map_err(|source| StartError::Listen { address: address.to_string(), source })?,
                ]),
            }
        }
        ListenAddress::Inherited(name) => {
            let named = inherited()?.into_iter().filter(|(known, _)| known == name);
            let sockets = named.map(|(_, socket)| TcpListener::from_std(socket)).collect::<io::Result<Vec<_>>>()?;
            if sockets.is_empty() { Err(StartError::NotInherited(name.clone())) } else { Ok(sockets) }
        }
    }
}

/// Binds although `0.0.0.0:3128` and `127.0.0.1:3128` exclude each other: both sockets get SO_REUSEPORT for a moment.
fn bind_beside(address: SocketAddr, going: &[Arc<TcpListener>]) -> io::Result<TcpListener> {
    let in_the_way = || going.iter().filter(|socket| socket.local_addr().is_ok_and(|own| own.port() == address.port()));
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

/// The sockets that systemd opened (sd_listen_fds(3)), with their names. They are copies, so that a later reload can use one again
/// after its listener was closed.
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
