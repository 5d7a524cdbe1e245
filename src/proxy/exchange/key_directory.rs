//! The directory of signing keys, on listeners that serve it: to anybody, before access is checked.

use crate::http1::put_field;
use crate::proxy::Proxy;
use crate::proxy::client::Peer;
use crate::proxy::respond::Answer;
use crate::signing::{DIRECTORY_PATH, Published};
use http::StatusCode;
use std::time::SystemTime;

/// The directory, if this asks for it. `authority`: that of an HTTP/2 request, which does not say whether it is for a proxy:
/// only under the agent's own name it is ours.
pub fn published(proxy: &Proxy, peer: &Peer, method: &str, path: &[u8], authority: Option<&str>) -> Option<Answer> {
    let is_asked = peer.gets_directory
        && peer.tunnel.is_none()
        && path == DIRECTORY_PATH.as_bytes()
        && matches!(method, "GET" | "HEAD");
    let signer = proxy.upstream.signer().filter(|_| is_asked)?;
    let agent = signer.directory().agent().authority();
    authority.is_none_or(|named| named.eq_ignore_ascii_case(agent)).then(|| {
        let Published { fields, body } = signer.directory().publish(SystemTime::now());
        let put_fields = |text: &mut Vec<u8>| {
            fields.iter().for_each(|(name, value)| put_field(text, name.as_bytes(), value.as_bytes()));
        };
        Answer::new(StatusCode::OK, put_fields, body.as_bytes())
    })
}
