//! The cryptography of TLS on both sides of the proxy, and limits for a peer's certificate chain. ring is always passed explicitly,
//! because a process-wide default may be missing, or set by another crate.

use rustls::crypto::{CryptoProvider, ring};
use rustls::{CipherSuite, SupportedCipherSuite};
use std::sync::{Arc, LazyLock};

/// Returns ring's provider with AES-128 preferred to AES-256, as in browsers: SHA-384, which comes with AES-256, is a tenth of the cost
/// of a handshake.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        let mut provider = ring::default_provider();
        provider.cipher_suites.sort_by_key(|suite| (suite.tls13().is_none(), is_aes256(suite)));
        Arc::new(provider)
    });
    Arc::clone(&PROVIDER)
}

fn is_aes256(suite: &SupportedCipherSuite) -> bool {
    use CipherSuite::{
        TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, TLS13_AES_256_GCM_SHA384,
    };
    matches!(
        suite.suite(),
        TLS13_AES_256_GCM_SHA384 | TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 | TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
    )
}

/// Maximum number of a peer's intermediate certificates that are tried. If all of them have the same name, the verifier tries every order:
/// with ten, this takes seconds.
pub const MAX_INTERMEDIATES: usize = 3;

/// Maximum total size of a peer's certificates, in bytes: about forty small ones, each of which takes 0.2 ms to parse.
pub const MAX_CHAIN: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aes_128_precedes_aes_256_and_all_suites_are_kept() {
        let names: Vec<_> = provider().cipher_suites.iter().map(|suite| suite.suite()).collect();
        assert_eq!(names.len(), ring::default_provider().cipher_suites.len());
        let at = |wanted| names.iter().position(|name| *name == wanted).expect("the suite is offered");
        assert_eq!(at(CipherSuite::TLS13_AES_128_GCM_SHA256), 0);
        assert!(at(CipherSuite::TLS13_AES_256_GCM_SHA384) < at(CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256));
    }
}
