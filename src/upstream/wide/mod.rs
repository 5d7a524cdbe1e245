//! The second, wider TLS, OpenSSL's, for origins that cannot be spoken to with rustls: suites with CBC, key exchange by RSA or DHE,
//! more groups, more kinds of certificates. The roots, the name that is verified and TLS 1.2 as the oldest version are the same;
//! `tls: legacy` of a host lets older versions in.

mod bounds;
mod memory;
mod words;

pub(super) use bounds::said_goodbye;
pub(super) use memory::TlsMemory;

use super::dial_error::{DialError, DialFault};
use super::identity::{PinMismatch, ShownIdentity, key_digest};
use super::stream::Stream;
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
use tokio::task::spawn_blocking;
use tokio_openssl::SslStream;

/// The terms on which it is spoken. What is needed for it is made when it is needed.
pub(super) struct WideTls {
    /// PEM.
    pub roots: Arc<str>,
    /// `false`: the roots and the name do not matter.
    pub verify: bool,
    /// SHA-256 of the keys of which the certificate must hold one. Empty: any.
    pub pins: Vec<[u8; 32]>,
    pub identity: Option<Arc<ShownIdentity>>,
    /// Older versions than TLS 1.2 as well.
    pub legacy: bool,
    pub context: OnceCell<SslContext>,
}

impl WideTls {
    /// TLS with the host, whose name is what is sent and verified, byte for byte. `http2`: it may choose HTTP/2.
    pub async fn connect(self: &Arc<Self>, stream: Stream, host: &Host, http2: bool) -> Result<Stream, DialError> {
        let failed =
            |error: &dyn fmt::Display| DialError::new(DialFault::Tls, format!("TLS cannot be set up: {error}"));
        // The roots take OpenSSL tens of milliseconds to read.
        let make = async || {
            let terms = self.clone();
            let made = spawn_blocking(move || terms.make_context()).await.map_err(|error| failed(&error))?;
            made.map_err(|error| failed(&error))
        };
        let context = self.context.get_or_try_init(make).await?;
        let ssl = Self::ssl(context, host, http2).map_err(|error| failed(&error))?;
        let mut tls = Box::new(SslStream::new(ssl, stream).map_err(|error| failed(&error))?);
        match Pin::new(&mut *tls).connect().await {
            Ok(()) => self.check_pins(tls.ssl())?,
            Err(error) => return Err(words::of(&error, tls.ssl(), host, self.verify, self.legacy)),
        }
        Ok(Stream::Wide(tls))
    }

    fn ssl(context: &SslContext, host: &Host, http2: bool) -> Result<Ssl, ErrorStack> {
        let mut ssl = Ssl::new(context)?;
        ssl.set_alpn_protos(if http2 { b"\x02h2\x08http/1.1" } else { b"\x08http/1.1" })?;
        match host {
            // RFC 6066 §3: an address is not sent.
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
        // Like rustls: a server that does not know RFC 5746 is spoken to, and nothing is ever renegotiated.
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
        // Each of them is trusted by itself, as it is by rustls.
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

/// At level 2, nothing counts that is weaker than 112 bits: no keys of RSA or DH under 2048, no signature with SHA-1.
const CIPHERS: &str = "ALL:!aNULL:!aDSS:!eNULL:!PSK:!SRP:!3DES:!RC4:!MD5:@SECLEVEL=2";
const LEGACY_CIPHERS: &str = "ALL:!aNULL:!aDSS:!eNULL:!PSK:!SRP:@SECLEVEL=0";
/// The larger groups of ffdhe take too long: see [`bounds`].
const GROUPS: &str = "X25519:P-256:X448:P-384:P-521:ffdhe2048";

#[cfg(test)]
mod tests;
