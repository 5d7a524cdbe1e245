//! Decides whether a shared cache may store an answer (RFC 9111 §3).

use super::request_wish::PRICE;
use super::stored_head::{StoredHead, is_heuristic};
use std::time::Duration;

impl StoredHead {
    /// Whether this answer may be used for other requests too, and is worth storing.
    pub fn is_storable(&self) -> bool {
        let control = self.control();
        let forbids = |(name, value): &(Vec<u8>, Vec<u8>)| match &**name {
            b"set-cookie" | b"set-cookie2" | b"content-range" | b"accept-signature" | b"www-authenticate" => true,
            // Proxy-Authorization contains the user's password, which must not be written to disk; TE is set for one connection.
            b"vary" => value.split(|byte| *byte == b',').any(|name| {
                let name = name.trim_ascii().to_ascii_lowercase();
                matches!(&*name, b"*" | b"proxy-authorization" | b"te")
            }),
            name => name.starts_with(PRICE),
        };
        if control.no_store || control.private || self.fields.iter().any(forbids) {
            return false;
        }
        let (status, bytes) = (self.status, self.fields.iter().map(|(name, value)| name.len() + value.len()));
        let is_of_page = (200..400).contains(&status) && !NEVER.contains(&status) || ERRORS.contains(&status);
        let may_be_heuristic = is_heuristic(status) || control.public;
        is_of_page
            && (self.lifetime() > Duration::ZERO || self.has_validator())
            && (may_be_heuristic || self.has_explicit_lifetime())
            && bytes.sum::<usize>() <= MOST_FIELDS
            && self.selected_by.len() <= MOST_SELECTING
    }
}

/// Statuses that are never stored: 206 is a part of a page, and 304 confirms another answer.
const NEVER: [u16; 2] = [206, 304];
/// Errors that concern the page. Any other error may concern a single request, for example a request that is too long. If such an error
/// were stored, it would hide the page from all clients.
const ERRORS: [u16; 3] = [404, 410, 451];
/// Maximum size of the fields, in bytes.
const MOST_FIELDS: usize = 64 * 1024;
/// Maximum number of request fields that Vary names.
const MOST_SELECTING: usize = 16;

#[cfg(test)]
mod tests {
    use super::super::stored_head::tests::head;

    #[test]
    fn private_and_forbidden_answers_are_not_storable() {
        let fresh = ("cache-control", "max-age=60");
        assert!(head(200, &[fresh]).is_storable());
        for field in [
            ("cache-control", "private"),
            ("cache-control", "No-Store"),
            ("cache-control", "private=\"set-cookie\""),
            ("set-cookie", "a=b"),
            ("vary", "accept, *"),
            ("vary", "Proxy-Authorization"),
            ("vary", "Accept, TE"),
            ("content-range", "bytes 0-1/2"),
            ("crawler-price", "USD 1"),
            ("crawler-charged", "USD 1"),
            ("accept-signature", "sig1=()"),
            ("x-long", &"x".repeat(70_000)),
        ] {
            assert!(!head(200, &[fresh, field]).is_storable(), "{field:?}");
        }
        for status in
            [101, 206, 304, 400, 401, 402, 403, 405, 407, 413, 414, 421, 428, 429, 431, 500, 501, 503, 511, 600]
        {
            assert!(!head(status, &[fresh]).is_storable(), "{status}");
        }
    }

    #[test]
    fn statuses_not_cacheable_by_default_need_a_lifetime() {
        for status in [201, 302, 307, 451] {
            assert!(!head(status, &[("etag", "\"a\"")]).is_storable(), "{status}");
            assert!(head(status, &[("cache-control", "max-age=60")]).is_storable(), "{status}");
        }
        for status in [200, 203, 204, 300, 301, 308, 404, 410] {
            assert!(head(status, &[("etag", "\"a\"")]).is_storable(), "{status}");
        }
    }

    #[test]
    fn answers_that_could_never_be_served_are_not_storable() {
        assert!(!head(200, &[]).is_storable());
        assert!(!head(200, &[("cache-control", "max-age=0")]).is_storable());
        assert!(head(200, &[("cache-control", "max-age=0"), ("last-modified", "x")]).is_storable());
    }
}
