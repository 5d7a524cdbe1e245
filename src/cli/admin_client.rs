//! Asks a running proxy at its admin address.

use super::{ConfigArg, Failed};
use crate::config::{ListenAddress, Settings};
use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
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
        let token = match &settings.admin.token_file {
            Some(path) => Some(std::fs::read_to_string(path).map_err(|error| {
                Failed::usage(format!("cannot read {}: {error}", path.display()), "`admin.token_file` names it")
            })?),
            None => None,
        };
        let answer = exchange(address, method, target, token.as_deref().map(str::trim)).map_err(|error| {
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

/// Listening everywhere is listening here.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn exchange(address: SocketAddr, method: &str, target: &str, token: Option<&str>) -> io::Result<Answer> {
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
    let fault = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut fields);
    let length = match head.parse(&bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) | Err(_) => return Err(fault("that is no HTTP answer")),
    };
    let body = serde_json::from_slice(&bytes[length..]).map_err(|_| fault("that is no admin address"))?;
    Ok(Answer { status: head.code.unwrap_or_default(), body })
}

const CONNECT: Duration = Duration::from_secs(5);
const READ: Duration = Duration::from_secs(10);
const REFRESH: Duration = Duration::from_secs(600);
