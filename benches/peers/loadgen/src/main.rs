//! Requests through a forward proxy, as many as it answers or at a given rate; one line of JSON at the end.
//!
//!   loadgen URL [proxy=ADDR] [connections=N] [streams=N] [new=1] [hosts=N] [requests=N] [seconds=S] [rate=R] [not=FILE]
//!           [hold=1]
//!
//! URL may hold `{n}`, a number that does not come twice, and `{h}`, the number of a host (0 to `hosts`) as two bytes of its
//! address. `new`: a connection for each request. `streams`: HTTP/2, with so many requests at a time on each connection. `not`:
//! the certificate (DER) that must not be seen, the origin's: a proxy that tunnels is not what is measured. `hold`: one
//! request on each connection, then a line, and all are held until standard input ends.

use bytes::Bytes;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};
use tokio_rustls::TlsConnector;

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

struct Load {
    https: bool,
    authority: String,
    path: String,
    proxy: Option<SocketAddr>,
    connections: u64,
    streams: u64,
    new: bool,
    hosts: u64,
    requests: u64,
    rate: f64,
    until: Instant,
    began: Instant,
    tls: TlsConnector,
    taken: AtomicU64,
    paths: AtomicU64,
}

/// Microseconds of each request that was answered as expected, and how many were not.
#[derive(Default)]
struct Tally {
    took: Vec<u32>,
    failed: HashMap<String, u64>,
}

#[tokio::main]
async fn main() -> Fallible<()> {
    let mut words = std::env::args().skip(1);
    let url = words.next().ok_or("loadgen URL …")?;
    let options: HashMap<String, String> =
        words.filter_map(|word| word.split_once('=').map(|(key, value)| (key.into(), value.into()))).collect();
    let (scheme, rest) = url.split_once("://").ok_or("a URL")?;
    let (authority, path) = rest.split_at(rest.find('/').ok_or("a path")?);
    let began = Instant::now();
    let streams = number(&options, "streams", 0)?;
    let load = Arc::new(Load {
        https: scheme == "https",
        authority: authority.into(),
        path: path.into(),
        proxy: options.get("proxy").map(|address| address.parse()).transpose()?,
        connections: number(&options, "connections", 1)?,
        streams,
        new: options.contains_key("new"),
        hosts: number(&options, "hosts", 1)?,
        requests: number(&options, "requests", u64::MAX)?,
        rate: number(&options, "rate", 0.0)?,
        until: began + Duration::from_secs_f64(number(&options, "seconds", 8.0)?),
        began,
        tls: tls(options.get("not").map(std::fs::read).transpose()?.unwrap_or_default(), streams > 0)?,
        taken: AtomicU64::new(0),
        // Of no other run either.
        paths: AtomicU64::new(u64::from(std::process::id()) * 1_000_000_000),
    });
    if options.contains_key("hold") {
        return hold(load).await;
    }
    let mut tasks = JoinSet::new();
    for index in 0..load.connections * load.streams.max(1) {
        if load.streams == 0 {
            tasks.spawn(http1(load.clone(), index));
        } else if index < load.connections {
            tasks.spawn(http2(load.clone()));
        }
    }
    let mut all = Tally::default();
    for tally in tasks.join_all().await {
        all.took.extend(tally.took);
        tally.failed.into_iter().for_each(|(why, count)| *all.failed.entry(why).or_default() += count);
    }
    let seconds = began.elapsed().as_secs_f64();
    all.took.sort_unstable();
    let of = |share: f64| all.took.get((all.took.len() as f64 * share) as usize).copied().unwrap_or(0);
    let (requests, failed) = (all.took.len(), all.failed.values().sum::<u64>());
    let why = all.failed.keys().next().map(String::as_str).unwrap_or_default().replace(['"', '\\'], "'");
    println!(
        "{{\"requests\": {requests}, \"failed\": {failed}, \"why\": \"{why}\", \"seconds\": {seconds:.3}, \"p50\": {}, \
         \"p99\": {}}}",
        of(0.5),
        of(0.99)
    );
    Ok(())
}

fn number<T: FromStr>(options: &HashMap<String, String>, key: &str, default: T) -> Result<T, T::Err> {
    options.get(key).map_or(Ok(default), |text| text.parse())
}

impl Load {
    /// The number of the next request, unless there have been enough.
    fn next(&self) -> Option<u64> {
        let taken = self.taken.fetch_add(1, Relaxed);
        (taken < self.requests && Instant::now() < self.until).then_some(taken)
    }

    fn authority(&self, number: u64) -> String {
        let host = number % self.hosts;
        self.authority.replace("{h}", &format!("{}.{}", host / 250, host % 250 + 1))
    }

    fn path(&self) -> String {
        self.path.replace("{n}", &self.paths.fetch_add(1, Relaxed).to_string())
    }

    async fn connect(&self, authority: &str) -> Fallible<Box<dyn Stream>> {
        let address = match self.proxy {
            Some(proxy) => proxy,
            None => authority.parse()?,
        };
        let mut tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        if !self.https {
            return Ok(Box::new(tcp));
        }
        if self.proxy.is_some() {
            tcp.write_all(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n").as_bytes()).await?;
            answer(&mut tcp, &mut Vec::new(), true).await?;
        }
        let host = authority.split(':').next().unwrap_or_default().to_owned();
        Ok(Box::new(self.tls.connect(ServerName::try_from(host)?, tcp).await?))
    }

    fn request(&self, authority: &str) -> String {
        let before = if self.proxy.is_some() && !self.https { format!("http://{authority}") } else { String::new() };
        format!("GET {before}{} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: {AGENT}\r\n\r\n", self.path())
    }
}

/// One connection's requests, one after another.
async fn http1(load: Arc<Load>, index: u64) -> Tally {
    let mut tally = Tally::default();
    let (mut open, mut turn, mut buffer) = (None, 0, Vec::new());
    while let Some(number) = load.next() {
        let mut began = Instant::now();
        if load.rate > 0.0 {
            let due = load.began + Duration::from_secs_f64((turn * load.connections + index) as f64 / load.rate);
            turn += 1;
            sleep_until(due.into()).await;
            // What came late by the timer is not the proxy's doing; what came late by the answer before is.
            began = if began < due { Instant::now() } else { due };
        }
        let authority = load.authority(number);
        let one = async {
            let mut stream = match open.take() {
                Some(stream) => stream,
                None => load.connect(&authority).await?,
            };
            stream.write_all(load.request(&authority).as_bytes()).await?;
            answer(&mut stream, &mut buffer, false).await?;
            match load.new {
                true if load.https => stream.shutdown().await?,
                true => {}
                false => open = Some(stream),
            }
            Ok(())
        };
        tally.note(began, timeout(PATIENCE, one).await.unwrap_or_else(|late| Err(late.into())));
    }
    tally
}

/// One connection's streams.
async fn http2(load: Arc<Load>) -> Tally {
    let mut tally = Tally::default();
    let began = Instant::now();
    let opened = async {
        let stream = load.connect(&load.authority(0)).await?;
        Ok(h2::client::handshake(stream).await?)
    };
    let (send, connection) = match opened.await {
        Ok(opened) => opened,
        Err(error) => {
            tally.note(began, Err(error));
            return tally;
        }
    };
    tokio::spawn(connection);
    let mut streams = JoinSet::new();
    for _ in 0..load.streams {
        let (load, send) = (load.clone(), send.clone());
        streams.spawn(async move {
            let mut tally = Tally::default();
            while let Some(number) = load.next() {
                let began = Instant::now();
                let one = stream(&load, send.clone(), load.authority(number));
                tally.note(began, timeout(PATIENCE, one).await.unwrap_or_else(|late| Err(late.into())));
            }
            tally
        });
    }
    for done in streams.join_all().await {
        tally.took.extend(done.took);
        tally.failed.extend(done.failed);
    }
    tally
}

async fn stream(load: &Load, send: h2::client::SendRequest<Bytes>, authority: String) -> Fallible<()> {
    let request = http::Request::get(format!("https://{authority}{}", load.path()));
    let (answer, _) = send.ready().await?.send_request(request.header("user-agent", AGENT).body(())?, true)?;
    let answer = answer.await?;
    let status = answer.status().as_u16();
    let mut body = answer.into_body();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
    }
    expected(status)
}

/// All connections, with one request each, held open.
async fn hold(load: Arc<Load>) -> Fallible<()> {
    let mut held = Vec::new();
    for number in 0..load.connections {
        let authority = load.authority(number);
        let mut stream = load.connect(&authority).await?;
        stream.write_all(load.request(&authority).as_bytes()).await?;
        answer(&mut stream, &mut Vec::new(), false).await?;
        held.push(stream);
    }
    println!("{{\"requests\": {}, \"failed\": 0}}", held.len());
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

impl Tally {
    fn note(&mut self, began: Instant, result: Fallible<()>) {
        match result {
            Ok(()) => self.took.push(began.elapsed().as_micros() as u32),
            Err(error) => *self.failed.entry(error.to_string()).or_default() += 1,
        }
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Reads one answer, whose length its head says; `bare`: the head that opens a tunnel.
async fn answer(stream: &mut (impl AsyncRead + Unpin + ?Sized), buffer: &mut Vec<u8>, bare: bool) -> Fallible<()> {
    buffer.clear();
    let end = loop {
        if stream.read_buf(buffer).await? == 0 {
            return Err("closed before the answer's end".into());
        }
        if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let head = str::from_utf8(&buffer[..end])?.to_ascii_lowercase();
    let status: u16 = head.split(' ').nth(1).unwrap_or_default().parse()?;
    if bare {
        return if status == 200 { Ok(()) } else { Err(format!("CONNECT answered {status}").into()) };
    }
    let length: Option<usize> =
        head.split("\r\ncontent-length:").nth(1).and_then(|rest| rest.lines().next()?.trim().parse().ok());
    let whole = end + length.ok_or("an answer without a length")?;
    while buffer.len() < whole {
        if stream.read_buf(buffer).await? == 0 {
            return Err("closed before the body's end".into());
        }
    }
    expected(status)
}

fn expected(status: u16) -> Fallible<()> {
    let wanted = std::env::var("STATUS").ok().and_then(|text| text.parse().ok()).unwrap_or(200);
    if status == wanted { Ok(()) } else { Err(format!("status {status}").into()) }
}

fn tls(not: Vec<u8>, h2: bool) -> Fallible<TlsConnector> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Other(not)))
        .with_no_client_auth();
    // Each handshake is a whole one.
    config.resumption = rustls::client::Resumption::disabled();
    config.alpn_protocols = vec![if h2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Any certificate but this one.
#[derive(Debug)]
struct Other(Vec<u8>);

impl ServerCertVerifier for Other {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match certificate.as_ref() == self.0 {
            true => Err(rustls::Error::General("this is the origin's certificate".into())),
            false => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

const AGENT: &str = "bench-crawler/1.0";
const PATIENCE: Duration = Duration::from_secs(20);
