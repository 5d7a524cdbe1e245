//! How an origin is connected to, in pingora's terms. Called by `Route::peer`.

use super::hop::{Hop, KEEPALIVE, is_tls};
use crate::config::Limits;
use crate::policy::Authority;
use pingora::prelude::HttpPeer;
use pingora_core::protocols::ALPN;
use pingora_core::server::configuration::ServerConf;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The waits that a connection to an origin may cost.
#[derive(Clone, Copy)]
pub(super) struct Dial {
    pub connect: Duration,
    read: Duration,
    idle: Duration,
}

impl Dial {
    pub fn new(limits: &Limits) -> Self {
        Dial { connect: limits.connect_timeout, read: limits.read_timeout, idle: limits.idle_timeout }
    }

    /// `hop`: what makes the connection in pingora's place.
    pub fn peer(&self, authority: &Authority, address: SocketAddr, hop: Option<Hop>) -> HttpPeer {
        // The name that the certificate is verified against. It must not be empty: pingora would then verify nothing.
        let name = match authority.host().ip() {
            Some(ip) => ip.to_string(),
            None => authority.host().to_string(),
        };
        let own_tls = hop.as_ref().is_some_and(|hop| hop.tls.is_some());
        let tls = is_tls(authority) && !own_tls;
        // pingora knows a connection again by its descriptor, which one under TLS of ours does not have.
        let kept = !own_tls && !hop.as_ref().and_then(|hop| hop.parent.as_ref()).is_some_and(|it| it.parent.is_tls());
        let mut peer = HttpPeer::new(address, tls, name);
        let options = &mut peer.options;
        options.connection_timeout = Some(self.connect);
        // Each of the two has its own time, and tells what was being done when it ran out.
        options.total_connection_timeout = Some(if hop.is_some() { self.connect * 2 } else { self.connect });
        // Later than the client's, so that an unfinished request is known for what it is.
        options.read_timeout = Some(self.read + Duration::from_secs(1));
        options.write_timeout = Some(self.read);
        options.idle_timeout = Some(if kept { self.idle } else { Duration::ZERO });
        options.tcp_keepalive = Some(KEEPALIVE);
        if tls && kept {
            options.alpn = ALPN::H2H1;
            options.max_h2_streams = MAX_STREAMS;
        }
        if let Some(hop) = hop {
            // The address is the upstream proxy's: what lies beyond it has to be told apart as well.
            peer.group_key = hop.group(authority);
            peer.options.custom_l4 = Some(Arc::new(hop));
        }
        peer
    }
}

impl Hop {
    /// Connections with one number are interchangeable.
    fn group(&self, authority: &Authority) -> u64 {
        // With keys of this process alone, so that nobody can find two authorities with one number.
        static KEYS: std::sync::LazyLock<RandomState> = std::sync::LazyLock::new(RandomState::new);
        let mut hasher = KEYS.build_hasher();
        authority.hash(&mut hasher);
        self.parent.as_ref().map(|through| (&through.parent, through.connect)).hash(&mut hasher);
        self.tls.as_ref().map(Arc::as_ptr).hash(&mut hasher);
        hasher.finish()
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
