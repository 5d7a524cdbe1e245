//! The client's side: connections as they are accepted, who may use them, what is inside of them.

pub mod auth;
mod connect;
mod connection;
pub mod distrusted;
mod foreign;
mod http1;
mod http2;
pub mod listener;
mod socks;
pub mod socks_reply;
mod wire;

pub use wire::Wire;

use crate::config::User;
use crate::policy::Authority;
use crate::policy::pace::ClientId;
use crate::proxy::limits::streams::FirstStream;
use crate::tls::ClientCertificate;
use crate::upstream::PrivateConnections;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// Who is at the other end of a connection, and through which CONNECT it came.
#[derive(Debug, Clone)]
pub struct Peer {
    pub address: SocketAddr,
    /// The certificate that it has shown, which the listener's `client_ca` vouches for.
    pub certificate: Option<Arc<ClientCertificate>>,
    /// Its listener serves the directory of signing keys, to anybody.
    pub gets_directory: bool,
    pub tunnel: Option<Tunnel>,
    /// The user who asked for the tunnel, by the credentials of its CONNECT; else the user who asked last.
    pub user: Option<Arc<User>>,
    /// Whether one of its requests is on its way to an origin.
    pub first_stream: FirstStream,
    /// The connections to origins that serve this one and its user alone,
    pub private: Arc<PrivateConnections>,
    /// and those of each user that this one has had.
    owners: Arc<Mutex<HashMap<Option<String>, Arc<PrivateConnections>>>>,
}

impl Peer {
    pub(in crate::proxy) fn new(address: SocketAddr, gets_directory: bool) -> Self {
        let (private, owners) = (Arc::default(), Arc::default());
        let first_stream = FirstStream::default();
        Peer { address, certificate: None, gets_directory, tunnel: None, user: None, first_stream, private, owners }
    }

    /// Among whom its requests take turns.
    pub fn client(&self) -> ClientId {
        ClientId::of(self.user.as_ref().map(|user| user.name.as_ref()), self.address.ip())
    }

    /// Inside of the CONNECT there is another connection.
    fn within(self, tunnel: Tunnel) -> Self {
        let (first_stream, private, owners) = Default::default();
        Peer { tunnel: Some(tunnel), first_stream, private, owners, ..self }
    }

    /// Another user has nothing of what the one before had. Streams of one connection may be of several users in turn.
    fn set_user(&mut self, user: Option<Arc<User>>) {
        let name = |user: &Option<Arc<User>>| user.as_ref().map(|user| user.name.as_ref().to_owned());
        if name(&self.user) != name(&user) {
            self.private = self.owners.lock().entry(name(&user)).or_default().clone();
        }
        self.user = user;
    }
}

/// An accepted CONNECT whose inside is served here.
#[derive(Debug, Clone)]
pub struct Tunnel {
    pub authority: Authority,
    /// The name in the ClientHello, where it is not the one in CONNECT: every request inside is answered 421.
    pub other_name: Option<String>,
}
