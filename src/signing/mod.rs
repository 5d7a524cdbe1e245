//! Web Bot Auth: requests that the crawler's operator signs, and what verifiers read of it: the directory of the keys, the card
//! (draft-ietf-webbotauth-httpsig-protocol-01 on RFC 9421 and RFC 9651). What is sent is chosen here; `upstream` sends it.
//!
//! Ed25519 is ring's and the structured fields are `sfv`'s, both of which are in use anyway; what is ours is the signature base,
//! a line for each component. Of the crates that have it whole, `httpsig` (0.0.26) computes with other libraries and `web-bot-auth`
//! (0.7) is made for verifiers. A test at an origin verifies what leaves here with the latter's sibling in JavaScript.

pub mod card;
mod challenge;
mod directory;
mod key;
mod message;
mod requests;

pub use challenge::{FIELD as ACCEPT_SIGNATURE, SignatureRequest};
pub use directory::{Directory, PATH as DIRECTORY_PATH, Published};
pub use key::{KeyError, SigningKey};
pub use requests::{Challenge, ChallengedRequest, PriceField, RequestSigner, Signed, Signer};

/// The name by which a signature is known in its message, where nobody asks for another.
const LABEL: &str = "sig1";

#[cfg(test)]
mod vectors;
