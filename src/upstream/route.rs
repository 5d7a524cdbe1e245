//! A screened way to one authority.

use super::dial_error::DialError;
use super::endpoint::Endpoint;
use super::hop::{Hop, HopTls, Through, is_tls};
use super::origin_settings::OriginSettings;
use super::stream::Stream;
use super::trust::TlsTerms;
use super::upstream_proxy::UpstreamProxy;
use crate::config::OriginTls;
use crate::policy::{Authority, Host, KeyBy, Scheme};
use crate::signing::RequestSigner;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Where to connect for an authority, and how. Cheap to clone.
#[derive(Clone)]
pub struct Route(pub(super) Arc<RouteInner>);

pub(super) struct RouteInner {
    /// The settings that it was made by.
    pub by: Arc<OriginSettings>,
    pub authority: Authority,
    /// What may be dialled, best first: the origin's addresses, or the upstream proxy's. Never empty.
    pub addresses: Arc<[SocketAddr]>,
    /// On which TLS is spoken: the host's own, or those of all.
    pub tls: TlsTerms,
    /// That these are a user's alone.
    pub user_terms: Option<Arc<OriginTls>>,
    /// The origin's certificate is not looked at (`verify: off`).
    pub unverified: bool,
    /// Who signs what goes there, if somebody does.
    pub signature: Option<Arc<RequestSigner>>,
    /// What this instance is called in Via.
    pub name: Arc<str>,
    /// The Host field.
    pub host: Box<str>,
    pub endpoint: Arc<Endpoint>,
}

impl Route {
    /// The address of the origin that a pace is kept for: where a connection leads, or what is tried first. `None`: the pace is not
    /// kept by addresses, or the upstream proxy alone knows them.
    pub fn paced_at(&self, dialled: Option<SocketAddr>) -> Option<IpAddr> {
        self.place(dialled).map(|address| address.ip())
    }

    /// The same, with its port.
    pub(super) fn place(&self, dialled: Option<SocketAddr>) -> Option<SocketAddr> {
        let way = &*self.0;
        let is_by_address = way.by.made_of.pace.key == KeyBy::Address && way.by.upstream_proxy.is_none();
        is_by_address.then(|| dialled.or_else(|| way.by.dialler.first(&way.addresses))).flatten()
    }

    /// Whether the origin's certificate is accepted unseen.
    pub fn is_unverified(&self) -> bool {
        self.0.unverified
    }

    /// Who signs what goes there, if somebody does.
    pub fn signature(&self) -> Option<&RequestSigner> {
        self.0.signature.as_deref()
    }

    /// The upstream proxy that requests themselves go to, rather than through it: it needs the whole URL.
    pub fn asks(&self) -> Option<&UpstreamProxy> {
        self.0.by.upstream_proxy.as_deref().filter(|_| self.0.authority.scheme() == Scheme::Http)
    }

    /// A connection of its own on which HTTP/1.1 is spoken with the origin itself, TLS included: for what may become another
    /// protocol. `first`: the address to try before the others.
    pub async fn open(&self, first: Option<SocketAddr>) -> Result<(Stream, SocketAddr), DialError> {
        self.0.dial(true, false, first).await
    }

    /// The same without TLS of ours: what the client sends goes through unread. `via`: the lines of Via that came with
    /// the client's CONNECT.
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
}

impl RouteInner {
    /// To where a request can be sent, TLS included. `connect`: through an upstream proxy, not by way of it.
    pub async fn dial(
        &self,
        connect: bool,
        may_be_http2: bool,
        first: Option<SocketAddr>,
    ) -> Result<(Stream, SocketAddr), DialError> {
        let tls = is_tls(&self.authority).then(|| HopTls {
            usual: if may_be_http2 { &self.tls.either } else { &self.tls.http1 }.clone(),
            wide: self.tls.wide.clone(),
            http2: may_be_http2,
            endpoint: self.endpoint.clone(),
        });
        self.by.dialler.open(&self.hop_to(connect, tls), &self.addresses, first).await
    }

    /// The host whose name was resolved.
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
