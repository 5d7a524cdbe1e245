//! Single values of the configuration, which are parsed when they are read: addresses, ports, networks, texts. Pure.

use crate::policy::{Allowlist, Host, HostPattern, ListedBy};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use crate::robots::{ProductToken, Purpose};
use ipnet::IpNet;

use super::text::{FromText, QUOTES, checked_texts, from_text, read_from_text};
use crate::config::read::error::Complaint;

/// The source of a listener's socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ListenAddress {
    Socket(SocketAddr),
    /// A socket that systemd opened under this name (`FileDescriptorName=`), written `fd:NAME`.
    Inherited(String),
}

impl ListenAddress {
    /// # Errors
    /// The text is neither `ADDRESS:PORT` nor `fd:NAME`.
    pub fn parse(text: &str) -> Result<Self, Complaint> {
        if let Some(name) = text.strip_prefix("fd:") {
            let good = !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic() && b != b':');
            return if good { Ok(Self::Inherited(name.to_owned())) } else { Err(listen_fault(text)) };
        }
        text.parse().map(Self::Socket).map_err(|_| listen_fault(text))
    }

    /// Whether only this machine can reach the address. `None` for an inherited socket, whose address is known only after the start.
    pub fn is_loopback(&self) -> Option<bool> {
        match self {
            Self::Socket(address) => Some(address.ip().to_canonical().is_loopback()),
            Self::Inherited(_) => None,
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(address) => address.fmt(f),
            Self::Inherited(name) => write!(f, "fd:{name}"),
        }
    }
}

fn listen_fault(text: &str) -> Complaint {
    let what = format!("`{text}` is not an address to listen on");
    let port = text.rsplit(':').next().filter(|port| port.parse::<u16>().is_ok());
    match port {
        Some(port) if text == port || text.starts_with(':') || text.starts_with("localhost:") => {
            Complaint::new(what, format!("write `127.0.0.1:{port}`; names are not looked up here"))
        }
        Some(_) | None => Complaint::new(what, LISTEN_FORMS),
    }
}

/// The ports from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    pub first: u16,
    pub last: u16,
}

impl PortRange {
    /// # Errors
    /// The text is neither a port (`443`) nor a range (`8000-9000`).
    pub fn parse(text: &str) -> Result<Self, Complaint> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.trim().parse(), last.trim().parse()) {
            (Ok(first), Ok(last)) if 0 < first && first <= last => Ok(Self { first, last }),
            (Ok(_) | Err(_), Ok(_) | Err(_)) => Err(Complaint::new(format!("`{text}` is not a port"), PORT_FORMS)),
        }
    }

    pub fn contains(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last } = self;
        if first == last { first.fmt(f) } else { write!(f, "{first}-{last}") }
    }
}

/// A network in CIDR notation; a single address is its own network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(pub IpNet);

impl Network {
    /// # Errors
    /// The text is neither a network (`10.0.0.0/8`) nor an address.
    pub fn parse(text: &str) -> Result<Self, Complaint> {
        let network = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
        let network = network.ok_or_else(|| Complaint::new(format!("`{text}` is not a network"), NETWORK_FORMS))?;
        Ok(Self(network.trunc()))
    }
}

/// An entry of `egress.deny`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DenyEntry {
    Network(Network),
    Host(HostPattern),
}

impl DenyEntry {
    /// # Errors
    /// The text is neither a network nor a host or a pattern of hosts.
    pub fn parse(text: &str) -> Result<Self, Complaint> {
        match Network::parse(text) {
            Ok(network) => Ok(Self::Network(network)),
            Err(complaint) if text.contains('/') => Err(complaint),
            Err(_) => parse_pattern(text).map(Self::Host),
        }
    }
}

/// Destination of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AccessLog {
    Off,
    Stdout,
    Journal,
    File(PathBuf),
}

impl AccessLog {
    fn parse(text: &str) -> Result<Self, Complaint> {
        match text {
            "off" => Ok(Self::Off),
            "stdout" => Ok(Self::Stdout),
            "journal" => Ok(Self::Journal),
            // A path must contain a slash, so that a misspelt word does not create a file.
            path if path.contains('/') => Ok(Self::File(path.into())),
            _ => Err(Complaint::new(format!("`{text}` is not a destination for the access log"), ACCESS_LOG_FORMS)),
        }
    }
}

checked_texts! {
    /// A user's name, as sent and shown: printable ASCII, not empty.
    HeaderText, "text", QUOTES, parse_user_name;
    /// The name of an instance in `Via`: a short token (RFC 9110 §5.6.2).
    InstanceName, "a name", INSTANCE_FORMS, parse_instance_name;
    /// A rule's path in the syntax of robots.txt: `*` stands for any run of characters, a final `$` for the end of the path.
    PathPattern, "a path pattern", PATH_FORMS, parse_path_pattern;
    /// A request method.
    MethodName, "a method", METHOD_FORMS, parse_method;
}

fn parse_user_name(text: &str) -> Result<&str, Complaint> {
    match text.trim() {
        "" => Err(Complaint::new("a user's name must not be empty", "leave the entry out")),
        token => match token.chars().find(|c| !matches!(c, ' '..='~')) {
            None => Ok(token),
            Some(bad) => Err(Complaint::new(
                format!("the character {bad:?} is not allowed in a user's name"),
                "use printable ASCII: letters, digits, and signs other than `:`",
            )),
        },
    }
}

fn parse_instance_name(text: &str) -> Result<&str, Complaint> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    match (1..=MOST_OF_INSTANCE).contains(&text.len()) && text.bytes().all(fits) {
        true => Ok(text),
        false => Err(Complaint::new(format!("`{text}` is not a name for an instance"), INSTANCE_FORMS)),
    }
}

/// Checks that a pattern begins with `/` or `*`, contains no space or control character, and is not longer than the longest accepted path.
fn parse_path_pattern(text: &str) -> Result<&str, Complaint> {
    // `#` would begin a comment in a robots.txt, and the path of a request never contains it.
    let fits =
        text.starts_with(['/', '*']) && !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '#');
    if text.len() > MOST_PATH_BYTES {
        let what = format!("a path pattern of {} bytes is longer than any path that can be requested", text.len());
        Err(Complaint::new(what, "a path pattern has at most 1 MiB"))
    } else if fits {
        Ok(text)
    } else {
        Err(Complaint::new(format!("`{text}` is not a path pattern"), PATH_FORMS))
    }
}

fn parse_method(text: &str) -> Result<&str, Complaint> {
    let is_known =
        http::Method::from_bytes(text.as_bytes()).is_ok() && !text.bytes().any(|byte| byte.is_ascii_lowercase());
    // `*` is a valid token, but not a method.
    match is_known && text != "*" {
        true => Ok(text),
        false => Err(Complaint::new(format!("`{text}` is not a method"), METHOD_FORMS)),
    }
}

/// The allowlist of these hosts and methods.
pub(in crate::config) fn listed(hosts: &[HostPattern], methods: &[MethodName], by: ListedBy) -> Allowlist {
    Allowlist { hosts: hosts.to_vec(), methods: methods.iter().map(|method| method.0.clone()).collect(), by }
}

fn parse_product_token(text: &str) -> Result<ProductToken, Complaint> {
    if let Some(end) = text.trim().find(['/', ' ', ',', ';', '(']) {
        let what = format!("`{text}` is not a product token: write the name alone");
        let hint = match text.trim()[..end].trim() {
            "" => String::from("write the name before `/` in your User-Agent: ExampleBot"),
            name => format!("write `{name}`"),
        };
        return Err(Complaint::new(what, hint));
    }
    let token = ProductToken::parse(&parse_printable(text)?);
    token.map_err(|error| Complaint::new(error.to_string(), "write the name before `/` in your User-Agent: ExampleBot"))
}

fn parse_purpose(text: &str) -> Result<Purpose, Complaint> {
    let fault = |_| Complaint::new(format!("`{text}` is not a purpose"), PURPOSE_FORMS);
    Purpose::parse(text).map_err(fault)
}

/// Parses part of a header field's value: printable ASCII and spaces.
fn parse_printable(text: &str) -> Result<String, Complaint> {
    match text.chars().find(|c| !matches!(c, ' '..='~')) {
        None => Ok(text.to_owned()),
        Some(bad) => Err(Complaint::new(
            format!("the character {bad:?} is not allowed in a header field"),
            "use printable ASCII; percent-encode the rest of a URL",
        )),
    }
}

/// Parses an address to listen on, or `off`.
fn parse_address_or_off(text: &str) -> Result<Option<ListenAddress>, Complaint> {
    if text == "off" { Ok(None) } else { ListenAddress::parse(text).map(Some) }
}

read_from_text! {
    ListenAddress, "an address to listen on", LISTEN_FORMS, ListenAddress::parse;
    PortRange, "a port", PORT_FORMS, PortRange::parse;
    Network, "a network", NETWORK_FORMS, Network::parse;
    DenyEntry, "a network or a host", NETWORK_FORMS, DenyEntry::parse;
    AccessLog, "a destination for the access log", ACCESS_LOG_FORMS, AccessLog::parse;
    ProductToken, "a product token", QUOTES, parse_product_token;
    Purpose, "a purpose", PURPOSE_FORMS, parse_purpose;
    HostPattern, "a host", HOST_FORMS, parse_pattern;
}

from_text! {
    String, "text", QUOTES, parse_printable;
    Host, "a name", NAME_FORMS, parse_name;
    Option<ListenAddress>, "an address to listen on", LISTEN_FORMS, parse_address_or_off;
}

const LISTEN_FORMS: &str = "write `127.0.0.1:3128`, `[::1]:3128`, or `fd:NAME` for a socket that systemd passes";
const PORT_FORMS: &str = "a port is a number from 1 to 65535, a range is written \"8000-9000\"";
const NETWORK_FORMS: &str = "a network is written `10.0.0.0/8`, `2001:db8::/32`, or as one address";
const ACCESS_LOG_FORMS: &str = "write `off`, `stdout`, `journal`, or a path such as `/var/log/politely/access.log`";
const PURPOSE_FORMS: &str =
    "write `search`, `ai-input`, `ai-train`, or another name of letters, digits, `-`, `_`, `.` and `*`";
const METHOD_FORMS: &str = "write methods in capitals, such as `GET`, `HEAD` or `POST`; `[]` allows any";
const INSTANCE_FORMS: &str = "write up to 40 letters, digits, `-`, `.`, `_` or `~`: `crawl3.example.com`";
const MOST_OF_INSTANCE: usize = 40;
const MOST_PATH_BYTES: usize = 1 << 20;
const PATH_FORMS: &str = "a path pattern begins with `/` or `*`: `/private/`, `/*.pdf$`";

/// Parses a host, or a pattern of hosts.
pub(in crate::config) fn parse_pattern(text: &str) -> Result<HostPattern, Complaint> {
    let fault = |_| Complaint::new(format!("`{text}` is not a host or a pattern of hosts"), HOST_FORMS);
    HostPattern::parse(text).map_err(fault)
}

/// Parses a host name.
fn parse_name(text: &str) -> Result<Host, Complaint> {
    match parse_pattern(text) {
        Ok(HostPattern::Host(host @ Host::Name(_))) => Ok(host),
        Ok(_) | Err(_) => Err(Complaint::new(format!("`{text}` is not the name of a host"), NAME_FORMS)),
    }
}

impl FromText for PathBuf {
    const EXPECTED: &'static str = "a path";
    const FORMS: &'static str = "write `/etc/politely/name`, or `name` for a path beside the configuration";
    const IS_PATH: bool = true;

    fn from_text(text: &str) -> Result<Self, Complaint> {
        match text {
            // An empty path, joined to the file's directory, would be that directory.
            "" => Err(Complaint::new("a path must not be empty", "write a path, or leave the key out")),
            path => Ok(path.into()),
        }
    }
}

const NAME_FORMS: &str = "write `politely.invalid`, or another host name of your own";
pub(in crate::config) const HOST_FORMS: &str =
    "write `www.example.com`, `*.example.com` for all hosts below it, `192.0.2.1`, or `*`; without scheme and port";
