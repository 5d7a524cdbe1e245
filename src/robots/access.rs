//! RFC 9309 §2.3.1: maps the status of a robots.txt answer to access. Pure.

/// The access to a site after an attempt to fetch its robots.txt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AccessKind {
    /// Success (§2.3.1.1): the rules in the body decide.
    Rules,
    /// A redirect to follow (§2.3.1.2), up to five in a row.
    Redirect,
    /// Unavailable (§2.3.1.3): everything may be crawled.
    AllowAll,
    /// Unreachable (§2.3.1.4): nothing may be crawled.
    DisallowAll,
}

/// Maps the status of a robots.txt answer to access. The fetcher handles two cases before it calls this: a 304 that answers a conditional
/// request, and a 206 with a part of the file.
pub fn from_status(status: u16) -> AccessKind {
    match status {
        // WebDAV multi-status (RFC 4918 §11.1, RFC 5842 §7.1) and delta encoding (RFC 3229 §10.4.1): this proxy did not request these, and
        // the body is not the file.
        207 | 208 | 226 => AccessKind::DisallowAll,
        200..=299 => AccessKind::Rules,
        // A 304 to a request without conditions brings no file.
        304 => AccessKind::DisallowAll,
        300..=399 => AccessKind::Redirect,
        // 429 is about the client's rate, not about the file, so it is treated like 5xx.
        429 => AccessKind::DisallowAll,
        400..=499 => AccessKind::AllowAll,
        // 5xx: assume complete disallow (§2.3.1.4). Unknown statuses are treated the same.
        _ => AccessKind::DisallowAll,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_success_brings_rules() {
        for status in [200, 201, 202, 203, 204, 205, 206, 209, 225, 227, 299] {
            assert_eq!(from_status(status), AccessKind::Rules, "{status}");
        }
    }

    #[test]
    fn rfc_redirects_are_followed() {
        for status in [301, 302, 303, 307, 308] {
            assert_eq!(from_status(status), AccessKind::Redirect, "{status}");
        }
    }

    #[test]
    fn rfc_unavailable_allows_everything() {
        for status in [400, 401, 403, 404, 410, 451, 499] {
            assert_eq!(from_status(status), AccessKind::AllowAll, "{status}");
        }
    }

    #[test]
    fn rfc_unreachable_disallows_everything() {
        for status in [500, 503, 599] {
            assert_eq!(from_status(status), AccessKind::DisallowAll, "{status}");
        }
    }

    #[test]
    fn status_429_and_unknown_statuses_disallow_everything() {
        for status in [0, 100, 199, 304, 429, 600, 999, u16::MAX] {
            assert_eq!(from_status(status), AccessKind::DisallowAll, "{status}");
        }
    }

    #[test]
    fn success_statuses_of_other_kinds_disallow_everything() {
        for status in [207, 208, 226] {
            assert_eq!(from_status(status), AccessKind::DisallowAll, "{status}");
        }
    }
}
