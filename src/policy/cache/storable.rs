//! Which answers a shared cache may store (RFC 9111 §3).

use super::stored::{StoredHead, is_heuristic};
use super::wanted::PRICE;
use std::time::Duration;

impl StoredHead {
    /// Whether this may answer other requests too, and is worth being kept.
    pub fn is_storable(&self) -> bool {
        let control = self.control();
        let forbids = |(name, value): &(Vec<u8>, Vec<u8>)| match &**name {
            b"set-cookie" | b"set-cookie2" | b"content-range" | b"accept-signature" | b"www-authenticate" => true,
            b"vary" => value.split(|byte| *byte == b',').any(|name| name.trim_ascii() == b"*"),
            name => name.starts_with(PRICE),
        };
        if control.no_store || control.private || self.fields.iter().any(forbids) {
            return false;
        }
        let (status, bytes) = (self.status, self.fields.iter().map(|(name, value)| name.len() + value.len()));
        let is_final = (200..600).contains(&status) && !NEVER.contains(&status);
        let may_be_heuristic = is_heuristic(status) || control.public;
        is_final
            && (self.lifetime() > Duration::ZERO || self.has_validator())
            && (may_be_heuristic || self.has_explicit_lifetime())
            && bytes.sum::<usize>() <= MOST_FIELDS
            && self.selected_by.len() <= MOST_SELECTING
    }
}

/// Parts, what confirms something else, and what is said to one client: RFC 6585 forbids to store the last four.
const NEVER: [u16; 10] = [206, 304, 401, 402, 407, 421, 428, 429, 431, 511];
/// Bytes.
const MOST_FIELDS: usize = 64 * 1024;
const MOST_SELECTING: usize = 16;

#[cfg(test)]
mod tests {
    use super::super::stored::tests::head;

    #[test]
    fn what_is_one_clients_or_forbidden_is_not_stored() {
        let fresh = ("cache-control", "max-age=60");
        assert!(head(200, &[fresh]).is_storable());
        for field in [
            ("cache-control", "private"),
            ("cache-control", "No-Store"),
            ("cache-control", "private=\"set-cookie\""),
            ("set-cookie", "a=b"),
            ("vary", "accept, *"),
            ("content-range", "bytes 0-1/2"),
            ("crawler-price", "USD 1"),
            ("crawler-charged", "USD 1"),
            ("accept-signature", "sig1=()"),
            ("x-long", &"x".repeat(70_000)),
        ] {
            assert!(!head(200, &[fresh, field]).is_storable(), "{field:?}");
        }
        for status in [101, 206, 304, 401, 402, 407, 421, 428, 429, 431, 511, 600] {
            assert!(!head(status, &[fresh]).is_storable(), "{status}");
        }
    }

    #[test]
    fn statuses_that_say_nothing_of_caches_need_a_lifetime() {
        for status in [201, 302, 307, 400, 403, 500, 503] {
            assert!(!head(status, &[("etag", "\"a\"")]).is_storable(), "{status}");
            assert!(head(status, &[("cache-control", "max-age=60")]).is_storable(), "{status}");
        }
        for status in [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501] {
            assert!(head(status, &[("etag", "\"a\"")]).is_storable(), "{status}");
        }
    }

    #[test]
    fn what_could_never_be_used_is_not_stored() {
        assert!(!head(200, &[]).is_storable());
        assert!(!head(200, &[("cache-control", "max-age=0")]).is_storable());
        assert!(head(200, &[("cache-control", "max-age=0"), ("last-modified", "x")]).is_storable());
    }
}
