//! The wider TLS, by OpenSSL, for origins that rustls cannot connect to: CBC suites, key exchange by RSA or DHE, more groups, more
//! kinds of certificates. The roots, the verified name and the minimum of TLS 1.2 are the same; `tls: legacy` of a host allows older
//! versions.

mod bounds;
mod memory;
mod threads;
mod words;

pub(super) use bounds::received_close_notify;
pub(super) use memory::TlsMemory;
pub(super) use threads::ThreadWait;

use super::dial_error::{DialError, DialFault};
use super::identity::{PinMismatch, ShownIdentity, key_digest};
use super::stream::Stream;
use crate::fair_places::Taker;
use crate::policy::Host;
use openssl::error::ErrorStack;
use openssl::pkey::PKey;
use openssl::ssl::{
    Ssl, SslContext, SslMethod, SslMode, SslOptions, SslRef, SslSessionCacheMode, SslVerifyMode, SslVersion,
};
use openssl::x509::X509;
use openssl::x509::store::X509StoreBuilder;
use openssl::x509::verify::{X509CheckFlags, X509VerifyFlags};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::OnceCell;
use tokio_openssl::SslStream;

/// TLS terms for OpenSSL. The context is created on first use.
pub(super) struct WideTls {
    /// Roots as PEM.
    pub roots: Arc<str>,
    /// `false`: roots and name are not verified.
    pub verify: bool,
    /// SHA-256 of pinned keys, one of which the server's own certificate must have. Empty: any key.
    pub pins: Vec<[u8; 32]>,
    pub identity: Option<Arc<ShownIdentity>>,
    /// Allows versions before TLS 1.2.
    pub legacy: bool,
    pub context: OnceCell<SslContext>,
}

impl WideTls {
    /// Starts TLS with the host, whose exact name is sent and verified. `http2`: offers HTTP/2.
    pub async fn connect(
        self: &Arc<Self>,
        stream: Stream,
        host: &Host,
        http2: bool,
        taker: Taker,
        wait: &ThreadWait,
    ) -> Result<Stream, DialError> {
        let (terms, host) = (self.clone(), host.clone());
        threads::apart(wait, taker, async move { terms.shake_hands(stream, &host, http2).await }).await
    }

    async fn shake_hands(&self, stream: Stream, host: &Host, http2: bool) -> Result<Stream, DialError> {
        let failed = |error: ErrorStack| DialError::new(DialFault::Tls, format!("TLS cannot be set up: {error}"));
        let context = self.context.get_or_try_init(async || self.make_context()).await.map_err(failed)?;
        let ssl = Self::ssl(context, host, http2).map_err(failed)?;
        let mut tls = Box::new(SslStream::new(ssl, stream).map_err(failed)?);
        match Pin::new(&mut *tls).connect().await {
            Ok(()) => self.check_pins(tls.ssl())?,
            Err(error) => {
                let (verify, legacy, has_certificate) = (self.verify, self.legacy, self.identity.is_some());
                let terms = words::SentenceTerms { verify, legacy, has_certificate };
                return Err(words::of(&error, tls.ssl(), host, &terms));
            }
        }
        Ok(Stream::Wide(tls))
    }

    fn ssl(context: &SslContext, host: &Host, http2: bool) -> Result<Ssl, ErrorStack> {
        let mut ssl = Ssl::new(context)?;
        ssl.set_alpn_protos(if http2 { b"\x02h2\x08http/1.1" } else { b"\x08http/1.1" })?;
        match host {
            // RFC 6066 §3: addresses are not sent as SNI.
            Host::Ip(address) => ssl.param_mut().set_ip(*address)?,
            Host::Name(name) => {
                let name = name.to_string();
                ssl.set_hostname(&name)?;
                ssl.param_mut().set_hostflags(X509CheckFlags::NO_PARTIAL_WILDCARDS);
                ssl.param_mut().set_host(&name)?;
            }
        }
        Ok(ssl)
    }

    fn make_context(&self) -> Result<SslContext, ErrorStack> {
        let mut context = SslContext::builder(SslMethod::tls_client())?;
        context.set_min_proto_version(Some(if self.legacy { SslVersion::TLS1 } else { SslVersion::TLS1_2 }))?;
        context.set_cipher_list(if self.legacy { LEGACY_CIPHERS } else { CIPHERS })?;
        context.set_groups_list(GROUPS)?;
        context.set_mode(
            SslMode::AUTO_RETRY
                | SslMode::ACCEPT_MOVING_WRITE_BUFFER
                | SslMode::ENABLE_PARTIAL_WRITE
                | SslMode::RELEASE_BUFFERS,
        );
        // Like rustls: servers without RFC 5746 are accepted, and renegotiation is never allowed.
        context.set_options(
            SslOptions::NO_COMPRESSION | SslOptions::NO_RENEGOTIATION | SslOptions::ALLOW_UNSAFE_LEGACY_RENEGOTIATION,
        );
        context.set_session_cache_mode(SslSessionCacheMode::OFF);
        bounds::set(&mut context);
        match (self.verify, self.legacy) {
            (true, true) => context.set_verify_callback(SslVerifyMode::PEER, bounds::verify_legacy),
            (true, false) => context.set_verify(SslVerifyMode::PEER),
            (false, _) => context.set_verify(SslVerifyMode::NONE),
        }
        let mut store = X509StoreBuilder::new()?;
        for root in X509::stack_from_pem(self.roots.as_bytes())? {
            store.add_cert(root)?;
        }
        // Each root is trusted on its own, as in rustls.
        store.set_flags(X509VerifyFlags::PARTIAL_CHAIN)?;
        context.set_cert_store(store.build());
        if let Some(identity) = &self.identity {
            for (number, certificate) in identity.chain.iter().enumerate() {
                let certificate = X509::from_der(certificate)?;
                match number {
                    0 => context.set_certificate(&certificate)?,
                    _ => context.add_extra_chain_cert(certificate)?,
                }
            }
            let key = PKey::private_key_from_der(identity.key.secret_der())?;
            context.set_private_key(&key)?;
        }
        Ok(context.build())
    }

    fn check_pins(&self, ssl: &SslRef) -> Result<(), DialError> {
        if self.pins.is_empty() {
            return Ok(());
        }
        let shown = ssl.peer_certificate().and_then(|certificate| certificate.to_der().ok());
        match shown.and_then(|shown| key_digest(&shown.into()).ok()) {
            Some(digest) if self.pins.contains(&digest) => Ok(()),
            Some(_) | None => {
                Err(DialError::new(DialFault::Certificate, format!("TLS handshake failed: {PinMismatch}")))
            }
        }
    }
}

impl fmt::Debug for WideTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WideTls").field("verify", &self.verify).field("legacy", &self.legacy).finish_non_exhaustive()
    }
}

/// Security level 2 allows nothing weaker than 112 bits: no RSA or DH keys under 2048 bits, no SHA-1 signatures.
const CIPHERS: &str = "ALL:!aNULL:!aDSS:!eNULL:!PSK:!SRP:!3DES:!RC4:!MD5:@SECLEVEL=2";
const LEGACY_CIPHERS: &str = "ALL:!aNULL:!aDSS:!eNULL:!PSK:!SRP:@SECLEVEL=0";
/// The groups offered. Leaves out the groups that our limit on Diffie-Hellman groups refuses in TLS 1.2.
const GROUPS: &str = "X25519:P-256:X448:P-384:P-521:ffdhe2048:ffdhe3072:ffdhe4096";

#[cfg(test)]
mod tests;
