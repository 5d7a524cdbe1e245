//! The settings for a user: that user's overrides, or else the general ones.

use super::request::Request;
use crate::config::{Hosts, Settings, User};
use crate::policy::{self, HostRules};
use crate::proxy::client::Peer;

/// The user's overrides, if any.
pub fn hosts(user: Option<&User>) -> Option<&Hosts> {
    user.and_then(|user| user.hosts.as_ref())
}

/// The operator's rules for the requested host.
pub fn rules<'a>(settings: &'a Settings, request: &Request<'_>, peer: &'a Peer) -> &'a HostRules {
    &settings.hosts_of(peer.user.as_deref()).get(request.authority.host()).rules
}

/// The request as the policy sees it, without the members that only pacing needs.
pub fn asked<'a>(request: &'a Request<'_>, peer: &'a Peer) -> policy::Request<'a> {
    policy::Request {
        agent_tokens: &request.agent_tokens,
        product_tokens: peer.user.as_ref().map_or(&[], |user| &user.product_tokens),
        reads_robots: request.reads_robots(),
        ..policy::Request::new(&request.authority, &request.target)
    }
}
