//! One request over HTTP/1, for commands: to a proxy, its admin address, or a time-stamping authority.

use crate::http1::{Body, read_response};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

pub(super) fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&address, CONNECT).map_err(|error| match error.kind() {
        // Distinguishes a failed connection from a late answer: if there is no connection, probably no proxy listens at the address.
        io::ErrorKind::TimedOut => {
            io::Error::new(io::ErrorKind::NotConnected, format!("no connection within {} s", CONNECT.as_secs()))
        }
        _ => error,
    })
}

/// Sends a request; returns the status and the body, of at most `most` bytes. `patience`: maximum time for the answer.
pub(super) fn exchange(
    mut stream: TcpStream,
    request: &[u8],
    patience: Duration,
    most: usize,
) -> io::Result<(u16, Vec<u8>)> {
    let until = Instant::now() + patience;
    stream.set_write_timeout(Some(patience))?;
    stream.write_all(request)?;
    let (mut bytes, mut scanned, mut answer) = (Vec::new(), 0, None);
    loop {
        let is_over = read_more(&mut stream, until, patience, &mut bytes)? == 0;
        if answer.is_none() {
            let read = read_response(&mut bytes, &mut scanned, LONGEST_HEAD, "GET", |head| {
                (head.len, head.status, Body::of_response(head.framing))
            });
            if let Some((length, status, body)) = read.map_err(|_| invalid("the answer is not HTTP"))? {
                bytes.drain(..length);
                answer = Some((status, body, Vec::new()));
            }
        }
        let Some((status, body, content)) = &mut answer else {
            if is_over { return Err(invalid("the answer is not HTTP")) } else { continue }
        };
        while !body.is_done() && !bytes.is_empty() {
            let piece = body.decode(&bytes).map_err(|error| invalid(&format!("the answer has a {error}")))?;
            content.extend_from_slice(&bytes[piece.clone()]);
            bytes.drain(..piece.end);
        }
        if content.len() > most {
            return Err(invalid("the answer is too long"));
        }
        if is_over {
            body.on_end_of_stream().map_err(|_| invalid("the answer is cut off"))?;
        }
        if body.is_done() {
            return Ok((*status, std::mem::take(content)));
        }
    }
}

fn read_more(stream: &mut TcpStream, until: Instant, patience: Duration, into: &mut Vec<u8>) -> io::Result<usize> {
    let too_slow = || io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} s", patience.as_secs()));
    let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
    stream.set_read_timeout(Some(left.ok_or_else(too_slow)?))?;
    let mut piece = [0; 16 << 10];
    match stream.read(&mut piece) {
        Ok(read) => {
            into.extend_from_slice(&piece[..read]);
            Ok(read)
        }
        // This process was suspended and continued.
        Err(error) if error.kind() == io::ErrorKind::Interrupted => read_more(stream, until, patience, into),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(too_slow()),
        Err(error) => Err(error),
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

const CONNECT: Duration = Duration::from_secs(5);
const LONGEST_HEAD: usize = 64 << 10;
