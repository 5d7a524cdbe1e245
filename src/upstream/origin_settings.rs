//! The settings for origins, prepared for use and swapped as a whole on reload.

use super::dialler::Dialler;
use super::egress::Guard;
use super::trust::{OriginRoots, Trust};
use super::upstream_proxy::UpstreamProxy;
use crate::config::{DenyEntry, Hosts, LimitSettings, OriginTls, PortRange, Settings, UnusableFile};
use crate::policy::Authority;
use crate::signing::Signer;
use std::net::SocketAddr;
use std::sync::Arc;

/// The prepared settings.
pub(super) struct OriginSettings {
    pub made_of: Arc<Settings>,
    pub roots: OriginRoots,
    pub dialler: Arc<Dialler>,
    pub guard: Guard,
    pub upstream_proxy: Option<Arc<UpstreamProxy>>,
    pub trust: Trust,
    /// The signer of requests, if configured.
    pub signer: Option<Arc<Signer>>,
}

impl OriginSettings {
    /// Prepares settings. `listeners`: where this proxy listens. `before`: the previous settings, to be reused where
    /// unchanged.
    pub fn new(
        settings: &Arc<Settings>,
        roots: OriginRoots,
        dialler: Arc<Dialler>,
        listeners: Vec<SocketAddr>,
        before: Option<&Self>,
    ) -> Result<Self, UnusableFile> {
        let egress = &settings.egress;
        let (mut deny, mut deny_hosts) = (Vec::new(), Vec::new());
        for closed in &egress.deny {
            match closed {
                DenyEntry::Network(network) => deny.push(network.0),
                DenyEntry::Host(pattern) => deny_hosts.push(pattern.clone()),
            }
        }
        let guard = Guard {
            allow: egress.allow.iter().map(|network| network.0).collect(),
            deny,
            deny_hosts,
            listed: settings.listed.clone(),
            ports: egress.ports.iter().map(|&PortRange { first, last }| first..=last).collect(),
            listeners,
            setup_host: Some(settings.intercept.setup_host.clone()),
        };
        let upstream_proxy = egress.upstream_proxy.as_ref().map(|url| Arc::new(UpstreamProxy::new(url)));
        let hosts = &settings.hosts;
        let users = settings.access.users.iter().filter_map(|user| Some((user.name.as_ref(), user.hosts.as_ref()?)));
        let users = users.filter(|(_, hosts)| hosts.has_own_tls());
        let all = users.clone().map(|(_, hosts)| hosts).chain([hosts]).flat_map(Hosts::tls);
        let trust = Trust::new(&roots, all, before.map(|before| &before.trust));
        let trust = trust.map_err(|error| error.placed(&settings.places))?;
        let signer = Signer::configured(settings, before.and_then(|before| before.signer.as_ref()))?;
        let everybodys = hosts.unverified();
        for host in &everybodys {
            tracing::warn!(host, "any certificate is accepted (`verify: off`)");
        }
        for (user, hosts) in users {
            for host in hosts.unverified().iter().filter(|host| !everybodys.contains(host)) {
                tracing::warn!(host, user, "any certificate is accepted for this user (`verify: off`)");
            }
        }
        Ok(OriginSettings { made_of: settings.clone(), roots, dialler, guard, upstream_proxy, trust, signer })
    }

    pub fn limits(&self) -> &LimitSettings {
        &self.made_of.limits
    }

    /// Whether `self` was made from `settings`. A decision and its route must use the same settings: otherwise a request that
    /// both old and new settings forbid could pass.
    pub fn is_made_of(&self, settings: &Arc<Settings>) -> bool {
        Arc::ptr_eq(&self.made_of, settings)
    }

    /// The TLS terms of a user for this authority, if they differ from everybody's.
    pub fn own_terms(&self, own: Option<&Hosts>, authority: &Authority) -> Option<Arc<OriginTls>> {
        let terms = &own?.get(authority.host()).tls;
        let differ = authority.is_https() && *terms != self.made_of.hosts.get(authority.host()).tls;
        differ.then(|| terms.clone().unwrap_or_default())
    }
}
