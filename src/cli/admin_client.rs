//! Requests to a running proxy's admin address.

use super::http_client::connect;
use super::running_file::{self, RunningProxy};
use super::tcp_table::peer_owner;
use super::{CommandError, ConfigArg, Explained, Format, http_client};
use crate::config::{AdminToken, ListenAddress, Settings, as_line, controller, read_argument};
use crate::policy::Authority;
use rustix::process::geteuid;
use serde_json::Value;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub(super) struct AdminArgs {
    #[command(flatten)]
    config: ConfigArg,
    /// The proxy's admin address [default: the address of the proxy that runs with this configuration]
    #[arg(long, value_name = "ADDR")]
    admin: Option<SocketAddr>,
    /// File with the admin token [default: the token of the proxy that runs with this configuration]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// The proxy's answer.
pub(super) struct AdminAnswer {
    pub status: u16,
    pub body: Value,
    /// The address that answered.
    pub address: SocketAddr,
    /// The token that was sent.
    pub token: Option<String>,
}

/// The token to send: `None` if the proxy needs none, `Err` with the reason if it cannot be sent.
type ShownToken = Result<Option<Token>, String>;

/// A token, and who may receive it.
struct Token {
    text: String,
    /// The user (uid) of the proxies that accept it. `None`: the operator has named the token's file.
    made_by: Option<u32>,
}

impl Token {
    /// The text, unless the process at the other end belongs to a user other than the token's maker, root or us: while no proxy runs, any
    /// user can listen at its address.
    ///
    /// # Errors
    /// The reason why the token is not sent.
    fn for_peer(self, stream: &TcpStream) -> Result<String, String> {
        let Some(made_by) = self.made_by else { return Ok(self.text) };
        match peer_owner(stream).filter(|owner| ![made_by, 0, geteuid().as_raw()].contains(owner)) {
            Some(user) => Err(format!("its token is not sent to a process of the user {user}")),
            None => Ok(self.text),
        }
    }
}

impl AdminArgs {
    pub fn ask(&self, method: &str, target: &str) -> Result<AdminAnswer, CommandError> {
        let (address, token) = self.address_and_token()?;
        let failed = |error: io::Error| no_answer_error(address, &error);
        let stream = connect(address).map_err(failed)?;
        let token = token.and_then(|token| token.map(|token| token.for_peer(&stream)).transpose());
        let shown = token.as_ref().ok().and_then(Option::as_deref);
        let (status, body) = exchange(stream, method, target, shown).map_err(failed)?;
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

    /// Whether the proxy accepts requests. Needs no token.
    pub fn is_ready(&self) -> Result<bool, CommandError> {
        let (address, _) = self.address_and_token()?;
        let answered = connect(address).and_then(|stream| answer(stream, "GET", "/readyz", None));
        Ok(answered.map_err(|error| no_answer_error(address, &error))?.0 == 200)
    }

    /// The address to ask, and the token to send.
    fn address_and_token(&self) -> Result<(SocketAddr, ShownToken), CommandError> {
        // Prefers the actual address of a running proxy to the configured one: the configuration file may have changed, and our environment
        // may differ from the proxy's.
        let running = running(&self.config);
        let running = running.filter(|(address, _)| self.admin.is_none_or(|given| given == *address));
        let (address, shown) = match running {
            Some((address, Some(token))) => (address, Ok(Some(token))),
            // The proxy may have stored a token since its running file was written.
            Some((address, None)) => {
                (address, self.config.load().map_or(Ok(None), |settings| own_token(&settings, address, false)))
            }
            None => self.asked_by_configuration()?,
        };
        let given = token(self.token_file.as_deref())?;
        Ok((address, given.map_or(shown, |text| Ok(Some(Token { text, made_by: None })))))
    }

    /// The address given with `--admin`, or else the configured one, and the configured token. Used if no matching running proxy is known.
    fn asked_by_configuration(&self) -> Result<(SocketAddr, ShownToken), CommandError> {
        let loaded = self.config.load();
        let settings = match self.admin {
            // If the address is given, an invalid configuration file does not matter.
            Some(_) => loaded.unwrap_or_default(),
            None => loaded.map_err(|faults| {
                let CommandError { message, code } = faults.into();
                CommandError { message: format!("{}\n{NOBODY_RUNS}", message.trim_end()), code }
            })?,
        };
        let address = match (self.admin, &settings.admin.address) {
            (Some(address), _) => address,
            (None, Some(ListenAddress::Socket(address))) => reachable(*address),
            (None, Some(ListenAddress::Inherited(_)) | None) => {
                return Err(CommandError::usage(
                    "the configuration has no admin address to connect to",
                    "pass the address with `--admin ADDR`, or set `admin.address`",
                ));
            }
        };
        Ok((address, own_token(&settings, address, self.admin.is_some())))
    }
}

/// The token of the configured proxy, if it may be sent to this address. `is_given`: the address is not the configured one.
fn own_token(settings: &Settings, address: SocketAddr, is_given: bool) -> ShownToken {
    let file = AdminToken::of(settings);
    let shown = file.path.display();
    if !may_send_own_token(address, is_given, file.is_configured) {
        return Err(format!("the token in {shown} is not sent to an address on another machine"));
    }
    let text = file.read().map_err(|error| format!("{shown} cannot be read: {error}"))?;
    let directory = file.path.parent().filter(|_| !file.is_configured);
    Ok(Some(Token { text, made_by: directory.and_then(controller) }))
}

/// The address and token of the proxy that runs with this configuration. `None`: no such proxy is known.
fn running(config: &ConfigArg) -> Option<(SocketAddr, Option<Token>)> {
    let directory = running_file::directory();
    let RunningProxy { admin, token } = RunningProxy::find(&directory, config.path().as_deref())?;
    Some((reachable(admin), token.map(|text| Token { text, made_by: controller(&directory) })))
}

fn no_answer_error(address: SocketAddr, error: &io::Error) -> CommandError {
    let hint = match error.kind() {
        io::ErrorKind::TimedOut => "check that the process that listens there is not stopped or overloaded",
        _ => "check that a proxy is running and that this is its admin address",
    };
    CommandError::usage(format!("the request to {address} failed: {error}"), hint)
}

/// Asks the proxy that runs with this configuration. `None`: no such proxy is known, or its answer is not 200.
pub(super) fn ask_running(config: &ConfigArg, target: &str) -> Option<Value> {
    let (address, token) = running(config)?;
    let stream = connect(address).ok()?;
    let token = token.map(|token| token.for_peer(&stream)).transpose().ok()?;
    let (status, body) = exchange(stream, "GET", target, token.as_deref()).ok()?;
    Some(body).filter(|_| status == 200)
}

/// Formats an authority as one path segment: percent-encodes the characters that a segment may not contain.
pub(super) fn segment(authority: &Authority) -> String {
    authority.to_string().replace(':', "%3A").replace('/', "%2F").replace('[', "%5B").replace(']', "%5D")
}

/// Whether our token may be sent to this address: always to loopback; elsewhere only if the configuration names both the address and the
/// token's file.
fn may_send_own_token(address: SocketAddr, is_given: bool, is_configured: bool) -> bool {
    address.ip().to_canonical().is_loopback() || is_configured && !is_given
}

pub(super) fn token(file: Option<&Path>) -> Result<Option<String>, CommandError> {
    let Some(path) = file else { return Ok(None) };
    let token = read_argument(path).and_then(|bytes| as_line(&bytes));
    let hint = "name a readable file that contains the token for the admin address";
    token.explained(format!("cannot read {}", path.display()), hint).map(Some)
}

/// The address to connect to: loopback, if the proxy listens on all addresses.
pub(super) fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn exchange(stream: TcpStream, method: &str, target: &str, token: Option<&str>) -> io::Result<(u16, Value)> {
    let (status, body) = answer(stream, method, target, token)?;
    let what = "the answer is not JSON, so this is not an admin address";
    let body = serde_json::from_slice(&body).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, what))?;
    Ok((status, body))
}

/// Asks the admin address at the other end; returns status and body.
pub(super) fn answer(stream: TcpStream, method: &str, target: &str, token: Option<&str>) -> io::Result<(u16, Vec<u8>)> {
    let address = stream.peer_addr()?;
    let token = token.map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: {address}\r\n{token}Content-Length: 0\r\nConnection: close\r\n\r\n"
    );
    // A refresh waits for the host's pace and for the origin.
    let patience = if target.ends_with("/refresh") { REFRESH } else { READ };
    http_client::exchange(stream, request.as_bytes(), patience, LONGEST)
}

const NOBODY_RUNS: &str = "hint: no running proxy was found for this file, and without a valid file its admin address is unknown; pass `--admin ADDR`";
pub(super) const READ: Duration = Duration::from_secs(10);
const REFRESH: Duration = Duration::from_secs(600);
/// Maximum size of an answer in bytes.
pub(super) const LONGEST: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_sent_only_to_this_machine_or_the_configured_address() {
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
