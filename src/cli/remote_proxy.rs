//! `politely ca env --from`: gets the certificate of a proxy on another machine.

use super::CommandError;
use super::admin_client::{LONGEST, READ, answer, token};
use super::http_client::{connect, exchange};
use crate::policy::Host;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::Path;
use url::Url;

/// A proxy on another machine, and its certificate.
pub(super) struct RemoteProxy {
    /// Host and port, as given.
    pub name: String,
    pub ca_pem: String,
    /// Host and port. `None`: the proxy requires TLS from clients, which few programs support.
    pub proxy: Option<(String, u16)>,
    /// The part before the host in the proxy's URL: empty, or `NAME:PASSWORD@`.
    pub credentials: String,
}

/// Gets the certificate of a proxy on another machine: from the proxy itself, which serves it at `setup_host`, or from its admin
/// address, which also tells where the proxy listens. `token_file`: that proxy's token; this machine's own is never sent.
pub(super) fn fetch(url: &str, token_file: Option<&Path>, setup_host: &Host) -> Result<RemoteProxy, CommandError> {
    let text = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    let parsed = Url::parse(&text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let parsed = parsed.ok_or_else(|| CommandError::usage(format!("`{url}` is not the URL of a proxy"), FROM_HINT))?;
    if parsed.scheme() == "https" {
        let what = format!("this command does not speak TLS to the proxy {}", parsed.host_str().unwrap_or_default());
        let hint = format!("get the file by `curl --proxy-cacert FILE -x URL http://{setup_host}/ca.pem`");
        return Err(CommandError::usage(what, hint));
    }
    let (host, port) = (parsed.host_str().unwrap_or_default(), parsed.port().unwrap_or(80));
    let credentials = match (parsed.username(), parsed.password()) {
        ("", None) => String::new(),
        (name, password) => format!("{name}:{}@", password.unwrap_or_default()),
    };
    let asked =
        Asked { name: format!("{host}:{port}"), host, port, setup_host, credentials, token: token(token_file)? };
    let addresses = parsed.socket_addrs(|| None).map_err(|error| asked.no_certificate_error(&error))?;
    asked.first_of(addresses.into_iter())
}

/// A failure at one address.
#[derive(Debug)]
struct Failed {
    came: RequestStage,
    why: CommandError,
}

/// How far a request got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RequestStage {
    Nowhere,
    /// The request reached another HTTP server.
    ToHttp,
    /// The request reached a proxy that requires credentials.
    ToProxy,
}

/// The request, which is sent to each address in turn.
struct Asked<'a> {
    name: String,
    host: &'a str,
    port: u16,
    setup_host: &'a Host,
    credentials: String,
    token: Option<String>,
}

impl Asked<'_> {
    /// Returns the result of the first address that succeeds; otherwise the error of the address at which the request got furthest.
    fn first_of(&self, addresses: impl Iterator<Item = SocketAddr>) -> Result<RemoteProxy, CommandError> {
        let mut failed = Vec::new();
        for address in addresses {
            match self.try_address(address) {
                Ok(remote) => return Ok(remote),
                Err(why) => failed.push(why),
            }
        }
        let furthest = failed.into_iter().rev().max_by_key(|failed| failed.came);
        Err(furthest.map_or_else(|| self.no_certificate_error(&"the host has no address"), |failed| failed.why))
    }

    fn try_address(&self, address: SocketAddr) -> Result<RemoteProxy, Failed> {
        // Tries the address as a proxy first, because a proxy would count a request to an admin address as malformed.
        let Self { setup_host, credentials, .. } = self;
        let plain = percent_encoding::percent_decode_str(credentials.trim_end_matches('@')).collect::<Vec<u8>>();
        let shown = match credentials.is_empty() {
            true => String::new(),
            false => format!("Proxy-Authorization: Basic {}\r\n", BASE64_STANDARD.encode(plain)),
        };
        let request = format!(
            "GET http://{setup_host}/ca.pem HTTP/1.1\r\nHost: {setup_host}\r\n{shown}Connection: close\r\n\r\n"
        );
        match connect(address).and_then(|stream| exchange(stream, request.as_bytes(), READ, LONGEST)) {
            Ok((200, pem)) if pem.starts_with(PEM.as_bytes()) => Ok(RemoteProxy {
                name: self.name.clone(),
                ca_pem: String::from_utf8_lossy(&pem).into_owned(),
                proxy: Some((self.host.to_owned(), self.port)),
                credentials: credentials.clone(),
            }),
            Ok((407, _)) => {
                let what = match credentials.is_empty() {
                    true => "the proxy requires a user name and password",
                    false => "the proxy rejects this user name and password",
                };
                let why = CommandError::usage(what, "put them in the URL: http://NAME:PASSWORD@proxy:3128");
                Err(Failed { came: RequestStage::ToProxy, why })
            }
            Ok(_) | Err(_) => self.admin_at(address),
        }
    }

    fn admin_at(&self, address: SocketAddr) -> Result<RemoteProxy, Failed> {
        let failed = |came, error: &dyn Display| Failed { came, why: self.no_certificate_error(error) };
        let get =
            |target| match connect(address).and_then(|stream| answer(stream, "GET", target, self.token.as_deref())) {
                Ok((200, body)) => String::from_utf8(body).map_err(|error| failed(RequestStage::ToHttp, &error)),
                Ok((401, _)) => Err(Failed {
                    came: RequestStage::ToProxy,
                    why: CommandError::usage(
                        "the proxy requires a token",
                        "pass `--token-file FILE`; the file contains the token of that proxy's admin address",
                    ),
                }),
                Ok((status, _)) => Err(failed(RequestStage::ToHttp, &format!("status {status} for {target}"))),
                Err(error) => Err(failed(RequestStage::Nowhere, &error)),
            };
        let (ca_pem, pac) = (get("/ca.pem")?, get("/proxy.pac")?);
        let proxy = pac.split_once("return \"").and_then(|(_, rest)| rest.split_once('"')?.0.split_once(' '));
        let proxy = proxy.and_then(|(how, proxy)| {
            let (host, port) = proxy.rsplit_once(':')?;
            // The host goes into variables that programs split at spaces, so it must be a valid host.
            let proxy = (Host::parse(host).ok()?.to_string(), port.parse().ok()?);
            Some((how == "PROXY").then_some(proxy))
        });
        let proxy = proxy
            .filter(|_| ca_pem.starts_with(PEM))
            .ok_or_else(|| failed(RequestStage::ToHttp, &"this is neither a `politely` proxy nor its admin address"))?;
        Ok(RemoteProxy { proxy, ca_pem, name: self.name.clone(), credentials: String::new() })
    }

    fn no_certificate_error(&self, error: &dyn Display) -> CommandError {
        CommandError::usage(format!("cannot get the certificate from {}: {error}", self.name), FROM_HINT)
    }
}

const FROM_HINT: &str =
    "give the URL of a proxy, such as http://proxy:3128, or of its admin address, such as http://proxy:3129";
const PEM: &str = "-----BEGIN CERTIFICATE-----";

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread;

    const PAC: &str = "function FindProxyForURL() { return \"PROXY proxy.example:3128\"; }";

    /// A server that answers all requests with this status; with `is_proxy`, it acts as a proxy's admin address.
    fn site(status: &'static str, is_proxy: bool) -> SocketAddr {
        site_with(status, is_proxy, PAC)
    }

    fn site_with(status: &'static str, is_proxy: bool, pac: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
                let asked = lines.next().unwrap_or_default();
                lines.find(String::is_empty);
                let is_refused = is_proxy && asked.contains("://");
                let status = if is_refused { "403 Forbidden" } else { status };
                let body = match asked.contains("proxy.pac") {
                    _ if !is_proxy => "",
                    true => pac,
                    false => PEM,
                };
                let _ = write!(&stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            }
        });
        address
    }

    fn ask(addresses: &[SocketAddr]) -> Result<RemoteProxy, String> {
        let setup_host = Host::parse("politely.localhost").unwrap();
        let (name, credentials) = ("proxy.example:3129".to_owned(), String::new());
        let asked =
            Asked { name, host: "proxy.example", port: 3129, setup_host: &setup_host, credentials, token: None };
        asked.first_of(addresses.iter().copied()).map_err(|why| why.message)
    }

    #[test]
    fn first_address_of_a_name_that_is_a_proxy_is_used() {
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (other, proxy) = (site("404 Not Found", false), site("200 OK", true));
        for addresses in [&[proxy, other][..], &[other, proxy], &[nobody, other, proxy]] {
            let had = ask(addresses).expect("one address is a proxy's");
            assert_eq!((had.name.as_str(), had.ca_pem.as_str()), ("proxy.example:3129", PEM));
            assert_eq!(had.proxy, Some(("proxy.example".to_owned(), 3128)));
        }
        let closed = site("407 Proxy Authentication Required", false);
        for (addresses, why) in [
            (&[nobody][..], "refused"),
            (&[nobody, other], "status 404 for /ca.pem"),
            (&[other, nobody], "status 404 for /ca.pem"),
            (&[closed, other], "user name and password"),
            (&[other, closed, nobody], "user name and password"),
        ] {
            assert!(ask(addresses).err().is_some_and(|said| said.contains(why)), "{why}");
        }
    }

    /// The proxy's host goes into JAVA_TOOL_OPTIONS, where a space begins another option.
    #[test]
    fn invalid_proxy_host_in_proxy_pac_is_refused() {
        for pac in ["return \"PROXY 127.0.0.1 -XX:OnOutOfMemoryError=x:3128\"", "return \"PROXY a\tb:3128\""] {
            let said = ask(&[site_with("200 OK", true, pac)]).err().expect("an error");
            assert!(said.contains("neither a `politely` proxy"), "{said}");
        }
    }
}
