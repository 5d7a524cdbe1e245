//! The clients: one page after the other, as fast as they are answered.

use crate::site::{HOSTS, LONG_WAIT, NO_ANSWER, SECTIONS, Site};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The origins' ports.
#[derive(Clone, Copy)]
pub struct Ports {
    pub http: u16,
    pub https: u16,
}

/// Until `stop`, through whichever proxy is up.
pub async fn crawl(proxy: Arc<Mutex<Option<SocketAddr>>>, ports: Ports, site: Arc<Site>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        let address = *proxy.lock().expect("held briefly");
        match address {
            Some(address) => _ = session(address, ports, &site, &stop).await,
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

async fn session(proxy: SocketAddr, ports: Ports, site: &Site, stop: &AtomicBool) -> io::Result<()> {
    let mut stream = BufReader::new(TcpStream::connect(proxy).await?);
    while !stop.load(Ordering::Relaxed) {
        // Some hosts are asked far more often than others, as in a real crawl.
        let number = (fastrand::f64() * fastrand::f64() * HOSTS as f64) as usize;
        let (scheme, port) = if number.is_multiple_of(2) { ("http", ports.http) } else { ("https", ports.https) };
        let (host, section) = (format!("h{number}.soak.localhost:{port}"), fastrand::u32(..SECTIONS));
        let target = site.target(section);
        let request =
            format!("GET {scheme}://{host}{target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: SoakBot/1.0\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let Ok(answer) = timeout(Duration::from_secs(70), response(&mut stream)).await else {
            site.tally.add(NO_ANSWER);
            return Ok(());
        };
        let (status, retry_after) = answer?;
        site.tally.add(&format!("told {status}"));
        site.told(number, status != 503);
        if retry_after > 3600 {
            site.tally.add(LONG_WAIT);
        }
    }
    Ok(())
}

/// Its status and Retry-After.
async fn response(stream: &mut BufReader<TcpStream>) -> io::Result<(u16, u64)> {
    let (mut status, mut length, mut retry_after) = (None, 0, 0);
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
            length = value.parse().expect("a number");
        } else if let Some(value) = line.strip_prefix("retry-after: ") {
            retry_after = value.parse().expect("seconds");
        } else if line.starts_with("transfer-encoding:") {
            panic!("the soak's client reads no chunks: {line}");
        } else if status.is_none() {
            status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        }
    }
    stream.read_exact(&mut vec![0; length]).await?;
    Ok((status.ok_or(io::ErrorKind::InvalidData)?, retry_after))
}
