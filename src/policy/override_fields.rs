//! Fields by which a client makes some servers take its request for another one. Pure.
//!
//! Rules are kept for the URL that is asked for: a field that names another URL does not leave the proxy. What the URL is
//! asked with is no matter of robots.txt, so fields that name another method (`X-HTTP-Method-Override`) pass.

/// Whether a server may take its value for the URL that is asked for (IIS, Symfony, Zend); in any case of letters.
#[inline]
pub fn names_another_url(name: &[u8]) -> bool {
    NAMES_ANOTHER_URL.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

/// Removed from every request.
pub const NAMES_ANOTHER_URL: [&str; 3] = ["x-original-url", "x-rewrite-url", "x-original-uri"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_name_another_url_are_known_and_those_that_name_another_method_pass() {
        for name in ["X-Original-URL", "x-rewrite-url", "X-ORIGINAL-URI"] {
            assert!(names_another_url(name.as_bytes()), "{name}");
        }
        for name in ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X-Forwarded-Host", "X-Original"] {
            assert!(!names_another_url(name.as_bytes()), "{name}");
        }
    }
}
