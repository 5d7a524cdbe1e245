//! What a request that pingora hands over is for and who sent it, as `connection` and `connect` found out. Called by
//! `forward`.

use super::downstream::{Client, Downstream};
use super::head;
use crate::policy::{Authority, Refusal};
use http::header;
use pingora::http::RequestHeader;
use pingora::proxy::Session;
use pingora_core::protocols::http::ServerSession;

/// The stream under a request in HTTP/1.
pub(super) fn downstream(session: &Session) -> Option<&Downstream> {
    match session.downstream_session.as_ref() {
        ServerSession::H1(h1) => h1.stream().as_any().downcast_ref(),
        _ => None,
    }
}

/// What the request is for and who sent it, as `connection` and `connect` found out.
pub(super) fn arrival(session: &Session) -> Result<(Authority, Client), Refusal> {
    let (authority, client) = match downstream(session) {
        Some(io) => (io.authority.clone().expect("set when the request was lent"), io.client.clone()),
        None => {
            let digest = session.digest().and_then(|digest| digest.proxy_digest.as_ref());
            let client = digest.and_then(|digest| digest.user_data.as_ref()?.downcast_ref::<Client>());
            let client = client.expect("every h2 connection is tagged").clone();
            let tunnel = client.tunnel.as_ref().expect("h2 is spoken inside tunnels only");
            (h2_authority(session.req_header(), &tunnel.authority)?, client)
        }
    };
    screen(session.req_header(), &client)?;
    Ok((authority, client))
}

/// What no request may be, however it came.
pub(super) fn screen(request: &RequestHeader, client: &Client) -> Result<(), Refusal> {
    // All of them would go out, and an origin may go by another one than we do.
    if request.headers.get_all(header::USER_AGENT).iter().nth(1).is_some() {
        return Err(Refusal::BadRequest { detail: "more than one User-Agent field".into() });
    }
    match client.tunnel.as_ref().and_then(|tunnel| Some((tunnel, tunnel.other_name.as_ref()?))) {
        Some((tunnel, name)) => Err(Refusal::AuthorityMismatch {
            connection: tunnel.authority.to_string().into(),
            request: format!("{name} (the name in the TLS handshake)").into(),
        }),
        None => Ok(()),
    }
}

/// RFC 9113 §8.3.1: `:authority` names the target; it has to be the connection's.
fn h2_authority(request: &RequestHeader, tunnel: &Authority) -> Result<Authority, Refusal> {
    let bad = |detail: String| Refusal::BadRequest { detail: detail.into() };
    head::asterisk(request.method.as_str(), &String::from_utf8_lossy(request.raw_path()))?;
    if request.method == http::Method::CONNECT {
        return Err(bad("CONNECT inside a CONNECT tunnel".into()));
    }
    let host = request.headers.get(header::HOST).map(|host| host.as_bytes());
    let named = request.uri.authority().map(|authority| authority.as_str().as_bytes()).or(host);
    let named = named.ok_or_else(|| bad("no :authority".into()))?;
    let named = Authority::parse(tunnel.scheme(), named).map_err(|error| bad(error.to_string()))?;
    let scheme = request.uri.scheme_str().unwrap_or(tunnel.scheme().as_str());
    if named != *tunnel || !scheme.eq_ignore_ascii_case(tunnel.scheme().as_str()) {
        let named = format!("{scheme}://{}", named.host_header());
        let (connection, request) = (tunnel.to_string().into(), named.into());
        return Err(Refusal::AuthorityMismatch { connection, request });
    }
    Ok(named)
}

pub(super) fn url(session: &Session, authority: Option<&Authority>) -> String {
    let path = String::from_utf8_lossy(session.req_header().raw_path());
    authority.map(|authority| format!("{authority}{path}")).unwrap_or_else(|| path.into_owned())
}
