//! The egress guard: where the proxy may connect to. Pure: a table of address ranges and the operator's exceptions. Each route to an origin
//! has passed it, whether for a request, even inside a CONNECT, a tunnel, a robots.txt fetch or a redirect hop. `upstream` (`reach_for`,
//! `addresses`) calls [`Guard::screen_host`] before it resolves the name, and [`Guard::screen_socket`] with each address that it may dial.

mod embedded_ipv4;
mod ranges;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use ipnet::IpNet;

use crate::policy::{Allowlist, EgressReason, Host, HostPattern, Refusal};
use ranges::Range;

/// The egress guard. By default it allows public addresses on ports 80 and 443.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    /// Special-purpose networks that the operator allows.
    pub allow: Vec<IpNet>,
    /// Networks that the operator denies; overrides `allow`.
    pub deny: Vec<IpNet>,
    /// Hosts denied by name.
    pub deny_hosts: Vec<HostPattern>,
    /// The hosts and methods that may be requested.
    pub listed: Allowlist,
    /// The allowed ports.
    pub ports: Vec<RangeInclusive<u16>>,
    /// The addresses where this instance listens. The unspecified address stands for loopback only; the caller adds the
    /// machine's other addresses.
    pub listeners: Vec<SocketAddr>,
    /// The name under which the proxy serves its own setup pages.
    pub setup_host: Option<Host>,
}

impl Default for Guard {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            deny: Vec::new(),
            deny_hosts: Vec::new(),
            listed: Allowlist::default(),
            ports: vec![80..=80, 443..=443],
            listeners: Vec::new(),
            setup_host: None,
        }
    }
}

impl Guard {
    /// Checks host and port before the name is resolved. A port on which we listen passes, so that the address shows whether it
    /// is a loop.
    pub fn screen_host(&self, host: &Host, port: u16) -> Result<(), Denied> {
        if self.setup_host.as_ref() == Some(host) {
            return Err(Denied::SetupHost(host.clone()));
        }
        if let Some(pattern) = self.deny_hosts.iter().find(|pattern| pattern.matches(host)) {
            let (host, pattern) = (host.to_string().into(), pattern.to_string().into());
            return Err(EgressReason::Host { host, pattern }.into());
        }
        self.listed.check_host(host)?;
        if let Some(address) = host.ip() {
            return self.screen_socket(SocketAddr::new(address, port));
        }
        if self.listeners.iter().any(|listener| listener.port() == port) { Ok(()) } else { self.screen_port(port) }
    }

    /// Checks the address that will be dialled.
    pub fn screen_socket(&self, socket: SocketAddr) -> Result<(), Denied> {
        if self.listeners.iter().any(|listener| is_reached_by(listener, socket)) {
            return Err(Denied::OwnListener(socket));
        }
        self.screen_port(socket.port())?;
        self.screen_address(socket.ip())
    }

    /// Checks the port.
    pub fn screen_port(&self, port: u16) -> Result<(), Denied> {
        if self.ports.iter().any(|range| range.contains(&port)) { Ok(()) } else { Err(EgressReason::Port(port).into()) }
    }

    /// Checks the address. If an IPv6 address embeds an IPv4 address, both must be allowed.
    pub fn screen_address(&self, address: IpAddr) -> Result<(), Denied> {
        self.screen_carried(address, None)
    }

    /// Checks an address. `within`: the IPv6 address that embeds this address.
    fn screen_carried(&self, address: IpAddr, within: Option<IpAddr>) -> Result<(), Denied> {
        let denied = |range: String, source: &str| {
            let address = within.unwrap_or(address);
            Err(EgressReason::Address { address, range: range.into(), source: source.into() }.into())
        };
        if let Some(network) = self.deny.iter().find(|network| network.contains(&address)) {
            return denied(network.to_string(), EgressReason::DENY);
        }
        if let IpAddr::V6(outer) = address {
            for inner in embedded_ipv4::ipv4(outer) {
                self.screen_carried(inner.into(), Some(address))?;
            }
        }
        if self.allow.iter().any(|network| network.contains(&address)) {
            return Ok(());
        }
        match (ranges::find(address), within) {
            (None, _) => Ok(()),
            (Some(Range { name, source, .. }), None) => denied((*name).into(), source),
            (Some(Range { name, source, .. }), Some(_)) => {
                denied(format!("{name} because of the embedded {address}"), source)
            }
        }
    }
}

/// Why the proxy refuses to connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// The address is special, or the operator's settings exclude the address, the host or the port.
    Excluded(EgressReason),
    /// The proxy itself listens at the address.
    OwnListener(SocketAddr),
    /// The name under which the proxy serves its own setup pages.
    SetupHost(Host),
}

impl From<EgressReason> for Denied {
    fn from(why: EgressReason) -> Self {
        Denied::Excluded(why)
    }
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Self {
        let why = match denied {
            Denied::Excluded(why) => why,
            Denied::OwnListener(_) => return Refusal::Loop,
            Denied::SetupHost(host) => {
                EgressReason::Host { host: host.to_string().into(), pattern: EgressReason::SETUP_HOST.into() }
            }
        };
        Refusal::EgressDenied { why }
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Refusal::from(self.clone()).fmt(f)
    }
}

impl std::error::Error for Denied {}

/// Whether a connection to `socket` reaches this listener.
pub(super) fn is_reached_by(listener: &SocketAddr, socket: SocketAddr) -> bool {
    let (own, dialled) = (listener.ip().to_canonical(), socket.ip().to_canonical());
    // Dialling the unspecified address reaches this machine.
    let here = dialled.is_loopback() || dialled.is_unspecified();
    listener.port() == socket.port() && (own == dialled || here && (own.is_unspecified() || dialled.is_unspecified()))
}

#[cfg(test)]
mod tests;
