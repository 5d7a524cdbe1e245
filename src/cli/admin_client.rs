//! Asks a running proxy at its admin address.

use super::running_file::{self, RunningProxy};
use super::{CommandError, ConfigArg, Format};
use crate::config::{AdminToken, ListenAddress};
use crate::policy::{Authority, Host};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;
use url::Url;

#[derive(Debug, clap::Args)]
pub(super) struct AdminArgs {
    #[command(flatten)]
    config: ConfigArg,
    /// The proxy's admin address [default: that of the proxy that runs with this configuration]
    #[arg(long, value_name = "ADDR")]
    admin: Option<SocketAddr>,
    /// File with the admin token [default: that of the proxy that runs with this configuration]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// What it answered.
pub(super) struct AdminAnswer {
    pub status: u16,
    pub body: Value,
    /// Who has said so.
    pub address: SocketAddr,
    /// What was shown for it.
    pub token: Option<String>,
}

/// What is shown to whom is asked: `None` where it has none, `Err` where there is none to show, and why.
type ShownToken = Result<Option<String>, String>;

impl AdminArgs {
    pub fn ask(&self, method: &str, target: &str) -> Result<AdminAnswer, CommandError> {
        let (address, token) = self.asked()?;
        let shown = token.as_ref().ok().and_then(Option::as_deref);
        let (status, body) = exchange(address, method, target, shown).map_err(|error| {
            CommandError::usage(
                format!("the request to {address} failed: {error}"),
                "check that a proxy is running and that this is its admin address",
            )
        })?;
        match (status, token) {
            (401, Err(why)) => Err(CommandError::usage(
                format!("the proxy requires its token, and {why}"),
                "run this as the proxy's user or as root, with the same `--config`; or pass `--token-file`",
            )),
            (401, Ok(_)) => Err(CommandError::usage(
                "the proxy does not accept this token",
                "pass the token of that proxy with `--token-file FILE`, or correct `admin.token_file`",
            )),
            (_, token) => Ok(AdminAnswer { status, body, address, token: token.ok().flatten() }),
        }
    }

    /// Whom to ask, and with what.
    fn asked(&self) -> Result<(SocketAddr, ShownToken), CommandError> {
        // What runs is asked as it runs: the file may say something else by now, and our environment is not the proxy's.
        let running = RunningProxy::find(&running_file::directory(), self.config.path().as_deref());
        let running = running.map(|it| RunningProxy { admin: reachable(it.admin), ..it });
        let running = running.filter(|running| self.admin.is_none_or(|address| address == running.admin));
        let (address, shown) = match running {
            Some(RunningProxy { admin, token }) => (admin, Ok(token)),
            None => self.asked_by_configuration()?,
        };
        let shown = if self.token_file.is_some() { Ok(token(self.token_file.as_deref())?) } else { shown };
        Ok((address, shown))
    }

    /// Where no proxy is known to run.
    fn asked_by_configuration(&self) -> Result<(SocketAddr, ShownToken), CommandError> {
        let loaded = self.config.load();
        let settings = match self.admin {
            // Where it listens is known.
            Some(_) => loaded.unwrap_or_default(),
            None => loaded.map_err(|faults| {
                let CommandError { message, code } = faults.into();
                CommandError { message: format!("{}\n{NOBODY_RUNS}", message.trim_end()), code }
            })?,
        };
        let (address, is_given) = match (self.admin, &settings.admin.address) {
            (Some(address), _) => (address, true),
            (None, Some(ListenAddress::Socket(address))) => (reachable(*address), false),
            (None, Some(ListenAddress::Inherited(_)) | None) => {
                return Err(CommandError::usage(
                    "the configuration has no admin address to connect to",
                    "pass the address with `--admin ADDR`, or set `admin.address`",
                ));
            }
        };
        let file = AdminToken::of(&settings);
        let shown = file.path.display();
        let token = match may_send_own_token(address, is_given, file.is_configured) {
            false => Err(format!("the token in {shown} is not sent to an address on another machine")),
            true => file.read().map(Some).map_err(|error| format!("{shown} cannot be read: {error}")),
        };
        Ok((address, token))
    }
}

/// What the proxy that runs with this configuration answers. `None`: there is none that may be asked, or it does not say.
pub(super) fn ask_running(config: &ConfigArg, target: &str) -> Option<Value> {
    let RunningProxy { admin, token } = RunningProxy::find(&running_file::directory(), config.path().as_deref())?;
    let (status, body) = exchange(reachable(admin), "GET", target, token.as_deref()).ok()?;
    Some(body).filter(|_| status == 200)
}

/// An authority as one path segment: characters that a segment may not contain are percent-encoded.
pub(super) fn segment(authority: &Authority) -> String {
    authority.to_string().replace(':', "%3A").replace('/', "%2F").replace('[', "%5B").replace(']', "%5D")
}

/// A proxy on another machine.
pub(super) struct Elsewhere {
    /// As it was asked for.
    pub name: String,
    pub ca_pem: String,
    /// `None`: it speaks TLS to its clients, which few programs can.
    pub proxy: Option<(String, u16)>,
    /// What stands before the host in its URL: nothing, or `NAME:PASSWORD@`.
    pub credentials: String,
}

/// The certificate of a proxy that runs elsewhere: from the proxy itself, which serves it to its clients at `setup_host`, or
/// from its admin address, which says where the proxy listens. `token_file`: that proxy's, never this machine's own, which is
/// nothing for others to hear.
pub(super) fn elsewhere(url: &str, token_file: Option<&Path>, setup_host: &Host) -> Result<Elsewhere, CommandError> {
    let text = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    let parsed = Url::parse(&text).ok().filter(|url| url.scheme() == "http" && url.has_host());
    let parsed = parsed.ok_or_else(|| CommandError::usage(format!("`{url}` is not the URL of a proxy"), FROM_HINT))?;
    let (host, port) = (parsed.host_str().unwrap_or_default(), parsed.port().unwrap_or(80));
    let told_by_admin = admin_elsewhere(&format!("{host}:{port}"), token_file);
    if told_by_admin.is_ok() {
        return told_by_admin;
    }
    let credentials = match (parsed.username(), parsed.password()) {
        ("", None) => String::new(),
        (name, password) => format!("{name}:{}@", password.unwrap_or_default()),
    };
    let plain = percent_encoding::percent_decode_str(credentials.trim_end_matches('@')).collect::<Vec<u8>>();
    let shown = match credentials.is_empty() {
        true => String::new(),
        false => format!("Proxy-Authorization: Basic {}\r\n", BASE64_STANDARD.encode(plain)),
    };
    let request =
        format!("GET http://{setup_host}/ca.pem HTTP/1.1\r\nHost: {setup_host}\r\n{shown}Connection: close\r\n\r\n");
    match connect((host.trim_matches(['[', ']']), port)).and_then(|stream| send(stream, &request, READ)) {
        Ok((200, pem)) if pem.starts_with(PEM.as_bytes()) => Ok(Elsewhere {
            name: format!("{host}:{port}"),
            ca_pem: String::from_utf8_lossy(&pem).into_owned(),
            proxy: Some((host.to_owned(), port)),
            credentials,
        }),
        Ok((407, _)) => Err(CommandError::usage(
            "the proxy requires a user name and password",
            "put them in the URL: http://NAME:PASSWORD@proxy:3128",
        )),
        Ok(_) | Err(_) => told_by_admin,
    }
}

fn admin_elsewhere(name: &str, token_file: Option<&Path>) -> Result<Elsewhere, CommandError> {
    let wrong = |error: &dyn std::fmt::Display| {
        CommandError::usage(format!("cannot get the certificate from {name}: {error}"), FROM_HINT)
    };
    let token = token(token_file)?;
    let get = |target| match answer(name, "GET", target, token.as_deref()).map_err(|error| wrong(&error))? {
        (200, body) => String::from_utf8(body).map_err(|error| wrong(&error)),
        (401, _) => Err(CommandError::usage(
            "the proxy requires a token",
            "pass `--token-file FILE`; the file contains the token of that proxy's admin address",
        )),
        (status, _) => Err(wrong(&format!("status {status} for {target}"))),
    };
    let (ca_pem, pac) = (get("/ca.pem")?, get("/proxy.pac")?);
    let proxy = pac.split_once("return \"").and_then(|(_, rest)| rest.split_once('"')?.0.split_once(' '));
    let proxy = proxy.and_then(|(how, proxy)| {
        let (host, port) = proxy.rsplit_once(':')?;
        let proxy = (host.to_owned(), port.parse().ok()?);
        Some((how == "PROXY").then_some(proxy))
    });
    let proxy = proxy
        .filter(|_| ca_pem.starts_with(PEM))
        .ok_or_else(|| wrong(&"this is neither a politely proxy nor its admin address"))?;
    Ok(Elsewhere { proxy, ca_pem, name: name.to_owned(), credentials: String::new() })
}

/// Whether our token may be sent there: always to loopback; elsewhere only if both the address and the token are configured.
fn may_send_own_token(address: SocketAddr, is_given: bool, is_configured: bool) -> bool {
    address.ip().to_canonical().is_loopback() || is_configured && !is_given
}

fn token(file: Option<&Path>) -> Result<Option<String>, CommandError> {
    let Some(path) = file else { return Ok(None) };
    let token = std::fs::read_to_string(path).map_err(|error| {
        CommandError::usage(
            format!("cannot read {}: {error}", path.display()),
            "name a readable file that contains the token for the admin address",
        )
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

fn exchange(address: SocketAddr, method: &str, target: &str, token: Option<&str>) -> io::Result<(u16, Value)> {
    let (status, body) = answer(address, method, target, token)?;
    Ok((
        status,
        serde_json::from_slice(&body).map_err(|_| fault("the answer is not JSON, so this is not an admin address"))?,
    ))
}

fn fault(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// Status and body.
fn answer(to: impl ToSocketAddrs, method: &str, target: &str, token: Option<&str>) -> io::Result<(u16, Vec<u8>)> {
    let token = token.map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
    let stream = connect(to)?;
    let address = stream.peer_addr()?;
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: {address}\r\n{token}Content-Length: 0\r\nConnection: close\r\n\r\n"
    );
    // A refresh takes as long as the origin and its pace do.
    send(stream, &request, if method == "POST" { REFRESH } else { READ })
}

/// To the first address that can be connected to.
fn connect(to: impl ToSocketAddrs) -> io::Result<TcpStream> {
    let none = Err(fault("it has no address"));
    to.to_socket_addrs()?.fold(none, |tried, address| tried.or_else(|_| TcpStream::connect_timeout(&address, CONNECT)))
}

/// Status and body.
fn send(mut stream: TcpStream, request: &str, patience: Duration) -> io::Result<(u16, Vec<u8>)> {
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(request.as_bytes())?;
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

const NOBODY_RUNS: &str = "hint: no running proxy was found for this file, and without a valid file its admin address is unknown; pass `--admin ADDR`";
const FROM_HINT: &str =
    "give the URL of a proxy, such as http://proxy:3128, or of its admin address, such as http://proxy:3129";
const PEM: &str = "-----BEGIN CERTIFICATE-----";
const CONNECT: Duration = Duration::from_secs(5);
const READ: Duration = Duration::from_secs(10);
const REFRESH: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_and_the_address_that_is_configured_hear_our_token() {
        for (address, is_given, is_configured, hears) in [
            ("127.0.0.1:3129", true, false, true),
            ("127.0.0.1:3129", true, true, true),
            ("[::ffff:127.0.0.1]:3129", true, true, true),
            ("192.0.2.1:3129", false, true, true),
            ("192.0.2.1:3129", true, true, false),
            ("192.0.2.1:3129", true, false, false),
            ("192.0.2.1:3129", false, false, false),
        ] {
            assert_eq!(
                may_send_own_token(address.parse().unwrap(), is_given, is_configured),
                hears,
                "{address} {is_given}"
            );
        }
    }
}
