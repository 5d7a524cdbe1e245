//! Resolves references to URLs in answers (RFC 3986 §5). Pure.

use url::Url;

/// Resolves a URL reference in an answer against the base URL. `None`: the result is not a URL, or the host in the reference is longer than
/// any spelling of a valid host name. Such hosts are refused because encoding a non-ASCII label takes time quadratic in its length (RFC
/// 3492 §6.2).
pub fn resolved(base: &Url, reference: &str) -> Option<Url> {
    let end = reference.find(['?', '#']).unwrap_or(reference.len());
    let has_long_name = reference[..end].split(['/', '\\']).any(|piece| piece.len() > LONGEST_NAME);
    if has_long_name { None } else { base.join(reference).ok() }
}

/// Maximum length of a host name as written, with credentials and port, in bytes. An encoded name has at most 253 bytes.
const LONGEST_NAME: usize = 3072;
