//! The settings for a user: that user's overrides, or else the general ones.

use super::request::Request;
use crate::config::{Hosts, InterceptMode, Settings, User};
use crate::policy::{self, Authority, Host, HostRules, Refusal};
use crate::proxy::client::Peer;

/// How a CONNECT to this host is handled.
pub fn intercept_mode(settings: &Settings, authority: &Authority, user: Option<&User>) -> InterceptMode {
    settings.hosts_of(user).get(authority.host()).intercept
}

/// The refusal of a host with `intercept: deny`.
pub fn denied(settings: &Settings, authority: &Authority, user: Option<&User>) -> Refusal {
    let key = &settings.hosts_of(user).get(authority.host()).intercept_key;
    Refusal::InterceptDenied { key: (&**key).into() }
}

/// Checks the general allowlist and the user's.
pub fn is_listed(settings: &Settings, host: &Host, method: &str, user: Option<&User>) -> Result<(), Refusal> {
    let mut lists = [&settings.listed].into_iter().chain(user.map(|user| &user.listed));
    lists.try_for_each(|listed| listed.check(host, method)).map_err(|why| Refusal::EgressDenied { why })
}

/// The user's overrides, if any.
pub fn hosts(user: Option<&User>) -> Option<&Hosts> {
    user.and_then(|user| user.hosts.as_ref())
}

/// The operator's rules for the requested host.
pub fn rules<'a>(settings: &'a Settings, request: &Request<'_>, peer: &'a Peer) -> &'a HostRules {
    &settings.hosts_of(peer.user.as_deref()).get(request.authority.host()).rules
}

/// The request as the policy sees it, without what only pacing needs.
pub fn asked<'a>(request: &'a Request<'_>, peer: &'a Peer) -> policy::Request<'a> {
    policy::Request {
        agent_tokens: &request.agent_tokens,
        product_tokens: peer.user.as_ref().map_or(&[], |user| &user.product_tokens),
        ..policy::Request::new(&request.authority, &request.target)
    }
}
