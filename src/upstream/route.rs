//! A screened route to one authority.

use super::endpoint::Endpoint;
use super::origin_settings::OriginSettings;
use super::private::PrivateConnections;
use super::trust::TlsTerms;
use super::upstream_proxy::UpstreamProxy;
use super::via::Via;
use crate::config::OriginTls;
use crate::policy::pace::ClientId;
use crate::policy::{Authority, Host, KeyBy};
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
    /// The TLS terms that apply: the user's for this host, or everybody's for this host, or the default.
    pub tls: TlsTerms,
    /// The user's TLS terms, if they differ from everybody's.
    pub user_terms: Option<Arc<OriginTls>>,
    /// The origin's certificate is not verified (`verify: off`).
    pub unverified: bool,
    /// The signer of requests to this authority, if any.
    pub signature: Option<Arc<RequestSigner>>,
    pub via: Arc<Via>,
    /// The Host field.
    pub host: Box<str>,
    pub endpoint: Arc<Endpoint>,
}

impl Route {
    /// The origin address whose pace applies: the connection's address, or else the address to be tried first. `None`: pace is not kept by
    /// address, or only the upstream proxy knows the address.
    pub fn paced_at(&self, dialled: Option<SocketAddr>) -> Option<IpAddr> {
        self.place(dialled).map(|address| address.ip())
    }

    /// Like [`paced_at`](Self::paced_at), with the port.
    pub(super) fn place(&self, dialled: Option<SocketAddr>) -> Option<SocketAddr> {
        let way = &*self.0;
        let is_by_address = way.by.made_of.pace.key == KeyBy::Address && way.by.upstream_proxy.is_none();
        is_by_address.then(|| dialled.or_else(|| way.by.dialler.failed.first(&way.addresses))).flatten()
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
        self.0.by.upstream_proxy.as_deref().filter(|_| !self.0.authority.is_https())
    }
}

impl RouteInner {
    /// The host whose name was resolved: the origin or the upstream proxy.
    pub fn resolved(&self) -> &Host {
        self.by.upstream_proxy.as_ref().map_or(self.authority.host(), |upstream_proxy| upstream_proxy.at.host())
    }
}
