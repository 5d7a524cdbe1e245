//! Which requests need a connection to the origin that serves their client connection alone: on another's, they could be taken for
//! its user's, or a part of them for another's request.

use crate::http1::{Framing, list};

/// What a request's fields say of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct PrivateNeeds {
    /// The origin may authenticate the connection that the request comes on (NTLM, Negotiate).
    pub authenticates: bool,
    /// An Expect, which the origin may not know.
    pub expects: bool,
}

impl PrivateNeeds {
    /// Whether there are any. `framing`: of the request's body, which an origin may take for the next request.
    pub fn are_there(self, framing: Framing) -> bool {
        self.authenticates || self.expects || !matches!(framing, Framing::None | Framing::Length(0))
    }
}

/// Whether one of these challenges, or these credentials, is of a scheme that authenticates a connection (RFC 4559, MS-NTHT).
pub fn authenticates_connection(value: &[u8]) -> bool {
    let scheme = |part: &[u8]| part.split(u8::is_ascii_whitespace).next().unwrap_or_default().to_ascii_lowercase();
    list(value).any(|part| matches!(&*scheme(part), b"ntlm" | b"negotiate" | b"kerberos"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_are_found_whatever_their_case_and_among_others() {
        for value in
            ["NTLM", "ntlm TlRM", "Negotiate", "Basic realm=\"a\", NEGOTIATE", "Digest x=\"y\",\tNegotiate abc=="]
        {
            assert!(authenticates_connection(value.as_bytes()), "{value}");
        }
        for value in ["", "Basic bnRsbQ==", "Bearer NTLM", "NTLMv2x"] {
            assert!(!authenticates_connection(value.as_bytes()), "{value}");
        }
    }
}
