//! A client's side of HTTP/1.1, as little of it as the soak needs.

use crate::origin::Ports;
use crate::world::{Host, World};
use std::io;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::time::timeout;

pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
    pub closes: bool,
    pub asked: Instant,
}

impl Answer {
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }
}

pub enum Lost {
    InBody,
    Other(io::Error),
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Self {
        Self::Other(error)
    }
}

impl From<Lost> for io::Error {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::InBody => Self::new(io::ErrorKind::UnexpectedEof, "the body ended early"),
            Lost::Other(error) => error,
        }
    }
}

pub fn request(world: &World, ports: Ports, host: Host, path: &str, is_whole: bool) -> String {
    let ((scheme, port), name) = (ports.origin(host), host.name());
    let whole = if is_whole { format!("{scheme}://{name}:{port}") } else { String::new() };
    let asked = world.start.elapsed().as_millis();
    format!("GET {whole}{path} HTTP/1.1\r\nHost: {name}:{port}\r\nUser-Agent: SoakBot/1.0\r\nX-Asked: {asked}\r\n\r\n")
}

pub async fn ask<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut BufReader<S>,
    world: &World,
    ports: Ports,
    host: Host,
    path: &str,
    is_whole: bool,
) -> Result<Answer, Lost> {
    let asked = Instant::now();
    stream.write_all(request(world, ports, host, path, is_whole).as_bytes()).await?;
    stream.flush().await?;
    let answer = timeout(PATIENCE, answer(stream, asked)).await;
    answer.unwrap_or_else(|_| {
        let name = host.name();
        world.violation("no answer in 90 s", &format!("{name}{path}"));
        Err(io::Error::from(io::ErrorKind::TimedOut).into())
    })
}

async fn answer<S: AsyncRead + Unpin>(stream: &mut BufReader<S>, asked: Instant) -> Result<Answer, Lost> {
    let (status, length, chunked, closes) = head(stream).await?;
    let mut body = Vec::new();
    let read = async {
        match (chunked, length) {
            (true, _) => loop {
                let mut line = String::new();
                stream.read_line(&mut line).await?;
                let size = usize::from_str_radix(line.trim_end(), 16).map_err(|_| io::ErrorKind::UnexpectedEof)?;
                let start = body.len();
                body.resize(start + size, 0);
                stream.read_exact(&mut body[start..]).await?;
                line.clear();
                stream.read_line(&mut line).await?;
                if line != "\r\n" {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                if size == 0 {
                    return Ok(());
                }
            },
            (_, Some(length)) => {
                body.resize(length, 0);
                stream.read_exact(&mut body).await.map(|_| ())
            }
            _ => stream.read_to_end(&mut body).await.map(|_| ()),
        }
    };
    let read: io::Result<()> = read.await;
    read.map_err(|_| Lost::InBody)?;
    Ok(Answer { status, body, closes, asked })
}

/// Status, length, whether it is in chunks, and whether the connection closes.
pub async fn head<S: AsyncRead + Unpin>(stream: &mut BufReader<S>) -> io::Result<(u16, Option<usize>, bool, bool)> {
    let (mut status, mut length, mut chunked, mut closes) = (None, None, false, false);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().ok();
        } else if line.starts_with("transfer-encoding: chunked") {
            chunked = true;
        } else if line == "connection: close" {
            closes = true;
        } else if status.is_none() {
            status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        }
    }
    Ok((status.ok_or(io::ErrorKind::InvalidData)?, length, chunked, closes))
}

pub const PATIENCE: Duration = Duration::from_secs(90);
