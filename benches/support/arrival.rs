//! When requests come, by the kernel: an origin that is not scheduled for a while would read one late and the next in time.

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, SystemTime};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// The kernel notes when something has come to what is accepted.
pub fn stamp(listener: &impl AsFd) {
    setsockopt(listener, sockopt::ReceiveTimestampns, &true).expect("Linux");
}

/// A request, which is short enough to come at once, and when it came; `None` at the end of the connection.
pub async fn receive(stream: &TcpStream) -> Option<(String, SystemTime)> {
    let mut head = [0; 4096];
    let received = stream.async_io(Interest::READABLE, || {
        let (mut parts, mut space) = ([IoSliceMut::new(&mut head)], nix::cmsg_space!(TimeSpec));
        let message = recvmsg::<()>(stream.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::empty())?;
        let at = message.cmsgs()?.find_map(|said| match said {
            ControlMessageOwned::ScmTimestampns(at) => Some(SystemTime::UNIX_EPOCH + Duration::from(at)),
            _ => None,
        });
        Ok::<_, io::Error>((message.bytes, at))
    });
    let (length, at) = received.await.ok().filter(|(length, _)| *length > 0)?;
    let head = String::from_utf8(head[..length].to_vec()).ok()?;
    Some((head, at.expect("the kernel has it")))
}
