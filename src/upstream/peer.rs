//! How an origin is connected to, in pingora's terms. Called by `Upstream::peer`.

use crate::config::Limits;
use crate::policy::{Authority, Scheme};
use pingora::prelude::HttpPeer;
use pingora_core::protocols::{ALPN, TcpKeepalive};
use pingora_core::server::configuration::ServerConf;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// The waits that a connection to an origin may cost.
pub(super) struct Dial {
    connect: Duration,
    read: Duration,
    idle: Duration,
}

impl Dial {
    pub fn new(limits: &Limits) -> Self {
        Dial { connect: limits.connect_timeout, read: limits.read_timeout, idle: limits.idle_timeout }
    }

    pub fn peer(&self, authority: &Authority, address: SocketAddr, h1: bool) -> HttpPeer {
        // The name that the certificate is verified against. It must not be empty: pingora would then verify nothing.
        let name = match authority.host().ip() {
            Some(ip) => ip.to_string(),
            None => authority.host().to_string(),
        };
        let tls = authority.scheme() == Scheme::Https;
        let mut peer = HttpPeer::new(address, tls, name);
        let options = &mut peer.options;
        options.connection_timeout = Some(self.connect);
        options.total_connection_timeout = Some(self.connect);
        // Later than the client's, so that an unfinished request is known for what it is.
        options.read_timeout = Some(self.read + Duration::from_secs(1));
        options.write_timeout = Some(self.read);
        options.idle_timeout = Some(self.idle);
        options.tcp_keepalive = Some(TcpKeepalive {
            idle: Duration::from_secs(60),
            interval: Duration::from_secs(10),
            count: 3,
            #[cfg(target_os = "linux")]
            user_timeout: Duration::ZERO,
        });
        if tls && !h1 {
            options.alpn = ALPN::H2H1;
            options.max_h2_streams = MAX_STREAMS;
        }
        // pingora's pool does not look at ALPN: an upgrade must not be given an h2 connection.
        peer.group_key = u64::from(h1);
        peer
    }
}

/// pingora's own configuration: the roots to verify origins against, and no detail that we decide ourselves.
pub fn connector_conf(roots: &Path, threads: usize) -> ServerConf {
    ServerConf {
        threads,
        ca_file: Some(roots.display().to_string()),
        max_retries: MAX_TRIES,
        upstream_keepalive_pool_size: POOLED_CONNECTIONS,
        ..ServerConf::default()
    }
}

const MAX_STREAMS: usize = 100;
const MAX_TRIES: usize = 4;
const POOLED_CONNECTIONS: usize = 512;
