//! The socket between `run` and its supervisor: signals go in, and the listening socket of the isolated network comes out.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use tokio::io::Interest;
use tokio::process::Child;

/// Fixed, as nothing else listens in that network.
pub(in crate::cli) const INSIDE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 3128);

/// The end that `run` holds.
pub(in crate::cli) struct Control(UnixStream);

impl Control {
    /// Also returns the other end, for the process that will be started.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        Ok((Self(ours), theirs.into()))
    }

    /// Receives the listening socket from inside. `None`: `child` ended before.
    pub async fn take_over(&self, child: &mut Child) -> io::Result<Option<tokio::net::TcpListener>> {
        let stream = tokio::net::UnixStream::from_std(self.0.try_clone()?)?;
        let socket = tokio::select! {
            socket = stream.async_io(Interest::READABLE, || receive(&stream)) => socket?,
            _ = child.wait() => return Ok(None),
        };
        let Some(socket) = socket else { return Ok(None) };
        socket.set_nonblocking(true)?;
        tokio::net::TcpListener::from_std(socket).map(Some)
    }

    /// Lets the command start.
    pub fn go(&self) {
        self.signal(0);
    }

    /// Whether the command was started, asked after its process has ended.
    pub fn has_started(&self) -> bool {
        (&self.0).read(&mut [0]).is_ok_and(|length| length > 0)
    }

    /// Sends a signal to the command. Ignored if it has ended.
    pub fn signal(&self, number: libc::c_int) {
        let byte = u8::try_from(number).unwrap_or_default();
        let _ = (&self.0).write_all(&[byte]);
    }
}

/// `None`: the other end is closed.
fn receive(stream: impl AsFd) -> io::Result<Option<TcpListener>> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    recvmsg(stream, &mut [IoSliceMut::new(&mut [0])], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let socket = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
        _ => None,
    });
    Ok(socket.map(TcpListener::from))
}

/// Sends the listening socket to `run`.
pub(super) fn hand_over(by: &UnixStream, listener: &TcpListener) -> io::Result<()> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let sockets = [listener.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&sockets));
    sendmsg(by, &[IoSlice::new(&[0])], &mut control, SendFlags::empty())?;
    Ok(())
}

/// A socket whose other end is closed.
pub(super) fn closed() -> UnixStream {
    let (ours, theirs) = UnixStream::pair().expect("a descriptor has just become free");
    std::mem::forget(theirs);
    let _ = ours.set_nonblocking(true);
    ours
}
