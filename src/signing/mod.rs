//! Web Bot Auth: signatures of the crawler's operator on requests, and what verifiers read: the directory of keys and
//! the card (draft-ietf-webbotauth-httpsig-protocol-01 on RFC 9421 and RFC 9651). Signatures are made here;
//! `upstream` sends them.
//!
//! Ed25519 comes from ring and structured fields from `sfv`, which are in use anyway; only the signature base is our own code, a line for
//! each component. Of the complete crates, `httpsig` (0.0.26) needs other libraries and `web-bot-auth` (0.7) is made for verifiers.
//! `tests/signing` verifies our signatures with the JavaScript packages `web-bot-auth` and `http-message-sig`.

pub mod card;
mod challenge;
mod directory;
mod key;
mod message;
mod requests;

pub use challenge::{FIELD as ACCEPT_SIGNATURE, SignatureRequest};
pub use directory::{Directory, PATH as DIRECTORY_PATH, Published};
pub use key::SigningKey;
pub use requests::{Challenge, ChallengedRequest, PriceField, RequestSigner, Signed, Signer};

/// The default label of a signature.
const LABEL: &str = "sig1";

#[cfg(test)]
mod vectors;
