//! A screened route to one authority.

use super::dial_error::DialError;
use super::endpoint::Endpoint;
use super::hop::{Hop, HopTls, Through, is_tls};
use super::origin_settings::OriginSettings;
use super::private::PrivateConnections;
use super::stream::Stream;
use super::trust::TlsTerms;
use super::upstream_proxy::UpstreamProxy;
use crate::config::OriginTls;
use crate::fair_places::Taker;
use crate::policy::pace::ClientId;
use crate::policy::{Authority, Host, KeyBy, Scheme};
use crate::signing::RequestSigner;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Where and how to connect for an authority, and for which client. Cheap to clone.
#[derive(Clone)]
pub struct Route(pub(super) Arc<RouteInner>, pub(super) Option<ClientId>);

pub(super) struct RouteInner {
    /// The settings that the route was made from.
    pub by: Arc<OriginSettings>,
    pub authority: Authority,
    /// Addresses to dial, best first: the origin's, or the upstream proxy's. Never empty.
    pub addresses: Arc<[SocketAddr]>,
    /// TLS terms of the host, or everybody's.
    pub tls: TlsTerms,
    /// The user's TLS terms, if they differ from everybody's.
    pub user_terms: Option<Arc<OriginTls>>,
    /// The origin's certificate is not verified (`verify: off`).
    pub unverified: bool,
    /// The signer of requests to this authority, if any.
    pub signature: Option<Arc<RequestSigner>>,
    /// The name of this process in Via.
    pub name: Arc<str>,
    /// The Host field.
    pub host: Box<str>,
    pub endpoint: Arc<Endpoint>,
}

impl Route {
    /// The origin address whose pace applies: that of the connection, or else the one to be tried first. `None`: pace is not kept by
    /// address, or only the upstream proxy knows the address.
    pub fn paced_at(&self, dialled: Option<SocketAddr>) -> Option<IpAddr> {
        self.place(dialled).map(|address| address.ip())
    }

    /// Like [`paced_at`](Self::paced_at), with the port.
    pub(super) fn place(&self, dialled: Option<SocketAddr>) -> Option<SocketAddr> {
        let way = &*self.0;
        let is_by_address = way.by.made_of.pace.key == KeyBy::Address && way.by.upstream_proxy.is_none();
        is_by_address.then(|| dialled.or_else(|| way.by.dialler.first(&way.addresses))).flatten()
    }

    /// Whether a request of this client connection would go over a connection on which the origin knows the client.
    pub fn knows(&self, private: &PrivateConnections) -> bool {
        private.is_let_in() && private.may_be_at(&self.0.endpoint) && self.0.endpoint.private(private.id()) > 0
    }

    /// Whether the origin's certificate is accepted unverified.
    pub fn is_unverified(&self) -> bool {
        self.0.unverified
    }

    /// The signer of requests to this authority, if any.
    pub fn signature(&self) -> Option<&RequestSigner> {
        self.0.signature.as_deref()
    }

    /// The upstream proxy, if requests are sent to it rather than through a tunnel: it needs the whole URL.
    pub fn asks(&self) -> Option<&UpstreamProxy> {
        self.0.by.upstream_proxy.as_deref().filter(|_| self.0.authority.scheme() == Scheme::Http)
    }

    /// Opens an exclusive HTTP/1.1 connection to the origin itself, TLS included, for an upgrade to another protocol. `first`: the
    /// address to try before the others.
    pub async fn open(&self, first: Option<SocketAddr>) -> Result<(Stream, SocketAddr), DialError> {
        self.dial(true, false, first).await
    }

    /// Opens a connection without TLS of ours, for a tunnel. `via`: the lines of Via in the client's CONNECT.
    pub async fn tunnel(
        &self,
        via: Option<&str>,
        first: Option<SocketAddr>,
    ) -> Result<(Stream, SocketAddr), DialError> {
        let mut hop = self.0.hop_to(true, None);
        if let (Some(through), Some(before)) = (&mut hop.upstream_proxy, via) {
            through.via = format!("{before}, {}", through.via).into();
        }
        self.0.by.dialler.open(&hop, &self.0.addresses, first).await
    }

    /// Connects to where a request can be sent, TLS included. `connect`: through an upstream proxy, with a tunnel.
    pub(super) async fn dial(
        &self,
        connect: bool,
        may_be_http2: bool,
        first: Option<SocketAddr>,
    ) -> Result<(Stream, SocketAddr), DialError> {
        let Self(way, client) = self;
        let tls = is_tls(&way.authority).then(|| HopTls {
            usual: if may_be_http2 { &way.tls.either } else { &way.tls.http1 }.clone(),
            wide: way.tls.wide.clone(),
            taker: Taker::new(client.unwrap_or(ClientId::GUESTS), &way.authority),
            http2: may_be_http2,
            endpoint: way.endpoint.clone(),
        });
        way.by.dialler.open(&way.hop_to(connect, tls), &way.addresses, first).await
    }
}

impl RouteInner {
    /// The host whose name was resolved: the origin or the upstream proxy.
    pub fn resolved(&self) -> &Host {
        self.by.upstream_proxy.as_ref().map_or(self.authority.host(), |upstream_proxy| upstream_proxy.at.host())
    }

    fn hop_to(&self, connect: bool, tls: Option<HopTls>) -> Hop {
        let through = |upstream_proxy: &Arc<UpstreamProxy>| Through {
            upstream_proxy: upstream_proxy.clone(),
            tls: self.by.trust.plain.http1.clone(),
            connect,
            via: format!("1.1 {}", self.name).into(),
        };
        let upstream_proxy = self.by.upstream_proxy.as_ref().map(through);
        Hop { authority: self.authority.clone(), upstream_proxy, tls, limit: self.by.limits().connect_timeout }
    }
}
