//! URLs that a site refers to (RFC 3986 §5). Pure.

use url::Url;

/// What a reference in an answer of `base` stands for. `None`: no URL, or one with a host name longer than any is, in whatever spelling: a
/// label that is not ASCII takes time with its square to be encoded (RFC 3492 §6.2).
pub fn resolved(base: &Url, reference: &str) -> Option<Url> {
    let end = reference.find(['?', '#']).unwrap_or(reference.len());
    let has_long_name = reference[..end].split(['/', '\\']).any(|piece| piece.len() > LONGEST_NAME);
    if has_long_name { None } else { base.join(reference).ok() }
}

/// Bytes of a host's name with credentials and port, where a name has at most 253 once it is encoded.
const LONGEST_NAME: usize = 3072;
