//! RFC 6455, as far as an echo needs it: one handshake, with the RFC's example nonce, and whole frames.

use super::client::Client;
use super::message::{Head, Source};
use super::origin_log::Seen;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ring::digest;
use std::io;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

/// RFC 6455 §1.3: the example nonce and the answer to it.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
const CLOSE: u8 = 8;

/// The origin's side: completes the handshake, then echoes frames until a close frame or the end.
pub(super) async fn accept<R, W>(
    source: &mut Source<R>,
    writer: &mut W,
    seen: &Seen,
    fields: &[(String, String)],
) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let key = seen.field("sec-websocket-key").unwrap_or_default();
    let asked = BASE64_STANDARD.decode(key).is_ok_and(|key| key.len() == 16)
        && seen.field("upgrade").is_some_and(|value| value.eq_ignore_ascii_case("websocket"))
        && seen.all("connection").join(",").to_ascii_lowercase().contains("upgrade");
    if !asked {
        return writer.write_all(b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\n\r\n").await;
    }
    let mut head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {}\r\n",
        accepted(key)
    );
    for (name, value) in fields {
        head += &format!("{name}: {value}\r\n");
    }
    writer.write_all((head + "\r\n").as_bytes()).await?;
    writer.flush().await?;
    while let Some((opcode, payload)) = read_frame(source).await {
        writer.write_all(&frame(opcode, &payload, None)).await?;
        writer.flush().await?;
        if opcode == CLOSE {
            break;
        }
    }
    Ok(())
}

/// RFC 6455 §4.2.2.
fn accepted(key: &str) -> String {
    let key = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    BASE64_STANDARD.encode(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, key.as_bytes()))
}

/// A client that completed the handshake.
pub struct WebSocket(Client);

impl WebSocket {
    /// Requests a WebSocket at `target`; the error is the head of an answer other than 101.
    pub async fn open(mut client: Client, target: &str, host: &str) -> Result<(Self, Head), Head> {
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\nUser-Agent: TestBot/1.0\r\n\r\n"
        );
        client.send(request).await;
        let head = client.head().await;
        if head.status() != 101 {
            return Err(head);
        }
        assert_eq!(head.field("sec-websocket-accept"), Some(ACCEPT));
        assert_eq!(head.field("upgrade"), Some("websocket"));
        assert!(head.lists("connection", "upgrade"), "{head:?}");
        Ok((Self(client), head))
    }

    /// For a handshake that was completed elsewhere.
    pub fn over(client: Client) -> Self {
        Self(client)
    }

    /// Sends a binary message and returns what comes back.
    pub async fn echo(&mut self, message: &[u8]) -> Vec<u8> {
        self.0.send(frame(2, message, Some(MASK))).await;
        let answer = super::within("a WebSocket frame", read_frame(&mut self.0.source)).await;
        let (opcode, payload) = answer.expect("the connection stays open");
        assert_eq!(opcode, 2, "the echo is of the same kind");
        payload
    }

    /// Whether the peer ends the connection without a close frame.
    pub async fn ended(mut self) -> bool {
        self.0.rest().await.is_empty()
    }

    /// Performs the closing handshake; true if the peer closes the connection, too.
    pub async fn close(mut self) -> bool {
        self.0.send(frame(CLOSE, &1000_u16.to_be_bytes(), Some(MASK))).await;
        let answer = super::within("a close frame", read_frame(&mut self.0.source)).await;
        assert_eq!(answer.map(|(opcode, _)| opcode), Some(CLOSE));
        self.0.rest().await.is_empty()
    }
}

fn frame(opcode: u8, payload: &[u8], mask: Option<[u8; 4]>) -> Vec<u8> {
    let mut frame = vec![0x80 | opcode];
    let masked = if mask.is_some() { 0x80 } else { 0 };
    match payload.len() {
        length @ 0..126 => frame.push(masked | length as u8),
        length @ 126..65_536 => {
            frame.push(masked | 126);
            frame.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            frame.push(masked | 127);
            frame.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    frame.extend(mask.iter().flatten());
    let mask = mask.unwrap_or_default();
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

/// The opcode and the unmasked payload; `None` at the end.
async fn read_frame<R: AsyncRead + Unpin>(source: &mut Source<R>) -> Option<(u8, Vec<u8>)> {
    let head = exactly(source, 2).await?;
    let length = match head[1] & 0x7f {
        126 => u64::from(u16::from_be_bytes(exactly(source, 2).await?.try_into().ok()?)),
        127 => u64::from_be_bytes(exactly(source, 8).await?.try_into().ok()?),
        length => u64::from(length),
    };
    let mask = if head[1] & 0x80 != 0 { exactly(source, 4).await? } else { vec![0; 4] };
    let payload = exactly(source, usize::try_from(length).ok()?).await?;
    Some((head[0] & 0x0f, payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect()))
}

async fn exactly<R: AsyncRead + Unpin>(source: &mut Source<R>, length: usize) -> Option<Vec<u8>> {
    while source.ahead.len() < length {
        if !source.fill().await {
            return None;
        }
    }
    Some(source.take(length))
}
