//! The origins behind two ports: http, and https over a strict HTTP/2. robots.txt is another one at each fetch, and
//! breaks in every way.

use crate::site::{BAD_MESSAGE, SECTIONS, Site, Version};
use bytes::Bytes;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Plain HTTP/1.1.
pub async fn serve_http(listener: TcpListener, site: Arc<Site>) {
    while let Ok((stream, _)) = listener.accept().await {
        let site = site.clone();
        tokio::spawn(async move {
            let mut stream = BufReader::new(stream);
            while let Ok(true) = answer(&mut stream, &site).await {}
        });
    }
}

/// TLS, and HTTP/2 alone.
pub async fn serve_h2(listener: TcpListener, tls: TlsAcceptor, site: Arc<Site>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, site) = (tls.clone(), site.clone());
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let Ok(mut connection) = h2::server::handshake(stream).await else { return };
            while let Some(Ok((request, respond))) = connection.accept().await {
                let site = site.clone();
                tokio::spawn(async move { _ = answer_h2(&request, respond, &site).await });
            }
        });
    }
}

/// How a robots.txt is answered.
enum Conduct {
    /// A good one; perhaps in two parts with a pause.
    Rules(u32, bool),
    Missing,
    /// This status, and seconds for Retry-After.
    Busy(u16, u32),
    Half(u32),
    Nonsense,
    Closed,
    Hangs,
}

impl Conduct {
    fn draw() -> (Self, &'static str) {
        let version = fastrand::u32(..1 << SECTIONS);
        match fastrand::u32(..100) {
            0..60 => (Self::Rules(version, false), "robots.txt"),
            60..66 => (Self::Rules(version, true), "robots.txt, slowly"),
            66..74 => (Self::Missing, "404"),
            74..84 => (Self::Busy(503, 1), "503"),
            84..89 => (Self::Busy(429, 2), "429"),
            89..93 => (Self::Half(version), "half a robots.txt"),
            93..96 => (Self::Nonsense, "no HTTP"),
            96..98 => (Self::Closed, "closed"),
            _ => (Self::Hangs, "hung"),
        }
    }

    /// What it means for pages, if it means anything.
    fn version(&self) -> Option<Version> {
        match self {
            Self::Rules(version, _) => Some(Some(*version)),
            Self::Missing => Some(None),
            Self::Busy(..) | Self::Half(_) | Self::Nonsense | Self::Closed | Self::Hangs => None,
        }
    }
}

fn text(version: u32) -> String {
    let rules = (0..SECTIONS).filter(|bit| version >> bit & 1 == 1).map(|bit| format!("Disallow: /s{bit}/\n"));
    format!("User-agent: *\n{}", rules.collect::<String>())
}

/// Says to `site` what a robots.txt means, around the sending of it.
async fn as_sent<T>(site: &Site, host: usize, conduct: &Conduct, sending: impl Future<Output = T>) -> T {
    let Some(version) = conduct.version() else {
        site.failed(host);
        return sending.await;
    };
    let began = Instant::now();
    site.sending(host, version);
    let sent = sending.await;
    site.sent(host, version, began);
    sent
}

fn number(host: &str) -> Option<usize> {
    host.strip_prefix('h')?.split('.').next()?.parse().ok()
}

/// One request; whether the connection goes on.
async fn answer(stream: &mut BufReader<TcpStream>, site: &Site) -> io::Result<bool> {
    let (mut target, mut hosts) = (String::new(), Vec::new());
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(false);
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some(path) = line.strip_prefix("GET ") {
            target = path.split(' ').next().unwrap_or_default().to_owned();
        } else if let Some(name) = line.to_ascii_lowercase().strip_prefix("host: ") {
            hosts.extend(number(name));
        }
    }
    let [host] = hosts[..] else {
        site.tally.add(BAD_MESSAGE);
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await?;
        return Ok(false);
    };
    if target == "/robots.txt" {
        let (conduct, what) = Conduct::draw();
        site.tally.add(what);
        return as_sent(site, host, &conduct, robots(stream, &conduct)).await;
    }
    site.page(host, &target);
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage").await?;
    Ok(true)
}

async fn robots(stream: &mut BufReader<TcpStream>, conduct: &Conduct) -> io::Result<bool> {
    let whole = |version| {
        let text = text(version);
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len())
    };
    let bytes = match conduct {
        Conduct::Rules(version, _) => whole(*version),
        Conduct::Missing => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".into(),
        Conduct::Busy(status, seconds) => {
            format!("HTTP/1.1 {status} Busy\r\nRetry-After: {seconds}\r\nContent-Length: 0\r\n\r\n")
        }
        Conduct::Half(version) => {
            let mut whole = whole(*version);
            whole.truncate(whole.len() - 9);
            whole
        }
        Conduct::Nonsense => "nonsense\r\n\r\n".into(),
        Conduct::Closed => String::new(),
        Conduct::Hangs => {
            tokio::time::sleep(HANGS).await;
            return Ok(false);
        }
    };
    let (first, second) = bytes.split_at(bytes.len() / 2);
    stream.write_all(first.as_bytes()).await?;
    if matches!(conduct, Conduct::Rules(_, true)) {
        tokio::time::sleep(SLOWLY).await;
    }
    stream.write_all(second.as_bytes()).await?;
    Ok(conduct.version().is_some())
}

async fn answer_h2(
    request: &http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    site: &Site,
) -> Result<(), h2::Error> {
    let status = |status| http::Response::builder().status(status);
    let host = request.uri().host().and_then(number);
    // As nginx has it: `:authority` alone says the host. What else it refuses the library refuses, too.
    let (Some(host), false) = (host, request.headers().contains_key(http::header::HOST)) else {
        site.tally.add(BAD_MESSAGE);
        respond.send_response(status(400).body(()).expect("a status"), true)?;
        return Ok(());
    };
    if request.uri().path() != "/robots.txt" {
        site.page(host, request.uri().path());
        let head = status(200).header("content-length", 4).body(()).expect("a head");
        let mut body = respond.send_response(head, false)?;
        return body.send_data(Bytes::from_static(b"page"), true);
    }
    let (conduct, what) = Conduct::draw();
    site.tally.add(what);
    as_sent(site, host, &conduct, async {
        match &conduct {
            Conduct::Rules(version, _) | Conduct::Half(version) => {
                let text = Bytes::from(text(*version));
                let head = status(200).header("content-length", text.len()).body(()).expect("a head");
                let mut body = respond.send_response(head, false)?;
                let (first, second) = (text.slice(..text.len() / 2), text.slice(text.len() / 2..));
                body.send_data(first, false)?;
                match &conduct {
                    Conduct::Half(_) => body.send_reset(h2::Reason::INTERNAL_ERROR),
                    Conduct::Rules(_, slowly) => {
                        tokio::time::sleep(if *slowly { SLOWLY } else { Duration::ZERO }).await;
                        body.send_data(second, true)?;
                    }
                    _ => {}
                }
            }
            Conduct::Missing => _ = respond.send_response(status(404).body(()).expect("a status"), true)?,
            Conduct::Busy(code, seconds) => {
                let head = status(*code).header("retry-after", *seconds).body(()).expect("a head");
                respond.send_response(head, true)?;
            }
            Conduct::Nonsense => respond.send_reset(h2::Reason::PROTOCOL_ERROR),
            Conduct::Closed => respond.send_reset(h2::Reason::REFUSED_STREAM),
            Conduct::Hangs => tokio::time::sleep(HANGS).await,
        }
        Ok(())
    })
    .await
}

const SLOWLY: Duration = Duration::from_millis(300);
const HANGS: Duration = Duration::from_secs(5);
