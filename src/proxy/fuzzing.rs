//! Entry points for the fuzz targets. Built for them alone.

use super::respond;

/// A Proxy-Status with these details.
pub fn proxy_status(details: &str) -> String {
    respond::proxy_status(Some("http_request_denied"), Some(details))
}
