//! Limits on what OpenSSL reads, accepts and computes, where its own limits are missing or too wide. For RSA, OpenSSL's own
//! limit suffices: the longest key, of 16,384 bits, takes at most 4 ms.

use crate::tls_provider::MAX_CHAIN;
use foreign_types::ForeignTypeRef;
use openssl::nid::Nid;
use openssl::pkey::{PKeyRef, Public};
use openssl::ssl::{SslContextBuilder, SslRef};
use openssl::x509::{X509Ref, X509StoreContextRef, X509VerifyResult};
use std::ffi::{c_char, c_int, c_long, c_void};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

/// Refuses longer certificate chains before they are read, and longer Diffie-Hellman groups before anything is computed in them.
pub(super) fn set(context: &mut SslContextBuilder) {
    let context = context.as_ptr().cast();
    // SAFETY: the context is alive, only a number and a function are set, and the function that was set before is OpenSSL's own.
    unsafe {
        SSL_CTX_ctrl(context, SET_MAX_CERT_LIST, MAX_CHAIN as c_long, null_mut());
        if let Some(usual) = SSL_CTX_get_security_callback(context) {
            USUAL_SECURITY.get_or_init(|| usual);
            SSL_CTX_set_security_callback(context, Some(check_security));
        }
    }
}

/// OpenSSL's security callback: whether OpenSSL may use a key or algorithm, by its security level and by our limit.
unsafe extern "C" fn check_security(
    ssl: *const c_void,
    context: *const c_void,
    what: c_int,
    bits: c_int,
    nid: c_int,
    with: *mut c_void,
    extra: *mut c_void,
) -> c_int {
    // SAFETY: the library gives the server's key, which is alive during the call.
    if what == TEMPORARY_DH
        && !with.is_null()
        && unsafe { PKeyRef::<Public>::from_ptr(with.cast()) }.bits() > LONGEST_DH
    {
        // SAFETY: only adds an error to this thread's error queue.
        unsafe {
            ERR_new();
            ERR_set_error(ERRORS_OF_DH, MODULUS_TOO_LARGE, null());
        }
        return 0;
    }
    // SAFETY: calls the library's own function with the arguments that the library gave.
    USUAL_SECURITY.get().map_or(0, |usual| unsafe { usual(ssl, context, what, bits, nid, with, extra) })
}

/// Whether the origin has sent close_notify. If not, the data may have been truncated.
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

type SecurityCallback =
    unsafe extern "C" fn(*const c_void, *const c_void, c_int, c_int, c_int, *mut c_void, *mut c_void) -> c_int;

/// OpenSSL's own security callback, which is the same in each context.
static USUAL_SECURITY: OnceLock<SecurityCallback> = OnceLock::new();

unsafe extern "C" {
    fn ERR_new();
    fn ERR_set_error(library: c_int, reason: c_int, format: *const c_char, ...);
    fn SSL_CTX_get_security_callback(context: *const c_void) -> Option<SecurityCallback>;
    fn SSL_CTX_set_security_callback(context: *mut c_void, callback: Option<SecurityCallback>);
    fn SSL_CTX_ctrl(context: *mut c_void, command: c_int, number: c_long, pointer: *mut c_void) -> c_long;
    fn SSL_get_shutdown(ssl: *const c_void) -> c_int;
}

// Constants of OpenSSL's headers.
const RECEIVED_SHUTDOWN: c_int = 2;
const SET_MAX_CERT_LIST: c_int = 51;
const EE_KEY_TOO_SMALL: c_int = 66;
const CA_KEY_TOO_SMALL: c_int = 67;
const CA_MD_TOO_WEAK: c_int = 68;
const TEMPORARY_DH: c_int = 7 | 4 << 16;
const ERRORS_OF_DH: c_int = 5;
const MODULUS_TOO_LARGE: c_int = 103;

/// Longest Diffie-Hellman group in bits: with it, each side computes for 30 ms. OpenSSL's own limit of 10,000 bits takes nearly a second.
const LONGEST_DH: u32 = 4096;

/// Minimum strength in bits: that of a 1024-bit RSA key.
const LEGACY_KEY_BITS: u32 = 80;
const BROKEN_DIGESTS: [Nid; 2] = [Nid::MD5, Nid::MD4];
