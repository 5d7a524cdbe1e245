//! Asks a running proxy at its admin address.

use super::{ConfigArg, Failed};
use crate::config::{ListenAddress, Settings};
use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub(super) struct AdminArgs {
    #[command(flatten)]
    config: ConfigArg,
    /// The proxy's admin address [default: as configured]
    #[arg(long, value_name = "ADDR")]
    admin: Option<SocketAddr>,
}

/// What it answered.
pub(super) struct Answer {
    pub status: u16,
    pub body: Value,
}

impl AdminArgs {
    pub fn ask(&self, method: &str, target: &str) -> Result<Answer, Failed> {
        let settings = Settings::load(self.config.path().as_deref(), std::env::vars_os())?;
        let address = match (self.admin, &settings.admin.address) {
            (Some(address), _) => address,
            (None, Some(ListenAddress::Socket(address))) => reachable(*address),
            (None, Some(ListenAddress::Inherited(_)) | None) => {
                return Err(Failed::usage("the configuration names no admin address to ask", "give it with `--admin`"));
            }
        };
        let answer = exchange(address, method, target, token(settings.admin.token_file.as_deref())?.as_deref())
            .map_err(|error| {
                Failed::usage(
                    format!("no answer from {address}: {error}"),
                    "is a proxy running, and is this its admin address?",
                )
            })?;
        match answer.status {
            401 => Err(Failed::usage("the proxy asks for another token", "`admin.token_file` names it")),
            _ => Ok(answer),
        }
    }
}

/// A proxy on another machine.
pub(super) struct Elsewhere {
    /// As it was asked for.
    pub name: String,
    pub ca_pem: String,
    /// `None`: it speaks TLS to its clients, which few programs can.
    pub proxy: Option<(String, u16)>,
}

/// The certificate of a proxy that runs elsewhere, and where it listens, from its admin address. `token_file`: that proxy's,
/// never this machine's own, which is nothing for others to hear.
pub(super) fn elsewhere(url: &str, token_file: Option<&Path>) -> Result<Elsewhere, Failed> {
    let hint = "it is the admin address of a proxy, such as http://proxy:3129";
    let name = url.strip_prefix("http://").unwrap_or(url).trim_end_matches('/').to_owned();
    let wrong = |error: &dyn std::fmt::Display| Failed::usage(format!("no answer from {name}: {error}"), hint);
    let addresses: Vec<_> = name.to_socket_addrs().map_err(|error| wrong(&error))?.collect();
    let token = token(token_file)?;
    let ask = |target| {
        let none = Err(fault("it has no address"));
        addresses.iter().fold(none, |said, address| said.or_else(|_| answer(*address, "GET", target, token.as_deref())))
    };
    let get = |target| match ask(target).map_err(|error| wrong(&error))? {
        (200, body) => String::from_utf8(body).map_err(|error| wrong(&error)),
        (401, _) => Err(Failed::usage("the proxy asks for a token", "`--token-file` names a file that holds it")),
        (status, _) => Err(wrong(&format!("status {status} for {target}"))),
    };
    let (ca_pem, pac) = (get("/ca.pem")?, get("/proxy.pac")?);
    let proxy = pac.split_once("return \"").and_then(|(_, rest)| rest.split_once('"')?.0.split_once(' '));
    let proxy = proxy.and_then(|(how, proxy)| {
        let (host, port) = proxy.rsplit_once(':')?;
        let proxy = (host.to_owned(), port.parse().ok()?);
        Some((how == "PROXY").then_some(proxy))
    });
    let proxy = proxy.filter(|_| ca_pem.starts_with("-----BEGIN CERTIFICATE-----"));
    Ok(Elsewhere { proxy: proxy.ok_or_else(|| wrong(&"that is no admin address"))?, ca_pem, name })
}

fn token(file: Option<&Path>) -> Result<Option<String>, Failed> {
    let Some(path) = file else { return Ok(None) };
    let token = std::fs::read_to_string(path).map_err(|error| {
        Failed::usage(format!("cannot read {}: {error}", path.display()), "it is to hold the admin address's token")
    })?;
    Ok(Some(token.trim().to_owned()))
}

/// Listening everywhere is listening here.
pub(super) fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn exchange(address: SocketAddr, method: &str, target: &str, token: Option<&str>) -> io::Result<Answer> {
    let (status, body) = answer(address, method, target, token)?;
    Ok(Answer { status, body: serde_json::from_slice(&body).map_err(|_| fault("that is no admin address"))? })
}

fn fault(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// Status and body.
fn answer(address: SocketAddr, method: &str, target: &str, token: Option<&str>) -> io::Result<(u16, Vec<u8>)> {
    let mut stream = TcpStream::connect_timeout(&address, CONNECT)?;
    // A refresh takes as long as the origin and its pace do.
    stream.set_read_timeout(Some(if method == "POST" { REFRESH } else { READ }))?;
    let token = token.map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
    write!(
        stream,
        "{method} {target} HTTP/1.1\r\nHost: {address}\r\n{token}Content-Length: 0\r\nConnection: close\r\n\r\n"
    )?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut fields);
    let length = match head.parse(&bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) | Err(_) => return Err(fault("that is no HTTP answer")),
    };
    Ok((head.code.unwrap_or_default(), bytes.split_off(length)))
}

const CONNECT: Duration = Duration::from_secs(5);
const READ: Duration = Duration::from_secs(10);
const REFRESH: Duration = Duration::from_secs(600);
