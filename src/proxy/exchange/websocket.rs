//! WebSockets over HTTP/2 (RFC 8441), with the origin's handshake in HTTP/1.1 (RFC 6455 §4).

use crate::policy::Refusal;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use h2::ext::Protocol;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, header};
use ring::digest;

/// Whether a stream asks for a WebSocket. Returns an error if it asks for another protocol.
pub(super) fn is_asked_for(parts: &Parts) -> Result<bool, Refusal> {
    match parts.extensions.get::<Protocol>() {
        None => Ok(false),
        Some(protocol) if protocol.as_str().eq_ignore_ascii_case("websocket") => Ok(true),
        Some(protocol) => Err(Refusal::bad_request(format!(
            "the protocol {:?} is not supported; only websocket is",
            protocol.as_str()
        ))),
    }
}

/// Adds the key whose hash the origin must return, if the request is for a WebSocket.
pub fn add_key(parts: &mut Parts) {
    if parts.extensions.get::<Protocol>().is_some() {
        let key = BASE64_STANDARD.encode(fastrand::u128(..).to_be_bytes());
        let key = HeaderValue::from_str(&key).expect("Base64 is ASCII");
        parts.headers.insert(header::SEC_WEBSOCKET_KEY, key);
    }
}

/// Whether the origin returned the hash of the key.
pub(super) fn is_accepted(asked: &HeaderMap, accept: Option<&[u8]>) -> bool {
    let key = asked.get(header::SEC_WEBSOCKET_KEY).map_or(&b""[..], |key| key.as_bytes());
    let mut hash = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(key);
    hash.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    accept.is_some_and(|accept| accept == BASE64_STANDARD.encode(hash.finish()).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6455 §1.3.
    #[test]
    fn the_accept_value_is_the_hash_of_the_key() {
        let mut asked = HeaderMap::new();
        asked.insert(header::SEC_WEBSOCKET_KEY, HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ=="));
        assert!(is_accepted(&asked, Some(b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")));
        assert!(!is_accepted(&asked, Some(b"s3pPLMBiTxaQ9kYGzzhZRbK+xOp=")) && !is_accepted(&asked, None));
    }
}
