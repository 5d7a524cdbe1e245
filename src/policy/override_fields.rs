//! Recognises fields that make some servers treat a request as another one. Pure.
//!
//! Rules are applied to the requested URL, so fields that name another URL are removed. robots.txt does not concern methods, so fields
//! that name another method (`X-HTTP-Method-Override`) pass.

/// Whether a server or application may take a field of this name for a field that names another URL, or for a field that the proxy
/// evaluates or writes itself, as `User_Agent` for `User-Agent`.
#[inline]
pub fn is_disguised(name: &[u8]) -> bool {
    names_another_url(name) || JUDGED.iter().any(|known| reads_as(name, known.as_bytes()))
}

/// Whether a server may use the field's value as the requested URL (IIS, Symfony, Zend).
#[inline]
fn names_another_url(name: &[u8]) -> bool {
    NAMES_ANOTHER_URL.iter().any(|known| reads_as(name, known.as_bytes()))
}

/// Whether an application may confuse this field name with `known` (in lower case). CGI, WSGI and Rack turn field names into names of
/// variables, with `_` for every character that is not a letter or digit.
#[inline]
fn reads_as(name: &[u8], known: &[u8]) -> bool {
    let is_same = |(byte, known): (&u8, &u8)| match known {
        b'-' => !byte.is_ascii_alphanumeric(),
        known => byte.eq_ignore_ascii_case(known),
    };
    name.len() == known.len() && name.iter().zip(known).all(is_same)
}

/// Fields that are removed from every request.
pub const NAMES_ANOTHER_URL: [&str; 3] = ["x-original-url", "x-rewrite-url", "x-original-uri"];

/// Fields that the proxy evaluates or writes itself. This check sees only their disguised spellings, as the correct ones are handled
/// before.
const JUDGED: [&str; 3] = ["user-agent", "content-length", "transfer-encoding"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_override_fields_are_recognised_but_method_overrides_are_not() {
        for name in ["X-Original-URL", "x-rewrite-url", "X-ORIGINAL-URI"] {
            assert!(names_another_url(name.as_bytes()), "{name}");
        }
        // CGI, WSGI and Rack give all of these the same name, HTTP_X_ORIGINAL_URL.
        for name in ["X_Original_URL", "X-Original_URL", "x_rewrite_url", "X.Original.URI"] {
            assert!(names_another_url(name.as_bytes()), "{name}");
        }
        for name in [
            "X-HTTP-Method-Override",
            "X-HTTP-Method",
            "X-Method-Override",
            "X-Forwarded-Host",
            "X-Original",
            "XAOriginalAURL",
        ] {
            assert!(!names_another_url(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn underscore_variants_of_framing_fields_are_recognised() {
        for name in [
            "Content_Length",
            "content_length",
            "Transfer_Encoding",
            "TRANSFER.ENCODING",
            "User_Agent",
            "X_Original_URL",
        ] {
            assert!(is_disguised(name.as_bytes()), "{name}");
        }
        for name in ["Content_Type", "X_Content_Length", "Content__Length", "Transfer", "Accept_Encoding"] {
            assert!(!is_disguised(name.as_bytes()), "{name}");
        }
    }
}
