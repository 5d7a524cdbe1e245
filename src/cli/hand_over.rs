//! What `run` starts in place of the command, and the socket between the two: signals go in, and the listening socket of another
//! network comes out.

use super::CommandError;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
#[cfg(target_os = "linux")]
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::ffi::OsString;
#[cfg(target_os = "linux")]
use std::io::IoSlice;
use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process;
use tokio::io::Interest;
use tokio::process::Child;

/// Its arguments.
#[derive(Debug, clap::Args)]
pub(super) struct SuperviseArgs {
    /// The number under which the socket that leads to `run` is open
    control: RawFd,
    /// Give the command namespaces of its own
    #[arg(long)]
    pub isolate: bool,
    /// Say nothing of what the command leaves behind
    #[arg(long)]
    pub quiet: bool,
    #[arg(trailing_var_arg = true, required = true)]
    pub command: Vec<OsString>,
}

impl SuperviseArgs {
    /// The end that `run` does not have. To be called once.
    pub fn control(&self) -> io::Result<UnixStream> {
        // SAFETY: `run` has opened it for this, and nobody else here knows of it.
        let control = unsafe { UnixStream::from_raw_fd(self.control) };
        fcntl_setfd(&control, FdFlags::CLOEXEC)?;
        Ok(control)
    }

    /// Starts the command when `run` says so. `prepare` is called in what becomes the command, and only makes system calls. `None`:
    /// `run` could not begin, and has said why.
    pub fn start(
        &self,
        mut control: &UnixStream,
        prepare: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
    ) -> Result<Option<process::Child>, CommandError> {
        if control.read(&mut [0])? == 0 {
            return Ok(None);
        }
        let (program, arguments) = self.command.split_first().expect("clap requires one");
        let mut command = process::Command::new(program);
        command.args(arguments);
        // SAFETY: as said of it.
        unsafe { command.pre_exec(prepare) };
        let child = command.spawn().map_err(|error| CommandError::not_run(program, &error))?;
        // Where `run` has gone, this fails, and its end of the socket says so again.
        let _ = control.write_all(&[0]);
        Ok(Some(child))
    }
}

/// Nobody else is in that network.
pub(super) const INSIDE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 3128);

/// The end that `run` has.
pub(super) struct Control(UnixStream);

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
    #[cfg(target_os = "linux")]
    let flags = RecvFlags::CMSG_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    let flags = RecvFlags::empty();
    recvmsg(stream, &mut [IoSliceMut::new(&mut [0])], &mut control, flags)?;
    let socket = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
        _ => None,
    });
    Ok(socket.map(TcpListener::from))
}

/// Gives `run` the socket.
#[cfg(target_os = "linux")]
pub(super) fn hand_over(by: &UnixStream, listener: &TcpListener) -> io::Result<()> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let sockets = [listener.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&sockets));
    sendmsg(by, &[IoSlice::new(&[0])], &mut control, SendFlags::empty())?;
    Ok(())
}

/// One whose other end never says anything.
#[cfg(target_os = "linux")]
pub(super) fn closed() -> UnixStream {
    let (ours, theirs) = UnixStream::pair().expect("a descriptor has just become free");
    std::mem::forget(theirs);
    let _ = ours.set_nonblocking(true);
    ours
}
