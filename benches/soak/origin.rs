//! The origins behind four ports: HTTP/1.1, the same over TLS, a strict HTTP/2, and the paced ones, whose requests carry the
//! time at which the kernel had them. Robots.txt and pages break in every way.

use crate::arrival::{receive, stamp};
use crate::world::{Host, Kind, Version, World};
use bytes::Bytes;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Where the origins listen.
#[derive(Clone, Copy)]
pub struct Ports {
    pub http: u16,
    pub https: u16,
    pub h2: u16,
    pub paced: u16,
}

impl Ports {
    /// `http://host:port` of this host; a third of the hosts on each of the three.
    pub fn origin(self, host: Host) -> (&'static str, u16) {
        match (host.kind, host.number % 3) {
            (Kind::Paced, _) => ("http", self.paced),
            (_, 0) => ("http", self.http),
            (_, 1) => ("https", self.https),
            _ => ("https", self.h2),
        }
    }
}

pub async fn start(world: &Arc<World>, tls: Arc<rustls::ServerConfig>, h2: Arc<rustls::ServerConfig>) -> Ports {
    let (plain, secure, two, paced) = (listener(), listener(), listener(), listener());
    let port = |listener: &TcpListener| listener.local_addr().expect("it is bound").port();
    let ports = Ports { http: port(&plain), https: port(&secure), h2: port(&two), paced: port(&paced) };
    stamp(&paced);
    tokio::spawn(serve_http(plain, world.clone()));
    tokio::spawn(serve_https(secure, tls.into(), world.clone()));
    tokio::spawn(serve_h2(two, h2.into(), world.clone()));
    tokio::spawn(serve_paced(paced, world.clone()));
    ports
}

/// What a page is: it shows whose it is and how long, so that a client can check it.
pub fn page(host: &str, target: &str, length: usize) -> Vec<u8> {
    let line = format!("{host}{target} {length}\n");
    line.bytes().cycle().take(length.max(line.len())).collect()
}

fn listener() -> TcpListener {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("a socket");
    TcpListener::from_std(listener).expect("a runtime")
}

async fn serve_http(listener: TcpListener, world: Arc<World>) {
    while let Ok((stream, _)) = listener.accept().await {
        let world = world.clone();
        tokio::spawn(async move {
            let mut stream = BufReader::new(stream);
            loop {
                match answer(&mut stream, &world).await {
                    Ok(End::Goes) => {}
                    Ok(End::Resets) => {
                        // With bytes unread or linger 0 the peer sees a reset.
                        _ = socket2::SockRef::from(stream.get_ref()).set_linger(Some(Duration::ZERO));
                        return;
                    }
                    _ => return,
                }
            }
        });
    }
}

async fn serve_https(listener: TcpListener, tls: TlsAcceptor, world: Arc<World>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, world) = (tls.clone(), world.clone());
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let mut stream = BufReader::new(stream);
            // Dropped at the end without close_notify, whatever it was.
            while let Ok(End::Goes) = answer(&mut stream, &world).await {}
        });
    }
}

enum End {
    Goes,
    Closes,
    Resets,
}

/// How a robots.txt is answered.
#[derive(Clone, Copy)]
enum Conduct {
    Rules(u64, bool),
    Missing,
    Busy(u16),
    Half(u64),
    Nonsense,
    Hangs,
}

impl Conduct {
    fn of(host: Host, world: &World) -> Self {
        match host.kind {
            Kind::Changing => Self::Rules(world.start.elapsed().as_secs() / 5, false),
            Kind::Broken => match fastrand::u32(..100) {
                0..45 => Self::Rules(fastrand::u64(..1000), false),
                45..55 => Self::Rules(fastrand::u64(..1000), true),
                55..63 => Self::Missing,
                63..73 => Self::Busy(503),
                73..80 => Self::Busy(429),
                80..88 => Self::Half(fastrand::u64(..1000)),
                88..95 => Self::Nonsense,
                _ => Self::Hangs,
            },
            _ => Self::Rules(0, false),
        }
    }

    /// What it means for pages, if it means anything.
    fn version(self) -> Option<Version> {
        match self {
            Self::Rules(version, _) => Some(Some(version)),
            Self::Missing => Some(None),
            Self::Busy(_) | Self::Half(_) | Self::Nonsense | Self::Hangs => None,
        }
    }
}

/// How a page is answered.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    Stalls,
    Resets,
    Short,
    More,
    BrokenChunks,
    /// Without a length and without close_notify (or, in HTTP/1.1 without TLS, a length that is not reached).
    Cut,
    Goaway,
    Status(u16),
}

impl Fault {
    fn of(host: Host) -> Self {
        if host.kind != Kind::Faulty {
            return Self::None;
        }
        [
            Self::None,
            Self::None,
            Self::None,
            Self::Stalls,
            Self::Resets,
            Self::Short,
            Self::More,
            Self::BrokenChunks,
            Self::Cut,
            Self::Goaway,
            Self::Status(500),
        ][fastrand::usize(..11)]
    }

    fn name(self) -> &'static str {
        match self {
            Self::None => "pages",
            Self::Stalls => "pages that stalled",
            Self::Resets => "pages reset",
            Self::Short => "pages shorter than their length",
            Self::More => "pages longer than their length",
            Self::BrokenChunks => "pages in broken chunks",
            Self::Cut => "pages cut without close_notify",
            Self::Goaway => "pages with GOAWAY",
            Self::Status(_) => "pages with status 500",
        }
    }
}

fn length(target: &str) -> usize {
    if target.contains("big") { 4 << 20 } else { 200 + target.len() * 37 % 3000 }
}

/// One request in HTTP/1.1.
async fn answer<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut BufReader<S>, world: &World) -> io::Result<End> {
    let (mut target, mut name) = (String::new(), String::new());
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(End::Closes);
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some(path) = line.strip_prefix("GET ") {
            target = path.split(' ').next().unwrap_or_default().to_owned();
        } else if let Some(value) = line.to_ascii_lowercase().strip_prefix("host: ") {
            name = value.split(':').next().unwrap_or_default().to_owned();
        }
    }
    let Some(host) = Host::parse(&name) else {
        world.violation("a message that strict servers refuse", &format!("{target} of {name:?}"));
        return Ok(End::Closes);
    };
    if target == "/robots.txt" {
        return robots(stream, host, world).await;
    }
    let fault = Fault::of(host);
    world.count(fault.name());
    let body = page(&name, &target, length(&target));
    let (all, half) = (body.len(), body.len() / 2);
    let head = |length: usize| format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").into_bytes();
    let end = match fault {
        Fault::None => {
            stream.write_all(&[head(all), body].concat()).await?;
            End::Goes
        }
        Fault::Stalls => {
            stream.write_all(&[&head(all), &body[..half]].concat()).await?;
            stream.flush().await?;
            tokio::time::sleep(Duration::from_secs(2)).await;
            stream.write_all(&body[half..]).await?;
            End::Goes
        }
        Fault::Resets => {
            stream.write_all(&[&head(all), &body[..half]].concat()).await?;
            End::Resets
        }
        Fault::Short => {
            stream.write_all(&[&head(all), &body[..half]].concat()).await?;
            End::Closes
        }
        Fault::More => {
            stream
                .write_all(&[head(all), body, b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil".to_vec()].concat())
                .await?;
            End::Goes
        }
        Fault::BrokenChunks => {
            let head = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{half:x}\r\n").into_bytes();
            stream.write_all(&[&head, &body[..half], b"\r\nzz\r\n"].concat()).await?;
            End::Closes
        }
        Fault::Cut | Fault::Goaway => {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {all}\r\nConnection: close\r\n\r\n").into_bytes();
            stream.write_all(&[&head, &body[..half]].concat()).await?;
            End::Closes
        }
        Fault::Status(status) => {
            stream.write_all(format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n").as_bytes()).await?;
            End::Goes
        }
    };
    stream.flush().await?;
    Ok(end)
}

async fn robots<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, host: Host, world: &World) -> io::Result<End> {
    let conduct = Conduct::of(host, world);
    world.count("robots.txt sent or failed");
    let name = host.name();
    if let Some(version) = conduct.version() {
        world.sending(&name, version);
    }
    let end = send_robots(stream, host, conduct).await;
    if let Some(version) = conduct.version() {
        world.sent(&name, version);
    }
    end
}

async fn send_robots<S: AsyncWrite + Unpin>(stream: &mut S, host: Host, conduct: Conduct) -> io::Result<End> {
    let whole = |version| {
        let text = host.text(Some(version));
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len())
    };
    let bytes = match conduct {
        Conduct::Rules(version, _) => whole(version),
        Conduct::Missing => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".into(),
        Conduct::Busy(status) => {
            format!("HTTP/1.1 {status} Busy\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n")
        }
        Conduct::Half(version) => {
            let mut whole = whole(version);
            whole.truncate(whole.len() - 9);
            whole
        }
        Conduct::Nonsense => "nonsense\r\n\r\n".into(),
        Conduct::Hangs => {
            tokio::time::sleep(HANGS).await;
            return Ok(End::Closes);
        }
    };
    let (first, second) = bytes.split_at(bytes.len() / 2);
    stream.write_all(first.as_bytes()).await?;
    if matches!(conduct, Conduct::Rules(_, true)) {
        stream.flush().await?;
        tokio::time::sleep(SLOWLY).await;
    }
    stream.write_all(second.as_bytes()).await?;
    stream.flush().await?;
    Ok(if conduct.version().is_some() { End::Goes } else { End::Closes })
}

/// TLS, and HTTP/2 alone.
async fn serve_h2(listener: TcpListener, tls: TlsAcceptor, world: Arc<World>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, world) = (tls.clone(), world.clone());
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let Ok(mut connection) = h2::server::handshake(stream).await else { return };
            let (goaway, mut goes_away) = tokio::sync::mpsc::channel(1);
            loop {
                tokio::select! {
                    next = connection.accept() => {
                        let Some(Ok((request, respond))) = next else { return };
                        let (world, goaway) = (world.clone(), goaway.clone());
                        tokio::spawn(async move { _ = answer_h2(&request, respond, &world, &goaway).await });
                    }
                    _ = goes_away.recv() => connection.graceful_shutdown(),
                }
            }
        });
    }
}

async fn answer_h2(
    request: &http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    world: &World,
    goaway: &tokio::sync::mpsc::Sender<()>,
) -> Result<(), h2::Error> {
    let status = |status| http::Response::builder().status(status);
    let name = request.uri().host().unwrap_or_default().to_owned();
    // As nginx has it: `:authority` alone says the host.
    let (Some(host), false) = (Host::parse(&name), request.headers().contains_key(http::header::HOST)) else {
        world.violation("a message that strict servers refuse", &format!("{request:?}"));
        respond.send_response(status(400).body(()).expect("a status"), true)?;
        return Ok(());
    };
    let target = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    if target == "/robots.txt" {
        return robots_h2(respond, host, world).await;
    }
    let fault = Fault::of(host);
    world.count(fault.name());
    let body = Bytes::from(page(&name, &target, length(&target)));
    let half = body.len() / 2;
    let head = status(200).header("content-length", body.len()).body(()).expect("a head");
    if let Fault::Status(code) = fault {
        respond.send_response(status(code).body(()).expect("a status"), true)?;
        return Ok(());
    }
    let mut stream = respond.send_response(head, false)?;
    stream.send_data(body.slice(..half), false)?;
    match fault {
        Fault::Stalls => tokio::time::sleep(Duration::from_secs(2)).await,
        Fault::Resets | Fault::Cut | Fault::BrokenChunks => {
            stream.send_reset(h2::Reason::INTERNAL_ERROR);
            return Ok(());
        }
        Fault::Short => return stream.send_data(Bytes::new(), true),
        Fault::Goaway => _ = goaway.try_send(()),
        Fault::None | Fault::More | Fault::Status(_) => {}
    }
    stream.send_data(body.slice(half..), fault != Fault::More)?;
    if fault == Fault::More {
        stream.send_data(Bytes::from_static(b"evil"), true)?;
    }
    Ok(())
}

async fn robots_h2(mut respond: h2::server::SendResponse<Bytes>, host: Host, world: &World) -> Result<(), h2::Error> {
    let conduct = Conduct::of(host, world);
    world.count("robots.txt sent or failed");
    let name = host.name();
    if let Some(version) = conduct.version() {
        world.sending(&name, version);
    }
    let status = |status| http::Response::builder().status(status);
    let sent = async {
        match conduct {
            Conduct::Rules(version, _) | Conduct::Half(version) => {
                let text = Bytes::from(host.text(Some(version)));
                let head = status(200).header("content-length", text.len()).body(()).expect("a head");
                let mut body = respond.send_response(head, false)?;
                let (first, second) = (text.slice(..text.len() / 2), text.slice(text.len() / 2..));
                body.send_data(first, false)?;
                if matches!(conduct, Conduct::Half(_)) {
                    body.send_reset(h2::Reason::INTERNAL_ERROR);
                    return Ok(());
                }
                if matches!(conduct, Conduct::Rules(_, true)) {
                    tokio::time::sleep(SLOWLY).await;
                }
                body.send_data(second, true)?;
            }
            Conduct::Missing => _ = respond.send_response(status(404).body(()).expect("a status"), true)?,
            Conduct::Busy(code) => {
                respond.send_response(status(code).header("retry-after", 2).body(()).expect("a head"), true)?;
            }
            Conduct::Nonsense => respond.send_reset(h2::Reason::PROTOCOL_ERROR),
            Conduct::Hangs => tokio::time::sleep(HANGS).await,
        }
        Ok(())
    }
    .await;
    if let Some(version) = conduct.version() {
        world.sent(&name, version);
    }
    sent
}

async fn serve_paced(listener: TcpListener, world: Arc<World>) {
    while let Ok((mut stream, peer)) = listener.accept().await {
        let world = world.clone();
        tokio::spawn(async move {
            _ = stream.set_nodelay(true);
            while let Some((head, at)) = receive(&stream).await {
                // The kernel stamps what it puts together by its last part: an end behind a request that nobody has read yet
                // makes that request look later than it was.
                let at = (!has_ended(&stream)).then_some(at);
                let name =
                    head.lines().find_map(|line| Some(line.strip_prefix("Host: ")?.split(':').next()?.to_owned()));
                let target = head.split(' ').nth(1).unwrap_or_default();
                let Some((name, host)) = name.and_then(|name| Some((name.clone(), Host::parse(&name)?))) else {
                    return;
                };
                let answered = if target == "/robots.txt" {
                    robots(&mut stream, host, &world).await.map(|_| ())
                } else {
                    let via = |line: &&str| line.starts_with("Via:") || line.starts_with("X-Asked:");
                    let said: Vec<_> = head.lines().filter(via).collect();
                    world.page_came(host, at, format!("from port {} {}", peer.port(), said.join(" ")));
                    let body = page(&name, target, length(target));
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                    stream.write_all(&[head.as_bytes(), &body].concat()).await
                };
                if answered.is_err() {
                    return;
                }
            }
        });
    }
}

/// Whether its end has come already.
fn has_ended(stream: &TcpStream) -> bool {
    matches!(
        recv(stream.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT),
        Ok(0) | Err(Errno::ECONNRESET)
    )
}

const SLOWLY: Duration = Duration::from_millis(300);
/// Longer than the proxies wait.
const HANGS: Duration = Duration::from_secs(12);
