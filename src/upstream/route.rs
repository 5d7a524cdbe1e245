//! A vetted way to one authority. Made by `Upstream::reach`; what sends a request or opens a tunnel goes by it.

use super::dial_error::{DialError, DialFault};
use super::hop::{Hop, Through, is_tls};
use super::parent::Parent;
use super::peer::Dial;
use super::stream::Stream;
use crate::policy::{Authority, Scheme};
use http::header;
use pingora::http::RequestHeader;
use pingora::prelude::HttpPeer;
use rustls::ClientConfig;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Where to connect for an authority, and how.
#[derive(Clone)]
pub struct Route {
    pub(super) authority: Authority,
    /// What may be dialled, best first: the origin's addresses, or the upstream proxy's. Never empty.
    pub(super) addresses: Arc<[SocketAddr]>,
    pub(super) parent: Option<Arc<Parent>>,
    /// TLS on terms of the host's own.
    pub(super) own_tls: Option<Arc<ClientConfig>>,
    /// The origin's certificate is not looked at (`verify: off`).
    pub(super) unverified: bool,
    pub(super) plain_tls: Arc<ClientConfig>,
    pub(super) dial: Dial,
    /// Our line in Via.
    pub(super) via: Arc<str>,
}

impl Route {
    /// How many addresses there are to try.
    pub fn len(&self) -> usize {
        self.addresses.len()
    }

    /// Never: there would be no route.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// The origin's address that is tried first. `None`: the upstream proxy alone knows it.
    pub fn origin(&self) -> Option<IpAddr> {
        self.addresses.first().filter(|_| self.parent.is_none()).map(|address| address.ip())
    }

    /// Whether the origin's certificate is accepted unseen.
    pub fn is_unverified(&self) -> bool {
        self.unverified
    }

    /// How pingora is to connect, the `attempt`th time.
    pub fn peer(&self, attempt: usize) -> HttpPeer {
        let address = self.addresses[attempt % self.addresses.len()];
        let own = self.parent.is_some() || self.own_tls.is_some();
        let hop = own.then(|| self.hop(is_tls(&self.authority), self.own_tls.clone()));
        self.dial.peer(&self.authority, address, hop)
    }

    /// The upstream proxy that requests themselves go to, rather than through it: it has to be told the whole URL.
    pub fn asks(&self) -> Option<&Parent> {
        self.parent.as_deref().filter(|_| self.authority.scheme() == Scheme::Http)
    }

    /// Puts the request as whoever is to read it wants it (RFC 9112 §3.2.2).
    pub fn address(&self, request: &mut RequestHeader) -> pingora::Result<()> {
        let Some(parent) = self.asks() else { return Ok(()) };
        let path = String::from_utf8_lossy(request.raw_path()).into_owned();
        // RFC 9112 §3.2.4: to a proxy, the server itself is a URL without a path.
        let path = if path == "*" { "" } else { &path };
        request.set_raw_path(format!("{}{path}", self.authority).as_bytes())?;
        if let Some(credentials) = parent.credentials() {
            request.insert_header(header::PROXY_AUTHORIZATION, credentials.clone())?;
        }
        Ok(())
    }

    /// A connection on which the origin itself is spoken to, TLS included.
    pub async fn open(&self) -> Result<Stream, DialError> {
        let tls = is_tls(&self.authority).then(|| self.own_tls.as_ref().unwrap_or(&self.plain_tls).clone());
        self.first(self.hop(true, tls)).await
    }

    /// The same without TLS of ours: what the client sends goes through unread. `via`: the lines of Via that came with
    /// the client's CONNECT.
    pub async fn tunnel(&self, via: Option<&str>) -> Result<Stream, DialError> {
        let mut hop = self.hop(true, None);
        if let (Some(through), Some(before)) = (&mut hop.parent, via) {
            through.via = format!("{before}, {}", through.via).into();
        }
        self.first(hop).await
    }

    /// The first address is the preferred one: its failure says most.
    async fn first(&self, hop: Hop) -> Result<Stream, DialError> {
        let mut failure = None;
        for &address in self.addresses.iter() {
            match hop.dial(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.unwrap_or_else(|| DialError::new(DialFault::Unroutable, "there is no address")))
    }

    fn hop(&self, connect: bool, tls: Option<Arc<ClientConfig>>) -> Hop {
        let through = |parent: &Arc<Parent>| Through {
            parent: parent.clone(),
            tls: self.plain_tls.clone(),
            connect,
            via: self.via.clone(),
        };
        let parent = self.parent.as_ref().map(through);
        Hop { authority: self.authority.clone(), parent, tls, limit: self.dial.connect }
    }
}
