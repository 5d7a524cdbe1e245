//! The clients: a steady load at a fixed rate, those of paced and of broken hosts, and those that behave badly.

use crate::instance::Instance;
use crate::origin::{Ports, page};
use crate::wire::{Answer, Lost, PATIENCE, ask, head, request};
use crate::world::{Host, Kind, World, path};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Hosts of each kind that are asked at one time; every two seconds one leaves and another comes.
const WINDOW: u64 = 150;
const PACED: u64 = 25;
/// Few, so that each is asked often, and a copy that is no longer in force shows.
const CHANGING: u64 = 12;

/// What all clients share.
pub struct Crowd {
    pub world: Arc<World>,
    pub ports: Ports,
    pub proxies: Vec<Arc<Instance>>,
    /// Where the proxies' certificate authority is.
    pub authority: PathBuf,
    pub stop: AtomicBool,
    /// Requests a second of the steady load, in all; 0 for as fast as they are answered.
    pub rate: AtomicU64,
    /// Whether requests that could not go out in time do so later, as latencies that are judged need it.
    pub makes_up: bool,
    pub same_hosts: bool,
    pub schedule: Mutex<Instant>,
    /// When each answer of the steady load came, and how long after it was due.
    pub latencies: Mutex<Vec<(Instant, Duration)>>,
}

impl Crowd {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// When the next request of the steady load is due.
    fn next_due(&self) -> Instant {
        let rate = self.rate.load(Ordering::Relaxed);
        if rate == 0 {
            return Instant::now();
        }
        let mut schedule = self.schedule.lock().expect("no panic");
        *schedule += Duration::from_secs(1) / u32::try_from(rate).expect("a rate");
        if !self.makes_up && schedule.elapsed() > Duration::from_secs(1) {
            *schedule = Instant::now() + Duration::from_secs(1);
        }
        *schedule
    }

    fn host(&self, kind: Kind) -> Host {
        let age = if self.same_hosts { 0 } else { self.world.start.elapsed().as_secs() };
        let number = match kind {
            Kind::Paced => fastrand::u64(..PACED),
            Kind::Changing => age / 20 + fastrand::u64(..CHANGING),
            _ => age / 2 + fastrand::u64(..WINDOW),
        };
        Host { kind, number }
    }

    fn proxy(&self) -> &Instance {
        &self.proxies[fastrand::usize(..self.proxies.len())]
    }
}

/// The steady load: hosts that work. Connections live for some requests.
pub async fn steady(crowd: Arc<Crowd>) {
    while crowd.goes_on() {
        let proxy = crowd.proxy();
        let began = Instant::now();
        let ended = if fastrand::u8(..8) == 0 { tunnel(&crowd, proxy).await } else { plain(&crowd, proxy).await };
        if let Err(error) = ended {
            lost(&crowd, proxy, began, "steady", &error);
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// One connection to the proxy, whole URLs.
async fn plain(crowd: &Crowd, proxy: &Instance) -> io::Result<()> {
    let mut stream = BufReader::new(TcpStream::connect(proxy.address).await?);
    for _ in 0..fastrand::u32(5..60) {
        let host = crowd.host(if fastrand::u8(..4) == 0 { Kind::Changing } else { Kind::Steady });
        let (due, path) = (due(crowd).await, path(&mut fastrand::Rng::new()));
        let answer = ask(&mut stream, &crowd.world, crowd.ports, host, &path, true).await?;
        crowd.latencies.lock().expect("no panic").push((Instant::now(), due.elapsed()));
        judge(crowd, proxy, host, &path, &answer);
        if answer.closes || !crowd.goes_on() {
            break;
        }
    }
    // Some leave in the middle of an answer.
    if fastrand::u8(..20) == 0 && crowd.goes_on() {
        let host = crowd.host(Kind::Steady);
        stream.write_all(request(&crowd.world, crowd.ports, host, "/big/x", true).as_bytes()).await?;
    }
    Ok(())
}

/// CONNECT, and some requests inside.
async fn tunnel(crowd: &Crowd, proxy: &Instance) -> io::Result<()> {
    let mut host = crowd.host(Kind::Steady);
    host.number += u64::from(crowd.ports.origin(host).0 == "http");
    let mut stream = connect(crowd, proxy, host).await?;
    for _ in 0..fastrand::u32(3..30) {
        let (due, path) = (due(crowd).await, path(&mut fastrand::Rng::new()));
        let answer = ask(&mut stream, &crowd.world, crowd.ports, host, &path, false).await?;
        crowd.latencies.lock().expect("no panic").push((Instant::now(), due.elapsed()));
        judge(crowd, proxy, host, &path, &answer);
        if answer.closes || !crowd.goes_on() {
            break;
        }
    }
    Ok(())
}

async fn due(crowd: &Crowd) -> Instant {
    let due = crowd.next_due();
    tokio::time::sleep_until(due.into()).await;
    due
}

async fn connect(
    crowd: &Crowd,
    proxy: &Instance,
    host: Host,
) -> io::Result<BufReader<impl AsyncRead + AsyncWrite + Unpin>> {
    let mut stream = BufReader::new(TcpStream::connect(proxy.address).await?);
    let (name, port) = (host.name(), crowd.ports.origin(host).1);
    stream.write_all(format!("CONNECT {name}:{port} HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n").as_bytes()).await?;
    let (status, ..) = head(&mut stream).await?;
    if status != 200 {
        return Err(io::Error::other(format!("CONNECT was answered {status}")));
    }
    let mut roots = rustls::RootCertStore::empty();
    // The authority's certificate, the next one and the one before.
    for file in ["ca.pem", "ca.pem.next", "ca.next.pem", "next.pem", "ca.pem.old"] {
        let Ok(certificates) = CertificateDer::pem_file_iter(crowd.authority.join(file)) else { continue };
        certificates.flatten().for_each(|certificate| _ = roots.add(certificate));
    }
    let config = rustls::ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let name = ServerName::try_from(name).map_err(io::Error::other)?;
    Ok(BufReader::new(connector.connect(name, stream.into_inner()).await?))
}

/// Of hosts whose robots.txt, pages or pace are out of the ordinary: as fast as they are answered.
pub async fn closed(crowd: Arc<Crowd>, kind: Kind) {
    while crowd.goes_on() {
        let proxy = crowd.proxy();
        let began = Instant::now();
        let session = async {
            let mut stream = BufReader::new(TcpStream::connect(proxy.address).await?);
            loop {
                let (host, path) = (crowd.host(kind), path(&mut fastrand::Rng::new()));
                let answer = match ask(&mut stream, &crowd.world, crowd.ports, host, &path, true).await {
                    Ok(answer) => answer,
                    // An answer that the origin cut short is cut off for the client too.
                    Err(Lost::InBody) if kind == Kind::Faulty => {
                        crowd.world.count("answers cut off, as the origin's");
                        return Ok(());
                    }
                    Err(lost) => return Err(lost.into()),
                };
                judge(&crowd, proxy, host, &path, &answer);
                if answer.status == 429 || answer.status == 503 {
                    sleep(Duration::from_millis(50)).await;
                }
                if answer.closes || !crowd.goes_on() || fastrand::u8(..30) == 0 {
                    return Ok(());
                }
            }
        };
        if let Err(error) = session.await {
            lost(&crowd, proxy, began, &format!("{kind:?}"), &error);
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Clients that never read, that never end their head, that leave while they wait, and that ask for what is not there.
pub async fn rude(crowd: Arc<Crowd>, number: usize) {
    let mut turn = number;
    while crowd.goes_on() {
        turn += 1;
        let proxy = crowd.proxy();
        let what = async {
            let mut stream = BufReader::new(TcpStream::connect(proxy.address).await?);
            match turn % 5 {
                0 => {
                    let asked = request(&crowd.world, crowd.ports, crowd.host(Kind::Steady), "/big/never-read", true);
                    stream.write_all(asked.as_bytes()).await?;
                    sleep(Duration::from_secs(8)).await;
                    crowd.world.count("clients that never read");
                }
                1 => {
                    stream.write_all(b"GET http://s1.soak.localhost/ HTTP/1.1\r\nHost: s1").await?;
                    sleep(Duration::from_secs(4)).await;
                    crowd.world.count("clients that never ended a head");
                }
                2 => {
                    let asked = request(&crowd.world, crowd.ports, crowd.host(Kind::Paced), "/left", true);
                    stream.write_all(asked.as_bytes()).await?;
                    sleep(Duration::from_millis(fastrand::u64(1..300))).await;
                    crowd.world.count("clients that left while they waited");
                }
                3 => {
                    let name = format!("x{}.invalid", fastrand::u32(..));
                    let asked =
                        format!("GET http://{name}/ HTTP/1.1\r\nHost: {name}\r\nUser-Agent: SoakBot/1.0\r\n\r\n");
                    stream.write_all(asked.as_bytes()).await?;
                    refused(&mut stream, &crowd, "a name that does not resolve", &[502, 503, 504]).await?;
                }
                _ => {
                    let asked = "GET http://10.0.0.1/ HTTP/1.1\r\nHost: 10.0.0.1\r\nUser-Agent: SoakBot/1.0\r\n\r\n";
                    stream.write_all(asked.as_bytes()).await?;
                    refused(&mut stream, &crowd, "a closed address", &[403]).await?;
                    sleep(Duration::from_secs(1)).await;
                }
            }
            Ok::<_, io::Error>(())
        };
        let began = Instant::now();
        if let Err(error) = what.await {
            lost(&crowd, proxy, began, &format!("rude {}", turn % 5), &error);
            sleep(Duration::from_millis(50)).await;
        }
    }
}

async fn refused(stream: &mut BufReader<TcpStream>, crowd: &Crowd, what: &str, right: &[u16]) -> io::Result<()> {
    let status = timeout(PATIENCE, head(stream)).await.map_err(|_| io::ErrorKind::TimedOut)??.0;
    crowd.world.count(what);
    if !right.contains(&status) {
        crowd.world.violation("a wrong refusal", &format!("{what}: {status}"));
    }
    Ok(())
}

/// A connection that ended before its answer did: as it must be where the process was just killed or replaced.
fn lost(crowd: &Crowd, proxy: &Instance, began: Instant, what: &str, error: &io::Error) {
    if !crowd.goes_on() {
        return;
    }
    if error.to_string().contains("certificate not valid yet") && crowd.world.is_clock_wrong(began) {
        crowd.world.count("certificates of a clock that was ahead, not trusted");
    } else if proxy.was_replaced_since(began) {
        crowd.world.count("connections lost to a kill or an upgrade");
    } else {
        crowd.world.violation(
            "a connection lost",
            &format!("{} to {} after {:?}: {error}", what, proxy.name, began.elapsed()),
        );
    }
}

fn judge(crowd: &Crowd, proxy: &Instance, host: Host, path: &str, answer: &Answer) {
    let world = &crowd.world;
    world.count("answers");
    if host.kind == Kind::Broken {
        world.count(&format!("answers {} of hosts whose robots.txt breaks", answer.status));
    }
    let name = host.name();
    match answer.status {
        200 => {
            world.verdict(proxy.name, host, path, answer.asked, true);
            let right = page(&name, path, answer.body.len());
            let shows = String::from_utf8_lossy(&answer.body[..answer.body.len().min(120)]).into_owned();
            let length = shows.lines().next().and_then(|line| line.rsplit(' ').next()?.parse::<usize>().ok());
            if length != Some(answer.body.len()) || right != answer.body {
                world.violation("a wrong body", &format!("{name}{path}: {} bytes, {shows:?}", answer.body.len()));
            }
        }
        403 if answer.text().contains("urn:politely:robots-disallowed") => {
            world.verdict(proxy.name, host, path, answer.asked, false);
        }
        502 | 504 | 500 if host.kind == Kind::Faulty => world.count("answers 5xx of faulty hosts"),
        502..=504 | 429 if host.kind == Kind::Broken => {}
        429 | 503 if host.kind == Kind::Paced => world.count("held too long"),
        // Held by a process that was replaced, for longer than it had left.
        503 if answer.text().contains("urn:politely:draining") && proxy.was_replaced_since(answer.asked) => {
            world.count("answers 503 of a process that was replaced");
        }
        // An origin of this process that was not scheduled in time is the machine's fault, if it is rare.
        503 if answer.text().contains("no complete answer within") => world.count(LATE),
        status => {
            let proxy = proxy.name;
            let text: String = answer.text().chars().take(600).collect();
            world.violation("a wrong answer", &format!("{proxy}: {name}{path}: {status} {text}"));
        }
    }
}

pub const LATE: &str = "answers 503, as the machine was too busy for an origin to answer in time";
