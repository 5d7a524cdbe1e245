//! A look now and then for connections of the command that bypass the proxy. What ends between two looks is not seen.

mod proc;

use super::cure::cure;
use crate::config::PortRange;
use serde_json::{Value, json};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tokio::process::Child;
use tokio::time::{Instant, sleep_until};

/// Looks until it has found one connection.
pub(super) struct BypassWatch {
    /// The process whose descendants are looked at. `None`: nobody looks.
    root: Option<u32>,
    proxy: SocketAddr,
    /// Those of the web.
    ports: Vec<PortRange>,
    /// Whether `NO_PROXY` names this machine.
    is_loopback_direct: bool,
    next: Instant,
    pub found: Option<Bypass>,
}

/// A process that has connected to a site directly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bypass {
    pub program: String,
    pub pid: u32,
    pub address: SocketAddr,
    /// Whether it was started with the proxy variables.
    pub has_variables: bool,
}

impl Bypass {
    /// The line of a warning, with what helps.
    pub fn warning(&self) -> String {
        let Self { program, pid, address, has_variables } = self;
        let cure = match has_variables {
            true => cure(program),
            false => "it was started without HTTPS_PROXY: have what starts it pass on its environment",
        };
        format!(
            "politely: warning: {program} ({pid}) bypassed the proxy: it connected to {address}, and robots.txt was not applied\n\
             hint: {cure}; with `--isolate` nothing can bypass the proxy"
        )
    }

    pub fn json(&self) -> Value {
        json!({ "program": self.program, "pid": self.pid, "address": self.address, "has_variables": self.has_variables })
    }
}

impl BypassWatch {
    /// `supervisor`: the command's parent.
    pub fn new(
        supervisor: &Child,
        proxy: SocketAddr,
        ports: Vec<PortRange>,
        is_loopback_direct: bool,
        is_isolated: bool,
    ) -> Self {
        let root = supervisor.id().filter(|_| !is_isolated);
        Self { root, proxy, ports, is_loopback_direct, next: Instant::now() + INTERVAL, found: None }
    }

    /// It is time to look. Never, if one is found.
    pub async fn tick(&self) {
        match (self.root, &self.found) {
            (Some(_), None) => sleep_until(self.next).await,
            (None, _) | (_, Some(_)) => std::future::pending().await,
        }
    }

    /// Returns a connection that is seen for the first time.
    pub fn look(&mut self) -> Option<&Bypass> {
        let began = Instant::now();
        self.found = self.find();
        self.next = Instant::now() + INTERVAL.max(began.elapsed() * SHARE);
        self.found.as_ref()
    }
}

/// Connects to the proxy that our environment names, if it is on this machine: it may be of another `politely run` around this one,
/// which so learns that its command does not bypass it unawares.
pub(super) fn knock(proxy: &str) {
    let address = proxy.strip_prefix("http://").and_then(|rest| rest.trim_end_matches('/').parse::<SocketAddr>().ok());
    if let Some(address) = address.filter(|address| address.ip().is_loopback()) {
        let _ = TcpStream::connect_timeout(&address, INTERVAL);
    }
}

const INTERVAL: Duration = Duration::from_millis(200);
/// A look takes at most this part of the time.
const SHARE: u32 = 50;
