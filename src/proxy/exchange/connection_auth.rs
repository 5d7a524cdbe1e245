//! Authentication schemes that authenticate a connection instead of a request.

use crate::http1::list;

/// Whether the list has a challenge or credentials of a scheme that authenticates connections (RFC 4559, MS-NTHT,
/// MS-N2HT).
pub fn authenticates_connection(value: &[u8]) -> bool {
    let scheme = |part: &[u8]| part.split(u8::is_ascii_whitespace).next().unwrap_or_default().to_ascii_lowercase();
    list(value).any(|part| matches!(&*scheme(part), b"ntlm" | b"negotiate" | b"nego2" | b"kerberos" | b"credssp"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_are_found_in_any_case_and_position() {
        for value in [
            "NTLM",
            "ntlm TlRM",
            "Nego2",
            "CredSSP abc==",
            "Kerberos",
            "Negotiate",
            "Basic realm=\"a\", NEGOTIATE",
            "Digest x=\"y\",\tNegotiate abc==",
        ] {
            assert!(authenticates_connection(value.as_bytes()), "{value}");
        }
        for value in ["", "Basic bnRsbQ==", "Bearer NTLM", "NTLMv2x"] {
            assert!(!authenticates_connection(value.as_bytes()), "{value}");
        }
    }
}
