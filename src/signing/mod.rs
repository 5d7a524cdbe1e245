//! Web Bot Auth (draft-ietf-webbotauth-httpsig-protocol-01, based on RFC 9421 and RFC 9651): signs requests for the crawler's operator, and
//! makes the documents that verifiers read, which are the directory of keys and the card. `upstream` sends the signatures.
//!
//! Ed25519 is from ring and structured fields are from `sfv`, which are dependencies anyway. Only the signature base, a line for each
//! component, is our own code. Of the complete crates, `httpsig` (0.0.26) needs other libraries and `web-bot-auth` (0.7) is made for
//! verifiers. `tests/signing` verifies our signatures with the JavaScript packages `web-bot-auth` and `http-message-sig`.

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
