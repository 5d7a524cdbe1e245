//! The HTTP/1 side of [`super::origin`]. Strict: a badly framed request panics the connection's task, so that the test waiting for an
//! answer fails.

use super::message::{Framing, Head, Source, lossy};
use super::origin::{Site, Wire};
use super::origin_log::{Protocol, Seen};
use super::pattern;
use super::reply::{Content, Delimit, Reply, Then};
use super::stamped::Stamped;
use super::websocket;
use std::io;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};

/// A stream that can be reset.
pub(super) trait Resettable {
    fn reset_on_close(&self);
}

impl Resettable for Stamped {
    fn reset_on_close(&self) {
        self.reset_on_close();
    }
}

impl Resettable for tokio_rustls::server::TlsStream<Stamped> {
    fn reset_on_close(&self) {
        self.get_ref().0.reset_on_close();
    }
}

pub(super) async fn serve<S>(stream: S, site: Site, wire: Wire)
where
    S: AsyncRead + AsyncWrite + Resettable + Unpin,
{
    let (reader, writer) = tokio::io::split(stream);
    let mut connection = Connection { source: Source::new(reader), writer };
    while let Some(bytes) = connection.source.until(b"\r\n\r\n").await {
        match connection.exchange(bytes, &site, &wire).await {
            Ok(Next::Request) => {}
            Ok(Next::Close) => {
                connection.writer.shutdown().await.ok();
                // Keeps reading, so that bytes still sent by the client do not cause a reset.
                while connection.source.fill().await {
                    connection.source.ahead.clear();
                }
                return;
            }
            Ok(Next::Reset) => {
                connection.source.inner.unsplit(connection.writer).reset_on_close();
                return;
            }
            Err(_) => return,
        }
    }
}

enum Next {
    Request,
    Close,
    Reset,
}

struct Connection<S> {
    source: Source<ReadHalf<S>>,
    writer: WriteHalf<S>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    async fn exchange(&mut self, bytes: Vec<u8>, site: &Site, wire: &Wire) -> io::Result<Next> {
        let mut seen = wire.request(Protocol::Http1);
        let head = Head::parse(&bytes);
        let mut words = head.start_line.splitn(3, |&byte| byte == b' ');
        seen.method = lossy(words.next().unwrap_or_default());
        seen.target = words.next().unwrap_or_default().to_vec();
        seen.host = head.all("host").first().copied().unwrap_or_default().to_owned();
        seen.fields = head.fields.clone();
        seen.head = bytes;
        let reply = site.reply(&mut seen);
        let framing = if seen.refused.is_some() { Framing::None } else { head.framing(&seen.method) };
        let index = site.log.begin(seen);
        if head.field("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) && reply.wait_for_body {
            self.writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        let outcome = if reply.wait_for_body {
            if !self.read_body(framing, site, index).await {
                site.log.update(index, |seen| seen.cut = true);
                return Ok(Next::Reset);
            }
            self.answer(reply, &site.log.get(index)).await
        } else {
            let outcome = self.answer(reply, &site.log.get(index)).await;
            if !matches!(outcome, Ok(Next::Reset)) {
                self.read_body(framing, site, index).await;
            }
            outcome
        };
        if outcome.is_err() {
            site.log.update(index, |seen| seen.cut = true);
        }
        outcome
    }

    async fn read_body(&mut self, framing: Framing, site: &Site, index: usize) -> bool {
        let end = self.source.body(framing, |piece| site.log.update(index, |seen| seen.body.push(piece))).await;
        site.log.update(index, |seen| {
            seen.body.complete = end.complete;
            seen.body.trailers = end.trailers;
        });
        end.complete
    }

    async fn answer(&mut self, reply: Reply, seen: &Seen) -> io::Result<Next> {
        if !reply.after.is_zero() {
            tokio::time::sleep(reply.after).await;
        }
        match &reply.body {
            Content::Raw(bytes) => {
                self.writer.write_all(bytes).await?;
                self.writer.flush().await?;
            }
            Content::Silence => {
                while self.source.fill().await {}
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Content::Reset => return Ok(Next::Reset),
            Content::WebSocket => {
                websocket::accept(&mut self.source, &mut self.writer, seen, &reply.fields).await?;
                return Ok(Next::Close);
            }
            Content::Bytes(_) | Content::Pattern(_) | Content::Drip(..) | Content::Echo => {
                self.respond(&reply, seen).await?;
            }
        }
        let is_last = seen.all("connection").join(",").to_ascii_lowercase().contains("close");
        let close = is_last || reply.then == Then::Close || matches!(reply.framing, Delimit::Close | Delimit::Short(_));
        Ok(if close { Next::Close } else { Next::Request })
    }

    async fn respond(&mut self, reply: &Reply, seen: &Seen) -> io::Result<()> {
        let length = match &reply.body {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Pattern(length) => *length,
            Content::Drip(pieces, _) => pieces.iter().map(|piece| piece.len() as u64).sum(),
            Content::Echo => seen.body.kept.len() as u64,
            Content::Raw(_) | Content::Silence | Content::Reset | Content::WebSocket => 0,
        };
        let mut head = format!("HTTP/1.1 {} {}\r\n", reply.status, reason(reply.status));
        for (name, value) in &reply.fields {
            head += &format!("{name}: {value}\r\n");
        }
        let may_have_body = !matches!(reply.status, 100..200 | 204 | 304);
        if may_have_body {
            match reply.framing {
                Delimit::Length => head += &format!("Content-Length: {length}\r\n"),
                Delimit::Short(missing) => head += &format!("Content-Length: {}\r\n", length + missing),
                Delimit::Chunked => head += "Transfer-Encoding: chunked\r\n",
                Delimit::Close => head += "Connection: close\r\n",
            }
        }
        head += "\r\n";
        self.writer.write_all(head.as_bytes()).await?;
        if may_have_body && seen.method != "HEAD" {
            let chunked = reply.framing == Delimit::Chunked;
            self.body(reply, seen, chunked).await?;
            if chunked {
                let mut end = "0\r\n".to_owned();
                for (name, value) in &reply.trailers {
                    end += &format!("{name}: {value}\r\n");
                }
                self.writer.write_all((end + "\r\n").as_bytes()).await?;
            }
        }
        self.writer.flush().await
    }

    async fn body(&mut self, reply: &Reply, seen: &Seen, chunked: bool) -> io::Result<()> {
        match &reply.body {
            Content::Bytes(bytes) => self.piece(bytes, chunked).await,
            Content::Echo => self.piece(&seen.body.kept, chunked).await,
            Content::Pattern(length) => {
                let mut sent = 0;
                while sent < *length {
                    let piece = pattern::piece(sent, *length);
                    self.piece(piece, chunked).await?;
                    sent += piece.len() as u64;
                }
                Ok(())
            }
            Content::Drip(pieces, pause) => {
                for piece in pieces {
                    self.writer.flush().await?;
                    tokio::time::sleep(*pause).await;
                    self.piece(piece, chunked).await?;
                }
                Ok(())
            }
            Content::Raw(_) | Content::Silence | Content::Reset | Content::WebSocket => Ok(()),
        }
    }

    async fn piece(&mut self, piece: &[u8], chunked: bool) -> io::Result<()> {
        if piece.is_empty() {
            return Ok(());
        }
        if chunked {
            self.writer.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).await?;
        }
        self.writer.write_all(piece).await?;
        if chunked {
            self.writer.write_all(b"\r\n").await?;
        }
        Ok(())
    }
}

fn reason(status: u16) -> &'static str {
    http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("Unnamed")
}
