//! Requests to a running proxy's admin address.

use super::running_file::{self, RunningProxy};
use super::tcp_table::listener_owner;
use super::{CommandError, ConfigArg, Explained, Format, http_client};
use crate::config::{AdminToken, ListenAddress, as_line, read_argument};
use crate::policy::Authority;
use rustix::process::geteuid;
use serde_json::Value;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
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
type ShownToken = Result<Option<String>, String>;

impl AdminArgs {
    pub fn ask(&self, method: &str, target: &str) -> Result<AdminAnswer, CommandError> {
        let (address, token) = self.address_and_token()?;
        let shown = token.as_ref().ok().and_then(Option::as_deref);
        let (status, body) =
            exchange(address, method, target, shown).map_err(|error| no_answer_error(address, &error))?;
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
        let answered = answer(address, "GET", "/readyz", None).map_err(|error| no_answer_error(address, &error))?;
        Ok(answered.0 == 200)
    }

    /// The address to ask, and the token to send.
    fn address_and_token(&self) -> Result<(SocketAddr, ShownToken), CommandError> {
        // Prefers the actual address of a running proxy to the configured one: the configuration file may have changed, and our environment
        // may differ from the proxy's.
        let running = RunningProxy::find(&running_file::directory(), self.config.path().as_deref());
        let running = running.map(|it| RunningProxy { admin: reachable(it.admin), ..it });
        let running = running.filter(|running| self.admin.is_none_or(|address| address == running.admin));
        let (address, shown) = match running {
            Some(RunningProxy { admin, token: Some(token) }) => (admin, Ok(Some(token))),
            // The proxy may have stored a token since its running file was written.
            Some(RunningProxy { admin, token: None }) => {
                (admin, self.asked_by_configuration().map_or(Ok(None), |(_, shown)| shown))
            }
            None => self.asked_by_configuration()?,
        };
        let shown = if self.token_file.is_some() { Ok(token(self.token_file.as_deref())?) } else { shown };
        Ok((address, shown))
    }

    /// The address and token according to the configuration. Used if no running proxy is known.
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
            true => match foreign_listener(address, &file) {
                Some(user) => Err(format!("the token in {shown} is not sent to a process of the user {user}")),
                None => file.read().map(Some).map_err(|error| format!("{shown} cannot be read: {error}")),
            },
        };
        Ok((address, token))
    }
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
    let RunningProxy { admin, token } = RunningProxy::find(&running_file::directory(), config.path().as_deref())?;
    let (status, body) = exchange(reachable(admin), "GET", target, token.as_deref()).ok()?;
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

/// The user (uid) whose process listens at this local address, if that process cannot be the proxy that made this token. While no proxy
/// runs, any user can listen there.
fn foreign_listener(address: SocketAddr, token: &AdminToken) -> Option<u32> {
    let owner = listener_owner(address).filter(|_| !token.is_configured)?;
    let made_by = token.path.metadata().map_or(owner, |file| file.uid());
    (owner != made_by && owner != 0 && owner != geteuid().as_raw()).then_some(owner)
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

fn exchange(address: SocketAddr, method: &str, target: &str, token: Option<&str>) -> io::Result<(u16, Value)> {
    let (status, body) = answer(address, method, target, token)?;
    let what = "the answer is not JSON, so this is not an admin address";
    let body = serde_json::from_slice(&body).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, what))?;
    Ok((status, body))
}

/// Asks the admin address; returns status and body.
pub(super) fn answer(
    address: SocketAddr,
    method: &str,
    target: &str,
    token: Option<&str>,
) -> io::Result<(u16, Vec<u8>)> {
    let token = token.map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: {address}\r\n{token}Content-Length: 0\r\nConnection: close\r\n\r\n"
    );
    // A refresh waits for the host's pace and for the origin.
    let patience = if target.ends_with("/refresh") { REFRESH } else { READ };
    http_client::exchange(address, request.as_bytes(), patience, LONGEST)
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
