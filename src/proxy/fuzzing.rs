//! Entry points for the fuzz targets, compiled only for them.

use super::respond;

/// Formats a Proxy-Status field with these details.
pub fn proxy_status(details: &str) -> String {
    respond::proxy_status(Some("http_request_denied"), Some(details))
}
