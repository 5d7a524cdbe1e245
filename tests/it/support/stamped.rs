//! An origin that tells when each request arrived by the kernel's clock, however late it is scheduled itself.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

pub struct StampedOrigin {
    port: u16,
    seen: Arc<Mutex<Vec<(String, Duration)>>>,
}

impl StampedOrigin {
    /// What begins with `/page/long` is answered after a second.
    pub fn start(robots: impl Into<Arc<str>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        stamp(&listener);
        let (port, seen) = (listener.local_addr().expect("it listens").port(), Arc::<Mutex<Vec<_>>>::default());
        let (log, robots) = (seen.clone(), robots.into());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, robots) = (log.clone(), robots.clone());
                thread::spawn(move || answer(stream, &robots, &log));
            }
        });
        Self { port, seen }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.authority())
    }

    pub fn authority(&self) -> String {
        format!("a.localhost:{}", self.port)
    }

    /// How often this has been asked for.
    pub fn count(&self, target: &str) -> usize {
        self.starts().iter().filter(|(asked, _)| asked == target).count()
    }

    /// The times between one start and the next, of all requests whose target begins with `prefix`.
    pub fn gaps(&self, prefix: &str) -> Vec<Duration> {
        let mut starts = self.starts();
        starts.retain(|(target, _)| target.starts_with(prefix));
        starts.windows(2).map(|two| two[1].1 - two[0].1).collect()
    }

    /// What was asked for and when, in the order of its arrival.
    pub fn starts(&self) -> Vec<(String, Duration)> {
        let mut seen = self.seen.lock().expect("no thread panics with it").clone();
        seen.sort_by_key(|(_, at)| *at);
        seen
    }
}

#[expect(clippy::disallowed_methods, reason = "it has a thread to itself")]
fn answer(mut stream: TcpStream, robots: &str, log: &Mutex<Vec<(String, Duration)>>) {
    // A head comes in one piece here.
    let Some((head, at)) = receive(&stream) else { return };
    let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let is_long = target.starts_with("/page/long");
    let body = if target == "/robots.txt" { robots } else { "page" };
    log.lock().expect("no thread panics with it").push((target, at));
    if is_long {
        thread::sleep(Duration::from_secs(1));
    }
    let length = body.len();
    let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
}

/// All that is accepted from it.
fn stamp(listener: &TcpListener) {
    let on: libc::c_int = 1;
    // SAFETY: the option is an integer, which outlives the call, of the length that is told.
    let set = unsafe {
        let length = size_of_val(&on) as libc::socklen_t;
        libc::setsockopt(listener.as_raw_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, (&raw const on).cast(), length)
    };
    assert_eq!(set, 0, "the kernel stamps what it receives");
}

fn receive(stream: &TcpStream) -> Option<(String, Duration)> {
    let (mut bytes, mut control) = ([0_u8; 8192], [0_u64; 16]);
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: zero is a value of all its fields.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control) as _);
    // SAFETY: the message points to buffers of the lengths told, which outlive it; the control buffer is aligned.
    let (length, stamp) = unsafe {
        let length = libc::recvmsg(stream.as_raw_fd(), &raw mut message, 0);
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let is_stamp = length > 0 && !header.is_null() && (*header).cmsg_type == libc::SCM_TIMESTAMPNS;
        let stamp = is_stamp.then(|| libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned());
        (usize::try_from(length).ok()?, stamp)
    };
    let stamp = stamp?;
    let at = Duration::new(u64::try_from(stamp.tv_sec).ok()?, u32::try_from(stamp.tv_nsec).ok()?);
    Some((String::from_utf8_lossy(&bytes[..length]).into_owned(), at))
}
