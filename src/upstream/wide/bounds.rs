//! Limits on what is read of an origin and accepted, where OpenSSL has none or others.

use crate::tls_provider::MAX_CHAIN;
use foreign_types::ForeignTypeRef;
use openssl::nid::Nid;
use openssl::ssl::{SslContextBuilder, SslRef};
use openssl::x509::{X509Ref, X509StoreContextRef, X509VerifyResult};
use std::ffi::{c_int, c_long, c_void};
use std::ptr::null_mut;

/// Refuses longer certificate chains before they are read.
pub(super) fn set(context: &mut SslContextBuilder) {
    // SAFETY: the context is alive, and only a number is set.
    unsafe { SSL_CTX_ctrl(context.as_ptr().cast(), SET_MAX_CERT_LIST, MAX_CHAIN as c_long, null_mut()) };
}

/// Whether the origin has sent close_notify. Without it, its data may have been truncated.
pub fn received_close_notify(ssl: &SslRef) -> bool {
    // SAFETY: only reads a number.
    unsafe { SSL_get_shutdown(ssl.as_ptr().cast()) & RECEIVED_SHUTDOWN != 0 }
}

/// The limits of `tls: legacy`, where OpenSSL has none: RSA keys of at least 1024 bits and equally strong curves, no signature with MD5
/// or older. The self-signature of a root does not count.
pub(super) fn verify_legacy(is_good: bool, context: &mut X509StoreContextRef) -> bool {
    let depth = context.error_depth();
    let is_root = context.chain().is_some_and(|chain| chain.len() == depth as usize + 1);
    let fault = match context.current_cert() {
        Some(shown) if is_good => legacy_fault(shown, depth, is_root),
        _ => None,
    };
    if let Some(fault) = fault {
        context.set_error(fault);
    }
    is_good && fault.is_none()
}

pub(super) fn legacy_fault(shown: &X509Ref, depth: u32, is_root: bool) -> Option<X509VerifyResult> {
    let key = shown.public_key().map_or(0, |key| key.security_bits());
    let digest = shown.signature_algorithm().object().nid().signature_algorithms().map(|used| used.digest);
    let fault = match depth {
        _ if !is_root && digest.is_some_and(|digest| BROKEN_DIGESTS.contains(&digest)) => CA_MD_TOO_WEAK,
        0 if key < LEGACY_KEY_BITS => EE_KEY_TOO_SMALL,
        _ if key < LEGACY_KEY_BITS => CA_KEY_TOO_SMALL,
        _ => return None,
    };
    // SAFETY: `fault` is one of OpenSSL's constants.
    Some(unsafe { X509VerifyResult::from_raw(fault) })
}

unsafe extern "C" {
    fn SSL_CTX_ctrl(context: *mut c_void, command: c_int, number: c_long, pointer: *mut c_void) -> c_long;
    fn SSL_get_shutdown(ssl: *const c_void) -> c_int;
}

// Constants of OpenSSL's headers.
const RECEIVED_SHUTDOWN: c_int = 2;
const SET_MAX_CERT_LIST: c_int = 51;
const EE_KEY_TOO_SMALL: c_int = 66;
const CA_KEY_TOO_SMALL: c_int = 67;
const CA_MD_TOO_WEAK: c_int = 68;

/// As strong as 1024 bits of RSA.
const LEGACY_KEY_BITS: u32 = 80;
const BROKEN_DIGESTS: [Nid; 2] = [Nid::MD5, Nid::MD4];
