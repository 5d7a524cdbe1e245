//! The control socket between `run` and the supervisor. Over it, `run` lets the command start and sends signals, and the supervisor passes
//! the listening socket of the command's network namespace.

use super::CommandError;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process;
use tokio::io::Interest;
use tokio::process::Child;

/// Arguments of the supervisor, `politely supervise`.
#[derive(Debug, clap::Args)]
pub(super) struct SuperviseArgs {
    /// Inherited descriptor of the control socket to `run`
    control: RawFd,
    /// Give the command namespaces of its own
    #[arg(long)]
    pub isolate: bool,
    /// Do not report processes that the command leaves behind
    #[arg(long)]
    pub quiet: bool,
    #[arg(trailing_var_arg = true, required = true)]
    pub command: Vec<OsString>,
}

impl SuperviseArgs {
    /// Opens the supervisor's end of the control socket. Call it only once.
    pub fn control(&self) -> io::Result<UnixStream> {
        // SAFETY: `run` opened this descriptor for the supervisor, and nothing else in this process uses it.
        let control = unsafe { UnixStream::from_raw_fd(self.control) };
        fcntl_setfd(&control, FdFlags::CLOEXEC)?;
        Ok(control)
    }

    /// Waits for [`Control::go`], then starts the command. `prepare` is called in the child before exec, and only makes system calls.
    /// `None`: `run` has failed, and has printed the reason, or was interrupted.
    pub fn start(
        &self,
        mut control: &UnixStream,
        prepare: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
    ) -> Result<Option<process::Child>, CommandError> {
        if control.read(&mut [0])? == 0 {
            return Ok(None);
        }
        let (program, arguments) = self.command.split_first().expect("clap requires a command");
        let mut command = process::Command::new(program);
        command.args(arguments);
        // SAFETY: `prepare` only makes system calls.
        unsafe { command.pre_exec(prepare) };
        let child = command.spawn().map_err(|error| CommandError::not_run(program, &error))?;
        // Fails if `run` has ended. The supervisor notices that anyway when it reads from the socket.
        let _ = control.write_all(&[0]);
        Ok(Some(child))
    }
}

/// The proxy's address in the command's network namespace, where nothing else listens.
pub(super) const INSIDE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 3128);

/// `run`'s end of the control socket.
pub(super) struct Control(UnixStream);

impl Control {
    /// Creates both ends; the second is for the supervisor.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        Ok((Self(ours), theirs.into()))
    }

    /// Receives the listening socket of the command's network namespace. `None`: `child` ended without sending it.
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

    /// Whether the command was started. Call it after the supervisor has ended.
    pub fn has_started(&self) -> bool {
        (&self.0).read(&mut [0]).is_ok_and(|length| length > 0)
    }

    /// Sends a signal to the command. Does nothing if the command has ended.
    pub fn signal(&self, number: libc::c_int) {
        let byte = u8::try_from(number).unwrap_or_default();
        let _ = (&self.0).write_all(&[byte]);
    }
}

/// Receives a listening socket. `None`: the other end is closed.
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

/// Passes the listening socket to `run`.
pub(super) fn hand_over(by: &UnixStream, listener: &TcpListener) -> io::Result<()> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let sockets = [listener.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&sockets));
    sendmsg(by, &[IoSlice::new(&[0])], &mut control, SendFlags::empty())?;
    Ok(())
}
