//! What TLS is made of on both sides of the proxy: ring, always named, as a process-wide default could be set by anybody, or by
//! nobody; and how much of a peer's chain is looked at.

use rustls::crypto::{CryptoProvider, ring};
use rustls::{CipherSuite, SupportedCipherSuite};
use std::sync::{Arc, LazyLock};

/// ring, with AES-128 before AES-256, as browsers have it: what counts is the handshake, and SHA-384, which comes with AES-256, makes a
/// tenth of its cost.
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

/// Of a peer's certificates, as many are tried between its own and a root. They may be in any order: where all have one name, each
/// order is tried, ten of them for seconds.
pub const MAX_INTERMEDIATES: usize = 3;

/// Bytes of all certificates of a peer: about forty small ones, each of which takes 0.2 ms to parse.
pub const MAX_CHAIN: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aes_128_comes_before_aes_256_and_nothing_is_lost() {
        let names: Vec<_> = provider().cipher_suites.iter().map(|suite| suite.suite()).collect();
        assert_eq!(names.len(), ring::default_provider().cipher_suites.len());
        let at = |wanted| names.iter().position(|name| *name == wanted).expect("it is offered");
        assert_eq!(at(CipherSuite::TLS13_AES_128_GCM_SHA256), 0);
        assert!(at(CipherSuite::TLS13_AES_256_GCM_SHA384) < at(CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256));
    }
}
