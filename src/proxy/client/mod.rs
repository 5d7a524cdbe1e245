//! The client side: accepted connections, access control, protocols.

pub mod auth;
mod connect;
mod connection;
pub mod distrust;
mod http1;
mod http2;
pub mod listener;
mod other_protocol;
mod socks;
pub mod socks_reply;
mod tls;
mod wire;

pub use wire::Wire;

use crate::config::User;
use crate::policy::Authority;
use crate::policy::pace::ClientId;
use crate::tls::ClientCertificate;
use crate::upstream::PrivateConnections;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The client of a connection, and the CONNECT around it.
#[derive(Debug, Clone)]
pub struct Peer {
    pub address: SocketAddr,
    /// The certificate that the client has presented, signed by the listener's `client_ca`.
    pub certificate: Option<Arc<ClientCertificate>>,
    /// Whether the listener serves the directory of signing keys, which needs no credentials.
    pub gets_directory: bool,
    /// Whether the client speaks SOCKS, and so gets no HTTP answers.
    pub is_socks: bool,
    pub tunnel: Option<Tunnel>,
    /// The user whose credentials opened the tunnel; without a tunnel, the user of the latest request.
    pub user: Option<Arc<User>>,
    /// Origin connections reserved for this client connection and its user.
    pub private: Arc<PrivateConnections>,
    pub shared: Arc<SharedByStreams>,
}

/// State that all streams of one connection share.
#[derive(Debug, Default)]
pub struct SharedByStreams {
    /// Whether a request holds the place that the connection has of its own, outside of `Proxy::streams`.
    pub first_stream: AtomicBool,
    /// [`Peer::private`] of each user that the connection has had.
    private: Mutex<HashMap<Option<String>, Arc<PrivateConnections>>>,
}

impl Peer {
    pub(in crate::proxy) fn new(address: SocketAddr, gets_directory: bool) -> Self {
        let (certificate, is_socks, tunnel, user, private, shared) = Default::default();
        Peer { address, certificate, gets_directory, is_socks, tunnel, user, private, shared }
    }

    /// Identifies the client, for fair turns in the pacing queue.
    pub fn client(&self) -> ClientId {
        ClientId::of(self.user.as_ref().map(|user| user.name.as_ref()), self.address.ip())
    }

    /// Converts to the peer of the connection inside a CONNECT.
    fn within(self, tunnel: Tunnel) -> Self {
        Peer { is_socks: false, tunnel: Some(tunnel), private: Arc::default(), shared: Arc::default(), ..self }
    }

    /// Sets the user, and switches to the private connections of that user. The streams of one connection may have
    /// different users.
    fn set_user(&mut self, user: Option<Arc<User>>) {
        let name = user.as_ref().map(|user| user.name.as_ref());
        if self.user.as_ref().map(|user| user.name.as_ref()) != name {
            self.private = self.shared.private.lock().entry(name.map(str::to_owned)).or_default().clone();
        }
        self.user = user;
    }
}

/// An intercepted CONNECT.
#[derive(Debug, Clone)]
pub struct Tunnel {
    pub authority: Authority,
    /// The name in the ClientHello if it differs from the CONNECT: every request inside is answered 421.
    pub other_name: Option<String>,
}
