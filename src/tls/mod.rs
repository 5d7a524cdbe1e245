//! TLS on both sides: the certificate authority that clients trust, the leaves that it signs for intercepted hosts, and the roots
//! that origins are verified against.

pub mod ca;
mod certificate;
mod client_certificate;
mod client_verifier;
mod distrust;
mod error;
mod hello;
pub mod leaf;
mod listener;
pub mod roots;
pub(crate) mod secret_file;

pub use crate::tls_provider::provider;
pub use ca::{Ca, Trusted};
pub use client_certificate::ClientCertificate;
pub use distrust::Distrust;
pub use hello::{HelloReader, UNRECOGNIZED_NAME, UnreadableHello};
pub use leaf::LeafCache;
pub use listener::{date_warnings, listener_config};
pub use roots::Roots;

/// A random serial number: positive and of full length (RFC 5280 §4.1.2.2).
fn serial() -> Result<rcgen::SerialNumber, rcgen::Error> {
    let mut bytes = [0; SERIAL_LENGTH];
    provider().secure_random.fill(&mut bytes).map_err(|_| rcgen::Error::RingUnspecified)?;
    bytes[0] = bytes[0] & 0x3f | 0x40;
    Ok(rcgen::SerialNumber::from_slice(&bytes))
}

/// Length of a serial number in bytes: the maximum of RFC 5280.
const SERIAL_LENGTH: usize = 20;
