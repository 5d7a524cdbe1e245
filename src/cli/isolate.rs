//! `politely run --isolate`: the command in a network of its own, of which nothing leads out but the proxy's socket. That
//! socket is opened inside, by this program, which becomes the command after it has handed it to the proxy outside.

use super::CommandError;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use std::ffi::OsString;
use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use tokio::io::Interest;

/// Nobody else is in that network.
pub(super) const INSIDE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 3128);

/// What `run` starts in place of the command.
#[derive(Debug, clap::Args)]
pub(super) struct IsolateArgs {
    /// The number under which the socket is open that the proxy's is handed over by
    socket: RawFd,
    #[arg(trailing_var_arg = true, required = true)]
    command: Vec<OsString>,
}

/// Becomes the command. Comes back with what stood in the way.
pub(super) fn run(args: &IsolateArgs) -> Result<ExitCode, CommandError> {
    leave_network().map_err(|error| {
        CommandError::usage(
            format!("cannot isolate the command: {error}"),
            "this needs root, or a system that lets users create namespaces (`kernel.unprivileged_userns_clone`, \
             `kernel.apparmor_restrict_unprivileged_userns`); without --isolate the command only gets the proxy variables",
        )
    })?;
    let listener = TcpListener::bind(INSIDE)?;
    hand_over(args.socket, &listener)?;
    drop(listener);
    let (program, arguments) = args.command.split_first().expect("clap requires one");
    let error = Command::new(program).args(arguments).exec();
    Err(CommandError::not_run(program, &error))
}

/// The socket that comes from inside.
pub(super) async fn take_over(by: UnixStream) -> io::Result<tokio::net::TcpListener> {
    by.set_nonblocking(true)?;
    let stream = tokio::net::UnixStream::from_std(by)?;
    let socket = stream.async_io(Interest::READABLE, || receive(&stream)).await?;
    socket.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(socket)
}

fn receive(stream: impl AsFd) -> io::Result<TcpListener> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    recvmsg(stream, &mut [IoSliceMut::new(&mut [0])], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let socket = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
        _ => None,
    });
    socket.map(TcpListener::from).ok_or_else(|| io::Error::other("the command's network has no socket"))
}

fn hand_over(by: RawFd, listener: &TcpListener) -> io::Result<()> {
    // SAFETY: `run` has opened it for this, and nobody else here knows of it.
    let by = unsafe { UnixStream::from_raw_fd(by) };
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let sockets = [listener.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&sockets));
    sendmsg(by, &[IoSlice::new(&[0])], &mut control, SendFlags::empty())?;
    Ok(())
}

/// Enters a new network namespace that has only loopback. Without root this takes a user namespace as well, in which all
/// ids stay the same.
fn leave_network() -> io::Result<()> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    if unshare(libc::CLONE_NEWNET).is_err() {
        unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET)?;
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{0} {0} 1", user.as_raw()))?;
        fs::write("/proc/self/gid_map", format!("{0} {0} 1", group.as_raw()))?;
    }
    raise_loopback()
}

fn unshare(what: libc::c_int) -> io::Result<()> {
    // SAFETY: it takes no pointer, and this process has one thread, which has nothing open that it would lose.
    match unsafe { libc::unshare(what) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn raise_loopback() -> io::Result<()> {
    let any = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    // SAFETY: all of it may be zero.
    let mut interface: libc::ifreq = unsafe { std::mem::zeroed() };
    interface.ifr_name[..2].copy_from_slice(&[b'l' as libc::c_char, b'o' as libc::c_char]);
    interface.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: the request takes an `ifreq`, which outlives the call.
    match unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const interface) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
