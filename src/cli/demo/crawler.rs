//! The demonstration's crawler: a plain HTTP client that knows nothing of robots.txt.

use rustls::pki_types::ServerName;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

pub(super) struct Crawler {
    pub proxy: SocketAddr,
    pub trust: Arc<rustls::ClientConfig>,
}

impl Crawler {
    /// Returns the status of the answer. `authority` is host and port.
    pub async fn get(&self, https: bool, authority: &str, path: &str) -> io::Result<u16> {
        let mut tcp = TcpStream::connect(self.proxy).await?;
        if !https {
            return ask(&mut tcp, &format!("http://{authority}{path}"), authority).await;
        }
        let connect = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
        tcp.write_all(connect.as_bytes()).await?;
        let mut established = Vec::new();
        while !established.ends_with(b"\r\n\r\n") {
            established.push(tcp.read_u8().await?);
        }
        let host = authority.split(':').next().unwrap_or(authority).to_owned();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        let mut tls = TlsConnector::from(self.trust.clone()).connect(name, tcp).await?;
        ask(&mut tls, path, authority).await
    }
}

async fn ask(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), target: &str, host: &str) -> io::Result<u16> {
    let request =
        format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {}/1.0\r\nConnection: close\r\n\r\n", super::BOT);
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer).await {
        // A connection closed without close_notify counts as a complete answer.
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error),
        Ok(_) | Err(_) => {}
    }
    let status = std::str::from_utf8(answer.get(9..12).unwrap_or_default()).ok().and_then(|code| code.parse().ok());
    status.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP"))
}
