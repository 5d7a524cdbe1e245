//! The demonstration's sample site, on loopback, over HTTP and HTTPS.

use parking_lot::Mutex;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

pub(super) const ROBOTS: &str = "\
User-agent: *
Disallow: /private/
Disallow: /*?sort=
Allow: /private/press/
Crawl-delay: 1

User-agent: GreedyBot
Disallow: /
";

/// The requests that the site received, in order.
pub(super) type DemoVisits = Arc<Mutex<Vec<(Instant, String)>>>;

/// Serves until the runtime ends; returns the port. `tls`: serve HTTPS.
pub(super) async fn serve(visits: DemoVisits, tls: Option<Arc<rustls::ServerConfig>>) -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let port = listener.local_addr()?.port();
    let scheme = if tls.is_some() { "https" } else { "http" };
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            tokio::spawn(connection(tcp, tls.clone(), scheme, visits.clone()));
        }
    });
    Ok(port)
}

async fn connection(
    tcp: TcpStream,
    tls: Option<Arc<rustls::ServerConfig>>,
    scheme: &'static str,
    visits: DemoVisits,
) -> io::Result<()> {
    match tls {
        Some(config) => answer(TlsAcceptor::from(config).accept(tcp).await?, scheme, visits).await,
        None => answer(tcp, scheme, visits).await,
    }
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, scheme: &str, visits: DemoVisits) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut request = String::new();
        stream.read_line(&mut request).await?;
        let Some(path) = request.split(' ').nth(1) else { return Ok(()) };
        visits.lock().push((Instant::now(), format!("{scheme} {path}")));
        let body = if path == "/robots.txt" { ROBOTS.to_owned() } else { format!("This is {path}\n") };
        let mut field = String::new();
        while stream.read_line(&mut field).await? > 2 {
            field.clear();
        }
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).await?;
        stream.flush().await?;
    }
}
