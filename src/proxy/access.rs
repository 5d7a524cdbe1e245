//! Who may use the proxy. Pure. Called by `connection` for each request.

use crate::config::Access;
use crate::policy::Refusal;
use std::net::IpAddr;

/// Whether a client at this address may ask anything. No rules: anybody, for then only loopback is listened on.
pub(super) fn admit(access: &Access, client: IpAddr) -> Result<(), Refusal> {
    let client = client.to_canonical();
    if access.clients.is_empty() || access.clients.iter().any(|network| network.0.contains(&client)) {
        return Ok(());
    }
    Err(Refusal::ClientDenied { credentials: false, why: format!("{client} is not in access.clients").into() })
}
