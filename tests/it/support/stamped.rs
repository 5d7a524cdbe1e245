//! A connection that knows when its bytes arrived, by the kernel's clock, however late its reader is scheduled. By its own clock, an
//! origin on a busy machine could see the first of two requests late.

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

pub struct Stamped {
    stream: TcpStream,
    arrival: Arrival,
}

/// Arrival time of the bytes last read from a connection.
#[derive(Clone)]
pub struct Arrival(Arc<Mutex<Instant>>);

/// Stamps everything that this listener accepts, from the first byte on.
pub fn stamp(listener: &TcpListener) {
    setsockopt(listener, sockopt::ReceiveTimestampns, &true).expect("the kernel stamps what it receives");
}

impl Stamped {
    pub fn new(stream: TcpStream) -> Self {
        Self { stream, arrival: Arrival(Arc::new(Mutex::new(Instant::now()))) }
    }

    pub fn arrival(&self) -> Arrival {
        self.arrival.clone()
    }

    /// Makes closing reset the connection.
    pub fn reset_on_close(&self) {
        self.stream.set_zero_linger().ok();
    }
}

impl Arrival {
    pub fn at(&self) -> Instant {
        *self.0.lock().expect("no thread panics with it")
    }
}

impl AsyncRead for Stamped {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            let room = buffer.initialize_unfilled();
            match self.stream.try_io(Interest::READABLE, || receive(&self.stream, room)) {
                Ok((length, at)) => {
                    *self.arrival.0.lock().expect("no thread panics with it") = at;
                    buffer.advance(length);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Stamped {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    // TLS writes all its output in one piece, including its alert.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Receives bytes; returns their number, and when the last of them arrived.
fn receive(stream: &TcpStream, room: &mut [u8]) -> io::Result<(usize, Instant)> {
    let mut control = nix::cmsg_space!(nix::sys::time::TimeSpec);
    let mut parts = [IoSliceMut::new(room)];
    let message = recvmsg::<()>(stream.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::empty())?;
    let stamp = message.cmsgs()?.find_map(|part| match part {
        ControlMessageOwned::ScmTimestampns(stamp) => Some(Duration::from(stamp)),
        _ => None,
    });
    let (now, wall) = both_clocks();
    // An end has no stamp. If the wall clock was set in between, the stamp is ignored.
    let age = stamp.and_then(|stamp| wall.duration_since(SystemTime::UNIX_EPOCH + stamp).ok());
    Ok((message.bytes, now - age.filter(|age| *age < super::PATIENCE).unwrap_or_default()))
}

/// The same moment by both clocks; repeats the reading if the thread was interrupted between the two.
fn both_clocks() -> (Instant, SystemTime) {
    loop {
        let (now, wall) = (Instant::now(), SystemTime::now());
        if now.elapsed() < Duration::from_micros(100) {
            return (now, wall);
        }
    }
}
