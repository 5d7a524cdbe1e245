//! The directory of signing keys and the agent's other documents, served to anybody, before access control.

use crate::http1::put_field;
use crate::proxy::Proxy;
use crate::proxy::client::Peer;
use crate::proxy::respond::Answer;
use crate::signing::{DIRECTORY_PATH, Published, card};
use http::StatusCode;
use std::time::SystemTime;

/// Returns the requested document, if this proxy publishes it. `authority`: the authority of an HTTP/2 request, which
/// must be the agent's, because the path alone may belong to another site.
pub fn published(proxy: &Proxy, peer: &Peer, method: &str, path: &[u8], authority: Option<&str>) -> Option<Answer> {
    let is_asked = peer.gets_directory && peer.tunnel.is_none() && matches!(method, "GET" | "HEAD");
    let signer = proxy.upstream.signer().filter(|_| is_asked)?;
    let agent = signer.directory().agent().authority();
    if authority.is_some_and(|named| !named.eq_ignore_ascii_case(agent)) {
        return None;
    }
    let (path, now) = (str::from_utf8(path).ok()?, SystemTime::now());
    let Published { fields, body } = match path {
        DIRECTORY_PATH => signer.directory().publish(now),
        path => card::document(&proxy.settings.load(), path, now)?,
    };
    let put_fields = |text: &mut Vec<u8>| {
        fields.iter().for_each(|(name, value)| put_field(text, name.as_bytes(), value.as_bytes()));
    };
    Some(Answer::new(StatusCode::OK, put_fields, body.as_bytes()))
}
