//! What the fuzz targets reach of this module. Built for them alone; called by `fuzz/`.

use super::head::{self, Head};
use super::respond;
use crate::policy::{Authority, Scheme};

/// The head as pingora would be given it. `None`: it is refused, or a CONNECT.
pub fn request_head(octets: &[u8], tunnelled: bool) -> Option<Vec<u8>> {
    let tunnel = Authority::new(Scheme::Https, "a.example", None).ok().filter(|_| tunnelled);
    let end = head::end_of_head(octets, 0).ok()??;
    match head::read(&octets[..end], tunnel.as_ref()).ok()? {
        Head::Request(request) | Head::Upgrade(request) => Some(request.bytes.to_vec()),
        Head::Connect { .. } => None,
    }
}

/// A Proxy-Status with these details.
pub fn proxy_status(details: &str) -> String {
    respond::proxy_status(Some("http_request_denied"), Some(details))
}
